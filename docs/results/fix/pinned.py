#!/usr/bin/env python3
"""What a program can see of pinned memory, by default of 64 MiB: pinned.py [BYTES]. Or of a GPU's: pinned.py BYTES gpu.

Lines that begin with `known:` are known to differ under `run --fix`, or `run --fix=memory`.
"""

import ctypes
import errno
import fcntl
import hashlib
import os
import random
import sys
import tempfile

OF_GPU = sys.argv[2:] == ["gpu"]
SIZE, PAGE, PART = int(sys.argv[1]) if len(sys.argv) > 1 else 64 << 20, 4096, 1 << 20
# CU_POINTER_ATTRIBUTE_.. from 1 on.
NAMES = """CONTEXT MEMORY_TYPE DEVICE_POINTER HOST_POINTER P2P_TOKENS SYNC_MEMOPS BUFFER_ID IS_MANAGED DEVICE_ORDINAL IS_LEGACY_CUDA_IPC_CAPABLE
           RANGE_START_ADDR RANGE_SIZE MAPPED ALLOWED_HANDLE_TYPES IS_GPU_DIRECT_RDMA_CAPABLE ACCESS_FLAGS MEMPOOL_HANDLE MAPPING_SIZE MAPPING_BASE_ADDR
           MEMORY_BLOCK_ID IS_HW_DECOMPRESS_CAPABLE""".split()
ADDRESSES = ("DEVICE_POINTER", "HOST_POINTER", "RANGE_START_ADDR", "MEMPOOL_HANDLE", "MAPPING_BASE_ADDR")
pointer, size, u64, ref = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64, ctypes.byref


def call(name, *values):
    """A result of CUDA's driver."""
    function = getattr(CUDA, name, None)
    return function(*values) if function else "no such function"


def by_libc(name, *values):
    ctypes.set_errno(0)
    result = getattr(LIBC, name)(*values)
    return result, errno.errorcode.get(ctypes.get_errno(), 0)


def tried(what, function):
    try:
        print(what, function(), flush=True)
    except OSError as e:
        print(what, errno.errorcode[e.errno], flush=True)


def place(address):
    return f"+{address - begin}" if begin <= address <= begin + SIZE else "0" if address == 0 else "elsewhere"


def child(function):
    """The status of a forked child, which ends with the function's result."""
    number = os.fork()
    if number == 0:
        os._exit(function() & 127)
    return os.waitpid(number, 0)[1]


def attributes(offset):
    for number, name in enumerate(NAMES, 1):
        value = (u64 * 4)()
        result = call("cuPointerGetAttribute", ref(value), number, u64(begin + offset))
        if name == "CONTEXT":
            print(name, "at", offset, "result", result, "the current one" if value[0] == context.value else place(value[0]))
            continue
        if name == "BUFFER_ID":
            print("known:", name, "at", offset, value[0])
        # (Numbers that are given in turn are other ones where another allocation came first.)
        if name in ("BUFFER_ID", "MEMORY_BLOCK_ID"):
            shown = "some" if value[0] else 0
        else:
            shown = place(value[0]) if name in ADDRESSES else "" if name == "P2P_TOKENS" else value[0]
        is_known = OF_GPU and name in ("P2P_TOKENS", "IS_LEGACY_CUDA_IPC_CAPABLE", "IS_HW_DECOMPRESS_CAPABLE")
        print(*["known:"] * is_known, name, "at", offset, "result", result, shown)


def driver():
    for offset in (0, PAGE, SIZE - 1):
        attributes(offset)
    base, length, handle, flags, words = u64(), size(), u64(), ctypes.c_uint(99), (ctypes.c_ubyte * 64)()
    print("range", call("cuMemGetAddressRange_v2", ref(base), ref(length), u64(begin + 100)), place(base.value), length.value)
    print("flags", call("cuMemHostGetFlags", ref(flags), memory), flags.value)
    print(*["known:"] * OF_GPU, "device pointer", call("cuMemHostGetDevicePointer_v2", ref(base), memory, 0), place(base.value))
    print("registered over it", call("cuMemHostRegister_v2", memory, size(PART), 0), call("cuMemHostUnregister", memory))
    print(*["known:"] * OF_GPU, "IPC handle", call("cuIpcGetMemHandle", words, u64(begin)))
    held = call("cuMemRetainAllocationHandle", ref(handle), memory)
    print("allocation handle", held, call("cuMemRelease", handle) if held == 0 else "")


def kernel():
    view[123] = 1
    reads, writes = os.pipe()

    def reads_and_writes():
        os.write(writes, bytes(view[123:124]))
        view[123] = 42
        return 0

    status = child(reads_and_writes)
    os.close(writes)
    print("fork: status", status, "the child read", os.read(reads, 1), "the parent sees", view[123])
    view[:PART] = random.Random(1).randbytes(PART)
    with tempfile.TemporaryDirectory() as folder:
        file = os.open(f"{folder}/file", os.O_RDWR | os.O_CREAT, 0o600)
        for name, flags in (("file", 0), ("file, O_DIRECT", os.O_DIRECT)):
            tried(f"{name}, flags", lambda: fcntl.fcntl(file, fcntl.F_SETFL, flags))
            tried(f"{name}, write", lambda: os.pwrite(file, view[:PART], 0))
            tried(f"{name}, read", lambda: os.preadv(file, [view[PART:2 * PART]], 0))
            print(name, "same", view[:PART] == view[PART:2 * PART])
            view[PART:2 * PART] = bytes(PART)
    into, own = ctypes.create_string_buffer(64), os.getpid()
    there, here = ((size * 2)(address, 64) for address in (begin, ctypes.addressof(into)))
    read = lambda: by_libc("process_vm_readv", own, here, size(1), there, size(1), ctypes.c_ulong(0))
    print("process_vm_readv", read(), into.raw == bytes(view[:64]), "by a child", child(lambda: read()[0]))
    print("mlock", by_libc("mlock", memory, size(PART)), by_libc("munlock", memory, size(PART)))
    print("mprotect", by_libc("mprotect", memory, size(PAGE), 1), view[123], by_libc("mprotect", memory, size(PAGE), 3))


CUDA, LIBC = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None, use_errno=True)
context, memory, device = pointer(), pointer(), ctypes.c_int()
print("context", call("cuInit", 0), call("cuDeviceGet", ref(device), 0), call("cuDevicePrimaryCtxRetain", ref(context), device))
print("current", call("cuCtxSetCurrent", context))
print("made", call("cuMemAlloc_v2", ref(memory), size(SIZE)) if OF_GPU else call("cuMemHostAlloc", ref(memory), size(SIZE), 0))
begin = memory.value
if OF_GPU:
    print("aligned", begin % (2 << 20) == 0)
    driver()
    print("known: synchronous copies", call("cuPointerSetAttribute", ref(ctypes.c_uint(1)), 6, u64(begin)))
    print("frees", [call("cuMemFree_v2", u64(begin + more)) for more in (64, 0, 0)], "then", call("cuPointerGetAttribute", ref(u64()), 2, u64(begin)))
    sys.exit()
view = memoryview((ctypes.c_ubyte * SIZE).from_address(begin)).cast("B")
print("aligned", begin % PAGE == 0, "fresh", hashlib.sha256(view).hexdigest()[:16])
driver()
kernel()
print("bytes", hashlib.sha256(view).hexdigest()[:16])
print("frees", [call("cuMemFreeHost", pointer(begin + more)) for more in (64, 0, 0)], "then", call("cuPointerGetAttribute", ref(u64()), 2, u64(begin)))
