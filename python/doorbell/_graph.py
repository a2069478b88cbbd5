"""CUDA graphs, launched without CUDA."""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import byref, c_size_t, c_uint32, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any

from ._errors import OutOfRange
from ._handle import Handle
from ._header import OWN_LAUNCH_LANE
from ._library import check, failed, library
from ._memory import host_memory_of
from ._numbers import U32, whole
from ._ticket import NOW, Ticket, order_of

if TYPE_CHECKING:
    from ._session import Session


def exec_of(thing: Any) -> int:
    """The number of a cudaGraphExec_t. Takes a torch.cuda.CUDAGraph, or the number itself."""
    raw = getattr(thing, "raw_cuda_graph_exec", None)
    if raw is not None:
        return whole(raw(), "the number of a CUDA graph")
    try:
        return whole(thing, "the number of a CUDA graph")
    except TypeError:
        raise TypeError("a CUDA graph is a torch.cuda.CUDAGraph that has raw_cuda_graph_exec() (newer PyTorch), or the number of a "
                        "cudaGraphExec_t") from None


def raw_of(thing: Any) -> int:
    """The number of a cudaGraph_t. Takes a torch.cuda.CUDAGraph(keep_graph=True), or the number itself."""
    raw = getattr(thing, "raw_cuda_graph", None)
    if raw is not None:
        return whole(raw(), "the number of a CUDA graph")
    try:
        return whole(thing, "the number of a CUDA graph")
    except TypeError:
        raise TypeError("a CUDA graph is a torch.cuda.CUDAGraph(keep_graph=True) that has raw_cuda_graph() (newer PyTorch), or the number of a "
                        "cudaGraph_t") from None


class Graph(Handle):
    """A prepared CUDA graph. It holds the object that it was made from, and so the memory pool that PyTorch keeps for that."""

    __slots__ = ("_keep", "_argument", "_last", "_pointers")
    _free = "doorbell_graph_free"

    def __init__(self, session: Session, handle: int, keep: Any):
        self._keep, self._argument = keep, c_uint64(handle)
        self._begin(session, handle)
        self._last: Any = None
        self._pointers: dict[tuple[int, int], Any] = {}

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
        self._last = Ticket.of(session, ticket.value)
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
        kernel, offset = whole(kernel, "a kernel's number", U32), whole(offset, "an offset", U32, OutOfRange)
        code = self._session.submits.doorbell_graph_set_param(self._session.at, self._argument, c_uint32(kernel), c_uint32(offset),
                                                              c_void_p(memory.pointer), c_size_t(memory.bytes))
        if code:
            raise failed(code)

    def set_pointer(self, kernel: int, offset: int, thing: Any, *, thing_offset: int = 0) -> None:
        """Sets a pointer in a kernel's parameters, as set_param() does for bytes: it points into a tensor or buffer from the next launch
        on. The graph holds the tensor or buffer until the pointer is set again or the graph is closed."""
        kernel, offset = whole(kernel, "a kernel's number", U32), whole(offset, "an offset", U32, OutOfRange)
        thing_offset = whole(thing_offset, "thing_offset", error=OutOfRange)
        buffer = self._session.pin(thing)
        check(library.doorbell_graph_set_pointer(self._session.at, self.handle, kernel, offset, buffer.handle, thing_offset))
        self._pointers[kernel, offset] = buffer

    def copy(self, launch_lane: int | None = None) -> Graph:
        """Makes another copy of the graph on a launch lane (a number from 0, or None for this thread's), with the current parameters.
        CUDA launches no graph for this. Launches on different lanes may run at the same time, so the memory that the kernels write must
        allow this."""
        made = c_uint64()
        lane = OWN_LAUNCH_LANE if launch_lane is None else whole(launch_lane, "launch_lane", OWN_LAUNCH_LANE - 1)
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


def three(given: int | Iterable[int], what: str) -> Any:
    """A grid or a block."""
    numbers = [whole(one, f"a number of the {what}", U32) for one in (given if isinstance(given, Iterable) else (given,))]
    if not 1 <= len(numbers) <= 3:
        raise ValueError(f"a {what} has one to three numbers")
    return (c_uint32 * 3)(*numbers, *(1,) * (3 - len(numbers)))
