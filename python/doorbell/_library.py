"""libdoorbell.so, found and declared, in two ways.

`library` lets other Python threads run during each call, and takes Python's lock (the GIL) back afterwards. While another thread
computes, that takes up to sys.getswitchinterval(), 5 ms: a thousand times as long as a small copy. `held` keeps the GIL. It is for
calls of nanoseconds to a few microseconds that wait for no thread that may need the GIL. SPIN limits a wait.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from ctypes import c_bool, c_char_p, c_int32

from ._errors import CODES, DoorbellError, NoLibrary, Unavailable
from ._header import (BY_ENGINE, BY_INLINE, BY_LOADS, BY_STORES, CHAIN_COUNTER, CHAIN_ENGINES, FUNCTIONS, STEP_ENGINE, STEP_INLINE,
                      STEP_STORES, FOREVER, TIMEOUT)

STEP_BY = {None: 0, "inline": STEP_INLINE, "engine": STEP_ENGINE, "stores": STEP_STORES}
CHAIN_ORDER = {None: 0, "engines": CHAIN_ENGINES, "counter": CHAIN_COUNTER}
WAYS = {BY_ENGINE: "engine", BY_INLINE: "inline", BY_STORES: "stores", BY_LOADS: "loads"}
# A wait keeps the GIL for this long, in nanoseconds, and then releases it: most copies of up to 1 MiB are done by then.
SPIN = 50_000
# A longer wait returns to Python after each of these, which then runs the handlers of signals (Ctrl-C).
_TURN = 50_000_000


def _places() -> list[str]:
    named = os.environ.get("DOORBELL_LIB")
    if named:
        # Only the named one.
        return [named]
    return [os.path.join(os.path.dirname(__file__), "libdoorbell.so"), "libdoorbell.so"]


def _load() -> ctypes.CDLL:
    reasons: list[str] = []
    for place in _places():
        try:
            library = ctypes.CDLL(place)
        except OSError as error:
            reasons.append(str(error))
            continue
        missing = [name for name in FUNCTIONS if not hasattr(library, name)]
        if missing:
            reasons.append(f"{place}: it is of another version than this package, without {missing[0]}")
            continue
        for name, (answer, arguments) in FUNCTIONS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, answer
        return library
    raise NoLibrary("no libdoorbell.so: name it in DOORBELL_LIB, or put it beside the package: " + "; ".join(reasons))


library = _load()
# The same functions, without declarations, because arguments are then converted faster. They must already be ctypes values, c_uint64(7)
# and not 7, and results are passed by byref().
held = ctypes.PyDLL(library._name, handle=library._handle)
held.doorbell_error_text.argtypes, held.doorbell_error_text.restype = [c_int32], c_char_p
held.doorbell_error_detail.argtypes, held.doorbell_error_detail.restype = [], c_char_p


def failed(code: int) -> DoorbellError:
    text = held.doorbell_error_text(code).decode()
    detail = held.doorbell_error_detail().decode(errors="replace")
    return CODES.get(code, DoorbellError)(detail or text, code)


def check(code: int) -> None:
    if code:
        raise failed(code)


def waited(wait: Callable[[int], int], limit: int) -> int:
    """Calls wait(nanoseconds) for `limit` nanoseconds, until its code is not TIMEOUT."""
    end = None if limit == FOREVER else time.monotonic_ns() + limit
    while True:
        left = _TURN if end is None else end - time.monotonic_ns()
        code = wait(max(0, min(left, _TURN)))
        if code != TIMEOUT or left < _TURN:
            return code


def version() -> tuple[int, int, int]:
    """The library's version: (major, minor, patch)."""
    number = library.doorbell_version()
    return number >> 16, number >> 8 & 0xff, number & 0xff


# doorbell observes CUDA's driver calls from here on. Without libcuda there are none: opening a session reports this later.
_code = library.doorbell_init()
_why_not = failed(_code) if _code else None


def watching() -> bool:
    """Whether doorbell has observed CUDA's driver calls since CUDA was initialised. False: CUDA was initialised before the import. Then copies work
    if the kernel driver reports CUDA's state, and graphs do not work. Raises Unavailable, with the reason, without CUDA."""
    if _why_not is not None:
        raise Unavailable(str(_why_not), _why_not.code)
    answer = c_bool()
    check(library.doorbell_watching(ctypes.byref(answer)))
    return answer.value
