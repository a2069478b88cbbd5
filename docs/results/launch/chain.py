"""Frames through an elementwise kernel of PyTorch's, as chains of each form: python3 chain.py [LAUNCHES]

New random bytes each time, every result compared. The forms take turns of ten in random order. For each size and form: how many were wrong, and the time of
replay() and wait() together, with the 95 % interval of the median over rounds.
"""

import os
import random
import sys
import time

import doorbell
import torch
import turns

launches = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
EACH = 10
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
    forms = {form: doorbell.chain([first, graph, (out, y)], beside=beside)
             for form, first, beside in (("one doorbell", (x, frame), False), ("beside", (x, frame), True), ("stored", (x, frame, "stores"), True))}
    wrong, rounds = dict.fromkeys(forms, 0), {form: [] for form in forms}
    for _ in range(launches // EACH):
        for form in random.sample(list(forms), len(forms)):
            us = []
            for _ in range(EACH):
                sent = os.urandom(size)
                frame.view[:] = sent
                begun = time.perf_counter_ns()
                forms[form].replay().wait(10)
                us.append((time.perf_counter_ns() - begun) / 1000)
                wrong[form] += int.from_bytes(out.view, "little") != int.from_bytes(sent, "little") ^ mask
            rounds[form].append(us)
    for form, parts in rounds.items():
        us = sorted(sum(parts, []))
        _, low, high = turns.interval([turns.middle(part) for part in parts])
        p99 = f"{us[len(us) * 99 // 100]:.2f}" if len(us) >= 1000 else "-"
        print(f"{size:6} B  {form:12}  {wrong[form]} of {len(us)} wrong  p50 {turns.middle(us):.2f} ({low:.2f} to {high:.2f})  p99 {p99}  max {us[-1]:.1f} us")
