"""doorbell.h for ctypes: constants without DOORBELL_, structures, and the arguments of each function.

Generated from crates/gpu/libdoorbell. Do not edit."""

import ctypes
from ctypes import POINTER, c_bool, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

VERSION_MAJOR = 0
VERSION_MINOR = 9
VERSION_PATCH = 0
FOREVER = (1 << 64) - 1
ORDER_STREAM = 1
ORDER_STREAM_WAITS = 2
OK = 0
CLOSED = 1
FORKED = 2
HANDLE = 3
FREED = 4
OUTSIDE = 5
BUSY = 6
FULL = 7
OVERRUN = 8
LIMIT = 9
ARGUMENT = 10
TIMEOUT = 11
KILLED = 12
STOPPED = 13
NOT_PINNABLE = 14
UNAVAILABLE = 15
DRIVER = 16
CUDA = 17
PANIC = 18
GRAPH = 19
ANY = 0
BESIDE_CUDA = 1
SOFTWARE = 2
CHECK = 1
OWN_PROFILE = 2
SPARE_KERNELS = 4
HOST = 0
VIDEO = 1
BY_ENGINE = 0
BY_INLINE = 1
BY_STORES = 2
BY_LOADS = 3
PAGES_DISTINCT = 1
MESSAGE_BYTES = 56
OWN_LAUNCH_LANE = 4294967295
STEP_COPY = 0
STEP_LAUNCH = 1
STEP_INLINE = 1
STEP_ENGINE = 2
STEP_STORES = 4
CHAIN_ENGINES = 1
CHAIN_HOST_COUNTER = 2
CHAIN_COUNTER = 4
CHAIN_BESIDE = 8
TAKE_IN_ORDER = 0
TAKE_NEWEST = 1
LATE_SKIP = 0
LATE_CATCH_UP = 1
LATE_NEWEST = 2
LOOP_STOP_UNREAD = 1
LOOP_SPIN = 2
LOOP_LOCK_MEMORY = 4
LOOP_REQUIRED = 8
LOOP_ALONE = 16
SCHEDULING_ORDINARY = 0
SCHEDULING_FIFO = 1
SCHEDULING_DEADLINE = 2


class Order(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("flags", c_uint32),
        ("ticket_count", c_uint32),
        ("tickets", POINTER(c_uint64)),
        ("stream", c_void_p),
        ("event", c_void_p),
        ("wait_buffer", c_uint64),
        ("wait_offset", c_uint64),
        ("signal_buffer", c_uint64),
        ("signal_offset", c_uint64),
        ("wait_value", c_uint32),
        ("signal_value", c_uint32),
    ]

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
        ("launch_lanes", c_uint32),
    ]


class Piece(ctypes.Structure):
    _fields_ = [
        ("to", c_uint64),
        ("to_offset", c_uint64),
        ("from_", c_uint64),
        ("from_offset", c_uint64),
        ("bytes", c_uint64),
    ]


class Part(ctypes.Structure):
    _fields_ = [
        ("to", c_uint64),
        ("to_offset", c_uint64),
        ("from_", c_uint64),
        ("from_offset", c_uint64),
    ]


class Pages(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("bytes", c_uint64),
        ("to_stride", c_uint64),
        ("from_stride", c_uint64),
        ("to_index", c_void_p),
        ("from_index", c_void_p),
        ("count", c_size_t),
        ("index_size", c_uint32),
        ("flags", c_uint32),
    ]


class Done(ctypes.Structure):
    _fields_ = [
        ("ticket", c_uint64),
        ("user", c_uint64),
        ("code", c_int32),
    ]


class Frame(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("offset", c_uint64),
        ("pointer", c_void_p),
        ("index", c_uint32),
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


class Loop_options(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("chain", c_uint64),
        ("input", c_uint64),
        ("input_offset", c_uint64),
        ("input_bytes", c_uint64),
        ("output", c_uint64),
        ("output_offset", c_uint64),
        ("output_bytes", c_uint64),
        ("slots", c_uint32),
        ("results", c_uint32),
        ("period_ns", c_uint64),
        ("first_ns", c_uint64),
        ("deadline_ns", c_uint64),
        ("spin_ns", c_uint64),
        ("limit_ns", c_uint64),
        ("take", c_uint32),
        ("late", c_uint32),
        ("flags", c_uint32),
        ("signal_each", c_uint32),
        ("scheduling", c_uint32),
        ("priority", c_int32),
        ("cpu", c_uint32),
        ("reserved", c_uint32),
        ("runtime_ns", c_uint64),
        ("runtime_within_ns", c_uint64),
        ("runtime_each_ns", c_uint64),
        ("name", c_char_p),
    ]


class Result(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("frame", c_uint64),
        ("sequence", c_uint64),
        ("tag", c_uint64),
        ("due_ns", c_uint64),
        ("put_ns", c_uint64),
        ("launched_ns", c_uint64),
        ("done_ns", c_uint64),
        ("deadline_ns", c_uint64),
        ("skipped", c_uint64),
        ("refused", c_bool),
        ("late", c_bool),
    ]


class Loop_statistics(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("frames", c_uint64),
        ("missed", c_uint64),
        ("late", c_uint64),
        ("skipped", c_uint64),
        ("starved", c_uint64),
        ("overruns", c_uint64),
        ("busy", c_uint64),
        ("done_p50_ns", c_uint64),
        ("done_p99_ns", c_uint64),
        ("done_p999_ns", c_uint64),
        ("done_max_ns", c_uint64),
        ("wake_p50_ns", c_uint64),
        ("wake_p99_ns", c_uint64),
        ("wake_p999_ns", c_uint64),
        ("wake_max_ns", c_uint64),
        ("state", c_uint32),
        ("reason", c_uint32),
    ]


# Name -> what it answers, and its arguments.
FUNCTIONS = {
    "doorbell_error_text": (c_char_p, [c_int32]),
    "doorbell_error_detail": (c_char_p, []),
    "doorbell_version": (c_uint32, []),
    "doorbell_init": (c_int32, []),
    "doorbell_watching": (c_int32, [POINTER(c_bool)]),
    "doorbell_create": (c_int32, [POINTER(Options), POINTER(c_void_p)]),
    "doorbell_free": (c_int32, [c_void_p]),
    "doorbell_buffer_register": (c_int32, [c_void_p, c_void_p, c_size_t, POINTER(c_uint64)]),
    "doorbell_buffer_create": (c_int32, [c_void_p, c_uint32, c_size_t, POINTER(c_uint64), POINTER(c_void_p)]),
    "doorbell_buffer_get": (c_int32, [c_void_p, c_uint64, POINTER(c_void_p), POINTER(c_uint64)]),
    "doorbell_buffer_free": (c_int32, [c_void_p, c_uint64]),
    "doorbell_copy": (c_int32, [c_void_p, c_uint64, c_uint64, c_uint64, c_uint64, c_uint64, c_uint64]),
    "doorbell_copy_async": (c_int32, [c_void_p, c_uint64, c_uint64, c_uint64, c_uint64, c_uint64, POINTER(Order), POINTER(c_uint64)]),
    "doorbell_copy_batch_async": (c_int32, [c_void_p, POINTER(Piece), c_size_t, c_size_t, POINTER(Order), POINTER(c_uint64)]),
    "doorbell_pages_async": (c_int32, [c_void_p, POINTER(Part), c_size_t, c_size_t, POINTER(Pages), POINTER(Order), POINTER(c_uint64)]),
    "doorbell_copy_explain": (c_int32, [c_void_p, c_uint64, c_uint64, c_uint64, c_bool, POINTER(c_uint32), c_char_p, c_size_t]),
    "doorbell_transfer_create": (c_int32, [c_void_p, c_uint64, c_uint64, c_uint64, c_uint64, c_uint64, POINTER(c_uint64)]),
    "doorbell_transfer_create_bytes": (c_int32, [c_void_p, c_uint64, c_uint64, c_uint64, POINTER(c_uint64)]),
    "doorbell_transfer_async": (c_int32, [c_void_p, c_uint64, POINTER(Order), POINTER(c_uint64)]),
    "doorbell_transfer_bytes_async": (c_int32, [c_void_p, c_uint64, c_void_p, c_size_t, POINTER(Order), POINTER(c_uint64)]),
    "doorbell_transfer_free": (c_int32, [c_void_p, c_uint64]),
    "doorbell_wait": (c_int32, [c_void_p, c_uint64, c_uint64]),
    "doorbell_wait_sleeping": (c_int32, [c_void_p, c_uint64, c_uint64, c_uint64]),
    "doorbell_wait_any": (c_int32, [c_void_p, POINTER(c_uint64), c_size_t, c_uint64, POINTER(c_size_t)]),
    "doorbell_wait_all": (c_int32, [c_void_p, POINTER(c_uint64), c_size_t, c_uint64]),
    "doorbell_poll": (c_int32, [c_void_p, c_uint64, POINTER(c_bool)]),
    "doorbell_pending": (c_int32, [c_void_p, c_uint64, POINTER(c_uint64)]),
    "doorbell_stream_wait": (c_int32, [c_void_p, c_void_p, c_uint64]),
    "doorbell_queue_create": (c_int32, [c_void_p, c_size_t, POINTER(c_uint64)]),
    "doorbell_queue_add": (c_int32, [c_void_p, c_uint64, c_uint64, c_uint64]),
    "doorbell_queue_poll": (c_int32, [c_void_p, c_uint64, POINTER(Done), c_size_t, c_size_t, POINTER(c_size_t)]),
    "doorbell_queue_wait": (c_int32, [c_void_p, c_uint64, c_uint64]),
    "doorbell_queue_remove": (c_int32, [c_void_p, c_uint64, c_uint64, POINTER(c_bool)]),
    "doorbell_queue_descriptor": (c_int32, [c_void_p, c_uint64, POINTER(c_int32)]),
    "doorbell_queue_free": (c_int32, [c_void_p, c_uint64]),
    "doorbell_ring_create": (c_int32, [c_void_p, c_uint64, c_uint64, c_uint64, c_uint64, c_uint64, c_uint32, POINTER(c_uint64)]),
    "doorbell_ring_next": (c_int32, [c_void_p, c_uint64, POINTER(Frame)]),
    "doorbell_ring_async": (c_int32, [c_void_p, c_uint64, POINTER(Order), POINTER(c_uint64)]),
    "doorbell_ring_free": (c_int32, [c_void_p, c_uint64]),
    "doorbell_message_create": (c_int32, [c_void_p, c_uint64, c_uint64, c_uint64, c_uint64, POINTER(c_uint64)]),
    "doorbell_message_send": (c_int32, [c_void_p, c_uint64, c_void_p, c_size_t, POINTER(c_uint32)]),
    "doorbell_message_wait": (c_int32, [c_void_p, c_uint64, c_uint32, c_void_p, c_uint64]),
    "doorbell_message_free": (c_int32, [c_void_p, c_uint64]),
    "doorbell_graph_create": (c_int32, [c_void_p, c_void_p, c_void_p, POINTER(c_uint64)]),
    "doorbell_graph_instantiate": (c_int32, [c_void_p, c_void_p, c_void_p, POINTER(c_uint64)]),
    "doorbell_graph_create_kernel": (c_int32, [c_void_p, c_void_p, POINTER(c_uint32), POINTER(c_uint32), c_uint32, POINTER(c_void_p), c_void_p, POINTER(c_uint64)]),
    "doorbell_graph_create_copy": (c_int32, [c_void_p, c_uint64, c_uint32, POINTER(c_uint64)]),
    "doorbell_graph_kernels": (c_int32, [c_void_p, c_uint64, POINTER(c_uint32), c_size_t, POINTER(c_size_t)]),
    "doorbell_graph_set_param": (c_int32, [c_void_p, c_uint64, c_uint32, c_uint32, c_void_p, c_size_t]),
    "doorbell_graph_set_pointer": (c_int32, [c_void_p, c_uint64, c_uint32, c_uint32, c_uint64, c_uint64]),
    "doorbell_graph_launch": (c_int32, [c_void_p, c_uint64, POINTER(Order), POINTER(c_uint64)]),
    "doorbell_graph_free": (c_int32, [c_void_p, c_uint64]),
    "doorbell_chain_create": (c_int32, [c_void_p, POINTER(Step), c_size_t, c_size_t, c_uint32, POINTER(c_uint64)]),
    "doorbell_loop_create": (c_int32, [c_void_p, POINTER(Loop_options), POINTER(c_uint64)]),
    "doorbell_loop_put": (c_int32, [c_void_p, c_uint64, c_void_p, c_size_t, c_uint64, c_uint64, c_uint64, POINTER(c_uint64)]),
    "doorbell_loop_next": (c_int32, [c_void_p, c_uint64, POINTER(Result), c_void_p, c_size_t, POINTER(c_bool)]),
    "doorbell_loop_wait": (c_int32, [c_void_p, c_uint64, c_uint64]),
    "doorbell_loop_descriptor": (c_int32, [c_void_p, c_uint64, POINTER(c_int32)]),
    "doorbell_loop_statistics": (c_int32, [c_void_p, c_uint64, POINTER(Loop_statistics), c_char_p, c_size_t]),
    "doorbell_loop_stop": (c_int32, [c_void_p, c_uint64]),
    "doorbell_loop_free": (c_int32, [c_void_p, c_uint64]),
    "doorbell_recording_pause": (c_int32, [POINTER(c_bool)]),
    "doorbell_recording_resume": (c_int32, [POINTER(c_bool)]),
    "doorbell_recording_get": (c_int32, [POINTER(c_bool)]),
}
