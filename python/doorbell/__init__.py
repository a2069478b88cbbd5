"""Copies between host and GPU memory, and launches of CUDA graphs. Any thread may submit them, without CUDA's locks.

    import doorbell              # before the first CUDA call: observes CUDA's driver calls from here on
    import torch

    doorbell.open()
    weights = torch.empty(1 << 20, device="cuda")
    staging = torch.empty(1 << 20).pin_memory()
    to_gpu = doorbell.prepare(doorbell.pin(weights), doorbell.pin(staging))
    to_gpu.submit().wait()

A pin holds the tensor and its storage until it is closed. **Caching allocators reuse memory without any driver call**: when a
tensor is dropped, PyTorch or CuPy may give its block to the next one, and doorbell cannot see this. Keep the tensor until the pin is
closed (the pin does that for you), and do not resize or set_() a pinned tensor. `open(check_allocations=True)` checks with CUDA at each
submission whether the memory is still the pinned allocation. This does not detect a caching allocator's reuse of a block, either.

A CUDA graph is cloned once and launched often:

    step = doorbell.graph(cuda_graph)      # a torch.cuda.CUDAGraph, or the number of a cudaGraphExec_t
    step.replay().wait()

A chain joins copies and launches, with one doorbell write: a frame in, its inference, the result out:

    frame = doorbell.chain([(input, camera), step, (result, output)])
    frame.replay().wait()

asyncio can wait for a ticket, and a queue for many of them:

    await to_gpu.submit()

A program with several GPUs, or a library in a process with other users of doorbell, makes separate sessions:

    with doorbell.Session(gpu=1) as second:
        second.copy_(dst, src)

In the fastest form, replay() itself stores the frame into GPU memory, and the result is copied back on a separate channel of a copy engine:

    frame = doorbell.chain([(input, camera, "stores"), step, (result, output)], beside=True)

A loop does this for each frame in a separate thread, which no Python thread delays:

    with doorbell.loop(frame, period=0.001, source=camera, sink=result) as loop:
        loop.put(pixels)
        answer = loop.wait().data

There is no build step: this is ctypes over libdoorbell.so. The package looks for it in the file that DOORBELL_LIB names, in its own
folder, and in the system's library folders. A call costs some hundred nanoseconds more than in C, because of ctypes.

**The GIL.** Calls that take nanoseconds to a few microseconds keep it: submit(), copy_async(), done(), left(), and those of rings.
wait() and copy_() keep it for 50 us and then release it. So a small copy does not wait for other Python threads, each of which may
have the GIL for 5 ms at a time (sys.getswitchinterval()). All other calls let other Python threads run. With
open(check_allocations=True) submissions also do, because they call CUDA.
"""

from typing import TYPE_CHECKING

from ._errors import (Busy, Closed, DoorbellError, Forked, Freed, Full, InvalidArgument, InvalidHandle, Killed, LimitReached, NoLibrary,
                      NotLaunchable, NotPinnable, OutOfRange, Overrun, Stopped, Timeout, Unavailable)

try:
    from ._default import (allocate, chain, close, copy_, copy_async, copy_batch, copy_pages, current, explain, graph, instantiate, kernel, loop, message, pin,
                           prepare, prepare_bytes, queue, ring, session)
    from ._default import open as open
    from ._graph import Graph
    from ._handle import Buffer
    from ._library import version, watching
    from ._loop import Loop, Result, Statistics
    from ._record import pause, record, recording, resume
    from ._queue import Done, Queue
    from ._session import Session
    from ._ticket import NOW, Ticket
    from ._transfers import Frame, Message, Ring, Transfer
except NoLibrary as _without:
    # doorbell.fleet reads recordings, also where there is no libdoorbell.so. Everything else raises the error at its first use.
    _reason = str(_without)

    if not TYPE_CHECKING:  # (With it, every name would be one of this package.)

        def __getattr__(name):
            if name in __all__ or name == "open":
                raise NoLibrary(_reason)
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

# Not open(): `from doorbell import *` leaves Python's own.
__all__ = [
    "Buffer", "Busy", "Closed", "Done", "DoorbellError", "Forked", "Frame", "Freed", "Full", "Graph", "InvalidArgument", "InvalidHandle",
    "Killed", "LimitReached", "Loop", "Message", "NOW", "NoLibrary", "NotLaunchable", "NotPinnable", "OutOfRange", "Overrun", "Queue", "Result", "Ring",
    "Session", "Statistics", "Stopped", "Ticket", "Timeout", "Transfer", "Unavailable", "allocate", "chain", "close", "copy_", "copy_async", "copy_batch", "copy_pages", "current", "explain", "graph", "instantiate", "kernel", "loop", "message", "pause", "pin",
    "prepare", "prepare_bytes", "queue", "record", "recording", "resume", "ring", "session", "version", "watching",
]
