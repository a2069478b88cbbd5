"""doorbell.h for ctypes: constants without DOORBELL_, structures, and the arguments of each function.

Generated from crates/gpu/libdoorbell. Do not edit."""

import ctypes
from ctypes import POINTER, c_bool, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

OK = 0
CLOSED = 1
ALREADY_OPEN = 2
FORKED = 3
HANDLE = 4
FREED = 5
OUTSIDE = 6
BUSY = 7
FULL = 8
OVERRUN = 9
LIMIT = 10
ARGUMENT = 11
TIMEOUT = 12
KILLED = 13
STOPPED = 14
NOT_PINNABLE = 15
UNAVAILABLE = 16
DRIVER = 17
CUDA = 18
PANIC = 19
GRAPH = 20
ANY = 0
BESIDE_CUDA = 1
SOFTWARE = 2
CHECK = 1
OWN_PROFILE = 2
BY_ENGINE = 0
BY_INLINE = 1
BY_STORES = 2
BY_LOADS = 3
HOST = 0
VIDEO = 1
MESSAGE_BYTES = 56
FOREVER = (1 << 64) - 1
STEP_COPY = 0
STEP_LAUNCH = 1
STEP_INLINE = 1
STEP_ENGINE = 2
STEP_STORES = 4
CHAIN_ENGINES = 1
CHAIN_HOST_COUNTER = 2
CHAIN_COUNTER = 4
CHAIN_BESIDE = 8

Log = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)


class Options(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("kind", c_uint32),
        ("gpu", c_uint32),
        ("lanes", c_uint32),
        ("flags", c_uint32),
        ("log", Log),
        ("log_user", c_void_p),
        ("profile", c_char_p),
    ]


class Piece(ctypes.Structure):
    _fields_ = [
        ("to", c_uint64),
        ("to_offset", c_uint64),
        ("from_", c_uint64),
        ("from_offset", c_uint64),
        ("bytes", c_uint64),
    ]


class Word(ctypes.Structure):
    _fields_ = [
        ("buffer", c_uint64),
        ("offset", c_uint64),
        ("value", c_uint32),
    ]


class Frame(ctypes.Structure):
    _fields_ = [
        ("index", c_uint32),
        ("offset", c_uint64),
        ("pointer", c_void_p),
    ]


class Step(ctypes.Structure):
    _fields_ = [
        ("kind", c_uint32),
        ("flags", c_uint32),
        ("graph", c_uint64),
        ("to", c_uint64),
        ("to_offset", c_uint64),
        ("from_", c_uint64),
        ("from_offset", c_uint64),
        ("bytes", c_uint64),
    ]


# Name -> what it answers, and its arguments.
FUNCTIONS = {
    "doorbell_error_text": (c_char_p, [c_int32]),
    "doorbell_error_detail": (c_char_p, []),
    "doorbell_version": (c_uint32, []),
    "doorbell_init": (c_int32, []),
    "doorbell_watching": (c_int32, [POINTER(c_bool)]),
    "doorbell_open": (c_int32, [POINTER(Options)]),
    "doorbell_close": (c_int32, []),
    "doorbell_pin": (c_int32, [c_void_p, c_size_t, POINTER(c_uint64)]),
    "doorbell_allocate": (c_int32, [c_uint32, c_size_t, POINTER(c_uint64), POINTER(c_void_p)]),
    "doorbell_unpin": (c_int32, [c_uint64]),
    "doorbell_buffer": (c_int32, [c_uint64, POINTER(c_void_p), POINTER(c_uint64)]),
    "doorbell_explain": (c_int32, [c_uint64, c_uint64, c_uint64, c_bool, POINTER(c_uint32), c_char_p, c_size_t]),
    "doorbell_copy": (c_int32, [c_uint64, c_uint64, c_uint64, c_uint64, c_uint64, c_uint64]),
    "doorbell_copy_async": (c_int32, [c_uint64, c_uint64, c_uint64, c_uint64, c_uint64, POINTER(c_uint64)]),
    "doorbell_copy_batch": (c_int32, [POINTER(Piece), c_size_t, POINTER(c_uint64)]),
    "doorbell_copy_ordered": (c_int32, [POINTER(Piece), c_size_t, POINTER(Word), POINTER(Word), POINTER(c_uint64)]),
    "doorbell_copy_after_stream": (c_int32, [POINTER(Piece), c_size_t, c_void_p, POINTER(c_uint64)]),
    "doorbell_hold_stream": (c_int32, [c_void_p, c_uint64]),
    "doorbell_prepare": (c_int32, [c_uint64, c_uint64, c_uint64, c_uint64, c_uint64, POINTER(c_uint64)]),
    "doorbell_prepare_bytes": (c_int32, [c_uint64, c_uint64, c_uint64, POINTER(c_uint64)]),
    "doorbell_submit": (c_int32, [c_uint64, POINTER(c_uint64)]),
    "doorbell_submit_bytes": (c_int32, [c_uint64, c_void_p, c_size_t, POINTER(c_uint64)]),
    "doorbell_release": (c_int32, [c_uint64]),
    "doorbell_wait": (c_int32, [c_uint64, c_uint64]),
    "doorbell_poll": (c_int32, [c_uint64, POINTER(c_bool)]),
    "doorbell_query": (c_int32, [c_uint64, POINTER(c_uint64)]),
    "doorbell_ring_open": (c_int32, [c_uint64, c_uint64, c_uint64, c_uint64, c_uint64, c_uint32, POINTER(c_uint64)]),
    "doorbell_ring_next": (c_int32, [c_uint64, POINTER(Frame)]),
    "doorbell_ring_submit": (c_int32, [c_uint64, POINTER(c_uint64)]),
    "doorbell_ring_close": (c_int32, [c_uint64]),
    "doorbell_message_open": (c_int32, [c_uint64, c_uint64, c_uint64, c_uint64, POINTER(c_uint64)]),
    "doorbell_message_send": (c_int32, [c_uint64, c_void_p, c_size_t, POINTER(c_uint32)]),
    "doorbell_message_wait": (c_int32, [c_uint64, c_uint32, c_void_p, c_uint64]),
    "doorbell_message_close": (c_int32, [c_uint64]),
    "doorbell_graph_prepare": (c_int32, [c_void_p, c_void_p, POINTER(c_uint64)]),
    "doorbell_graph_instantiate": (c_int32, [c_void_p, c_void_p, POINTER(c_uint64)]),
    "doorbell_kernel_prepare": (c_int32, [c_void_p, POINTER(c_uint32), POINTER(c_uint32), c_uint32, POINTER(c_void_p), c_void_p, POINTER(c_uint64)]),
    "doorbell_graph_kernels": (c_int32, [c_uint64, POINTER(c_uint32), c_size_t, POINTER(c_size_t)]),
    "doorbell_graph_set_param": (c_int32, [c_uint64, c_uint32, c_uint32, c_void_p, c_size_t]),
    "doorbell_graph_set_pointer": (c_int32, [c_uint64, c_uint32, c_uint32, c_uint64, c_uint64]),
    "doorbell_launch": (c_int32, [c_uint64, POINTER(c_uint64)]),
    "doorbell_launch_after_stream": (c_int32, [c_uint64, c_void_p, POINTER(c_uint64)]),
    "doorbell_graph_free": (c_int32, [c_uint64]),
    "doorbell_chain_prepare": (c_int32, [POINTER(Step), c_size_t, c_uint32, POINTER(c_uint64)]),
    "doorbell_launch_after": (c_int32, [c_uint64, c_uint64, POINTER(c_uint64)]),
    "doorbell_submit_after": (c_int32, [c_uint64, c_uint64, POINTER(c_uint64)]),
    "doorbell_copy_after": (c_int32, [POINTER(Piece), c_size_t, c_uint64, POINTER(c_uint64)]),
    "doorbell_pause_recording": (c_int32, [POINTER(c_bool)]),
    "doorbell_resume_recording": (c_int32, [POINTER(c_bool)]),
    "doorbell_is_recorded": (c_int32, [POINTER(c_bool)]),
}
