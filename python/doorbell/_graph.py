"""CUDA graphs, launched past CUDA."""

from ctypes import addressof, byref, c_size_t, c_uint32, c_uint64, c_void_p

from . import _session
from ._header import CHAIN_BESIDE, CHAIN_HOST_COUNTER, STEP_LAUNCH, Step
from ._library import CHAIN_ORDER, STEP_BY, check, failed, library
from ._memory import memory_of
from ._session import _NOW, Ticket, _ends, _Handle, _length, _stream, pin


def _exec(thing):
    """The number of a cudaGraphExec_t: that of a torch.cuda.CUDAGraph, or the number itself."""
    raw = getattr(thing, "raw_cuda_graph_exec", None)
    if raw is not None:
        return int(raw())
    try:
        return int(thing)
    except TypeError:
        raise TypeError("a CUDA graph is a torch.cuda.CUDAGraph that has raw_cuda_graph_exec() (newer PyTorch), or the number of a "
                        "cudaGraphExec_t") from None


def _raw(thing):
    """The number of a cudaGraph_t: that of a torch.cuda.CUDAGraph(keep_graph=True), or the number itself."""
    raw = getattr(thing, "raw_cuda_graph", None)
    if raw is not None:
        return int(raw())
    try:
        return int(thing)
    except TypeError:
        raise TypeError("a CUDA graph is a torch.cuda.CUDAGraph(keep_graph=True) that has raw_cuda_graph() (newer PyTorch), or the number of a "
                        "cudaGraph_t") from None


class Graph(_Handle):
    """A CUDA graph that is ready to be launched. It holds the object that it was made of, and with it PyTorch's memory pool of it."""

    __slots__ = ("_keep", "_argument", "_last", "_pointers")
    _close = "doorbell_graph_free"

    def __init__(self, handle, keep):
        self.handle, self._keep, self._argument = handle, keep, c_uint64(handle)
        self._last, self._pointers = None, {}

    def replay(self, *, after=_NOW):
        """Launches it; the launch's Ticket. It keeps the GIL. after: a Ticket, for which the GPU waits; or a CUDA stream, for whose work
        of until now it waits (None: the default stream): that is a call of CUDA's, with its locks. Ticket.hold() lets a stream wait for it."""
        ticket = Ticket()
        if after is _NOW:
            code = _session._submits.doorbell_launch(self._argument, byref(ticket))
        elif isinstance(after, Ticket):
            code = _session._submits.doorbell_launch_after(self._argument, after, byref(ticket))
        else:
            code = library.doorbell_launch_after_stream(self.handle, _stream(after), byref(ticket))
        if code:
            raise failed(code)
        ticket._keep = self
        # Another one, which does not hold this.
        self._last = Ticket(ticket.value)
        return ticket

    def wait(self, timeout=None):
        """Waits for the launch that replay() made last; seconds, or for ever."""
        last = self._last
        if last is not None:
            last.wait(timeout)

    def set_param(self, kernel, offset, data):
        """Changes bytes of a kernel's parameters from the next launch on. Kernels are counted from 0 in the order in which a launch
        starts them; the offset counts from the first parameter, laid out as a C compiler lays out a struct of them."""
        memory = memory_of(data)
        code = _session._submits.doorbell_graph_set_param(self._argument, c_uint32(kernel), c_uint32(offset),
                                                          c_void_p(memory.pointer), c_size_t(memory.bytes))
        if code:
            raise failed(code)

    def set_pointer(self, kernel, offset, thing, *, thing_offset=0):
        """As set_param(), of a pointer: it points into a tensor or buffer from the next launch on. The graph holds that until the pointer
        is set anew or the graph is closed."""
        buffer = pin(thing)
        check(library.doorbell_graph_set_pointer(self.handle, kernel, offset, buffer.handle, thing_offset))
        self._pointers[kernel, offset] = buffer

    @property
    def kernels(self):
        """Bytes of parameters of each kernel."""
        count = c_size_t()
        check(library.doorbell_graph_kernels(self._argument, None, 0, byref(count)))
        sizes = (c_uint32 * max(1, count.value))()
        check(library.doorbell_graph_kernels(self._argument, sizes, count.value, byref(count)))
        return list(sizes[:count.value])


def graph(cuda_graph, stream=None):
    """Makes an instantiated CUDA graph ready to be launched past CUDA: a torch.cuda.CUDAGraph, or the number of a cudaGraphExec_t.

    CUDA launches it in `stream` a few times (it does its work then), and its words are read. So it must not have been launched before
    (replay()), and no other thread may use the GPU by CUDA meanwhile. What PyTorch does around a replay of its own, such as seeds of
    random numbers, is not done. Until the graph is closed, its modules and all memory that it uses must stay."""
    handle = c_uint64()
    check(library.doorbell_graph_prepare(_exec(cuda_graph), _stream(stream), byref(handle)))
    return Graph(handle.value, cuda_graph)


def instantiate(cuda_graph, stream=None):
    """Makes a CUDA graph ready to be launched past CUDA: a torch.cuda.CUDAGraph(keep_graph=True), or the number of a cudaGraph_t. doorbell
    instantiates it, so it may have been launched before.

    Unlike for graph(), copies in it may name pageable memory: replay() reads it, and it is written when wait() finds the launch over. So one
    launch of such a graph is under way at a time (Full). For the rest as graph()."""
    handle = c_uint64()
    check(library.doorbell_graph_instantiate(_raw(cuda_graph), _stream(stream), byref(handle)))
    return Graph(handle.value, cuda_graph)


def _three(numbers):
    """A grid or a block."""
    numbers = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    if not 1 <= len(numbers) <= 3:
        raise ValueError("a grid or a block has one to three numbers")
    return (c_uint32 * 3)(*numbers, *(1,) * (3 - len(numbers)))


def kernel(function, grid, block, arguments, stream, *, shared_bytes=0):
    """Makes a kernel ready to be launched past CUDA: a Graph of it alone. function: the number of a CUfunction. arguments: a ctypes
    value for each. stream: not the default one. CUDA launches the kernel there a few times; for the rest as graph()."""
    handle = c_uint64()
    pointers = (c_void_p * max(1, len(arguments)))(*(addressof(argument) for argument in arguments))
    check(library.doorbell_kernel_prepare(int(function), _three(grid), _three(block), shared_bytes, pointers, _stream(stream),
                                          byref(handle)))
    return Graph(handle.value, None)


def chain(steps, *, order=None, host_counter=False, beside=False):
    """Makes copies and launches of graphs one chain: a Graph that replay() launches with one doorbell. The GPU orders the steps, each
    behind those before it, and the ticket is done when the last one is.

    A step is a Graph (its copy in the chain has the parameters that it has now), or a copy: (dst, src), all of it, or
    (dst, dst_offset, src, src_offset, nbytes), and behind these maybe "inline", "engine" or "stores": in the command stream, by the copy
    engine, or stored into the GPU's memory by replay() itself. Without it, up to 16 KiB from host memory to the GPU's go inline: replay()
    reads them. Leave the bytes of others until the ticket is done.
    "stores" is for the first steps, 64 KiB at most each. While the chain's last launch is not over, replay() raises Full, and nothing is
    stored or launched. Whatever else reads or writes these bytes must be over, too: nobody looks after that.
    beside: the copies have a copy engine's channel of their own; two doorbells, and no wait until CUDA's kernels are over.
    order: "counter": launches behind copies wait for a counter, always; "engines": never (the engines keep the order, as GA100's manual
    says); None: not behind what goes inline. host_counter: it lies in host memory. The chain holds the buffers, and what its graphs hold."""
    steps, keep = list(steps), []
    if order not in CHAIN_ORDER:
        raise ValueError(f"order is 'counter', 'engines' or None, not {order!r}")
    array = (Step * max(1, len(steps)))()
    for to_step, step in zip(array, steps):
        if isinstance(step, Graph):
            to_step.kind, to_step.graph = STEP_LAUNCH, step.handle
            keep += (step._keep, dict(step._pointers))
            continue
        by = step[-1] if len(step) in (3, 6) else None
        if len(step) not in (2, 3, 5, 6) or by not in STEP_BY:
            raise ValueError("a step is a Graph, (dst, src), or (dst, dst_offset, src, src_offset, nbytes), and maybe 'inline', 'engine' or "
                             "'stores' behind these")
        dst, dst_offset, src, src_offset, nbytes = (step[0], 0, step[1], 0, None) if len(step) < 4 else step[:5]
        to, from_ = _ends(dst, src)
        to_step.bytes = _length(to, dst_offset, from_, src_offset, nbytes)
        to_step.flags, to_step.to, to_step.to_offset = STEP_BY[by], to.handle, dst_offset
        to_step.from_, to_step.from_offset = from_.handle, src_offset
        keep += (to, from_)
    flags = CHAIN_ORDER[order] | (CHAIN_HOST_COUNTER if host_counter else 0) | (CHAIN_BESIDE if beside else 0)
    handle = c_uint64()
    check(library.doorbell_chain_prepare(array, len(steps), flags, byref(handle)))
    return Graph(handle.value, keep)
