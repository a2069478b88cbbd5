"""Submissions and their order."""

from __future__ import annotations

import enum
from collections.abc import Generator
from ctypes import byref, c_bool, c_uint64, pointer, sizeof
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ._errors import DoorbellError
from ._handle import Handle, not_copied
from ._header import FOREVER, ORDER_STREAM, TIMEOUT, Order
from ._library import SPIN, check, failed, held, library, waited
from ._numbers import nanoseconds, whole

if TYPE_CHECKING:
    from ._session import Session

_SPIN = c_uint64(SPIN)


class _Now(enum.Enum):
    NOW = 0

    def __repr__(self) -> str:
        return self.name


# No order. (None means a stream: the default one.)
NOW: Final = _Now.NOW


class Ticket(c_uint64):
    """A submission. Each call that submits returns one."""

    __slots__ = ("_keep", "_session")
    _keep: Any
    _session: Session

    def __init__(self) -> None:
        raise TypeError("a Ticket is returned by a call that submits, such as copy_async()")

    @classmethod
    def of(cls, session: Session, number: int = 0) -> Ticket:
        # Its value is the number that the library writes.
        ticket = cls.__new__(cls)
        if number:
            ticket.value = number
        ticket._session = session
        return ticket

    def __reduce_ex__(self, _: Any) -> NoReturn:
        not_copied(self)

    def __repr__(self) -> str:
        return f"<doorbell.Ticket {self.value:#x}>"

    @property
    def number(self) -> int:
        """doorbell.h's number of the submission."""
        return self.value

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the submission is done. timeout: seconds, or None for no limit. It keeps the GIL for 50 us, then other Python threads can run."""
        at = self._session.at
        limit = FOREVER if timeout is None else nanoseconds(timeout)
        code = held.doorbell_wait(at, self, _SPIN if limit > SPIN else c_uint64(limit))
        if code == TIMEOUT and limit > SPIN:
            code = waited(lambda turn: library.doorbell_wait(at, self.value, turn), limit if limit == FOREVER else limit - SPIN)
        if code:
            raise failed(code)
        self._keep = None

    def __await__(self) -> Generator[Any, None, None]:
        """`await ticket`, in asyncio: no thread waits. A cancelled task gives up the wait, but the submission continues."""
        if not self.done():
            from ._queue import awaited

            yield from awaited(self).__await__()
        self._keep = None

    def done(self) -> bool:
        """Whether the submission is done. It raises the error of a lane that has ended before it."""
        answer = c_bool()
        code = held.doorbell_poll(self._session.at, self, byref(answer))
        if code:
            raise failed(code)
        return answer.value

    def left(self) -> int:
        """Returns how many submissions of its lane, up to this one, are not done."""
        answer = c_uint64()
        check(held.doorbell_pending(self._session.at, self, byref(answer)))
        return answer.value

    def hold(self, stream: Any) -> None:
        """Makes all later work of a CUDA stream wait for this submission. This is a CUDA call, with CUDA's locks."""
        check(library.doorbell_stream_wait(self._session.at, stream_of(stream), self.value))


def stream_of(stream: Any) -> int | None:
    """The number of a torch.cuda.Stream or cupy.cuda.Stream, or the number itself. None: the default stream."""
    if isinstance(stream, (Handle, Ticket)):
        raise TypeError(f"a {type(stream).__name__} is no CUDA stream")
    for name in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, name):
            return whole(getattr(stream, name), "the number of a CUDA stream")
    return None if stream is None else whole(stream, "a CUDA stream, where it is no object of PyTorch's or CuPy's,")


def _event_of(thing: Any) -> int | None:
    """The number of a torch.cuda.Event or cupy.cuda.Event. None if `thing` is not an event."""
    if not hasattr(thing, "record") or not hasattr(thing, "synchronize") or hasattr(thing, "wait_event"):
        return None
    for name in ("cuda_event", "ptr"):
        if hasattr(thing, name):
            number = getattr(thing, name)
            if not number:
                raise ValueError("the event was not recorded yet")
            return whole(number, "the number of a CUDA event")
    return None


def order_of(after: Any) -> tuple[Any, bool]:
    """Converts `after` to the library's order. Returns the order, and whether it needs CUDA calls. `after` is a Ticket, a CUDA stream,
    a CUDA event, or a list of these with at most one stream and one event."""
    if after is NOW:
        return None, False
    order = Order()
    order.size = sizeof(Order)
    tickets: list[int] = []
    for one in after if isinstance(after, (list, tuple)) else (after,):
        if isinstance(one, Ticket):
            tickets.append(one.value)
            continue
        event = _event_of(one)
        if event is not None:
            if order.event:
                raise ValueError("a submission waits for one event at most: let a stream wait for the others")
            order.event = event
            continue
        if order.flags:
            raise ValueError("a submission waits for one stream at most: let that stream wait for the others")
        order.flags, order.stream = ORDER_STREAM, stream_of(one)
    if tickets:
        # (The array lives as long as the pointer to it, which the struct keeps.)
        array = (c_uint64 * len(tickets))(*tickets)
        order.ticket_count, order.tickets = len(tickets), array
    return pointer(order), bool(order.flags or order.event)


class Pinned:
    """Buffers that were pinned for one copy. They outlive a dropped ticket. Otherwise the unpin would wait for the copy, and would stop it if it
    does not end within a second, for example because it waits for a stream."""

    __slots__ = ("ticket", "buffers")

    def __init__(self, ticket: Ticket, buffers: tuple[Any, ...]):
        self.ticket, self.buffers = Ticket.of(ticket._session, ticket.value), buffers

    def __del__(self) -> None:
        if library is None:
            return
        try:
            if not self.ticket.done():
                self.ticket._session.dropped.append((self.ticket, self.buffers))
        except DoorbellError:
            pass  # The session is closed, or the channel is gone.
