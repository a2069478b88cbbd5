"""The process's session, and what copies."""

import ctypes
import os
from contextlib import contextmanager
from ctypes import byref, c_bool, c_size_t, c_uint32, c_uint64, c_void_p, create_string_buffer

from ._errors import Busy, Closed, DoorbellError, Forked, Full, InvalidHandle, OutOfRange
from ._header import ANY, BESIDE_CUDA, CHECK, FOREVER, HOST, OWN_PROFILE, SOFTWARE, TIMEOUT, VIDEO, Log, Options, Piece
from ._header import Frame as FrameStruct
from ._library import SPIN, WAYS, check, failed, held, library
from ._memory import memory_of

_KINDS = {None: ANY, "cuda": BESIDE_CUDA, "soft": SOFTWARE}
_log = None
# What submits: with the GIL, unless each submission asks CUDA, which may wait for a thread that waits for the GIL.
_submits = held
_SPIN = c_uint64(SPIN)


def open(gpu=0, *, lanes=0, kind=None, check_allocations=False, log=None, profile=None):
    """Opens the process's session, which all threads use.

    gpu: CUDA's number of it. lanes: how many threads have a lane of their own, up to 64 (0: 8). kind: "cuda", "soft" (the
    software GPU, which has to be preloaded), or None for CUDA where there is CUDA. check_allocations: each submission asks CUDA
    whether the memory is still the allocation that was pinned. log: called with a text when the session opens and closes.
    profile: the file that says which way copies go (`doorbell calibrate -o FILE`); True: the machine's own, if there is one; False: none;
    None: what $DOORBELL_PROFILE names. One that was taken elsewhere is Unavailable, with what is different. explain() says what it does.
    """
    global _log, _submits
    if kind not in _KINDS:
        raise ValueError(f"kind is 'cuda', 'soft' or None, not {kind!r}")
    function = Log((lambda _, text: log(text.decode(errors="replace"))) if log else 0)
    flags = (CHECK if check_allocations else 0) | (OWN_PROFILE if profile is True else 0)
    path = None if profile is None or profile is True else b"" if profile is False else os.fsencode(profile)
    options = Options(ctypes.sizeof(Options), _KINDS[kind], gpu, lanes, flags, function, None, path)
    check(library.doorbell_open(byref(options)))
    # Called until the session is closed.
    _log = function
    _submits = library if check_allocations else held


def close():
    """Closes the session: waits for what is under way, and ends all buffers, transfers and rings."""
    check(library.doorbell_close())
    _dropped.clear()


@contextmanager
def session(gpu=0, **options):
    """`with doorbell.session():` opens and closes it."""
    open(gpu, **options)
    try:
        yield
    finally:
        close()


def _nanoseconds(seconds):
    return FOREVER if seconds is None else max(0, min(FOREVER, int(seconds * 1e9)))


class _Handle:
    """A number that is closed once."""

    __slots__ = ("handle",)
    _close = None

    def close(self):
        handle, self.handle = self.handle, 0
        if handle:
            check(getattr(library, self._close)(handle))

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


class Buffer(_Handle):
    """Memory that copies may name, until it is closed. It holds the object whose memory it is."""

    __slots__ = ("pointer", "nbytes", "readonly", "on_gpu", "_keep", "__weakref__")
    _close = "doorbell_unpin"

    def __init__(self, handle, pointer, nbytes, readonly=False, on_gpu=None, keep=None):
        self.handle, self.pointer, self.nbytes = handle, pointer, nbytes
        self.readonly, self.on_gpu, self._keep = readonly, on_gpu, keep

    def close(self):
        super().close()
        # Only now: what was under way with it has been waited for.
        self._keep = None

    def __repr__(self):
        return f"<doorbell.Buffer {self.nbytes} bytes at {self.pointer:#x}{'' if self.handle else ', closed'}>"

    @property
    def view(self):
        """A memoryview of memory of allocate()'s. Do not use it when the buffer is closed."""
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
        """numpy.asarray(buffer), of host memory; it does not outlive the buffer."""
        if self.on_gpu:
            raise AttributeError("this is the GPU's memory")
        return self._interface()

    @property
    def __cuda_array_interface__(self):
        """cupy.asarray(buffer), torch.as_tensor(buffer), of the GPU's memory."""
        if not self.on_gpu:
            raise AttributeError("this is host memory")
        return self._interface()


def pin(thing):
    """Makes the memory of a tensor or array nameable: device memory, or host memory that CUDA has pinned (torch's
    tensor.pin_memory(), cupyx.empty_pinned()). It holds the tensor and its storage until it is closed."""
    if isinstance(thing, Buffer):
        return thing
    memory, handle = memory_of(thing), c_uint64()
    check(library.doorbell_pin(memory.pointer, memory.bytes, byref(handle)))
    return Buffer(handle.value, memory.pointer, memory.bytes, memory.readonly, None, memory.keep)


def allocate(nbytes, where="host"):
    """Memory of doorbell's own, "host" (pinned) or "gpu". No call of CUDA's is made for it."""
    if where not in ("host", "gpu"):
        raise ValueError(f"memory is allocated on the 'host' or on the 'gpu', not {where!r}")
    handle, pointer = c_uint64(), c_void_p()
    check(library.doorbell_allocate(HOST if where == "host" else VIDEO, nbytes, byref(handle), byref(pointer)))
    return Buffer(handle.value, pointer.value, nbytes, False, where == "gpu")


# Copies whose tickets were dropped before they were done, and the buffers that were pinned for them alone: (ticket, buffers).
_dropped = []


def _let_go():
    """Unpins what was pinned for copies that are done by now."""
    for one in list(_dropped):
        try:
            over = one[0].done()
        except DoorbellError:
            over = True
        if over and one in _dropped:
            _dropped.remove(one)


class _Pinned:
    """Buffers that were pinned for one copy. They outlive a ticket that is dropped: to unpin one would wait for the copy, and stop one that
    does not end within a second, because it waits for a stream."""

    __slots__ = ("ticket", "buffers")

    def __init__(self, ticket, buffers):
        self.ticket, self.buffers = Ticket(ticket.value), buffers

    def __del__(self):
        if library is None:
            return
        try:
            if not self.ticket.done():
                _dropped.append((self.ticket, self.buffers))
        except DoorbellError:
            pass  # The session is closed, or the channel is gone.


def _kept(ticket, given, used):
    """What a ticket holds: the program's own buffers, and those that were pinned for it."""
    pinned = tuple(buffer for buffer in used if not any(buffer is one for one in given))
    ticket._keep = (used, _Pinned(ticket, pinned)) if pinned else used
    if _dropped:
        _let_go()
    return ticket


class Ticket(c_uint64):
    """A submission. It is its number, where the library writes it."""

    __slots__ = ("_keep",)

    @property
    def number(self):
        return self.value

    def wait(self, timeout=None):
        """Waits until it is done; seconds, or for ever. For 50 us it keeps the GIL, then other Python threads run meanwhile."""
        limit = FOREVER if timeout is None else _nanoseconds(timeout)
        code = held.doorbell_wait(self, _SPIN if limit > SPIN else c_uint64(limit))
        if code == TIMEOUT and limit > SPIN:
            code = library.doorbell_wait(self.value, limit if limit == FOREVER else limit - SPIN)
        if code:
            raise failed(code)
        self._keep = None

    def done(self):
        answer = c_bool()
        code = held.doorbell_poll(self, byref(answer))
        if code:
            raise failed(code)
        return answer.value

    def left(self):
        """Submissions of its lane, up to this one, that are not done."""
        answer = c_uint64()
        check(held.doorbell_query(self, byref(answer)))
        return answer.value

    def hold(self, stream):
        """What is put into the CUDA stream from now on waits for this. A call of CUDA's, with its locks."""
        check(library.doorbell_hold_stream(_stream(stream), self.value))


def _stream(stream):
    """torch.cuda.Stream, cupy.cuda.Stream, a number, or None for the default stream."""
    if isinstance(stream, (_Handle, Ticket)):
        raise TypeError(f"a {type(stream).__name__} is no CUDA stream")
    for name in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    return stream if stream is None else int(stream)


def _ends(dst, src):
    to, from_ = pin(dst), pin(src)
    if to.readonly:
        raise ValueError("the destination may not be written")
    return to, from_


def _length(to, to_offset, from_, from_offset, nbytes):
    if to_offset < 0 or from_offset < 0 or nbytes is not None and nbytes < 0:
        raise OutOfRange("offsets and lengths are not negative")
    if nbytes is not None:
        return nbytes
    if to.nbytes - to_offset != from_.nbytes - from_offset:
        raise ValueError(f"{from_.nbytes - from_offset} bytes do not fit {to.nbytes - to_offset}: say how many (nbytes)")
    return to.nbytes - to_offset


def copy_(dst, src, nbytes=None, *, dst_offset=0, src_offset=0, timeout=None):
    """Copies src to dst and waits. Tensors that are not pinned yet are pinned for this call, which takes CUDA's locks: pin what
    is copied often."""
    ours = [thing for thing in (dst, src) if not isinstance(thing, Buffer)]
    to, from_ = _ends(dst, src)
    try:
        nbytes = _length(to, dst_offset, from_, src_offset, nbytes)
        try:
            copy_async(to, from_, nbytes, dst_offset=dst_offset, src_offset=src_offset).wait(timeout)
        except (Busy, Full):
            # The library waits for a lane and for room on it.
            check(library.doorbell_copy(to.handle, dst_offset, from_.handle, src_offset, nbytes, _nanoseconds(timeout)))
    finally:
        for buffer in (to, from_):
            if ours and buffer is not dst and buffer is not src:
                buffer.close()
    return dst


def copy_async(dst, src, nbytes=None, *, dst_offset=0, src_offset=0):
    """Submits a copy between two buffers; its Ticket. It waits for no stream: copy_batch() can, and Ticket.hold() lets a stream wait."""
    to, from_ = _ends(dst, src)
    nbytes, ticket = _length(to, dst_offset, from_, src_offset, nbytes), Ticket()
    code = _submits.doorbell_copy_async(c_uint64(to.handle), c_uint64(dst_offset), c_uint64(from_.handle), c_uint64(src_offset),
                                        c_uint64(nbytes), byref(ticket))
    if code:
        raise failed(code)
    return _kept(ticket, (dst, src), (to, from_))


def explain(dst, src, nbytes=None, *, prepared=False):
    """Which way a copy between two buffers goes, "engine", "inline", "stores" or "loads", and why, in a sentence. prepared: of prepare()."""
    to, from_ = _ends(dst, src)
    nbytes, way, text = _length(to, 0, from_, 0, nbytes), c_uint32(), create_string_buffer(2048)
    check(library.doorbell_explain(to.handle, from_.handle, nbytes, prepared, byref(way), text, len(text)))
    return WAYS[way.value], text.value.decode(errors="replace")


_NOW = object()


def copy_batch(pieces, *, after=_NOW):
    """Submits many copies behind one doorbell: (dst, dst_offset, src, src_offset, nbytes) each, of buffers. after: a Ticket, for which
    the GPU waits; or a CUDA stream, for whose work of until now they wait (None: the default stream): that is a call of CUDA's, with its
    locks."""
    pieces = list(pieces)
    array, given, keep = (Piece * len(pieces))(), [], []
    for to_piece, (dst, dst_offset, src, src_offset, nbytes) in zip(array, pieces):
        to, from_ = _ends(dst, src)
        _length(to, dst_offset, from_, src_offset, nbytes)
        to_piece.to, to_piece.to_offset, to_piece.bytes = to.handle, dst_offset, nbytes
        to_piece.from_, to_piece.from_offset = from_.handle, src_offset
        given += (dst, src)
        keep += (to, from_)
    ticket = Ticket()
    if after is _NOW:
        check(library.doorbell_copy_batch(array, len(pieces), byref(ticket)))
    elif isinstance(after, Ticket):
        check(library.doorbell_copy_after(array, len(pieces), after.value, byref(ticket)))
    else:
        check(library.doorbell_copy_after_stream(array, len(pieces), _stream(after), byref(ticket)))
    return _kept(ticket, given, tuple(keep))


class Transfer(_Handle):
    """A copy that is ready to go."""

    __slots__ = ("_keep", "_argument")
    _close = "doorbell_release"

    def __init__(self, handle, keep):
        self.handle, self._keep, self._argument = handle, keep, c_uint64(handle)

    def submit(self, data=None, *, after=None):
        """Submits it once more; with the bytes, where prepare_bytes() made it. It keeps the GIL. after: the Ticket of a launch, or of a
        copy, for which the GPU waits; not with bytes."""
        ticket = Ticket()
        if after is not None:
            if data is not None:
                raise ValueError("a submission with bytes waits for nothing: wait for the ticket")
            code = _submits.doorbell_submit_after(self._argument, after, byref(ticket))
        elif data is None:
            code = _submits.doorbell_submit(self._argument, byref(ticket))
        else:
            memory = memory_of(data)
            code = _submits.doorbell_submit_bytes(self._argument, c_void_p(memory.pointer), c_size_t(memory.bytes), byref(ticket))
        if code:
            raise failed(code)
        ticket._keep = self._keep
        return ticket


def prepare(dst, src, nbytes=None, *, dst_offset=0, src_offset=0):
    """Makes a copy ready, to be submitted often. It holds both buffers."""
    to, from_ = _ends(dst, src)
    nbytes, transfer = _length(to, dst_offset, from_, src_offset, nbytes), c_uint64()
    check(library.doorbell_prepare(to.handle, dst_offset, from_.handle, src_offset, nbytes, byref(transfer)))
    return Transfer(transfer.value, (to, from_))


def prepare_bytes(dst, nbytes, *, dst_offset=0):
    """Makes a copy of up to 64 KiB ready whose bytes are given at each submit()."""
    to, transfer = pin(dst), c_uint64()
    if to.readonly:
        raise ValueError("the destination may not be written")
    _length(to, dst_offset, to, 0, nbytes)
    check(library.doorbell_prepare_bytes(to.handle, dst_offset, nbytes, byref(transfer)))
    return Transfer(transfer.value, (to,))


class Frame:
    """A frame of a ring: `view` is its memory; None where that is a CUDA tensor on the GPU, at `offset`."""

    __slots__ = ("index", "offset", "view")

    def __init__(self, index, offset, view):
        self.index, self.offset, self.view = index, offset, view


class Ring(_Handle):
    """Rotating frames."""

    __slots__ = ("frame_bytes", "_keep")
    _close = "doorbell_ring_close"

    def __init__(self, handle, frame_bytes, keep):
        self.handle, self.frame_bytes, self._keep = handle, frame_bytes, keep

    def next(self):
        """The next frame, for the producer to fill. Overrun while its last copy is under way."""
        frame = FrameStruct()
        check(held.doorbell_ring_next(c_uint64(self.handle), byref(frame)))
        view = None
        if frame.pointer:
            view = memoryview((ctypes.c_ubyte * self.frame_bytes).from_address(frame.pointer)).cast("B")
        return Frame(frame.index, frame.offset, view)

    def submit(self):
        """Submits the copy of the frame that next() gave."""
        ticket = Ticket()
        check(_submits.doorbell_ring_submit(c_uint64(self.handle), byref(ticket)))
        ticket._keep = self._keep
        return ticket


def ring(dst, src, frame_bytes, frames=4, *, dst_offset=0, src_offset=0):
    """A ring of frames, one behind the other in both buffers."""
    to, from_ = _ends(dst, src)
    _length(to, dst_offset, from_, src_offset, frame_bytes)
    handle = c_uint64()
    check(library.doorbell_ring_open(to.handle, dst_offset, from_.handle, src_offset, frame_bytes, frames, byref(handle)))
    return Ring(handle.value, frame_bytes, (to, from_))


class Message(_Handle):
    """A mailbox of a running kernel."""

    __slots__ = ("_keep",)
    _close = "doorbell_message_close"

    def __init__(self, handle, keep):
        self.handle, self._keep = handle, keep

    def send(self, data):
        """Sends up to 56 bytes; the message's number. It keeps the GIL."""
        memory, number = memory_of(data), c_uint32()
        code = _submits.doorbell_message_send(c_uint64(self.handle), c_void_p(memory.pointer), c_size_t(memory.bytes), byref(number))
        if code:
            raise failed(code)
        return number.value

    def wait(self, number, timeout=None):
        """The 56 bytes with which the kernel has answered this message or a later one. For 50 us it keeps the GIL."""
        limit, answer = _nanoseconds(timeout), create_string_buffer(56)
        code = _submits.doorbell_message_wait(c_uint64(self.handle), c_uint32(number), answer, c_uint64(min(limit, SPIN)))
        if code == TIMEOUT and limit > SPIN:
            code = library.doorbell_message_wait(self.handle, number, answer, limit if limit == FOREVER else limit - SPIN)
        if code:
            raise failed(code)
        return answer.raw


def message(mailbox, answers, *, mailbox_offset=0, answers_offset=0):
    """A mailbox of 64 bytes in the GPU's memory, and 64 bytes of host memory for the answers of the kernel that looks there."""
    to, from_ = pin(mailbox), pin(answers)
    _length(to, mailbox_offset, from_, answers_offset, 64)
    handle = c_uint64()
    check(library.doorbell_message_open(to.handle, mailbox_offset, from_.handle, answers_offset, byref(handle)))
    return Message(handle.value, (to, from_))
