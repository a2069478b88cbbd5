"""Frames through an elementwise kernel of PyTorch's, as chains of each form: python3 chain.py [LAUNCHES]

New random bytes each time, every result compared. For each size and form: how many were wrong, and the time of replay() and wait() together.
"""

import os
import sys
import time

import doorbell
import torch

launches = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
doorbell.open()
for size in (64, 4096, 65536):
    x = torch.zeros(size, dtype=torch.uint8, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        y = x ^ 0x5A
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(captured):
        y = x ^ 0x5A
    captured.instantiate()
    graph = doorbell.graph(captured)
    frame, out = doorbell.allocate(size), doorbell.allocate(size)
    mask = int.from_bytes(b"\x5a" * size, "little")
    for form, first, beside in (("one doorbell", (x, frame), False), ("beside", (x, frame), True), ("stored", (x, frame, "stores"), True)):
        chain = doorbell.chain([first, graph, (out, y)], beside=beside)
        wrong, us = 0, []
        for _ in range(launches):
            sent = os.urandom(size)
            frame.view[:] = sent
            begun = time.perf_counter_ns()
            chain.replay().wait(10)
            us.append((time.perf_counter_ns() - begun) / 1000)
            wrong += int.from_bytes(out.view, "little") != int.from_bytes(sent, "little") ^ mask
        us.sort()
        print(f"{size:6} B  {form:12}  {wrong} of {launches} wrong  p50 {us[launches // 2]:.2f}  p99 {us[launches * 99 // 100]:.2f}  max {us[-1]:.1f} us")
