"""Pages by their numbers: what copy_pages() gets, as the library takes it."""

from __future__ import annotations

import ctypes
import enum
import sys
from collections.abc import Sequence
from ctypes import c_uint64
from typing import Any, Final

from ._errors import InvalidArgument
from ._memory import host_memory_of
from ._numbers import offset, whole
from ._ticket import NOW


class _Current(enum.Enum):
    CURRENT = 0

    def __repr__(self) -> str:
        return self.name


# The current stream, if there is one. (None means a stream: the default one.)
CURRENT: Final = _Current.CURRENT


def _item(index: Any) -> int | None:
    """Bytes of a number of an array of integers. None: it is no array."""
    if hasattr(index, "data_ptr"):
        kind = str(index.dtype).removeprefix("torch.")
        size = {"int32": 4, "int64": 8, "uint32": 4, "uint64": 8}.get(kind)
    elif isinstance(getattr(index, "__array_interface__", None), dict):
        kind = index.__array_interface__["typestr"]
        size = {"i4": 4, "i8": 8, "u4": 4, "u8": 8}.get(kind[1:]) if kind[0] in "<|" else None
    else:
        try:
            view = memoryview(index)
        except TypeError:
            return None
        kind = view.format or "B"
        size = view.itemsize if kind.lstrip("<=@") in ("i", "I", "l", "L", "q", "Q") else None
    if size is None:
        raise TypeError(f"numbers of pages are integers of 4 or 8 bytes, not {kind}: pass index.to(torch.int64), for example")
    return size


class Numbers:
    """Numbers of pages in memory: their address, how many, the bytes of each, and what keeps them."""

    def __init__(self, index: Any, what: str):
        size = _item(index)
        if size is None:
            values = [offset(number, f"a number of {what}") for number in index]
            index = (c_uint64 * len(values))(*values)
            self.address, self.count, self.size, self.keep = ctypes.addressof(index), len(values), 8, index
            return
        memory = host_memory_of(index)
        self.address, self.count, self.size, self.keep = memory.pointer, memory.bytes // size, size, memory.keep

    def wide(self) -> Numbers:
        """The same, of 8 bytes each."""
        if self.size == 4:
            narrow = (ctypes.c_int32 * self.count).from_address(self.address)
            self.keep = array = (c_uint64 * self.count)(*narrow)
            self.address, self.size = ctypes.addressof(array), 8
        return self


def both(dst_index: Any, src_index: Any) -> tuple[Numbers, Numbers]:
    to, from_ = Numbers(dst_index, "dst_index"), Numbers(src_index, "src_index")
    if to.count == 0:
        raise InvalidArgument("an empty list of pages: pass one at least")
    if to.count != from_.count:
        raise InvalidArgument(f"{to.count} pages of the destination and {from_.count} of the source: pass as many numbers for each")
    return (to, from_) if to.size == from_.size else (to.wide(), from_.wide())


def page_bytes(things: Sequence[Any], nbytes: Any) -> int:
    """Bytes of a page: as said, or of the first dimension of the tensors."""
    if nbytes is not None:
        return whole(nbytes, "the bytes of a page", least=1)
    found = set()
    for thing in things:
        shape = getattr(thing, "shape", None)
        size = getattr(thing, "nbytes", None)
        if shape and size:
            found.add(size // shape[0])
    if len(found) != 1:
        raise InvalidArgument(f"pages of {sorted(found)} bytes: say how many (nbytes)" if found else "buffers have no pages: say how many bytes one has (nbytes)")
    return found.pop()


def stream_for(things: Sequence[Any]) -> Any:
    """PyTorch's current stream, if one of these is a tensor on a GPU."""
    devices = [thing.device for thing in things if getattr(getattr(thing, "device", None), "type", None) == "cuda"]
    torch = sys.modules.get("torch")
    if not devices or torch is None:
        return NOW
    if any(device != devices[0] for device in devices):
        raise InvalidArgument("tensors of several GPUs: say in which stream (stream=)")
    return torch.cuda.current_stream(devices[0])
