"""CUDA graphs, launched without CUDA."""

from __future__ import annotations

from ctypes import byref, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from ._handle import Handle
from ._header import OWN_LAUNCH_LANE
from ._library import check, failed, library
from ._memory import host_memory_of
from ._ticket import NOW, Ticket, order_of


def exec_of(thing):
    """The number of a cudaGraphExec_t. Takes a torch.cuda.CUDAGraph, or the number itself."""
    raw = getattr(thing, "raw_cuda_graph_exec", None)
    if raw is not None:
        return int(raw())
    try:
        return int(thing)
    except TypeError:
        raise TypeError("a CUDA graph is a torch.cuda.CUDAGraph that has raw_cuda_graph_exec() (newer PyTorch), or the number of a "
                        "cudaGraphExec_t") from None


def raw_of(thing):
    """The number of a cudaGraph_t. Takes a torch.cuda.CUDAGraph(keep_graph=True), or the number itself."""
    raw = getattr(thing, "raw_cuda_graph", None)
    if raw is not None:
        return int(raw())
    try:
        return int(thing)
    except TypeError:
        raise TypeError("a CUDA graph is a torch.cuda.CUDAGraph(keep_graph=True) that has raw_cuda_graph() (newer PyTorch), or the number of a "
                        "cudaGraph_t") from None


class Graph(Handle):
    """A prepared CUDA graph. It holds the object that it was made from, and so the memory pool that PyTorch keeps for that."""

    __slots__ = ("_keep", "_argument", "_last", "_pointers")
    _free = "doorbell_graph_free"

    def __init__(self, session, handle, keep):
        self._session, self.handle, self._keep, self._argument = session, handle, keep, c_uint64(handle)
        self._last: Any = None
        self._pointers: dict = {}

    def replay(self, *, after: Any = NOW) -> Ticket:
        """Launches the graph and returns the launch's Ticket.

        It keeps the GIL, unless `after` names a stream or an event: these are CUDA calls, with CUDA's locks. The GPU first waits for
        `after`: a Ticket, a CUDA stream (all work that it has queued now; None is the default stream), a CUDA event, or a list of these.
        Ticket.hold() makes a stream wait for the launch."""
        session = self._session
        order, calls_cuda = order_of(after)
        ticket = Ticket.of(session)
        code = (library if calls_cuda else session.submits).doorbell_graph_launch(session.at, self._argument, order, byref(ticket))
        if code:
            raise failed(code)
        ticket._keep = self
        # Another one, which does not hold this.
        last = Ticket(ticket.value)
        last._session = session
        self._last = last
        return ticket

    def wait(self, timeout: float | None = None) -> None:
        """Waits for the last launch by replay(). timeout: seconds, or None for no limit."""
        last = self._last
        if last is not None:
            last.wait(timeout)

    def set_param(self, kernel: int, offset: int, data: Any) -> None:
        """Changes bytes of a kernel's parameters from the next launch on. Kernels are counted from 0 in the order in which a launch
        starts them. The offset counts bytes from the first parameter, laid out as a C compiler lays out a struct of them."""
        memory = host_memory_of(data)
        code = self._session.submits.doorbell_graph_set_param(self._session.at, self._argument, c_uint32(kernel), c_uint32(offset),
                                                              c_void_p(memory.pointer), c_size_t(memory.bytes))
        if code:
            raise failed(code)

    def set_pointer(self, kernel: int, offset: int, thing: Any, *, thing_offset: int = 0) -> None:
        """Sets a pointer in a kernel's parameters, as set_param() does for bytes: it points into a tensor or buffer from the next launch
        on. The graph holds the tensor or buffer until the pointer is set again or the graph is closed."""
        buffer = self._session.pin(thing)
        check(library.doorbell_graph_set_pointer(self._session.at, self.handle, kernel, offset, buffer.handle, thing_offset))
        self._pointers[kernel, offset] = buffer

    def copy(self, launch_lane=None) -> Graph:
        """Makes another copy of the graph on a launch lane (a number from 0, or None for this thread's), with the current parameters.
        CUDA launches no graph for this. Launches on different lanes may run at the same time, so the memory that the kernels write must
        allow this."""
        made = c_uint64()
        lane = OWN_LAUNCH_LANE if launch_lane is None else launch_lane
        check(library.doorbell_graph_create_copy(self._session.at, self._argument, lane, byref(made)))
        copy = Graph(self._session, made.value, self._keep)
        copy._pointers.update(self._pointers)
        return copy

    @property
    def kernels(self) -> list[int]:
        """The number of parameter bytes of each kernel."""
        count = c_size_t()
        check(library.doorbell_graph_kernels(self._session.at, self._argument, None, 0, byref(count)))
        sizes = (c_uint32 * max(1, count.value))()
        check(library.doorbell_graph_kernels(self._session.at, self._argument, sizes, count.value, byref(count)))
        return list(sizes[:count.value])


def three(numbers):
    """A grid or a block."""
    numbers = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    if not 1 <= len(numbers) <= 3:
        raise ValueError("a grid or a block has one to three numbers")
    return (c_uint32 * 3)(*numbers, *(1,) * (3 - len(numbers)))
