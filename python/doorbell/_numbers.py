"""Numbers that go to C. ctypes cuts off what does not fit: 2**64 + 16 would become 16."""

from __future__ import annotations

from numbers import Real
from operator import index
from typing import Any

from ._errors import InvalidArgument, OutOfRange
from ._header import FOREVER

U32, U64 = (1 << 32) - 1, (1 << 64) - 1
# The maximum time, in nanoseconds: 292 years.
_TIME = (1 << 63) - 1


def _index(value: Any, what: str) -> int:
    if not isinstance(value, bool):
        try:
            return index(value)
        except TypeError:
            pass
    raise TypeError(f"{what} is an integer, not {type(value).__name__}")


def whole(value: Any, what: str, most: int = U64, error: type[ValueError] = InvalidArgument, least: int = 0) -> int:
    """An integer from `least` to `most`. Also NumPy's, but neither a bool nor a float."""
    number: int = value if type(value) is int else _index(value, what)
    if least <= number <= most:
        return number
    if number < 0 and least == 0:
        raise error(f"{what} is not negative: {number}")
    raise error(f"{what} is {least} to {most}, not {number}")


def offset(value: Any, what: str = "an offset") -> int:
    """An offset or a length in memory."""
    return whole(value, what, U64, OutOfRange)


def _seconds(value: Any, what: str) -> float:
    # (A Real: also NumPy's, but not Decimal.)
    if type(value) is not float and (isinstance(value, bool) or not isinstance(value, Real)):
        raise TypeError(f"{what} is a number of seconds, not {type(value).__name__}")
    if value != value:
        raise ValueError(f"{what} is a number of seconds, not NaN")
    return float(value)


def nanoseconds(seconds: Any) -> int:
    """A timeout. None and infinity: no limit. A negative one: no wait."""
    if seconds is None:
        return FOREVER
    seconds = _seconds(seconds, "a timeout")
    return max(0, int(seconds * 1e9)) if seconds < _TIME / 1e9 else FOREVER


def duration(seconds: Any, what: str) -> int:
    """Nanoseconds above 0: for C, 0 means that there is no such time."""
    if not 0 < _seconds(seconds, what) < _TIME / 1e9:
        raise InvalidArgument(f"{what} is above 0 and below {_TIME / 1e9:.0f} seconds, not {seconds}")
    return max(1, int(seconds * 1e9))
