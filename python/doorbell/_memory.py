"""Finds an object's memory: torch, CuPy, NumPy and all objects with their protocols."""

from __future__ import annotations

import ctypes
import sys
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_uint8, c_uint16, c_uint64, c_void_p, py_object
from typing import Any

from ._numbers import whole


class Memory:
    """Address, number of bytes, whether it is read-only, the objects that keep it alive, and whether the CPU cannot read it."""

    __slots__ = ("pointer", "bytes", "readonly", "keep", "on_gpu")

    def __init__(self, pointer: int, bytes: int, readonly: bool, keep: Any, on_gpu: bool = False):
        self.pointer, self.bytes, self.readonly, self.keep, self.on_gpu = pointer, bytes, readonly, keep, on_gpu


def memory_of(thing: Any) -> Memory:
    """The memory of an array, tensor or buffer, which must be contiguous."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(thing, numpy.generic):
        # A scalar's __array_interface__ has the address of an array that is gone when it is returned.
        memory = memory_of(numpy.asarray(thing))
        memory.readonly = True
        return memory
    for look in (_torch, _cuda_array, _numpy, _buffer, _dlpack):
        found = look(thing)
        if found is not None:
            if found.bytes == 0:
                raise ValueError("it has no bytes")
            return found
    raise TypeError(f"{type(thing).__name__} has no memory that is known here: pass a tensor, an array or a buffer")


def host_memory_of(thing: Any) -> Memory:
    """The same, of memory that the CPU reads at once."""
    memory = memory_of(thing)
    if memory.on_gpu:
        raise TypeError(f"this {type(thing).__name__} is in the GPU's memory, which the CPU does not read here: pass a CPU tensor or array, such as tensor.cpu()")
    return memory


def _torch(thing: Any) -> Memory | None:
    if not (hasattr(thing, "data_ptr") and hasattr(thing, "untyped_storage")):
        return None
    if not thing.is_contiguous():
        raise ValueError("the tensor is not contiguous: pass tensor.contiguous(), and keep it")
    for lazy in ("is_conj", "is_neg"):
        if getattr(thing, lazy, bool)():
            raise ValueError("the tensor is a conjugated or negated view: its memory has other numbers. Pass tensor.resolve_conj().resolve_neg(), and keep it")
    # Also the storage: a tensor that is set_() to another would release it.
    keep = (thing, thing.untyped_storage())
    return Memory(thing.data_ptr(), thing.numel() * thing.element_size(), False, keep, getattr(thing, "device", None) is not None and thing.device.type != "cpu")


def _array(thing: Any, interface: dict[str, Any]) -> Memory:
    kind = interface["typestr"]
    # (A time's unit follows its size: <M8[D].)
    size = int(kind[2:].partition("[")[0]) * (4 if kind[1] == "U" else 1)
    count, expected = 1, size
    shape, strides = [whole(length, "a length of the shape") for length in interface["shape"]], interface.get("strides")
    for length in shape:
        count *= length
    if strides is not None and count > 0:
        for length, stride in zip(reversed(shape), reversed(strides)):
            if length != 1 and stride != expected:
                raise ValueError("the array is not contiguous: pass a contiguous copy, and keep it")
            expected *= length
    nbytes, data = whole(count * size, "the array's number of bytes"), interface.get("data")
    if isinstance(data, tuple):
        pointer, readonly = data
        return Memory(whole(pointer or 0, "the array's address"), nbytes, bool(readonly), thing)
    # The protocol allows a buffer there, or that the object is one.
    start, memory = whole(interface.get("offset", 0), "the array's offset"), _buffer(thing if data is None else data)
    if memory is None or start + nbytes > memory.bytes:
        raise ValueError("the array's buffer is missing, or shorter than its shape")
    return Memory(memory.pointer + start, nbytes, memory.readonly, (thing, memory.keep))


def _cuda_array(thing: Any) -> Memory | None:
    interface = getattr(thing, "__cuda_array_interface__", None)
    if interface is None:
        return None
    memory = _array(thing, interface)
    memory.on_gpu = True
    return memory


def _numpy(thing: Any) -> Memory | None:
    interface = getattr(thing, "__array_interface__", None)
    return _array(thing, interface) if isinstance(interface, dict) else None


class _PyBuffer(ctypes.Structure):
    """Py_buffer."""

    _fields_ = [("buf", c_void_p), ("obj", py_object), ("len", c_ssize_t), ("itemsize", c_ssize_t), ("readonly", c_int),
                ("ndim", c_int), ("format", c_char_p), ("shape", POINTER(c_ssize_t)), ("strides", POINTER(c_ssize_t)),
                ("suboffsets", POINTER(c_ssize_t)), ("internal", c_void_p)]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes, _get_buffer.restype = [py_object, POINTER(_PyBuffer), c_int], c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes, _release_buffer.restype = [POINTER(_PyBuffer)], None


def _buffer(thing: Any) -> Memory | None:
    try:
        view = memoryview(thing)
    except TypeError:
        return None
    if not view.c_contiguous:
        raise ValueError("the buffer is not contiguous")
    raw = _PyBuffer()
    # PyBUF_SIMPLE. The memoryview is kept, and keeps the buffer exported, so that it is not resized.
    _get_buffer(view, ctypes.byref(raw), 0)
    pointer = raw.buf
    _release_buffer(ctypes.byref(raw))
    return Memory(pointer or 0, view.nbytes, view.readonly, (thing, view))


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32), ("code", c_uint8),
                ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
                ("byte_offset", c_uint64)]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes, _capsule_pointer.restype = [py_object, c_char_p], c_void_p


def _dlpack(thing: Any) -> Memory | None:
    if not hasattr(thing, "__dlpack__"):
        return None
    # The capsule owns the tensor until a consumer takes it, which none does here. It is kept, and released with this object.
    capsule = thing.__dlpack__()
    tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    shape = [tensor.shape[i] for i in range(tensor.ndim)]
    count, expected = 1, 1
    for length in shape:
        count *= length
    if tensor.strides and count > 0:
        for i in reversed(range(tensor.ndim)):
            if shape[i] != 1 and tensor.strides[i] != expected:
                raise ValueError("the tensor is not contiguous: pass a contiguous copy, and keep it")
            expected *= shape[i]
    bits = tensor.bits * tensor.lanes * count
    # kDLCPU, kDLCUDAHost.
    on_gpu = tensor.device_type not in (1, 3)
    return Memory((tensor.data or 0) + tensor.byte_offset, (bits + 7) // 8, False, (thing, capsule), on_gpu)
