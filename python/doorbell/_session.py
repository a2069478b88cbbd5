"""A session: a GPU, doorbell's channels on it, and the objects that copy and launch there."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from ctypes import addressof, byref, c_uint32, c_uint64, c_void_p, create_string_buffer, sizeof
from typing import Any

from ._errors import Busy, DoorbellError, Full, OutOfRange
from ._graph import Graph, exec_of, raw_of, three
from ._handle import Buffer
from ._header import (ANY, BESIDE_CUDA, CHAIN_BESIDE, CHAIN_HOST_COUNTER, CHECK, HOST, OWN_PROFILE, SOFTWARE, STEP_LAUNCH, VIDEO, Log, Options,
                      Piece, Step)
from ._library import CHAIN_ORDER, STEP_BY, WAYS, check, failed, held, library
from ._loop import Loop
from ._memory import memory_of
from ._queue import Queue
from ._ticket import NOW, Pinned, Ticket, nanoseconds, order_of, stream_of
from ._transfers import Message, Ring, Transfer

_KINDS = {None: ANY, "cuda": BESIDE_CUDA, "soft": SOFTWARE}


def length(to, to_offset, from_, from_offset, nbytes):
    if to_offset < 0 or from_offset < 0 or nbytes is not None and nbytes < 0:
        raise OutOfRange("offsets and lengths are not negative")
    if nbytes is not None:
        return nbytes
    if to.nbytes - to_offset != from_.nbytes - from_offset:
        raise ValueError(f"{from_.nbytes - from_offset} bytes do not fit {to.nbytes - to_offset}: say how many (nbytes)")
    return to.nbytes - to_offset


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
    """

    def __init__(self, gpu: int = 0, *, lanes: int = 0, kind: str | None = None, check_allocations: bool = False,
                 log: Callable[[str], object] | None = None, profile: Any = None, launch_lanes: int = 0):
        if kind not in _KINDS:
            raise ValueError(f"kind is 'cuda', 'soft' or None, not {kind!r}")
        # Called until the session is closed.
        self._log = Log((lambda _, text: log(text.decode(errors="replace"))) if log else 0)
        flags = (CHECK if check_allocations else 0) | (OWN_PROFILE if profile is True else 0)
        path = None if profile is None or profile is True else b"" if profile is False else os.fsencode(profile)
        options = Options(sizeof(Options), _KINDS[kind], gpu, lanes, flags, self._log, None, path, launch_lanes)
        # The doorbell_t *.
        self.at = c_void_p()
        check(library.doorbell_create(byref(options), byref(self.at)))
        # The functions that submit. They keep the GIL, unless each submission calls CUDA, which may wait for a thread that waits for the GIL.
        self.submits = library if check_allocations else held
        # Copies whose tickets were dropped before they were done, with the buffers that were pinned only for them: (ticket, buffers).
        self.dropped: list = []
        self.process = os.getpid()

    def close(self) -> None:
        """Closes the session: waits for pending work, and ends all buffers, transfers, rings and graphs."""
        check(library.doorbell_free(self.at))
        self.dropped.clear()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_):
        self.close()

    def _ends(self, dst, src):
        to, from_ = self.pin(dst), self.pin(src)
        if to.readonly:
            raise ValueError("the destination may not be written")
        return to, from_

    def _let_go(self):
        """Unpins buffers that were pinned for copies that are done by now."""
        for one in list(self.dropped):
            try:
                over = one[0].done()
            except DoorbellError:
                over = True
            if over:
                with suppress(ValueError):  # Another thread has removed it.
                    self.dropped.remove(one)

    def _kept(self, ticket, given, used):
        """Makes a ticket hold the program's own buffers, and those that were pinned for it."""
        pinned = tuple(buffer for buffer in used if not any(buffer is one for one in given))
        ticket._keep = (used, Pinned(ticket, pinned)) if pinned else used
        if self.dropped:
            self._let_go()
        return ticket

    def pin(self, thing: Any) -> Buffer:
        """Registers the memory of a tensor or array, so that copies may name it: device memory, or host memory that CUDA has pinned
        (torch's tensor.pin_memory(), cupyx.empty_pinned()). The buffer holds the tensor and its storage until it is closed."""
        if isinstance(thing, Buffer):
            return thing
        memory, handle = memory_of(thing), c_uint64()
        check(library.doorbell_buffer_register(self.at, memory.pointer, memory.bytes, byref(handle)))
        return Buffer(self, handle.value, memory.pointer, memory.bytes, memory.readonly, None, memory.keep)

    def allocate(self, nbytes: int, where: str = "host") -> Buffer:
        """Allocates "host" (pinned) or "gpu" memory, without a CUDA call."""
        if where not in ("host", "gpu"):
            raise ValueError(f"memory is allocated on the 'host' or on the 'gpu', not {where!r}")
        handle, pointer = c_uint64(), c_void_p()
        check(library.doorbell_buffer_create(self.at, HOST if where == "host" else VIDEO, nbytes, byref(handle), byref(pointer)))
        return Buffer(self, handle.value, pointer.value, nbytes, False, where == "gpu")

    def copy_(self, dst: Any, src: Any, nbytes: int | None = None, *, dst_offset: int = 0, src_offset: int = 0,
              timeout: float | None = None) -> Any:
        """Copies src to dst and waits. Tensors that are not pinned yet are pinned for this call, which takes CUDA's locks. So pin tensors
        that you copy often."""
        ours = [thing for thing in (dst, src) if not isinstance(thing, Buffer)]
        to, from_ = self._ends(dst, src)
        try:
            nbytes = length(to, dst_offset, from_, src_offset, nbytes)
            try:
                self.copy_async(to, from_, nbytes, dst_offset=dst_offset, src_offset=src_offset).wait(timeout)
            except (Busy, Full):
                # The library waits for a lane and for room on it.
                check(library.doorbell_copy(self.at, to.handle, dst_offset, from_.handle, src_offset, nbytes, nanoseconds(timeout)))
        finally:
            for buffer in (to, from_):
                if ours and buffer is not dst and buffer is not src:
                    buffer.close()
        return dst

    def copy_async(self, dst: Any, src: Any, nbytes: int | None = None, *, dst_offset: int = 0, src_offset: int = 0, after: Any = NOW) -> Ticket:
        """Submits a copy between two buffers and returns its Ticket.

        The GPU first waits for `after`: a Ticket, a CUDA stream (all work that it has queued now; None is the default stream), a CUDA event, or a list of
        these. Streams and events are CUDA calls, with CUDA's locks. Ticket.hold() makes a stream wait for the copy."""
        to, from_ = self._ends(dst, src)
        nbytes, ticket = length(to, dst_offset, from_, src_offset, nbytes), Ticket.of(self)
        order, calls_cuda = order_of(after)
        code = (library if calls_cuda else self.submits).doorbell_copy_async(
            self.at, c_uint64(to.handle), c_uint64(dst_offset), c_uint64(from_.handle), c_uint64(src_offset), c_uint64(nbytes), order, byref(ticket))
        if code:
            raise failed(code)
        return self._kept(ticket, (dst, src), (to, from_))

    def copy_batch(self, pieces: Iterable[tuple[Any, int, Any, int, int]], *, after: Any = NOW) -> Ticket:
        """Submits many copies with one doorbell write: (dst, dst_offset, src, src_offset, nbytes) each, of buffers. after: as for copy_async()."""
        pieces = list(pieces)
        array = (Piece * len(pieces))()
        given: list = []
        keep: list = []
        for to_piece, (dst, dst_offset, src, src_offset, nbytes) in zip(array, pieces):
            to, from_ = self._ends(dst, src)
            length(to, dst_offset, from_, src_offset, nbytes)
            to_piece.to, to_piece.to_offset, to_piece.bytes = to.handle, dst_offset, nbytes
            to_piece.from_, to_piece.from_offset = from_.handle, src_offset
            given += (dst, src)
            keep += (to, from_)
        ticket = Ticket.of(self)
        order, _ = order_of(after)
        check(library.doorbell_copy_batch_async(self.at, array, len(pieces), sizeof(Piece), order, byref(ticket)))
        return self._kept(ticket, given, tuple(keep))

    def explain(self, dst: Any, src: Any, nbytes: int | None = None, *, prepared: bool = False) -> tuple[str, str]:
        """Reports how a copy between two buffers is made ("engine", "inline", "stores" or "loads"), and why, in a sentence. prepared: a copy of prepare()."""
        to, from_ = self._ends(dst, src)
        nbytes, way, text = length(to, 0, from_, 0, nbytes), c_uint32(), create_string_buffer(2048)
        check(library.doorbell_copy_explain(self.at, to.handle, from_.handle, nbytes, prepared, byref(way), text, len(text)))
        return WAYS[way.value], text.value.decode(errors="replace")

    def prepare(self, dst: Any, src: Any, nbytes: int | None = None, *, dst_offset: int = 0, src_offset: int = 0) -> Transfer:
        """Prepares a copy that is submitted often. It holds both buffers."""
        to, from_ = self._ends(dst, src)
        nbytes, transfer = length(to, dst_offset, from_, src_offset, nbytes), c_uint64()
        check(library.doorbell_transfer_create(self.at, to.handle, dst_offset, from_.handle, src_offset, nbytes, byref(transfer)))
        return Transfer(self, transfer.value, (to, from_))

    def prepare_bytes(self, dst: Any, nbytes: int, *, dst_offset: int = 0) -> Transfer:
        """Prepares a copy of up to 64 KiB whose bytes are given at each submit()."""
        to, transfer = self.pin(dst), c_uint64()
        if to.readonly:
            raise ValueError("the destination may not be written")
        length(to, dst_offset, to, 0, nbytes)
        check(library.doorbell_transfer_create_bytes(self.at, to.handle, dst_offset, nbytes, byref(transfer)))
        return Transfer(self, transfer.value, (to,))

    def ring(self, dst: Any, src: Any, frame_bytes: int, frames: int = 4, *, dst_offset: int = 0, src_offset: int = 0) -> Ring:
        """Makes a ring of frames, which are consecutive in both buffers."""
        to, from_ = self._ends(dst, src)
        length(to, dst_offset, from_, src_offset, frame_bytes)
        handle = c_uint64()
        check(library.doorbell_ring_create(self.at, to.handle, dst_offset, from_.handle, src_offset, frame_bytes, frames, byref(handle)))
        return Ring(self, handle.value, frame_bytes, (to, from_))

    def loop(self, chain: Graph, **options: Any) -> Loop:
        """Starts a doorbell thread that launches a chain for each frame: see Loop."""
        return Loop(self, chain, **options)

    def queue(self, size: int = 256) -> Queue:
        """Makes a queue, to wait for many submissions together."""
        return Queue(self, size)

    def message(self, mailbox: Any, answers: Any, *, mailbox_offset: int = 0, answers_offset: int = 0) -> Message:
        """Makes a mailbox of 64 bytes in GPU memory, and 64 bytes of host memory for the answers of the kernel that polls it."""
        to, from_ = self.pin(mailbox), self.pin(answers)
        length(to, mailbox_offset, from_, answers_offset, 64)
        handle = c_uint64()
        check(library.doorbell_message_create(self.at, to.handle, mailbox_offset, from_.handle, answers_offset, byref(handle)))
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
        handle = c_uint64()
        pointers = (c_void_p * max(1, len(arguments)))(*(addressof(argument) for argument in arguments))
        check(library.doorbell_graph_create_kernel(self.at, int(function), three(grid), three(block), shared_bytes, pointers, stream_of(stream),
                                              byref(handle)))
        return Graph(self, handle.value, None)

    def chain(self, steps: Iterable[Any], *, order: str | None = None, host_counter: bool = False, beside: bool = False) -> Graph:
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
            by = step[-1] if len(step) in (3, 6) else None
            if len(step) not in (2, 3, 5, 6) or by not in STEP_BY:
                raise ValueError("a step is a Graph, (dst, src), or (dst, dst_offset, src, src_offset, nbytes), and maybe 'inline', 'engine' or "
                                 "'stores' behind these")
            dst, dst_offset, src, src_offset, nbytes = (step[0], 0, step[1], 0, None) if len(step) < 4 else step[:5]
            to, from_ = self._ends(dst, src)
            to_step.bytes = length(to, dst_offset, from_, src_offset, nbytes)
            to_step.flags, to_step.to, to_step.to_offset = STEP_BY[by], to.handle, dst_offset
            to_step.from_, to_step.from_offset = from_.handle, src_offset
            keep += (to, from_)
        flags = CHAIN_ORDER[order] | (CHAIN_HOST_COUNTER if host_counter else 0) | (CHAIN_BESIDE if beside else 0)
        handle = c_uint64()
        check(library.doorbell_chain_create(self.at, array, len(steps), sizeof(Step), flags, byref(handle)))
        return Graph(self, handle.value, keep)
