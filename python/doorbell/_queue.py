"""Waiting for many submissions together, in threads and in asyncio."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from ctypes import byref, c_int32, c_size_t, c_uint64, sizeof
from typing import TYPE_CHECKING, Any, NamedTuple

from ._errors import Closed, DoorbellError
from ._handle import Handle
from ._header import TIMEOUT
from ._header import Done as DoneStruct
from ._library import check, failed, held, library, waited
from ._numbers import nanoseconds, whole
from ._ticket import Ticket

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

    __slots__ = ("_added", "_lock", "_next")
    _free = "doorbell_queue_free"

    def __init__(self, session: Session, size: int = 256):
        handle = c_uint64()
        check(library.doorbell_queue_create(session.at, whole(size, "a queue's size"), byref(handle)))
        self._added: dict[int, tuple[Ticket, Any]] = {}
        self._lock, self._next = threading.Lock(), 1
        self._begin(session, handle.value)

    def add(self, ticket: Ticket, user: Any = None) -> None:
        """Adds a submission. Full if there is no room."""
        if not isinstance(ticket, Ticket):
            raise TypeError(f"a queue is of tickets, not of {type(ticket).__name__}")
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._added[number] = ticket, user
        code = library.doorbell_queue_add(self._session.at, self._handle, ticket.value, number)
        if code:
            self._added.pop(number, None)
            raise failed(code)

    def poll(self) -> list[Done]:
        """Takes the submissions that are done, in the order in which they were added. Never waits."""
        return self._take(self._session.at)

    def _take(self, at: Any) -> list[Done]:
        taken: list[Done] = []
        while True:
            some, count = (DoneStruct * _ROOM)(), c_size_t()
            check(held.doorbell_queue_poll(at, c_uint64(self._handle), some, c_size_t(_ROOM), c_size_t(sizeof(DoneStruct)), byref(count)))
            for one in some[:count.value]:
                ticket, user = self._added.pop(one.user)
                taken.append(Done(ticket, user, failed(one.code) if one.code else None))
            if count.value < _ROOM:
                return taken

    def wait(self, timeout: float | None = None) -> list[Done]:
        """Sleeps until a submission is done, and takes all that are. Empty if none is done in time."""
        at, handle = self._session.at, self._handle
        code = waited(lambda turn: library.doorbell_queue_wait(at, handle, turn), nanoseconds(timeout))
        if code and code != TIMEOUT:
            raise failed(code)
        return self.poll()

    def fileno(self) -> int:
        """A descriptor for select and epoll: readable when a submission is done. Do not read from it."""
        descriptor = c_int32()
        check(library.doorbell_queue_descriptor(self._session.at, self._handle, byref(descriptor)))
        return descriptor.value

    def __len__(self) -> int:
        return len(self._added)


class Awaited:
    """The tickets of a session that an event loop awaits now: a queue, whose descriptor the loop watches. It ends with the last of them, so that
    neither the loop nor the session keeps anything of the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop, session: Session):
        self._loop, self._session, self._queue = loop, session, Queue(session, 1 << 16)
        self._futures: dict[asyncio.Future[None], Ticket] = {}
        # The library closes its own descriptor with the session, in any thread. Its number may be another file's before the loop has forgotten it.
        self._descriptor = os.dup(self._queue.fileno())
        loop.add_reader(self._descriptor, self._readable)

    def future(self, ticket: Ticket) -> asyncio.Future[None]:
        future = self._loop.create_future()
        self._futures[future] = ticket
        try:
            self._queue.add(ticket, future)
        except DoorbellError:
            self._over(future)
            raise
        future.add_done_callback(self._over)
        return future

    def _over(self, future: asyncio.Future[None]) -> None:
        # It has a result, or it was cancelled: then the submission continues.
        self._futures.pop(future, None)
        if not self._futures:
            self.end()

    def _readable(self) -> None:
        try:
            self._settle(self._queue._take(self._session._opened))
        except DoorbellError as error:
            # (session_closes() has taken the results.)
            if not self._session.closed:
                self._fail(error)

    def _settle(self, taken: list[Done]) -> None:
        for _, future, error in taken:
            if future.done():
                continue  # It was cancelled.
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

    def _fail(self, error: DoorbellError) -> None:
        for future in list(self._futures):
            if not future.done():
                future.set_exception(error)

    def end(self) -> None:
        """In the loop's thread, or after the loop was closed."""
        if self._session._awaited.get(self._loop) is self:
            del self._session._awaited[self._loop]
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(descriptor)
            os.close(descriptor)
        self._queue.__exit__()

    def session_closes(self, until: float) -> None:
        """In the thread that closes the session, which is still open: waits for the submissions until a time, as the library does, so that each future
        gets its true result."""
        for ticket in list(self._futures.values()):
            library.doorbell_wait(self._session._opened, ticket.value, nanoseconds(until - time.monotonic()))
        try:
            taken = self._queue._take(self._session._opened)
        except DoorbellError:
            taken = []

        def closed() -> None:
            self._settle(taken)
            self._fail(Closed("the session was closed before the submission was done"))
            self.end()

        try:
            self._loop.call_soon_threadsafe(closed)
        except RuntimeError:
            self.end()  # The loop is closed: nothing awaits any more.


def awaited(ticket: Ticket) -> asyncio.Future[None]:
    """A future of the running loop, done when the ticket is."""
    loop, session = asyncio.get_running_loop(), ticket._session
    session.at  # (Closed, if the session is.)
    if loop not in session._awaited:
        for other in list(session._awaited.values()):
            if other._loop.is_closed():
                other.end()
        session._awaited[loop] = Awaited(loop, session)
    return session._awaited[loop].future(ticket)
