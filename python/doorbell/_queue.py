"""Waiting for many submissions together, in threads and in asyncio."""

from __future__ import annotations

import asyncio
import threading
import weakref
from ctypes import byref, c_int32, c_size_t, c_uint64, sizeof
from typing import TYPE_CHECKING, Any, NamedTuple

from ._errors import DoorbellError
from ._handle import Handle
from ._header import TIMEOUT
from ._header import Done as DoneStruct
from ._library import check, failed, held, library
from ._ticket import Ticket, nanoseconds

if TYPE_CHECKING:
    from ._session import Session

_ROOM = 64


class Done(NamedTuple):
    """A submission that is done, the object that add() got with it, and the error if it can never end."""

    ticket: Ticket
    user: Any
    error: DoorbellError | None


class Queue(Handle):
    """Submissions for which any number of threads wait together. `size`: the maximum number at a time."""

    __slots__ = ("_added", "_lock", "_next", "__weakref__")
    _free = "doorbell_queue_free"

    def __init__(self, session: Session, size: int = 256):
        handle = c_uint64()
        check(library.doorbell_queue_create(session.at, size, byref(handle)))
        self._session, self.handle = session, handle.value
        self._added: dict[int, tuple[Ticket, Any]] = {}
        self._lock, self._next = threading.Lock(), 1

    def add(self, ticket: Ticket, user: Any = None) -> None:
        """Adds a submission. Full if there is no room."""
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._added[number] = ticket, user
        code = library.doorbell_queue_add(self._session.at, self.handle, ticket.value, number)
        if code:
            self._added.pop(number, None)
            raise failed(code)

    def poll(self) -> list[Done]:
        """Takes the submissions that are done, in the order in which they were added. Never waits."""
        taken: list[Done] = []
        while True:
            some, count = (DoneStruct * _ROOM)(), c_size_t()
            check(held.doorbell_queue_poll(self._session.at, c_uint64(self.handle), some, c_size_t(_ROOM), c_size_t(sizeof(DoneStruct)), byref(count)))
            for one in some[:count.value]:
                ticket, user = self._added.pop(one.user)
                taken.append(Done(ticket, user, failed(one.code) if one.code else None))
            if count.value < _ROOM:
                return taken

    def wait(self, timeout: float | None = None) -> list[Done]:
        """Sleeps until a submission is done, and takes all that are. Empty if none is done in time."""
        code = library.doorbell_queue_wait(self._session.at, self.handle, nanoseconds(timeout))
        if code and code != TIMEOUT:
            raise failed(code)
        return self.poll()

    def fileno(self) -> int:
        """A descriptor for select and epoll: readable when a submission is done. Do not read from it."""
        descriptor = c_int32()
        check(library.doorbell_queue_descriptor(self._session.at, self.handle, byref(descriptor)))
        return descriptor.value

    def __len__(self) -> int:
        return len(self._added)


class _Loop:
    """A session's queue in an event loop, for tickets that are awaited."""

    def __init__(self, loop: asyncio.AbstractEventLoop, session: Session):
        self._loop, self._queue = loop, Queue(session, 1 << 16)
        self._reads = False

    def future(self, ticket: Ticket) -> asyncio.Future:
        future = self._loop.create_future()
        self._queue.add(ticket, future)
        if not self._reads:
            self._loop.add_reader(self._queue.fileno(), self._readable)
            self._reads = True
        return future

    def _readable(self) -> None:
        for _, future, error in self._queue.poll():
            if future.done():
                continue  # It was cancelled, but the submission continued.
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
        if not len(self._queue):
            # A closed event loop must not have the queue's descriptor.
            self._loop.remove_reader(self._queue.fileno())
            self._reads = False


_loops: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def awaited(ticket: Ticket) -> asyncio.Future:
    """A future of the running loop, done when the ticket is."""
    loop, session = asyncio.get_running_loop(), ticket._session
    of_loop = _loops.setdefault(loop, {})
    if session not in of_loop:
        of_loop[session] = _Loop(loop, session)
    return of_loop[session].future(ticket)
