"""A camera's frame in, its inference, the result out, a thousand times a second, beside a thread that loads modules.

    python3 frame_loop.py [seconds, 5] [class: fifo, other; fifo if it is granted]

The way of a frame is one chain: a copy to the GPU, a graph of two kernels, a copy back, launched by one doorbell. Each millisecond a
frame is there; its time ends when the result is in host memory. Every result is compared. A frame that takes longer than its period has
missed it, and so has each one that is due meanwhile and never made. C has the same with CUDA's own graph beside it (examples/c/frame_loop.c). With PyTorch the graph is a torch.cuda.CUDAGraph, and
the memory is tensors'. On the software GPU no times are printed: that is emulation.

Exit status 77: no CUDA, or graphs cannot be cloned here.
"""

import ctypes
import os
import struct
import sys
import threading
import time
from ctypes import byref, c_size_t, c_uint32, c_uint64, c_void_p

import doorbell  # before the first CUDA call

BYTES, THREADS, PERIOD = 4096, 256, 1_000_000

# copy(to, from, bytes): a thread for each four bytes. add1(word): adds 1.
COPY = b"""
.version 6.0
.target sm_70
.address_size 64
.visible .entry copy(.param .u64 to, .param .u64 from, .param .u32 bytes)
{
    .reg .pred %p;
    .reg .b64 %to, %from, %at;
    .reg .b32 %bytes, %value, %block, %threads, %thread, %where;
    ld.param.u64 %to, [to];
    ld.param.u64 %from, [from];
    ld.param.u32 %bytes, [bytes];
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %where, %block, %threads, %thread;
    shl.b32 %where, %where, 2;
    setp.ge.u32 %p, %where, %bytes;
    @%p bra DONE;
    cvt.u64.u32 %at, %where;
    add.u64 %from, %from, %at;
    add.u64 %to, %to, %at;
    ld.global.u32 %value, [%from];
    st.global.u32 [%to], %value;
DONE:
    ret;
}
"""
ADD = b"""
.visible .entry %s(.param .u64 word)
{
    .reg .b64 %%word;
    ld.param.u64 %%word, [word];
    red.global.add.u32 [%%word], 1;
    ret;
}
"""

os.environ["CUDA_CACHE_DISABLE"] = "1"
try:
    library = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    print(f"no libcuda: {error}")
    sys.exit(77)


def cuda(name, *arguments):
    code = getattr(library, name)(*arguments)
    if code:
        sys.exit(f"{name}: CUDA error {code}")


def launch(function, stream, blocks, threads, *arguments):
    pointers = (c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
    cuda("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, stream, pointers, None)


def captured(stream, output, input_):
    """An executable graph: a kernel that copies input to output, and one that adds 1 to its first word."""
    module, graph, executable, copy, add = (c_void_p() for _ in range(5))
    cuda("cuModuleLoadData", byref(module), COPY + ADD % b"add1")
    cuda("cuModuleGetFunction", byref(copy), module, b"copy")
    cuda("cuModuleGetFunction", byref(add), module, b"add1")
    cuda("cuStreamBeginCapture_v2", stream, 1)
    launch(copy, stream, BYTES // 4 // THREADS, THREADS, c_uint64(output.pointer), c_uint64(input_.pointer), c_uint32(BYTES))
    launch(add, stream, 1, 1, c_uint64(output.pointer))
    cuda("cuStreamEndCapture", stream, byref(graph))
    cuda("cuGraphInstantiateWithFlags", byref(executable), graph, c_uint64(0))
    return executable


class Loader(threading.Thread):
    """Loads modules, none twice: what holds CUDA's locks for long."""

    def __init__(self, context):
        super().__init__(daemon=True)
        self.context, self.loaded, self.ends = context, 0, False

    def run(self):
        cuda("cuCtxSetCurrent", self.context)
        while not self.ends:
            module = c_void_p()
            kernels = b"".join(ADD % (b"k%d_%d" % (n, self.loaded)) for n in range(200))
            cuda("cuModuleLoadData", byref(module), COPY + kernels)
            cuda("cuModuleUnload", module)
            self.loaded += 1


def real_time(wanted):
    if wanted == "other":
        return "SCHED_OTHER, as asked"
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(80))
        return "SCHED_FIFO, priority 80"
    except OSError as error:
        return f"SCHED_OTHER: a real-time class was refused ({error.strerror})"


def frames(chain, camera, result, seconds):
    """Times in ns of the frames that were made, how many were due, and how many of these missed their period; ends the program
    where a result is wrong."""
    times, number, were_due, misses = [], 0, 0, 0
    due = time.monotonic_ns() + PERIOD
    end = due + int(seconds * 1e9)
    while due < end:
        number += 1
        frame = struct.pack("I", number) * (BYTES // 4)
        camera[:] = frame
        while (left := due - time.monotonic_ns()) > 0:
            # Woken late is late: the last part is waited for awake.
            time.sleep(max(0, left - 100_000) / 1e9)
        chain.replay().wait(10)
        done = time.monotonic_ns()
        times.append(done - due)
        # The next frame is the one that comes next: those that were due meanwhile are never made.
        passed = min(max(0, done - due - 1) // PERIOD, (end - 1 - due) // PERIOD)
        were_due += 1 + passed
        misses += (done - due > PERIOD) + passed
        if bytes(result) != struct.pack("I", number + 1) + frame[4:]:
            sys.exit(f"frame {number} came back wrong")
        due += PERIOD * (1 + passed)
    return sorted(times), were_due, misses


def main(seconds, wanted):
    context, stream, name = c_void_p(), c_void_p(), ctypes.create_string_buffer(64)
    cuda("cuInit", 0)
    cuda("cuDeviceGetName", name, 64, 0)
    cuda("cuDevicePrimaryCtxRetain", byref(context), 0)
    cuda("cuCtxSetCurrent", context)
    cuda("cuStreamCreate", byref(stream), 1)
    with doorbell.session(kind="cuda"):
        camera, result = doorbell.allocate(BYTES), doorbell.allocate(BYTES)
        input_, output = doorbell.allocate(BYTES, "gpu"), doorbell.allocate(BYTES, "gpu")
        executable = captured(stream, output, input_)
        try:
            inference = doorbell.graph(executable.value, stream=stream.value)
        except doorbell.Unavailable as error:
            print(f"the graph cannot be cloned: {error}")
            sys.exit(77)
        with doorbell.chain([(input_, camera), inference, (result, output)]) as chain:
            loader = Loader(context)
            loader.start()
            print(f"the loop runs under {real_time(wanted)}")
            times, due, misses = frames(chain, camera.view, result.view, seconds)
            loader.ends = True
            loader.join()
    print(f"{len(times)} of the {due} frames that were due, of {BYTES} bytes, beside a thread that loaded {loader.loaded} modules, every result right")
    if name.value != b"softcuda":
        of = lambda part: f"{times[min(len(times) - 1, int(part * len(times)))] / 1e3:.1f} us"
        print(f"p50 {of(0.5)}, p99 {of(0.99)}, max {of(1)} of these; {misses} of {due} missed their {PERIOD / 1e6:g} ms")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 5, sys.argv[2] if len(sys.argv) > 2 else None)
