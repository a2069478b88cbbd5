"""Handles of a session: numbers that are freed once. The most common one is memory."""

from __future__ import annotations

import ctypes
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from ._errors import Closed, DoorbellError, Forked, InvalidHandle
from ._library import library

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._session import Session


def not_copied(thing: object) -> NoReturn:
    """For copy, deepcopy and pickle. Two objects with one number would both free it."""
    raise TypeError(f"a doorbell.{type(thing).__name__} cannot be copied or pickled: it belongs to this process and its session. Pass the object itself, "
                    "or make another one")


class Handle:
    """A number that is freed once, with the session that it belongs to."""

    __slots__ = ("_handle", "_session", "__weakref__")
    _handle: int
    _session: Session
    _free = ""

    def _begin(self, session: Session, handle: int) -> None:
        self._session, self._handle = session, handle
        session._register(self)

    @property
    def handle(self) -> int:
        """doorbell.h's number of the object. 0: it is closed."""
        return self._handle

    def close(self) -> None:
        """Ends the object. A second call has no effect."""
        handle, self._handle = self._handle, 0
        self._session._free_handle(self._free, handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def __del__(self) -> None:
        # At the interpreter's end the library's functions may be gone already.
        if getattr(self, "_handle", 0) and library is not None:
            self._end()

    def __reduce_ex__(self, _: Any) -> NoReturn:
        not_copied(self)

    def _end(self) -> None:
        try:
            self.close()
        except (Closed, Forked, InvalidHandle):
            pass  # It ended with its session, or is the parent's.
        except DoorbellError:
            # What is wrong with memory is seen by its next use.
            if not isinstance(self, Buffer):
                raise


class _Memory:
    """A registration, or memory of allocate(). It ends with the last object that holds it: the buffer, or what shows the memory."""

    __slots__ = ("session", "handle", "keep", "exporter", "lent", "views", "__weakref__")

    def __init__(self, session: Session, handle: int, keep: Any):
        self.session, self.handle, self.keep = session, handle, keep
        # The object through which views and arrays see it, which holds this.
        self.exporter: weakref.ref[Any] | None = None
        # CUDA arrays show it. They hold its buffer, which holds this.
        self.lent = False
        # The views that the buffer gave, to be released.
        self.views: list[weakref.ref[memoryview]] = []

    def given(self, view: memoryview) -> memoryview:
        if len(self.views) > 16:
            self.views = [one for one in self.views if one() is not None]
        self.views.append(weakref.ref(view))
        return view

    def release(self) -> None:
        """Releases the views that were given."""
        views, self.views = self.views, []
        for reference in views:
            view = reference()
            if view is not None:
                try:
                    view.release()
                except BufferError:
                    pass  # An array looks through it.

    def is_shown(self) -> bool:
        return self.lent or self.exporter is not None and self.exporter() is not None

    def end(self) -> None:
        handle, self.handle = self.handle, 0
        self.session._free_handle("doorbell_buffer_free", handle)
        # Only now: the library has waited for pending work that uses it.
        self.keep = None

    def __del__(self) -> None:
        if library is not None:
            self.lent = False
            with suppress(DoorbellError):
                self.end()
            with suppress(DoorbellError):
                self.session._end_if_unseen()


class Buffer(Handle):
    """Memory that copies may name, until it is closed. It holds the object that owns the memory.

    A view, a frame or an array that shows memory of allocate() holds it. close() releases the views that the buffer itself gave (later uses raise
    ValueError). Where slices or arrays are left, the memory stays until the last of them is dropped."""

    __slots__ = ("_memory", "_pointer", "_nbytes", "_readonly", "_on_gpu", "_exporter")

    def __init__(self, session: Session, handle: int, pointer: int, nbytes: int, readonly: bool = False, on_gpu: bool | None = None, keep: Any = None):
        self._pointer, self._nbytes, self._readonly, self._on_gpu = pointer, nbytes, readonly, on_gpu
        # Not after close(), but where it is lent.
        self._memory: _Memory | None = _Memory(session, handle, keep)
        self._exporter: Any = None
        self._begin(session, handle)

    @property
    def pointer(self) -> int:
        return self._pointer

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def readonly(self) -> bool:
        return self._readonly

    @property
    def on_gpu(self) -> bool | None:
        """Whether allocate() made it in GPU memory. None: the memory is another object's."""
        return self._on_gpu

    def close(self) -> None:
        """Ends the buffer. A second call has no effect."""
        with self._session._lock:
            if not self._handle:
                return
            self._handle = 0
            self._hide()
            memory = self._memory
            if memory is None or memory.lent:
                return
            self._memory = None
            memory.release()
        # (Nothing begins to show it any more.)
        if not memory.is_shown():
            memory.end()

    def _hide(self) -> None:
        """From here on only views and arrays show the memory."""
        self._exporter = None

    def __del__(self) -> None:
        pass  # Its memory ends by itself.

    def __repr__(self) -> str:
        return f"<doorbell.Buffer {self._nbytes} bytes at {self._pointer:#x}{'' if self._handle else ', closed'}>"

    def _shown_memory(self) -> _Memory:
        """Where something begins to show it. With the session's lock."""
        if self._session._ending:
            raise Closed("the session is closed")
        if not self._handle or self._memory is None:
            raise InvalidHandle("the buffer is closed")
        self._session._shown.add(self._memory)
        return self._memory

    def _show(self) -> Any:
        """The object through which the memory is seen."""
        exporter = self._exporter
        if exporter is not None:
            return exporter
        if self._on_gpu is None:
            raise TypeError("pinned memory is looked at through the object whose it is")
        with self._session._lock:
            memory = self._shown_memory()
            if self._exporter is None:
                self._exporter = (ctypes.c_ubyte * self._nbytes).from_address(self._pointer)
                self._exporter.holds, memory.exporter = memory, weakref.ref(self._exporter)
            return self._exporter

    def _look(self, pointer: int, nbytes: int) -> memoryview:
        """A view of a part, which holds what it shows."""
        part: Any = (ctypes.c_ubyte * nbytes).from_address(pointer)
        if self._on_gpu is None:
            part.holds = self._memory and self._memory.keep
            return memoryview(part).cast("B")
        part.holds = exporter = self._show()
        memory: _Memory = exporter.holds
        return memory.given(memoryview(part).cast("B"))

    @property
    def view(self) -> memoryview:
        """A memoryview, for memory from allocate(). It holds the memory. After close() of the buffer or the session it raises ValueError."""
        exporter = self._show()
        memory: _Memory = exporter.holds
        return memory.given(memoryview(exporter).cast("B"))

    def _interface(self, data: Any) -> dict[str, Any]:
        return {"shape": (self._nbytes,), "typestr": "|u1", "data": data, "strides": None, "version": 3}

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """For numpy.asarray(buffer), of host memory. The array holds the memory."""
        if self._on_gpu or self._on_gpu is None or not self._handle:
            raise AttributeError("only open host memory of allocate() has it")
        return self._interface(self._show())

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """For cupy.asarray(buffer) and torch.as_tensor(buffer), of GPU memory. The tensor holds this object, and so the memory: it stays until both are
        dropped, also after close()."""
        if not self._on_gpu or not self._handle:
            raise AttributeError("only open GPU memory of allocate() has it")
        with self._session._lock:
            self._shown_memory().lent = True
        return self._interface((self._pointer, False))
