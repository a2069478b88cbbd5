"""Handles of a session: numbers that are freed once. The most common one is memory."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from ._errors import Closed, DoorbellError, Forked, InvalidHandle
from ._library import check, library

if TYPE_CHECKING:
    from ._session import Session


class Handle:
    """A number that is freed once, with the session that it belongs to."""

    __slots__ = ("handle", "_session")
    handle: int
    _session: Session
    _free = ""

    def close(self) -> None:
        handle, self.handle = self.handle, 0
        if handle:
            check(getattr(library, self._free)(self._session.at, handle))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._end()

    def __del__(self):
        # At the interpreter's end the library's functions may be gone already.
        if getattr(self, "handle", 0) and library is not None:
            self._end()

    def _end(self):
        try:
            self.close()
        except (Closed, Forked, InvalidHandle):
            pass  # It ended with its session, or is the parent's.
        except DoorbellError:
            if self.__class__ is not Buffer:
                raise


class Buffer(Handle):
    """Memory that copies may name, until it is closed. It holds the object that owns the memory."""

    __slots__ = ("pointer", "nbytes", "readonly", "on_gpu", "_keep", "__weakref__")
    _free = "doorbell_buffer_free"

    def __init__(self, session, handle, pointer, nbytes, readonly=False, on_gpu=None, keep=None):
        self._session = session
        self.handle, self.pointer, self.nbytes = handle, pointer, nbytes
        self.readonly, self.on_gpu, self._keep = readonly, on_gpu, keep

    def close(self):
        super().close()
        # Only now: the library has waited for pending work that uses it.
        self._keep = None

    def __repr__(self):
        return f"<doorbell.Buffer {self.nbytes} bytes at {self.pointer:#x}{'' if self.handle else ', closed'}>"

    @property
    def view(self):
        """A memoryview, for memory from allocate(). Do not use it after the buffer is closed."""
        if self.on_gpu is None:
            raise TypeError("pinned memory is looked at through the object whose it is")
        if not self.handle:
            raise InvalidHandle("the buffer is closed")
        return memoryview((ctypes.c_ubyte * self.nbytes).from_address(self.pointer)).cast("B")

    def _interface(self):
        if self.on_gpu is None or not self.handle:
            raise AttributeError("memory of allocate()'s alone")
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (self.pointer, False), "strides": None, "version": 3}

    @property
    def __array_interface__(self):
        """For numpy.asarray(buffer), of host memory. Do not use the array after the buffer is closed."""
        if self.on_gpu:
            raise AttributeError("this is the GPU's memory")
        return self._interface()

    @property
    def __cuda_array_interface__(self):
        """For cupy.asarray(buffer) and torch.as_tensor(buffer), of GPU memory."""
        if not self.on_gpu:
            raise AttributeError("this is host memory")
        return self._interface()
