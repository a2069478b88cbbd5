"""A graph that copies from and to pageable memory, launched by doorbell and by CUDA in turns: python3 pageable.py [LAUNCHES]

A frame of ordinary memory to the GPU, an elementwise kernel of PyTorch's, its result back to ordinary memory. New random bytes each time, every result
compared. For each size and launcher: how many were wrong, and the time of launch and wait together.
"""

import ctypes
import os
import sys
import time

import doorbell
import torch

launches = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
cuda = ctypes.CDLL("libcuda.so.1")
doorbell.open()
for size in (8, 4096, 65536, 1 << 20):
    x = torch.zeros(size, dtype=torch.uint8, device="cuda")
    frame, out = bytearray(size), bytearray(size)
    here, there = (ctypes.addressof((ctypes.c_char * size).from_buffer(memory)) for memory in (frame, out))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        y = x ^ 0x5A
    torch.cuda.synchronize()

    def copy(call, to, source):
        code = call(ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(size), ctypes.c_void_p(stream.cuda_stream))
        assert code == 0, f"CUDA error {code}"

    captured = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(captured, stream=stream, capture_error_mode="relaxed"):
        copy(cuda.cuMemcpyHtoDAsync_v2, x.data_ptr(), here)
        y = x ^ 0x5A
        copy(cuda.cuMemcpyDtoHAsync_v2, there, y.data_ptr())
    graph = doorbell.instantiate(captured, stream=stream)
    mask = int.from_bytes(b"\x5a" * size, "little")

    def by_doorbell():
        graph.replay().wait(10)

    def by_cuda():
        with torch.cuda.stream(stream):
            captured.replay()
        stream.synchronize()

    launchers = {"doorbell": by_doorbell, "CUDA": by_cuda}
    wrong, us = dict.fromkeys(launchers, 0), {name: [] for name in launchers}
    for _ in range(launches):
        for name, launch in launchers.items():
            sent = os.urandom(size)
            frame[:] = sent
            begun = time.perf_counter_ns()
            launch()
            us[name].append((time.perf_counter_ns() - begun) / 1000)
            wrong[name] += int.from_bytes(out, "little") != int.from_bytes(sent, "little") ^ mask
    for name, times in us.items():
        times.sort()
        print(f"{size:8} B  {name:8}  {wrong[name]} of {launches} wrong  p50 {times[launches // 2]:.2f}  p99 {times[launches * 99 // 100]:.2f}  max {times[-1]:.1f} us")
    graph.close()
