#!/usr/bin/env python3
"""Frames of a PyTorch server next to a neighbour: bare, under `run --fix=pins,copies`, and rewritten as a chain of libdoorbell. The figures of fix.md.

    fix_server.py run DOORBELL FOLDER [python|c]     each way next to each neighbour, in random order (one GPU; the package doorbell in PYTHONPATH)

A frame of 2 KiB goes in, an MLP runs as a graph, its result comes out, 500 times a second, from Python or from C (server_timer.c). The neighbour is a Python
thread. `python` or `c`: only those ways, into fix-server-python.json or fix-server-c.json. $ROUNDS: how often each turn is measured (2). $ONLY: a part of the neighbours' names. All 24 turns take some
six minutes.
"""

import ctypes
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import server_graph

SECONDS = 6.0
FIXED, CHAIN = "fixed", "chain"
WAYS = tuple(f"{language}, {way}" for language in ("Python", "C") for way in ("CUDA", FIXED, CHAIN))
# 64 MiB, ten times a second; batches of 32 MiB in pinned memory; 2 GB of weights.
BESIDE = ("nothing", "pins", "DataLoader", "`.to(\"cuda\")`")


def frames(way, beside, timer):
    """One turn, in a separate process. Prints its figures."""
    if way.endswith(CHAIN):
        # (Before the first call of CUDA's.)
        import doorbell

    import torch

    served = server_graph.Cuda()
    if way.endswith(CHAIN):
        session = doorbell.open(lanes=4, profile=False)
        served = server_graph.Chain(doorbell, session, served, served.graph, served.y)
    if way.startswith("C,"):
        library = ctypes.CDLL(timer)
        function, by = served.in_c(library)
        serve = lambda ticks: server_graph.by_c(library, function, by, ticks).seconds()
    else:
        serve = lambda ticks: server_graph.by_python(served.once, ticks)

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
    serve(200)
    served.clear()
    if thread:
        thread = threading.Thread(target=thread)
        thread.start()
        time.sleep(0.3)
    took = serve(int(SECONDS / server_graph.PERIOD))
    stop.set()
    if thread:
        thread.join()
    found = {name: round(value, 1) for name, value in server_graph.figures(took).items()}
    print(json.dumps({**found, "neighbours_calls": calls[0], "right": served.is_right()}), flush=True)


def run(doorbell, folder, part=None):
    import data_file

    ways = [way for way in WAYS if part is None or way.lower().startswith(f"{part},")]
    neighbours = [beside for beside in BESIDE if os.environ.get("ONLY", "") in beside]
    plan = [(way, beside) for way in ways for beside in neighbours] * int(os.environ.get("ROUNDS", 2))
    random.shuffle(plan)
    rows = []
    with tempfile.TemporaryDirectory() as made:
        timer = server_graph.build(made)
        for way, beside in plan:
            words = [sys.executable, os.path.abspath(__file__), "frames", way, beside, timer]
            if way.endswith(FIXED):
                words = [doorbell, "run", "--fix=pins,copies", "--"] + words
            try:
                out = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=90)
            except subprocess.TimeoutExpired as error:
                print(f"{way}, {beside}: {error}", flush=True)
                continue
            if out.returncode:
                print(f"{way}, {beside}: {out.returncode} {out.stderr[-500:]}", flush=True)
                continue
            rows.append({"beside": beside, "way": way, **json.loads(out.stdout.splitlines()[-1])})
            print(json.dumps(rows[-1]), flush=True)
    rows.sort(key=lambda row: (BESIDE.index(row["beside"]), WAYS.index(row["way"])))
    data_file.write(folder, f"fix-server-{part}" if part else "fix-server", "Frames of a PyTorch server next to a neighbour, bare, fixed, rewritten",
                    ["docs/results/fix_server.py", "run", *([part] if part else [])], rows, stored="percentiles and maximum of each turn of 3,000 frames")


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"] and (len(sys.argv) == 4 or len(sys.argv) == 5 and sys.argv[4] in ("python", "c")):
        run(*sys.argv[2:])
    elif sys.argv[1:2] == ["frames"] and len(sys.argv) == 5:
        code = 1
        try:
            frames(*sys.argv[2:])
            code = 0
        except BaseException:
            traceback.print_exc()
        # (Without waiting for a neighbour, or for workers of a DataLoader that was left early.)
        os._exit(code)
    else:
        raise SystemExit(__doc__)
