"""libdoorbell.so, found and declared, in two ways.

`library` lets other Python threads run during each call, and takes Python's lock (the GIL) back afterwards. Beside a thread that
computes, that takes up to sys.getswitchinterval(), 5 ms: a thousand times as long as a small copy. `held` keeps the GIL. It is for
calls of nanoseconds to a few microseconds that wait for no thread which may need the GIL; a wait is bounded by SPIN.
"""

import ctypes
import os
from ctypes import POINTER, c_bool, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

from ._errors import CODES, DoorbellError, Unavailable

FOREVER = (1 << 64) - 1
HOST, VIDEO = 0, 1
ANY, BESIDE_CUDA, SOFTWARE = 0, 1, 2
CHECK, OWN_PROFILE = 1, 2
STEP_COPY, STEP_LAUNCH = 0, 1
STEP_BY = {None: 0, "inline": 1, "engine": 2, "stores": 4}
CHAIN_ORDER = {None: 0, "engines": 1, "counter": 4}
CHAIN_HOST_COUNTER, CHAIN_BESIDE = 2, 8
WAYS = ("engine", "inline", "stores", "loads")
LOG = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)


class Options(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("kind", c_uint32), ("gpu", c_uint32), ("lanes", c_uint32), ("flags", c_uint32),
                ("log", LOG), ("log_user", c_void_p), ("profile", c_char_p)]


class Piece(ctypes.Structure):
    _fields_ = [("to", c_uint64), ("to_offset", c_uint64), ("from_", c_uint64), ("from_offset", c_uint64), ("bytes", c_uint64)]


class Word(ctypes.Structure):
    _fields_ = [("buffer", c_uint64), ("offset", c_uint64), ("value", c_uint32)]


class Step(ctypes.Structure):
    _fields_ = [("kind", c_uint32), ("flags", c_uint32), ("graph", c_uint64), ("to", c_uint64), ("to_offset", c_uint64),
                ("from_", c_uint64), ("from_offset", c_uint64), ("bytes", c_uint64)]


class FrameStruct(ctypes.Structure):
    _fields_ = [("index", c_uint32), ("offset", c_uint64), ("pointer", c_void_p)]


TIMEOUT = 12
# A wait keeps the GIL for so long, nanoseconds, then lets go of it: most copies of up to 1 MiB are done by then.
SPIN = 50_000

ANSWER = POINTER(c_uint64)
# Name -> arguments. All of these answer a code.
FUNCTIONS = {
    "doorbell_init": [],
    "doorbell_open": [POINTER(Options)],
    "doorbell_close": [],
    "doorbell_pin": [c_void_p, c_size_t, ANSWER],
    "doorbell_allocate": [c_uint32, c_size_t, ANSWER, POINTER(c_void_p)],
    "doorbell_unpin": [c_uint64],
    "doorbell_buffer": [c_uint64, POINTER(c_void_p), ANSWER],
    "doorbell_explain": [c_uint64, c_uint64, c_uint64, c_bool, POINTER(c_uint32), c_char_p, c_size_t],
    "doorbell_copy": [c_uint64, c_uint64, c_uint64, c_uint64, c_uint64, c_uint64],
    "doorbell_copy_async": [c_uint64, c_uint64, c_uint64, c_uint64, c_uint64, ANSWER],
    "doorbell_copy_batch": [POINTER(Piece), c_size_t, ANSWER],
    "doorbell_copy_ordered": [POINTER(Piece), c_size_t, POINTER(Word), POINTER(Word), ANSWER],
    "doorbell_copy_after_stream": [POINTER(Piece), c_size_t, c_void_p, ANSWER],
    "doorbell_hold_stream": [c_void_p, c_uint64],
    "doorbell_prepare": [c_uint64, c_uint64, c_uint64, c_uint64, c_uint64, ANSWER],
    "doorbell_prepare_bytes": [c_uint64, c_uint64, c_uint64, ANSWER],
    "doorbell_submit": [c_uint64, ANSWER],
    "doorbell_submit_bytes": [c_uint64, c_void_p, c_size_t, ANSWER],
    "doorbell_release": [c_uint64],
    "doorbell_wait": [c_uint64, c_uint64],
    "doorbell_poll": [c_uint64, POINTER(c_bool)],
    "doorbell_query": [c_uint64, ANSWER],
    "doorbell_ring_open": [c_uint64, c_uint64, c_uint64, c_uint64, c_uint64, c_uint32, ANSWER],
    "doorbell_ring_next": [c_uint64, POINTER(FrameStruct)],
    "doorbell_ring_submit": [c_uint64, ANSWER],
    "doorbell_ring_close": [c_uint64],
    "doorbell_message_open": [c_uint64, c_uint64, c_uint64, c_uint64, ANSWER],
    "doorbell_message_send": [c_uint64, c_void_p, c_size_t, POINTER(c_uint32)],
    "doorbell_message_wait": [c_uint64, c_uint32, c_void_p, c_uint64],
    "doorbell_message_close": [c_uint64],
    "doorbell_graph_prepare": [c_void_p, c_void_p, ANSWER],
    "doorbell_graph_instantiate": [c_void_p, c_void_p, ANSWER],
    "doorbell_kernel_prepare": [c_void_p, POINTER(c_uint32), POINTER(c_uint32), c_uint32, POINTER(c_void_p), c_void_p, ANSWER],
    "doorbell_graph_kernels": [c_uint64, POINTER(c_uint32), c_size_t, POINTER(c_size_t)],
    "doorbell_graph_set_param": [c_uint64, c_uint32, c_uint32, c_void_p, c_size_t],
    "doorbell_graph_set_pointer": [c_uint64, c_uint32, c_uint32, c_uint64, c_uint64],
    "doorbell_chain_prepare": [POINTER(Step), c_size_t, c_uint32, ANSWER],
    "doorbell_launch": [c_uint64, ANSWER],
    "doorbell_launch_after": [c_uint64, c_uint64, ANSWER],
    "doorbell_submit_after": [c_uint64, c_uint64, ANSWER],
    "doorbell_copy_after": [POINTER(Piece), c_size_t, c_uint64, ANSWER],
    "doorbell_launch_after_stream": [c_uint64, c_void_p, ANSWER],
    "doorbell_graph_free": [c_uint64],
}


def _places():
    named = os.environ.get("DOORBELL_LIB")
    if named:
        # The one that is named, or none.
        return [named]
    return [os.path.join(os.path.dirname(__file__), "libdoorbell.so"), "libdoorbell.so"]


def _load():
    reasons = []
    for place in _places():
        try:
            library = ctypes.CDLL(place)
        except OSError as error:
            reasons.append(str(error))
            continue
        for name, arguments in FUNCTIONS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, c_int32
        library.doorbell_version.argtypes, library.doorbell_version.restype = [], c_uint32
        return library
    raise ImportError("no libdoorbell.so: name it in DOORBELL_LIB, or put it beside the package: " + "; ".join(reasons))


library = _load()
# The same functions. Nothing is declared, because arguments are converted faster so: they have to be of ctypes already, c_uint64(7)
# and not 7, and answers are passed by byref().
held = ctypes.PyDLL(library._name, handle=library._handle)
held.doorbell_error_text.argtypes, held.doorbell_error_text.restype = [c_int32], c_char_p
held.doorbell_error_detail.argtypes, held.doorbell_error_detail.restype = [], c_char_p


def failed(code):
    text = held.doorbell_error_text(code).decode()
    detail = held.doorbell_error_detail().decode(errors="replace")
    return CODES.get(code, DoorbellError)(detail or text, code)


def check(code):
    if code:
        raise failed(code)


def version():
    """The library's version: (major, minor, patch)."""
    number = library.doorbell_version()
    return number >> 16, number >> 8 & 0xff, number & 0xff


# CUDA's driver calls are seen from here on. Without libcuda there is nothing to see, and a session can say so later.
_code = library.doorbell_init()
_why_not = failed(_code) if _code else None


def watching():
    """Whether CUDA's driver calls have been seen since the import. Without it, says why."""
    if _why_not is None:
        return True
    raise Unavailable(str(_why_not), _why_not.code)
