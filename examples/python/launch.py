"""A CUDA graph launched past CUDA's locks: captured from a stream, cloned, launched with another number each time, every result compared.

    python3 launch.py [launches, 1000]

With PyTorch it is shorter: doorbell.graph(cuda_graph) takes a torch.cuda.CUDAGraph. Here the driver API itself is called, so that
nothing else has to be installed. Exit status 77: no CUDA, or graphs cannot be cloned here.
"""

import ctypes
import struct
import sys
from ctypes import byref, c_uint32, c_uint64, c_void_p

import doorbell  # before the first CUDA call

# store(word, value): *word = value. add1(word): adds 1 for each thread.
PTX = b"""
.version 6.0
.target sm_70
.address_size 64
.visible .entry store(.param .u64 word, .param .u32 value)
{
    .reg .b64 %word;
    .reg .b32 %value;
    ld.param.u64 %word, [word];
    ld.param.u32 %value, [value];
    st.global.u32 [%word], %value;
    ret;
}
.visible .entry add1(.param .u64 word)
{
    .reg .b64 %word;
    ld.param.u64 %word, [word];
    red.global.add.u32 [%word], 1;
    ret;
}
"""
BLOCKS, THREADS, FIRST = 4, 64, 1_000_000

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


def captured(stream, result):
    """An executable graph: a kernel that stores FIRST in the word, and one that adds to it."""
    module, graph, executable = c_void_p(), c_void_p(), c_void_p()
    cuda("cuModuleLoadData", byref(module), PTX)
    functions = [c_void_p(), c_void_p()]
    for function, name in zip(functions, (b"store", b"add1")):
        cuda("cuModuleGetFunction", byref(function), module, name)
    cuda("cuStreamBeginCapture_v2", stream, 1)
    launch(functions[0], stream, 1, 1, result, c_uint32(FIRST))
    launch(functions[1], stream, BLOCKS, THREADS, result)
    cuda("cuStreamEndCapture", stream, byref(graph))
    cuda("cuGraphInstantiateWithFlags", byref(executable), graph, c_uint64(0))
    return executable


def main(launches):
    context, stream, memory = c_void_p(), c_void_p(), c_void_p()
    cuda("cuInit", 0)
    cuda("cuDevicePrimaryCtxRetain", byref(context), 0)
    cuda("cuCtxSetCurrent", context)
    cuda("cuStreamCreate", byref(stream), 1)
    # A word of pinned host memory, which kernels and this program see at the same address.
    cuda("cuMemHostAlloc", byref(memory), ctypes.c_size_t(4096), 0)
    word, result = c_uint32.from_address(memory.value), c_uint64(memory.value)
    executable = captured(stream, result)
    with doorbell.session(kind="cuda"):
        try:
            graph = doorbell.graph(executable.value, stream=stream.value)
        except doorbell.Unavailable as error:
            print(f"the graph cannot be cloned: {error}")
            sys.exit(77)
        with graph:
            kernels = len(graph.kernels)
            if word.value != FIRST + BLOCKS * THREADS:
                sys.exit("CUDA's own launch is wrong")
            for n in range(launches):
                # Kernel 0, its second argument: behind a pointer of 8 bytes.
                graph.set_param(0, 8, struct.pack("I", n))
                graph.replay().wait(10)
                if word.value != n + BLOCKS * THREADS:
                    sys.exit(f"launch {n} left {word.value}")
    print(f"{launches} launches of a graph of {kernels} kernels, every result right")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
