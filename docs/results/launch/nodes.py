"""Graphs of one kernel with a copy in front, behind, and both, of pinned and of pageable memory, by doorbell and by CUDA in turns: python3 nodes.py [LAUNCHES]

Median times in us: doorbell's call, and launch and wait of each. i: bytes to the GPU, o: bytes back, -: neither.
"""

import ctypes
import sys
import time

import doorbell
import torch

launches = int(sys.argv[1]) if len(sys.argv) > 1 else 1500
cuda = ctypes.CDLL("libcuda.so.1")
doorbell.open()


def captured(size, pinned, copies, stream):
    """The graph, and what has to live as long as it."""
    x = torch.zeros(size, dtype=torch.uint8, device="cuda")
    here, there = (torch.zeros(size, dtype=torch.uint8, pin_memory=pinned) for _ in range(2))
    with torch.cuda.stream(stream):
        y = x ^ 0x5A
    torch.cuda.synchronize()

    def copy(call, to, source):
        code = call(ctypes.c_void_p(to.data_ptr()), ctypes.c_void_p(source.data_ptr()), ctypes.c_size_t(size), ctypes.c_void_p(stream.cuda_stream))
        assert code == 0, f"CUDA error {code}"

    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="relaxed"):
        if "i" in copies:
            copy(cuda.cuMemcpyHtoDAsync_v2, x, here)
        y = x ^ 0x5A
        if "o" in copies:
            copy(cuda.cuMemcpyDtoHAsync_v2, there, y)
    return graph, (x, y, here, there)


def middle(times):
    return sorted(times)[len(times) // 2] / 1000


now = time.perf_counter_ns
for size in (8, 4096, 65536):
    for kind in ("pinned", "pageable"):
        for copies in ("-", "i", "o", "io"):
            stream = torch.cuda.Stream()
            graph, keep = captured(size, kind == "pinned", copies, stream)
            ours = doorbell.instantiate(graph, stream=stream)
            calls, done, theirs = [], [], []
            for _ in range(launches):
                begun = now()
                ticket = ours.replay()
                called = now()
                ticket.wait(10)
                done.append(now() - begun)
                calls.append(called - begun)
                begun = now()
                graph.replay()
                torch.cuda.current_stream().synchronize()
                theirs.append(now() - begun)
            print(f"{size:6} B  {kind:8}  {copies:2}  call {middle(calls):5.2f}  done {middle(done):5.2f}  CUDA {middle(theirs):5.2f}", flush=True)
            ours.close()
