"""Errors: a class for each code that a program may need to distinguish."""


class DoorbellError(RuntimeError):
    """A doorbell call failed. `code` is doorbell.h's DOORBELL_..."""

    code = None

    def __init__(self, text, code=None):
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


class NotPinnable(DoorbellError, ValueError):
    """The memory cannot be pinned."""


class Unavailable(DoorbellError):
    """Not possible on this machine."""


class NoLibrary(ImportError):
    """There is no libdoorbell.so."""


class NotLaunchable(DoorbellError, ValueError):
    """doorbell cannot launch or read the CUDA graph. The text gives the reason."""


CODES = {1: Closed, 2: Forked, 3: InvalidHandle, 4: Freed, 5: OutOfRange, 6: Busy, 7: Full, 8: Overrun, 11: Timeout,
         14: NotPinnable, 15: Unavailable, 19: NotLaunchable}
