"""Objects that are prepared once and submitted often: copies, frames, and messages to a running kernel."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t, c_uint32, c_uint64, c_void_p, create_string_buffer
from typing import TYPE_CHECKING, Any

from ._handle import Buffer, Handle
from ._header import FOREVER, TIMEOUT
from ._header import Frame as FrameStruct
from ._library import SPIN, check, failed, held, library, waited
from ._memory import host_memory_of
from ._numbers import U32, nanoseconds, whole
from ._ticket import NOW, Ticket, order_of

if TYPE_CHECKING:
    from ._session import Session


class Transfer(Handle):
    """A prepared copy."""

    __slots__ = ("_keep", "_argument")
    _free = "doorbell_transfer_free"

    def __init__(self, session: Session, handle: int, keep: tuple[Buffer, ...]):
        self._keep, self._argument = keep, c_uint64(handle)
        self._begin(session, handle)

    def submit(self, data: Any = None, *, after: Any = NOW) -> Ticket:
        """Submits the copy and returns its Ticket. data: the bytes, for a copy of prepare_bytes().

        It keeps the GIL, unless `after` names a stream or an event. The GPU first waits for `after`: a Ticket, a CUDA stream (all work that it has queued now;
        None is the default stream), a CUDA event, or a list of these."""
        session = self._session
        order, calls_cuda = order_of(after)
        submits, ticket = library if calls_cuda else session.submits, Ticket.of(session)
        if data is None:
            code = submits.doorbell_transfer_async(session.at, self._argument, order, byref(ticket))
        else:
            memory = host_memory_of(data)
            code = submits.doorbell_transfer_bytes_async(session.at, self._argument, c_void_p(memory.pointer), c_size_t(memory.bytes), order,
                                                         byref(ticket))
        if code:
            raise failed(code)
        ticket._keep = self._keep
        return ticket


class Frame:
    """A frame of a ring. `view` is its memory, which it holds, or None if that is a CUDA tensor on the GPU, at `offset`."""

    __slots__ = ("index", "offset", "view")

    def __init__(self, index: int, offset: int, view: memoryview | None):
        self.index, self.offset, self.view = index, offset, view


class Ring(Handle):
    """A ring of frames, which are filled and copied in turn."""

    __slots__ = ("_frame_bytes", "_keep")
    _free = "doorbell_ring_free"

    def __init__(self, session: Session, handle: int, frame_bytes: int, keep: tuple[Buffer, Buffer]):
        self._frame_bytes, self._keep = frame_bytes, keep
        self._begin(session, handle)

    @property
    def frame_bytes(self) -> int:
        return self._frame_bytes

    def next(self) -> Frame:
        """Returns the next frame, for the producer to fill. Overrun while its last copy is pending."""
        frame = FrameStruct(ctypes.sizeof(FrameStruct))
        check(held.doorbell_ring_next(self._session.at, c_uint64(self._handle), byref(frame)))
        view = self._keep[1]._look(frame.pointer, self._frame_bytes) if frame.pointer else None
        return Frame(frame.index, frame.offset, view)

    def submit(self, *, after: Any = NOW) -> Ticket:
        """Submits the copy of the frame that next() returned. after: as for Transfer.submit()."""
        order, calls_cuda = order_of(after)
        submits, ticket = library if calls_cuda else self._session.submits, Ticket.of(self._session)
        check(submits.doorbell_ring_async(self._session.at, c_uint64(self._handle), order, byref(ticket)))
        ticket._keep = self._keep
        return ticket


class Message(Handle):
    """A mailbox of a running kernel."""

    __slots__ = ("_keep",)
    _free = "doorbell_message_free"

    def __init__(self, session: Session, handle: int, keep: tuple[Buffer, Buffer]):
        self._keep = keep
        self._begin(session, handle)

    def send(self, data: Any) -> int:
        """Sends up to 56 bytes and returns the message's number. It keeps the GIL."""
        session, memory, number = self._session, host_memory_of(data), c_uint32()
        code = session.submits.doorbell_message_send(session.at, c_uint64(self._handle), c_void_p(memory.pointer), c_size_t(memory.bytes),
                                                     byref(number))
        if code:
            raise failed(code)
        return number.value

    def wait(self, number: int, timeout: float | None = None) -> bytes:
        """Waits for the kernel's answer to this message or a later one, and returns its 56 bytes. It keeps the GIL for 50 us."""
        session, limit, answer = self._session, nanoseconds(timeout), create_string_buffer(56)
        at, handle, number = session.at, self._handle, whole(number, "a message's number", U32)
        code = session.submits.doorbell_message_wait(at, c_uint64(handle), c_uint32(number), answer, c_uint64(min(limit, SPIN)))
        if code == TIMEOUT and limit > SPIN:
            code = waited(lambda turn: library.doorbell_message_wait(at, handle, number, answer, turn), limit if limit == FOREVER else limit - SPIN)
        if code:
            raise failed(code)
        return answer.raw
