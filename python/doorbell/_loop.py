"""The hot path in a native thread: frames in, a chain, results out. No interpreter delays it."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator, Mapping
from ctypes import byref, c_bool, c_size_t, c_uint64, c_void_p, create_string_buffer, sizeof
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ._errors import OutOfRange, Timeout
from ._graph import Graph
from ._handle import Buffer, Handle
from ._header import (FOREVER, LATE_CATCH_UP, LATE_NEWEST, LATE_SKIP, LOOP_ALONE, LOOP_LOCK_MEMORY, LOOP_REQUIRED, LOOP_SPIN, LOOP_STOP_UNREAD, SCHEDULING_DEADLINE,
                      SCHEDULING_FIFO, SCHEDULING_ORDINARY, TAKE_IN_ORDER, TAKE_NEWEST, TIMEOUT, Loop_options, Loop_statistics)
from ._header import Result as ResultStruct
from ._library import check, failed, held, library, waited
from ._memory import host_memory_of
from ._numbers import U32, duration, nanoseconds, whole

if TYPE_CHECKING:
    from ._session import Session

_TAKE = {"in order": TAKE_IN_ORDER, "newest": TAKE_NEWEST}
_LATE = {"skip": LATE_SKIP, "catch up": LATE_CATCH_UP, "newest": LATE_NEWEST}


class Result(NamedTuple):
    """A frame's result. Times are seconds of time.monotonic(), and 0 means no time. `data`: the bytes that the chain wrote."""

    frame: int
    sequence: int
    tag: int
    due: float
    put: float
    launched: float
    done: float
    skipped: int
    refused: bool
    late: bool
    data: bytes


class Statistics(NamedTuple):
    """Counts and times of a loop so far. Times are microseconds. `why`: why it has ended, and which scheduling requests the kernel refused."""

    frames: int
    missed: int
    late: int
    skipped: int
    starved: int
    overruns: int
    busy: int
    done_p50: float
    done_p99: float
    done_p999: float
    done_max: float
    wake_p50: float
    wake_p99: float
    wake_p999: float
    wake_max: float
    running: bool
    why: str


class Loop(Handle):
    """A doorbell thread that launches a chain for each frame.

    chain: from doorbell.chain(), or another Graph. source, sink: the host memory (from allocate()) that the chain reads and writes, whole or (buffer, offset,
    bytes). put() stores inputs in `slots`, and each is copied to the source before its launch. The sink is copied into `results` after it. Without a source
    each tick is launched.
    period: seconds between ticks, or None to launch when an input arrives. take: "in order", or "newest" (older inputs are skipped). late: the reaction to
    missed ticks: "skip" them, "catch up", or take the "newest" input. deadline: seconds until a result is late, or None for the next tick.
    spin: the thread spins for results until the next tick. spin_before: for how many seconds it spins before a tick, or for the next input before it
    sleeps; None is 50 us, a period or more never sleeps. stop_unread: the loop ends if results are not read, otherwise the oldest is overwritten.
    fifo: the priority for SCHED_FIFO. deadline_scheduling: (runtime, deadline, period) in seconds. cpu: the only CPU that it runs on. alone: no
    other thread of the process runs there while the loop lives, nor do those that they start; they get it back at the end. lock_memory: mlock.
    required: a scheduling request that the kernel refuses is an error.
    It holds chain and buffers. stop(), close() or the end of `with` stop it.
    """

    __slots__ = ("_keep", "_input_bytes", "_bytes")
    _keep: Any
    _free = "doorbell_loop_free"

    def __init__(self, session: Session, chain: Graph, *, period: float | None = None, source: Any = None, sink: Any = None, slots: int = 0, results: int = 0,
                 take: Literal["in order", "newest"] = "in order", late: Literal["skip", "catch up", "newest"] = "skip", deadline: float | None = None, spin: bool = False, spin_before: float | None = None,
                 stop_unread: bool = False, signal_each: int = 1, fifo: int | None = None,
                 deadline_scheduling: tuple[float, float, float] | None = None, cpu: int | None = None, alone: bool = False,
                 lock_memory: bool = False, required: bool = False, limit: float = 0, first: float = 0, name: str = "doorbell-loop"):
        if not isinstance(chain, Graph):
            raise TypeError(f"a loop launches a chain or a graph, not a {type(chain).__name__}")
        if fifo is not None and deadline_scheduling is not None:
            raise ValueError("a thread is of SCHED_FIFO or of SCHED_DEADLINE, not of both")
        options = Loop_options(sizeof(Loop_options), chain.handle)
        options.take, options.late = _one_of(_TAKE, take, "take"), _one_of(_LATE, late, "late")
        (input_, options.input_offset, options.input_bytes), (output, options.output_offset, options.output_bytes) = _part(source), _part(sink)
        options.input, options.output = input_.handle if input_ else 0, output.handle if output else 0
        options.slots, options.results = whole(slots, "slots", U32), whole(results, "results", U32)
        options.signal_each = whole(signal_each, "signal_each", U32, least=1)
        options.period_ns = 0 if period is None else duration(period, "period")
        options.first_ns = 0 if first == 0 else duration(first, "first")
        options.limit_ns = 0 if limit == 0 else duration(limit, "limit")
        options.deadline_ns = 0 if deadline is None else duration(deadline, "deadline")
        options.spin_ns = 0 if spin_before is None else duration(spin_before, "spin_before")
        options.flags = ((LOOP_SPIN if spin else 0) | (LOOP_STOP_UNREAD if stop_unread else 0) | (LOOP_LOCK_MEMORY if lock_memory else 0)
                         | (LOOP_REQUIRED if required else 0) | (LOOP_ALONE if alone else 0))
        options.cpu = 0 if cpu is None else whole(cpu, "cpu", U32 - 1) + 1
        options.scheduling = SCHEDULING_ORDINARY
        if fifo is not None:
            options.scheduling, options.priority = SCHEDULING_FIFO, whole(fifo, "fifo", (1 << 31) - 1)
        elif deadline_scheduling is not None:
            options.scheduling, parts = SCHEDULING_DEADLINE, tuple(deadline_scheduling)
            if len(parts) != 3:
                raise ValueError("deadline_scheduling is (runtime, deadline, period)")
            options.runtime_ns, options.runtime_within_ns, options.runtime_each_ns = (duration(part, "each time of deadline_scheduling") for part in parts)
        options.name = os.fsencode(name)
        handle = c_uint64()
        check(library.doorbell_loop_create(session.at, byref(options), byref(handle)))
        self._keep, self._input_bytes, self._bytes = (chain, input_, output), options.input_bytes, options.output_bytes
        self._begin(session, handle.value)

    def put(self, data: Any, *, sequence: int = 0, deadline: float | None = None, tag: int = 0) -> int:
        """Puts an input, as many bytes as the source has, and returns its number, from 0. Full if no slot is free. deadline: in time.monotonic(). It keeps
        the GIL."""
        memory, number = host_memory_of(data), c_uint64()
        sequence, tag = whole(sequence, "sequence"), whole(tag, "tag")
        if self._input_bytes and memory.bytes != self._input_bytes:
            # (The others would be of an earlier input.)
            raise ValueError(f"an input of {memory.bytes} bytes for a source of {self._input_bytes}")
        code = held.doorbell_loop_put(self._session.at, c_uint64(self._handle), c_void_p(memory.pointer), c_size_t(memory.bytes), c_uint64(sequence),
                                      c_uint64(0 if deadline is None else duration(deadline, "deadline")), c_uint64(tag), byref(number))
        if code:
            raise failed(code)
        return number.value

    def next(self) -> Result | None:
        """The next result, if there is one."""
        result, there = ResultStruct(sizeof(ResultStruct)), c_bool()
        data = create_string_buffer(self._bytes) if self._bytes else None
        code = held.doorbell_loop_next(self._session.at, c_uint64(self._handle), byref(result), data, c_size_t(self._bytes), byref(there))
        if code:
            raise failed(code)
        if not there.value:
            return None
        return Result(result.frame, result.sequence, result.tag, result.due_ns / 1e9, result.put_ns / 1e9, result.launched_ns / 1e9, result.done_ns / 1e9,
                      result.skipped, bool(result.refused), bool(result.late), data.raw if data else b"")

    def wait(self, timeout: float | None = None) -> Result | None:
        """Waits for the next result. None if the loop has ended and all were taken. Timeout if there is none in time."""
        limit = nanoseconds(timeout)
        end = None if limit == FOREVER else time.monotonic_ns() + limit
        while True:
            found = self.next()
            if found is not None:
                return found
            if not self.statistics().running:
                return self.next()
            at, left = self._session.at, FOREVER if end is None else max(0, end - time.monotonic_ns())
            code = waited(lambda turn: library.doorbell_loop_wait(at, self._handle, turn), left)
            if code == TIMEOUT and end is not None and time.monotonic_ns() >= end:
                raise Timeout("no result in time", TIMEOUT)
            if code and code != TIMEOUT:
                raise failed(code)

    def __iter__(self) -> Iterator[Result]:
        """Results until the loop has ended."""
        while True:
            found = self.wait()
            if found is None:
                return
            yield found

    def statistics(self) -> Statistics:
        """Counts and times so far, at any time."""
        of, text = Loop_statistics(sizeof(Loop_statistics)), create_string_buffer(512)
        check(library.doorbell_loop_statistics(self._session.at, self._handle, byref(of), text, len(text)))
        us = [getattr(of, f"{what}_{which}_ns") / 1e3 for what in ("done", "wake") for which in ("p50", "p99", "p999", "max")]
        return Statistics(of.frames, of.missed, of.late, of.skipped, of.starved, of.overruns, of.busy, us[0], us[1], us[2], us[3], us[4], us[5], us[6], us[7],
                          of.state == 1, text.value.decode(errors="replace"))

    def fileno(self) -> int:
        """A descriptor for select and epoll: readable when results were signalled. wait() makes it unreadable again."""
        descriptor = ctypes.c_int32()
        check(library.doorbell_loop_descriptor(self._session.at, self._handle, byref(descriptor)))
        return descriptor.value

    def stop(self) -> Statistics:
        """Stops the loop within a tenth of a second. Results can still be taken."""
        check(library.doorbell_loop_stop(self._session.at, self._handle))
        return self.statistics()

    def close(self) -> None:
        """Stops and ends the loop. A second call has no effect."""
        try:
            super().close()
        finally:
            self._keep = None


def _one_of(choices: Mapping[str, int], chosen: str, what: str) -> int:
    if chosen not in choices:
        raise ValueError(f"{what} is {' or '.join(map(repr, choices))}, not {chosen!r}")
    return choices[chosen]


def _part(thing: Any) -> tuple[Buffer | None, int, int]:
    if thing is None:
        return None, 0, 0
    if isinstance(thing, Buffer):
        return thing, 0, thing.nbytes
    if not isinstance(thing, (tuple, list)) or len(thing) != 3 or not isinstance(thing[0], Buffer):
        raise TypeError("source and sink are a buffer of allocate(), or (buffer, offset, bytes): CUDA's memory may be freed under the loop")
    buffer, offset, nbytes = thing
    return buffer, whole(offset, "an offset", error=OutOfRange), whole(nbytes, "a length", error=OutOfRange)
