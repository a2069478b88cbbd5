#!/usr/bin/env python3
"""Frames of an unmodified PyTorch server next to a neighbour: bare, under `run --fix=pins,copies`, and rewritten as a chain of libdoorbell's. The figures of fix.md.

    fix_server.py run DOORBELL FOLDER     each way next to each neighbour, in random order (three minutes, one GPU; the package doorbell in PYTHONPATH)

A frame of 2 KiB goes in, an MLP runs as a graph, its result comes out, 500 times a second, from a Python thread. The neighbour is another Python thread.
"""

import ctypes
import json
import os
import random
import subprocess
import sys
import threading
import time

PERIOD, SECONDS, ROUNDS = 0.002, 5.0, 1
WAYS = ("CUDA", "CUDA, `run --fix=pins,copies`", "chain of libdoorbell")
BESIDE = ("nothing", "a thread that pins 64 MiB, 10 times a second", "a DataLoader with pinned memory", "`.to(\"cuda\")` of 2 GB")


def frames(way, beside):
    """One turn, in a process of its own. Prints its figures."""
    if way == WAYS[2]:
        # (Before the first call of CUDA's.)
        import doorbell

    import torch

    torch.manual_seed(1)
    net = torch.nn.Sequential(*(layer for _ in range(4) for layer in (torch.nn.Linear(512, 512), torch.nn.ReLU()))).cuda().eval()
    x, staged, out = torch.zeros(1, 512, device="cuda"), torch.zeros(1, 512).pin_memory(), torch.zeros(1, 512).pin_memory()
    stream = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(3):
            y = net(x)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph, stream=stream):
            y = net(x)
    torch.cuda.synchronize()
    frame = torch.randn(512)
    expected = net(frame.cuda().view(1, -1)).detach().cpu().view(-1)
    if way == WAYS[2]:
        session = doorbell.open(lanes=4, profile=False)
        step = doorbell.instantiate(graph, stream)
        source, sink = doorbell.allocate(2048), doorbell.allocate(2048)
        chain = doorbell.chain([(doorbell.pin(x), source), step, (sink, doorbell.pin(y))], beside=True)
        data = frame.numpy().tobytes()

        def once():
            source.view[:] = data
            chain.replay().wait()
    else:
        def once():
            with torch.cuda.stream(stream):
                staged.copy_(frame.view(1, -1))
                x.copy_(staged, non_blocking=True)
                graph.replay()
                out.copy_(y, non_blocking=True)
                stream.synchronize()

    stop, calls = threading.Event(), [0]

    def pins():
        runtime = ctypes.CDLL(next(line.split()[-1] for line in open("/proc/self/maps") if "libcudart" in line))
        while not stop.is_set():
            at, began = ctypes.c_void_p(), time.monotonic()
            assert runtime.cudaHostAlloc(ctypes.byref(at), ctypes.c_size_t(64 << 20), 0) == 0
            assert runtime.cudaFreeHost(at) == 0
            calls[0] += 1
            time.sleep(max(0, 0.1 - (time.monotonic() - began)))

    class Batches(torch.utils.data.Dataset):
        def __len__(self):
            return 1 << 20

        def __getitem__(self, i):
            return torch.full((2 << 20,), float(i % 7))

    def loads():
        for _batch in torch.utils.data.DataLoader(Batches(), batch_size=4, num_workers=2, pin_memory=True):
            calls[0] += 1
            if stop.is_set():
                return

    weights = torch.ones(500_000_000) if beside == BESIDE[3] else None

    def moves():
        while not stop.is_set():
            weights.to("cuda")
            torch.cuda.current_stream().synchronize()
            calls[0] += 1

    thread = dict(zip(BESIDE, (None, pins, loads, moves)))[beside]
    for _ in range(200):
        once()
    if thread:
        thread = threading.Thread(target=thread)
        thread.start()
        time.sleep(0.3)
    ticks = int(SECONDS / PERIOD)
    took, first, n = [0.0] * ticks, time.monotonic() + PERIOD, 0
    while n < ticks:
        due, now = first + n * PERIOD, time.monotonic()
        if now >= due + PERIOD:
            n += 1
            continue
        if now < due:
            time.sleep(due - now)
        once()
        took[n] = time.monotonic() - due
        n += 1
    stop.set()
    if thread:
        thread.join()
    found = torch.frombuffer(bytearray(bytes(sink.view)), dtype=torch.float32) if way == WAYS[2] else out.view(-1)
    there = sorted(t for t in took if t)
    of = lambda share: round(1e6 * there[min(len(there) - 1, int(len(there) * share))], 1)
    missed, late = ticks - len(there), sum(t > PERIOD for t in there)
    print(json.dumps({"due": ticks, "missed": missed, "late": late, "p50_us": of(0.5), "p99_us": of(0.99), "p999_us": of(0.999), "max_us": of(1.0),
                      "neighbours_calls": calls[0], "right": bool(torch.allclose(found, expected, rtol=1e-3, atol=1e-4))}), flush=True)
    # (Workers of a DataLoader that was left early.)
    os._exit(0)


def run(doorbell, folder):
    import data_file

    plan = [(way, beside) for way in WAYS for beside in BESIDE] * ROUNDS
    random.shuffle(plan)
    rows = []
    for way, beside in plan:
        words = [sys.executable, os.path.abspath(__file__), "frames", way, beside]
        if way == WAYS[1]:
            words = [doorbell, "run", "--fix=pins,copies", "--"] + words
        out = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=90)
        if out.returncode:
            print(f"{way}, {beside}: {out.returncode} {out.stderr[-500:]}", flush=True)
            continue
        rows.append({"beside": beside, "way": way, **json.loads(out.stdout.splitlines()[-1])})
        print(json.dumps(rows[-1]), flush=True)
    rows.sort(key=lambda row: (BESIDE.index(row["beside"]), WAYS.index(row["way"])))
    data_file.write(folder, "fix-server", "Frames of a PyTorch server next to a neighbour, bare, fixed, rewritten", ["docs/results/fix_server.py", "run"], rows,
                    stored="percentiles and maximum of each turn of 2,500 frames")


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"] and len(sys.argv) == 4:
        run(*sys.argv[2:])
    elif sys.argv[1:2] == ["frames"] and len(sys.argv) == 4:
        frames(*sys.argv[2:])
    else:
        raise SystemExit(__doc__)
