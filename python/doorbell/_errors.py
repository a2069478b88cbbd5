"""What can go wrong, a class for each code that a program may want to tell apart."""


class DoorbellError(RuntimeError):
    """A call of doorbell's failed. `code` is doorbell.h's DOORBELL_..."""

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
    """It was closed, or belongs to a session that was."""


class Freed(DoorbellError):
    """The memory behind a buffer was freed."""


class OutOfRange(DoorbellError, ValueError):
    """The bytes do not lie within the buffer."""


class Busy(DoorbellError):
    """Another thread submits on this lane at this moment; it may be tried again."""


class Full(DoorbellError):
    """Too many submissions are under way; it may be tried again when one is done."""


class Overrun(DoorbellError):
    """The producer has come round a ring."""


class Timeout(DoorbellError, TimeoutError):
    """Not done in time."""


class NotPinnable(DoorbellError, ValueError):
    """The memory cannot be pinned."""


class Unavailable(DoorbellError):
    """Not possible on this machine."""


class NoLibrary(ImportError):
    """There is no libdoorbell.so."""


class NotLaunchable(DoorbellError, ValueError):
    """A CUDA graph has something that doorbell does not launch, or cannot be read."""


CODES = {1: Closed, 2: Forked, 3: InvalidHandle, 4: Freed, 5: OutOfRange, 6: Busy, 7: Full, 8: Overrun, 11: Timeout,
         14: NotPinnable, 15: Unavailable, 19: NotLaunchable}
