"""Errors: a class for each code that a program may need to distinguish."""

from __future__ import annotations


class DoorbellError(RuntimeError):
    """A doorbell call failed. `code` is doorbell.h's DOORBELL_..."""

    code: int | None = None

    def __init__(self, text: str, code: int | None = None):
        super().__init__(text)
        if code is not None:
            self.code = code


class Closed(DoorbellError):
    """The session is not open."""


class Forked(DoorbellError):
    """This is a forked child: it has no session. Start children with the method 'spawn'."""


class InvalidHandle(DoorbellError):
    """The object was closed, or belongs to a closed session."""


class Freed(DoorbellError):
    """A buffer's memory was freed."""


class OutOfRange(DoorbellError, ValueError):
    """An offset or length is outside the buffer."""


class Busy(DoorbellError):
    """Another thread is submitting on this lane now: try again."""


class Full(DoorbellError):
    """Too many submissions are pending: try again when one is done."""


class Overrun(DoorbellError):
    """The producer has reached a frame of the ring that is still being copied."""


class Timeout(DoorbellError, TimeoutError):
    """Not done in time."""


class LimitReached(DoorbellError):
    """No more of these at a time: close some first."""


class InvalidArgument(DoorbellError, ValueError):
    """An argument is not allowed. The text gives the reason."""


class Killed(DoorbellError):
    """The GPU reported an error for the lane, which ended all its submissions."""


class Stopped(DoorbellError):
    """The lane was stopped, which ended all its submissions: memory of a pending one was freed, or the work before it ended."""


class NotPinnable(DoorbellError, ValueError):
    """The memory cannot be pinned."""


class Unavailable(DoorbellError):
    """Not possible on this machine."""


class NoLibrary(ImportError):
    """There is no libdoorbell.so."""


class NotLaunchable(DoorbellError, ValueError):
    """doorbell cannot launch or read the CUDA graph. The text gives the reason."""


CODES: dict[int, type[DoorbellError]] = {
    1: Closed, 2: Forked, 3: InvalidHandle, 4: Freed, 5: OutOfRange, 6: Busy, 7: Full, 8: Overrun, 9: LimitReached, 10: InvalidArgument,
    11: Timeout, 12: Killed, 13: Stopped, 14: NotPinnable, 15: Unavailable, 19: NotLaunchable}
for _number, _kind in CODES.items():
    _kind.code = _number
