"""A session: a GPU, doorbell's channels on it, and the objects that copy and launch there."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
import warnings
import weakref
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from ctypes import addressof, byref, c_uint32, c_uint64, c_void_p, create_string_buffer, sizeof
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, cast

from ._errors import Busy, Closed, DoorbellError, Full, Timeout
from ._graph import Graph, exec_of, raw_of, three
from ._handle import Buffer, Handle, not_copied
from ._header import (ANY, BESIDE_CUDA, CHAIN_BESIDE, CHAIN_HOST_COUNTER, CHECK, CLOSED, FOREVER, HOST, OWN_PROFILE, SOFTWARE, SPARE_KERNELS, STEP_LAUNCH, TIMEOUT, VIDEO, Log, Options,
                      ORDER_STREAM_WAITS, PAGES_DISTINCT, Pages, Part, Piece, Step)
from ._library import CHAIN_ORDER, STEP_BY, WAYS, check, failed, held, library
from ._loop import Loop
from ._memory import memory_of
from ._numbers import U32, nanoseconds, offset, whole
from ._pages import CURRENT, both, page_bytes, stream_for
from ._queue import Awaited, Queue
from ._signatures import show
from ._ticket import NOW, Pinned, Ticket, order_of, stream_of
from ._transfers import Message, Ring, Transfer

# What ctypes has addresses of: c_uint32(7), a struct, an array.
_VALUES = (ctypes._SimpleCData, ctypes.Structure, ctypes.Union, ctypes.Array, ctypes._Pointer)
_KINDS = {None: ANY, "cuda": BESIDE_CUDA, "soft": SOFTWARE}


if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")

H = TypeVar("H", bound=Handle)


def part(to: Buffer, to_offset: Any, from_: Buffer, from_offset: Any, nbytes: Any) -> tuple[int, int, int]:
    """Both offsets and the length, checked. The library compares them with the buffers."""
    if type(to_offset) is type(from_offset) is type(nbytes) is int and not (to_offset | from_offset | nbytes) >> 64:
        return to_offset, from_offset, nbytes
    to_offset, from_offset = offset(to_offset), offset(from_offset)
    if nbytes is not None:
        return to_offset, from_offset, offset(nbytes, "a length")
    if to.nbytes - to_offset != from_.nbytes - from_offset:
        raise ValueError(f"{from_.nbytes - from_offset} bytes do not fit {to.nbytes - to_offset}: say how many (nbytes)")
    return to_offset, from_offset, offset(to.nbytes - to_offset, "a length")


def _loop(make: Callable[Concatenate[Loop, Session, P], None]) -> Callable[Concatenate[Session, P], Loop]:
    def loop(self: Session, /, *arguments: P.args, **options: P.kwargs) -> Loop:
        """Starts a doorbell thread that launches a chain for each frame: see Loop."""
        made = Loop.__new__(Loop)
        make(made, self, *arguments, **options)
        return made

    show(loop, make, 2, "Loop", ("self",))
    return loop


class Session:
    """doorbell's separate channels on one GPU, for all threads. A process may have several sessions, also on one GPU. They share no state.

    gpu: CUDA's number of the GPU. lanes: how many threads have their own lane, up to 64 (0: 8). kind: "cuda", "soft" (the software GPU,
    which must be preloaded), or None for CUDA if there is CUDA. check_allocations: each submission checks with CUDA that the memory is
    still the pinned allocation. log: called with a text when the session or a channel is opened, and when the session
    is closed.
    profile: the file that decides how copies are made (`doorbell calibrate -o FILE`). True: the machine's own, if there is one. False: no
    profile. None: the file that $DOORBELL_PROFILE names. A profile of another machine raises Unavailable, with the differences. explain()
    reports how a copy is made.
    launch_lanes: the number of channels for launches of graphs, up to 16 (0: 1). A graph belongs to the launch lane of the thread that makes it,
    or to the one that Graph.copy() names. Threads that launch on different lanes never get Busy because of each other, and their launches
    are not ordered.
    spare_kernels: pages to the GPU use fewer physical engines: 29 GB/s instead of 53 of 16 KiB on an H200, while matrix products next to them lose
    0.4 % of their speed instead of 3.4 %.
    """

    submits: ctypes.CDLL
    dropped: list[tuple[Ticket, Any]]
    process: int
    # The doorbell_t *. Removed when the session is closed: see __getattr__.
    at: c_void_p
    # The same until the library has closed it.
    _opened: c_void_p | None = None
    # Made here: dropped without close(), it is closed.
    _owned = False

    def __init__(self, gpu: int = 0, *, lanes: int = 0, kind: Literal["cuda", "soft"] | None = None, check_allocations: bool = False,
                 log: Callable[[str], object] | None = None, profile: str | os.PathLike[str] | bool | None = None, launch_lanes: int = 0, spare_kernels: bool = False):
        if kind not in _KINDS:
            raise ValueError(f"kind is 'cuda', 'soft' or None, not {kind!r}")
        # Called until the session is closed.
        self._log = Log((lambda _, text: log(text.decode(errors="replace"))) if log else 0)
        flags = (CHECK if check_allocations else 0) | (OWN_PROFILE if profile is True else 0) | (SPARE_KERNELS if spare_kernels else 0)
        path = None if profile is None or profile is True else b"" if profile is False else os.fsencode(profile)
        options = Options(sizeof(Options), _KINDS[kind], whole(gpu, "gpu", U32), whole(lanes, "lanes", U32), flags, self._log, None, path,
                          whole(launch_lanes, "launch_lanes", U32))
        at = c_void_p()
        check(library.doorbell_create(byref(options), byref(at)))
        self._begin(at, library if check_allocations else held)
        self._owned = True

    def _begin(self, at: c_void_p, submits: ctypes.CDLL) -> None:
        self.at = self._opened = at
        # The functions that submit. They keep the GIL, unless each submission calls CUDA, which may wait for a thread that waits for the GIL.
        self.submits = submits
        # Copies whose tickets were dropped before they were done, with the buffers that were pinned only for them: (ticket, buffers).
        self.dropped = []
        self.process = os.getpid()
        # Memory of allocate() that was shown. The lock is for that, and for `ending`: none begins to be shown any more. (Garbage may be collected under
        # it, which ends buffers.)
        self._shown: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock, self._ending = threading.RLock(), False
        self._handles: weakref.WeakSet[Handle] = weakref.WeakSet()
        # For each event loop that awaits tickets now.
        self._awaited: dict[AbstractEventLoop, Awaited] = {}

    if not TYPE_CHECKING:  # (With it, every name would be one of a session.)

        def __getattr__(self, name):
            # (Only for names that are not there: no cost for the others.)
            if name == "at":
                raise Closed("the session is closed")
            raise AttributeError(f"'Session' object has no attribute {name!r}")

    @property
    def closed(self) -> bool:
        return "at" not in self.__dict__

    def _register(self, handle: Handle) -> None:
        with self._lock:
            self._handles.add(handle)

    def close(self) -> None:
        """Closes the session: waits for pending work, and ends all buffers, transfers, rings and graphs. A second call has no effect.

        Views that buffers gave are released. If slices or arrays still show memory of allocate(), that memory and the session's channels stay until the
        last of them is dropped. Then wait for the tickets of copies between such buffers first."""
        if not self.closed and self.process != os.getpid():
            check(library.doorbell_free(self.at))  # (Forked.)
        with self._lock:
            if self.__dict__.pop("at", None) is None:
                return
        until = time.monotonic() + 10
        for awaited in list(self._awaited.values()):
            awaited.session_closes(until)
        with self._lock:
            for buffer in self._of(Buffer):
                buffer._hide()
            self._release()
            self._ending = True
        if self._is_seen():
            self._close_all()
        self.dropped.clear()
        self._end_if_unseen()

    def _of(self, kind: type[H]) -> list[H]:
        with self._lock:
            return [handle for handle in self._handles if isinstance(handle, kind)]

    def _release(self) -> None:
        for memory in list(self._shown):
            memory.release()

    def _is_seen(self) -> bool:
        with self._lock:
            return any(memory.is_shown() for memory in self._shown)

    def _close_all(self) -> None:
        """Ends what the library would end, but for memory that is still shown. This waits for what is pending."""
        for graph in self._of(Graph):
            if graph._last is not None:
                library.doorbell_wait(self._opened, graph._last.value, nanoseconds(10))
        for kind in (Loop, Queue, Graph, Transfer, Ring, Message, Buffer):
            for handle in self._of(kind):
                with suppress(DoorbellError):
                    handle.close()

    def _free_handle(self, function: str, handle: int) -> None:
        """Frees a handle. Without a session there is none."""
        opened = self._opened
        if handle and opened is not None:
            code = getattr(library, function)(opened, handle)
            # (CLOSED: it ends with its session now.)
            if code and code != CLOSED:
                raise failed(code)

    def _end_if_unseen(self) -> None:
        """Lets the library close a closed session, when nothing shows its memory any more."""
        if not self._ending:
            return
        with self._lock:
            if self._opened is None or self._is_seen():
                return
            opened, self._opened = self._opened, None
        check(library.doorbell_free(opened))

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # All its handles and views have gone. At the end of the process the kernel closes it.
        if not self._owned or self._opened is None or library is None or sys.is_finalizing() or self.process != os.getpid():
            return
        if not self.closed:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self)
        with suppress(DoorbellError):
            library.doorbell_free(self._opened)

    def __reduce_ex__(self, _: Any) -> NoReturn:
        not_copied(self)

    def _ends(self, dst: Any, src: Any) -> tuple[Buffer, Buffer]:
        to, from_ = self.pin(dst), self.pin(src)
        if to.readonly:
            raise ValueError("the destination may not be written")
        return to, from_

    def _let_go(self) -> None:
        """Unpins buffers that were pinned for copies that are done by now."""
        for one in list(self.dropped):
            try:
                over = one[0].done()
            except DoorbellError:
                over = True
            if over:
                with suppress(ValueError):  # Another thread has removed it.
                    self.dropped.remove(one)

    def _kept(self, ticket: Ticket, given: Sequence[Any], used: tuple[Buffer, ...]) -> Ticket:
        """Makes a ticket hold the program's own buffers, and those that were pinned for it."""
        pinned = tuple(buffer for buffer in used if not any(buffer is one for one in given))
        ticket._keep = (used, Pinned(ticket, pinned)) if pinned else used
        if self.dropped:
            self._let_go()
        return ticket

    def pin(self, thing: Any) -> Buffer:
        """Registers the memory of a tensor or array, so that copies may name it: GPU memory, or host memory that CUDA has pinned
        (torch's tensor.pin_memory(), cupyx.empty_pinned()). The buffer holds the tensor and its storage until it is closed."""
        if isinstance(thing, Buffer):
            return thing
        memory, handle = memory_of(thing), c_uint64()
        check(library.doorbell_buffer_register(self.at, memory.pointer, memory.bytes, byref(handle)))
        return Buffer(self, handle.value, memory.pointer, memory.bytes, memory.readonly, None, memory.keep)

    def allocate(self, nbytes: int, where: Literal["host", "gpu"] = "host") -> Buffer:
        """Allocates "host" (pinned) or "gpu" memory, without a CUDA call."""
        if where not in ("host", "gpu"):
            raise ValueError(f"memory is allocated on the 'host' or on the 'gpu', not {where!r}")
        handle, pointer, nbytes = c_uint64(), c_void_p(), whole(nbytes, "the number of bytes")
        check(library.doorbell_buffer_create(self.at, HOST if where == "host" else VIDEO, nbytes, byref(handle), byref(pointer)))
        return Buffer(self, handle.value, pointer.value or 0, nbytes, False, where == "gpu")

    def copy_(self, dst: Any, src: Any, nbytes: int | None = None, *, dst_offset: int = 0, src_offset: int = 0,
              timeout: float | None = None) -> Any:
        """Copies src to dst and waits. Tensors that are not pinned yet are pinned for this call, which takes CUDA's locks. So pin tensors
        that you copy often."""
        to, from_ = self._ends(dst, src)
        at_to, at_from, nbytes = part(to, dst_offset, from_, src_offset, nbytes)
        limit = nanoseconds(timeout)
        end = None if limit == FOREVER else time.monotonic_ns() + limit
        while True:
            try:
                ticket = self._submit(to, at_to, from_, at_from, nbytes, NOW)
                break
            except (Busy, Full):
                # (Here, and not in the library: handlers of signals run.)
                if end is not None and time.monotonic_ns() >= end:
                    raise Timeout("no lane was free in time", TIMEOUT) from None
                time.sleep(50e-6)
        # If the wait ends early, the ticket holds what was pinned.
        self._kept(ticket, (dst, src), (to, from_)).wait(None if end is None else max(0, end - time.monotonic_ns()) / 1e9)
        return dst

    def _submit(self, to: Buffer, to_offset: int, from_: Buffer, from_offset: int, nbytes: int, after: Any) -> Ticket:
        ticket = Ticket.of(self)
        order, calls_cuda = order_of(after)
        code = (library if calls_cuda else self.submits).doorbell_copy_async(
            self.at, c_uint64(to.handle), c_uint64(to_offset), c_uint64(from_.handle), c_uint64(from_offset), c_uint64(nbytes), order, byref(ticket))
        if code:
            raise failed(code)
        return ticket

    def copy_async(self, dst: Any, src: Any, nbytes: int | None = None, *, dst_offset: int = 0, src_offset: int = 0, after: Any = NOW) -> Ticket:
        """Submits a copy between two buffers and returns its Ticket.

        The GPU first waits for `after`: a Ticket, a CUDA stream (all work that it has queued now; None is the default stream), a CUDA event, or a list of
        these. Streams and events are CUDA calls, with CUDA's locks. Ticket.hold() makes a stream wait for the copy."""
        to, from_ = self._ends(dst, src)
        at_to, at_from, nbytes = part(to, dst_offset, from_, src_offset, nbytes)
        return self._kept(self._submit(to, at_to, from_, at_from, nbytes, after), (dst, src), (to, from_))

    def copy_batch(self, pieces: Iterable[tuple[Any, int, Any, int, int]], *, after: Any = NOW) -> Ticket:
        """Submits many copies with one ticket: (dst, dst_offset, src, src_offset, nbytes) each, of buffers. after: as for copy_async()."""
        pieces = list(pieces)
        array = (Piece * len(pieces))()
        given: list[Any] = []
        keep: list[Buffer] = []
        for to_piece, (dst, dst_offset, src, src_offset, nbytes) in zip(array, pieces):
            to, from_ = self._ends(dst, src)
            to_piece.to_offset, to_piece.from_offset, to_piece.bytes = part(to, dst_offset, from_, src_offset, nbytes)
            to_piece.to, to_piece.from_ = to.handle, from_.handle
            given += (dst, src)
            keep += (to, from_)
        ticket = Ticket.of(self)
        order, _ = order_of(after)
        check(library.doorbell_copy_batch_async(self.at, array, len(pieces), sizeof(Piece), order, byref(ticket)))
        return self._kept(ticket, given, tuple(keep))

    def copy_pages(self, dst: Any, dst_index: Any, src: Any, src_index: Any, *, nbytes: int | None = None, stream: Any = CURRENT, after: Any = NOW) -> Ticket:
        """Copies pages by their numbers: dst[dst_index[n]] = src[src_index[n]] for all n, as one submission, without a kernel.

        dst and src: buffers or contiguous tensors, or lists of them, one for each layer; a page is an entry of the first dimension, or nbytes bytes.
        dst_index and src_index: lists, or arrays and CPU tensors of integers of 4 or 8 bytes. A page that is not there, or twice in dst_index, is an error
        before anything is copied.
        stream: a CUDA stream whose queued work comes before the copies, and whose later work waits for them. By default PyTorch's current stream if
        a tensor is on a GPU, which calls CUDA; doorbell.NOW: no stream. after: as for copy_async()."""
        to_things, from_things = (list(things) if isinstance(things, (list, tuple)) else [things] for things in (dst, src))
        if len(to_things) != len(from_things):
            raise ValueError(f"{len(to_things)} destinations and {len(from_things)} sources: pass as many of each")
        to_index, from_index = both(dst_index, src_index)
        size, ends = page_bytes(to_things + from_things, nbytes), [self._ends(to, from_) for to, from_ in zip(to_things, from_things)]
        parts = (Part * len(ends))(*((to.handle, 0, from_.handle, 0) for to, from_ in ends))
        pages = Pages(sizeof(Pages), size, 0, 0, to_index.address, from_index.address, to_index.count, to_index.size, PAGES_DISTINCT)
        if stream is CURRENT:
            stream = stream_for(to_things + from_things)
        if stream is not NOW:
            after = [*([] if after is NOW else after if isinstance(after, (list, tuple)) else [after]), stream]
        order, _ = order_of(after)
        if stream is not NOW:
            order.contents.flags |= ORDER_STREAM_WAITS
        ticket = Ticket.of(self)
        code = library.doorbell_pages_async(self.at, parts, len(parts), sizeof(Part), byref(pages), order, byref(ticket))
        error = failed(code) if code else None
        if error is None or ticket.value:
            self._kept(ticket, to_things + from_things, tuple(buffer for two in ends for buffer in two))
        if error is not None:
            if ticket.value:
                # (It was submitted, but the stream does not wait for it.)
                ticket.wait()
            raise error
        return ticket

    def explain(self, dst: Any, src: Any, nbytes: int | None = None, *, prepared: bool = False) -> tuple[Literal["engine", "inline", "stores", "loads"], str]:
        """Reports how a copy between two buffers is made ("engine", "inline", "stores" or "loads"), and why, in a sentence. prepared: a copy of prepare()."""
        to, from_ = self._ends(dst, src)
        (_, _, nbytes), way, text = part(to, 0, from_, 0, nbytes), c_uint32(), create_string_buffer(2048)
        check(library.doorbell_copy_explain(self.at, to.handle, from_.handle, nbytes, bool(prepared), byref(way), text, len(text)))
        return cast(Any, WAYS[way.value]), text.value.decode(errors="replace")

    def prepare(self, dst: Any, src: Any, nbytes: int | None = None, *, dst_offset: int = 0, src_offset: int = 0) -> Transfer:
        """Prepares a copy that is submitted often. It holds both buffers."""
        to, from_ = self._ends(dst, src)
        (at_to, at_from, nbytes), transfer = part(to, dst_offset, from_, src_offset, nbytes), c_uint64()
        check(library.doorbell_transfer_create(self.at, to.handle, at_to, from_.handle, at_from, nbytes, byref(transfer)))
        return Transfer(self, transfer.value, (to, from_))

    def prepare_bytes(self, dst: Any, nbytes: int, *, dst_offset: int = 0) -> Transfer:
        """Prepares a copy of up to 64 KiB whose bytes are given at each submit()."""
        to, transfer = self.pin(dst), c_uint64()
        if to.readonly:
            raise ValueError("the destination may not be written")
        at_to, nbytes = offset(dst_offset), offset(nbytes, "a length")
        check(library.doorbell_transfer_create_bytes(self.at, to.handle, at_to, nbytes, byref(transfer)))
        return Transfer(self, transfer.value, (to,))

    def ring(self, dst: Any, src: Any, frame_bytes: int, frames: int = 4, *, dst_offset: int = 0, src_offset: int = 0) -> Ring:
        """Makes a ring of frames, which are consecutive in both buffers."""
        to, from_ = self._ends(dst, src)
        (at_to, at_from, frame_bytes), handle = part(to, dst_offset, from_, src_offset, offset(frame_bytes, "a length")), c_uint64()
        frames = whole(frames, "the number of frames", U32)
        check(library.doorbell_ring_create(self.at, to.handle, at_to, from_.handle, at_from, frame_bytes, frames, byref(handle)))
        return Ring(self, handle.value, frame_bytes, (to, from_))

    loop = _loop(Loop.__init__)

    def queue(self, size: int = 256) -> Queue:
        """Makes a queue, to wait for many submissions together."""
        return Queue(self, size)

    def message(self, mailbox: Any, answers: Any, *, mailbox_offset: int = 0, answers_offset: int = 0) -> Message:
        """Makes a mailbox of 64 bytes in GPU memory, and 64 bytes of host memory for the answers of the kernel that polls it."""
        to, from_ = self.pin(mailbox), self.pin(answers)
        (at_to, at_from, _), handle = part(to, mailbox_offset, from_, answers_offset, 64), c_uint64()
        check(library.doorbell_message_create(self.at, to.handle, at_to, from_.handle, at_from, byref(handle)))
        return Message(self, handle.value, (to, from_))

    def graph(self, cuda_graph: Any, stream: Any = None) -> Graph:
        """Prepares an instantiated CUDA graph for launches without CUDA: a torch.cuda.CUDAGraph, or the number of a cudaGraphExec_t.

        CUDA launches it in `stream` a few times, and each launch does the graph's work. doorbell reads the command words of these launches.
        So the graph must not have been launched before (replay()), and no other thread may submit to the GPU with CUDA during the call. The
        work that PyTorch does around a replay, such as seeds of random numbers, is not done. Until the graph is closed, its modules and all
        memory that it uses must stay."""
        handle = c_uint64()
        check(library.doorbell_graph_create(self.at, exec_of(cuda_graph), stream_of(stream), byref(handle)))
        return Graph(self, handle.value, cuda_graph)

    def instantiate(self, cuda_graph: Any, stream: Any = None) -> Graph:
        """Prepares a CUDA graph for launches without CUDA: a torch.cuda.CUDAGraph(keep_graph=True), or the number of a cudaGraph_t. doorbell
        instantiates it, so it may have been launched before.

        In addition, its copies may name pageable memory. replay() reads that memory, and wait() writes it when it finds the launch done. So only
        one launch of such a graph may be pending (Full). Otherwise as graph()."""
        handle = c_uint64()
        check(library.doorbell_graph_instantiate(self.at, raw_of(cuda_graph), stream_of(stream), byref(handle)))
        return Graph(self, handle.value, cuda_graph)

    def kernel(self, function: int, grid: int | Sequence[int], block: int | Sequence[int], arguments: Sequence[Any], stream: Any, *,
               shared_bytes: int = 0) -> Graph:
        """Prepares a kernel for launches without CUDA, as a Graph of one kernel. function: the number of a CUfunction. arguments: a ctypes
        value for each. stream: not the default one. CUDA launches the kernel there a few times. Otherwise as graph()."""
        handle, arguments = c_uint64(), list(arguments)
        for n, argument in enumerate(arguments):
            if not isinstance(argument, _VALUES):
                raise TypeError(f"argument {n} is a {type(argument).__name__}: pass a ctypes value of the kernel's type, such as c_uint32(7)")
        pointers = (c_void_p * max(1, len(arguments)))(*map(addressof, arguments))
        check(library.doorbell_graph_create_kernel(self.at, whole(function, "function"), three(grid, "grid"), three(block, "block"),
                                                   whole(shared_bytes, "shared_bytes", U32), pointers, stream_of(stream), byref(handle)))
        return Graph(self, handle.value, None)

    def chain(self, steps: Iterable[Any], *, order: Literal["engines", "counter"] | None = None, host_counter: bool = False, beside: bool = False) -> Graph:
        """Prepares copies and launches of graphs as one chain: a Graph that replay() launches with one doorbell write. The GPU orders the steps:
        each begins when the steps before it are over, and the ticket is done when the last step is.

        A step is a Graph (its copy in the chain has the current parameters), or a copy: (dst, src), all of it, or
        (dst, dst_offset, src, src_offset, nbytes). A copy may end with "inline" (in the command stream), "engine" (by the copy engine) or
        "stores" (replay() itself stores the bytes into GPU memory). Without it, copies of up to 16 KiB from host memory to GPU memory are inline:
        replay() reads their bytes. Do not change the bytes of other copies until the ticket is done.
        "stores" is for the first steps, 64 KiB at most each. While the chain's last launch is pending, replay() raises Full and has no effect.
        You must first wait for all other work that reads or writes these bytes, because doorbell does not check this.
        beside: the copies have a separate channel on a copy engine. replay() writes two doorbells, and the copies do not wait until CUDA's
        kernels are over.
        order: with "counter", launches after copies always wait for a counter. With "engines" they never do: according to NVIDIA's manual of the
        GA100, the engines keep the order. With None they wait only after copies that are not inline. host_counter: the counter is in host memory.
        The chain holds the buffers, and all objects that its graphs hold."""
        steps, keep = list(steps), list[Any]()
        if order not in CHAIN_ORDER:
            raise ValueError(f"order is 'counter', 'engines' or None, not {order!r}")
        array = (Step * max(1, len(steps)))()
        for to_step, step in zip(array, steps):
            if isinstance(step, Graph):
                to_step.kind, to_step.graph = STEP_LAUNCH, step.handle
                keep += (step._keep, dict(step._pointers))
                continue
            if not isinstance(step, (tuple, list)):
                raise TypeError(f"a step is a Graph or a tuple, not a {type(step).__name__}")
            by = step[-1] if len(step) in (3, 6) else None
            if len(step) not in (2, 3, 5, 6) or by not in STEP_BY:
                raise ValueError("a step is a Graph, (dst, src), or (dst, dst_offset, src, src_offset, nbytes), and maybe 'inline', 'engine' or "
                                 "'stores' behind these")
            given: list[Any] = list(step)
            dst, dst_offset, src, src_offset, nbytes = (given[0], 0, given[1], 0, None) if len(given) < 4 else given[:5]
            to, from_ = self._ends(dst, src)
            to_step.to_offset, to_step.from_offset, to_step.bytes = part(to, dst_offset, from_, src_offset, nbytes)
            to_step.flags, to_step.to, to_step.from_ = STEP_BY[by], to.handle, from_.handle
            keep += (to, from_)
        flags = CHAIN_ORDER[order] | (CHAIN_HOST_COUNTER if host_counter else 0) | (CHAIN_BESIDE if beside else 0)
        handle = c_uint64()
        check(library.doorbell_chain_create(self.at, array, len(steps), sizeof(Step), flags, byref(handle)))
        return Graph(self, handle.value, keep)
