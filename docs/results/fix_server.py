#!/usr/bin/env python3
"""Frames of a PyTorch server next to a neighbour: bare, under `run --fix`, and rewritten as a chain of libdoorbell. The figures of fix.md and code.md.

    fix_server.py run DOORBELL FOLDER [python|c|code]     each way next to each neighbour, in random order (one GPU; the package doorbell in PYTHONPATH)

A frame of 2 KiB goes in, an MLP runs as a graph, its result comes out, 500 times a second, from Python or from C (server_timer.c). The neighbour is a Python
thread. `python` or `c`: only those ways, into fix-server-python.json or fix-server-c.json. `code`: next to neighbours that load code, with --fix=pins,copies,code, into fix-server-code.json. $ROUNDS: how often each turn is measured (2). $ONLY: a part of the neighbours' names. All 24 turns take some
six minutes.
"""

import ctypes
import json
import os
import sys
import tempfile
import threading
import time
import traceback

import lab
import server_graph

SECONDS = 6.0
FIXED, CHAIN = "fixed", "chain"
WAYS = tuple(f"{language}, {way}" for language in ("Python", "C") for way in ("CUDA", FIXED, CHAIN))
# 64 MiB, ten times a second; batches of 32 MiB in pinned memory; 2 GB of weights.
BESIDE = ("nothing", "pins", "DataLoader", "`.to(\"cuda\")`")
# PTX of 100 kernels each second; a new function each time; the first FFT, the first solver, the first convolution.
CODE = ("nothing", "PTX", "`torch.compile`", "cuFFT", "cuSOLVER", "cuDNN")
FIRST_USE_S = 1.0


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

    def texts():
        driver, n = ctypes.CDLL("libcuda.so.1"), 0
        torch.cuda.current_stream().synchronize()
        while not stop.is_set():
            body = lambda i: f".visible .entry k{i}(.param .u64 p){{ .reg .b64 a; .reg .f32 x, y; ld.param.u64 a,[p]; ld.global.f32 x,[a]; mov.f32 y,0f3F800000; " \
                + "fma.rn.f32 x,x,y,x; " * 40 + "st.global.f32 [a],x; ret; }\n"
            text = f"// {os.getpid()} {n}\n.version 8.0\n.target sm_80\n.address_size 64\n" + "".join(map(body, range(100)))
            module, n = ctypes.c_void_p(), n + 1
            assert driver.cuModuleLoadData(ctypes.byref(module), text.encode()) == 0
            assert driver.cuModuleUnload(module) == 0
            calls[0] += 1
            time.sleep(0.7)

    def compiles():
        x = torch.ones(256, 256, device="cuda")
        while not stop.is_set():
            k = 1.5 + calls[0]
            with torch.cuda.stream(torch.cuda.Stream()):
                torch.compile(lambda x: (x * k).sin().sum(0) + x.max(1).values)(x)
            calls[0] += 1
            torch._dynamo.reset()

    def first(use):
        time.sleep(FIRST_USE_S)
        with torch.cuda.stream(torch.cuda.Stream()):
            use()
            torch.cuda.current_stream().synchronize()
        calls[0] += 1

    def transforms():
        first(lambda: torch.fft.fft(torch.ones(1 << 16, device="cuda")))

    def solves():
        first(lambda: torch.linalg.eigh(torch.eye(256, device="cuda")))

    def convolves():
        first(lambda: torch.nn.functional.conv2d(torch.ones(8, 16, 64, 64, device="cuda"), torch.ones(32, 16, 3, 3, device="cuda")))

    thread = dict(zip(BESIDE + CODE[1:], (None, pins, loads, moves, texts, compiles, transforms, solves, convolves)))[beside]
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
    ways = [way for way in WAYS if part in (None, "code") or way.lower().startswith(f"{part},")]
    order, fixes = (CODE, "pins,copies,code") if part == "code" else (BESIDE, "pins,copies")
    neighbours = [beside for beside in order if os.environ.get("ONLY", "") in beside]
    plan = [(way, beside) for way in ways for beside in neighbours] * int(os.environ.get("ROUNDS", 2))
    rows = []
    with tempfile.TemporaryDirectory() as made:
        timer = server_graph.build(made)
        for n, (way, beside) in enumerate(lab.shuffled(plan)):
            # (Nothing is compiled already.)
            caches = {name: os.path.join(made, str(n), name) for name in ("CUDA_CACHE_PATH", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
            for path in caches.values():
                os.makedirs(path)
            words = [sys.executable, os.path.abspath(__file__), "frames", way, beside, timer]
            if way.endswith(FIXED):
                words = [doorbell, "run", f"--fix={fixes}", "--report", "--"] + words
            out, errors, status = lab.ended(words, 90, env={**os.environ, **(caches if part == "code" else {})})
            if status:
                print(f"{way}, {beside}: {status} {errors[-500:]}", flush=True)
                continue
            rows.append(lab.tell({"beside": beside, "way": way, **json.loads(out.splitlines()[-1])}))
            print("; ".join(line for line in errors.splitlines() if line.startswith("doorbell: ")), flush=True)
    rows.sort(key=lambda row: (order.index(row["beside"]), WAYS.index(row["way"])))
    lab.write(folder, f"fix-server-{part}" if part else "fix-server", "Frames of a PyTorch server next to a neighbour, bare, fixed, rewritten",
                    ["docs/results/fix_server.py", "run", *([part] if part else [])], rows, stored="percentiles and maximum of each turn of 3,000 frames")


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"] and (len(sys.argv) == 4 or len(sys.argv) == 5 and sys.argv[4] in ("python", "c", "code")):
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
