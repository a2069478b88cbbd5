#!/usr/bin/env python3
"""Frames of a PyTorch server beside neighbours: the figures of server.md.

    server.py run FOLDER        on this machine's GPU, with PyTorch; the package doorbell in PYTHONPATH; the data file goes into FOLDER
    server.py pinning FOLDER    the loop and the bare thread alone, beside a thread that pins memory, in eight turns each

A frame of 2 KiB goes in, an MLP runs as a graph, its result comes out, 500 times a second. By CUDA from a Python thread, by a chain of doorbell's from a Python thread, by
doorbell.Loop, and by a bare timer thread in C (server_timer.c) that launches the same chain. In random order, in one process, each beside each neighbour.
"""

import ctypes
import json
import os
import random
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PERIOD, SECONDS, ROUNDS = 0.002, 3.0, 2
WAYS = ("CUDA, Python thread", "chain, Python thread", "Loop", "bare timer thread in C")
# The two threads that take no lock of Python's: as they are; on a CPU from which all other threads of the process are kept away; and without any sleep.
PINNING = ("Loop", "Loop, alone", "Loop, never sleeps", "bare timer thread in C", "bare timer thread in C, alone", "bare timer thread in C, never sleeps")
PINNING_ROUNDS = 8
PTX = """.version 6.0
.target sm_70
.address_size 64
.visible .entry k%d(.param .u64 at) { .reg .b64 %%r<3>; .reg .b32 %%v; ld.param.u64 %%r1, [at]; mov.u32 %%v, %d; st.global.u32 [%%r1], %%v; ret; }
"""


class Job(ctypes.Structure):
    _fields_ = [("doorbell", ctypes.c_void_p), ("chain", ctypes.c_uint64), ("launch", ctypes.c_void_p), ("wait", ctypes.c_void_p), ("input", ctypes.c_void_p),
                ("frame", ctypes.c_void_p), ("bytes", ctypes.c_uint64), ("period", ctypes.c_uint64), ("ticks", ctypes.c_uint64),
                ("took", ctypes.POINTER(ctypes.c_uint64)), ("code", ctypes.c_int32), ("spin", ctypes.c_uint32), ("wake_max", ctypes.c_uint64)]


def on(cpus):
    """Moves all threads of the process to these CPUs."""
    for thread in os.listdir("/proc/self/task"):
        try:
            os.sched_setaffinity(int(thread), cpus)
        except ProcessLookupError:
            pass  # It has ended.


def waited(thread):
    """For how long this thread could have run and had no CPU, in seconds; and how often a CPU was taken from it."""
    with open(f"/proc/self/task/{thread}/schedstat") as f:
        delay = int(f.read().split()[1]) / 1e9
    with open(f"/proc/self/task/{thread}/status") as f:
        return delay, int(next(line for line in f if line.startswith("nonvoluntary")).split()[1])


def threads_named(name):
    found = []
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/comm") as f:
            if f.read().strip() == name:
                found.append(thread)
    return found


def serve(ways=WAYS, only=None, rounds=ROUNDS):
    import doorbell
    import torch

    session = doorbell.open(lanes=4, profile=False)
    torch.manual_seed(1)
    net = torch.nn.Sequential(*(layer for _ in range(4) for layer in (torch.nn.Linear(512, 512), torch.nn.ReLU()))).cuda().eval()
    x, staged, out = torch.zeros(1, 512, device="cuda"), torch.zeros(1, 512).pin_memory(), torch.zeros(1, 512).pin_memory()
    stream = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(3):
            y = net(x)
        stream.synchronize()
        graph, copy = torch.cuda.CUDAGraph(keep_graph=True), torch.cuda.CUDAGraph(keep_graph=True)
        for one in (graph, copy):
            with torch.cuda.graph(one, stream=stream):
                y = net(x)
    graph.replay()
    torch.cuda.synchronize()
    step = doorbell.instantiate(copy, stream)
    source, sink = doorbell.allocate(2048), doorbell.allocate(2048)
    chain = doorbell.chain([(doorbell.pin(x), source), step, (sink, doorbell.pin(y))], beside=True)
    frame = torch.randn(512)
    data = frame.numpy().tobytes()
    expected = net(frame.cuda().view(1, -1)).detach().cpu().numpy().tobytes()
    ticks = int(SECONDS / PERIOD)

    def by_python(once):
        took, first, n = [0] * ticks, time.monotonic() + PERIOD, 0
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
        return took

    def cuda_once():
        with torch.cuda.stream(stream):
            staged.copy_(frame.view(1, -1))
            x.copy_(staged, non_blocking=True)
            graph.replay()
            out.copy_(y, non_blocking=True)
            stream.synchronize()

    def chain_once():
        source.view[:] = data
        chain.replay().wait()

    def by_loop(cpu=None, sleeps=True):
        with doorbell.loop(chain, period=PERIOD, sink=sink, slots=4, results=ticks + 8, spin=True, spin_before=None if sleeps else PERIOD, cpu=cpu,
                           alone=cpu is not None) as loop:
            took, [thread] = [0.0] * ticks, threads_named("doorbell-loop")
            while True:
                found = loop.wait(10)
                if found.frame >= ticks:
                    break
                # (One whose time was over when the thread had the CPU was not launched: it is missed.)
                took[found.frame] = 0 if found.refused else found.done - found.due
                if found.frame == ticks - 1:
                    break
            return took, waited(thread), loop.stop()

    timer = ctypes.CDLL("/tmp/server_timer.so")

    def by_c(cpu=None, sleeps=True):
        thread = threading.get_native_id()
        if cpu is not None:
            on(cpus - {cpu})
            os.sched_setaffinity(thread, {cpu})
        took, functions, before = (ctypes.c_uint64 * ticks)(), doorbell._library.library, waited(thread)
        at = lambda function: ctypes.cast(function, ctypes.c_void_p).value
        kept = ctypes.create_string_buffer(data, 2048)
        job = Job(session.at.value, chain.handle, at(functions.doorbell_graph_launch), at(functions.doorbell_wait), source.pointer, ctypes.addressof(kept), 2048,
                  int(PERIOD * 1e9), ticks, took, 0, 50_000 if sleeps else int(PERIOD * 1e9), 0)
        timer.run(ctypes.byref(job))
        after = waited(thread)
        if cpu is not None:
            on(cpus)
        if job.code:
            raise RuntimeError(f"bare timer thread: code {job.code}")
        return [ns / 1e9 for ns in took], (after[0] - before[0], after[1] - before[1]), job.wake_max / 1e3

    stop = threading.Event()

    def modules():
        cuda, n = ctypes.CDLL("libcuda.so.1"), 0
        torch.cuda.current_stream().synchronize()
        while not stop.is_set():
            module, n = ctypes.c_void_p(), n + 1
            text = "".join(PTX % (k, n * 100 + k) if k == 0 else PTX.split("\n", 3)[3] % (k, n * 100 + k) for k in range(40)).encode()
            code = cuda.cuModuleLoadData(ctypes.byref(module), text)
            if code:
                raise RuntimeError(f"cuModuleLoadData: {code}")
            cuda.cuModuleUnload(module)

    def pins():
        while not stop.is_set():
            del_me = torch.empty(8 << 20, dtype=torch.uint8).pin_memory()
            del del_me
            torch._C._host_emptyCache() if hasattr(torch._C, "_host_emptyCache") else None

    def compiles():
        n = 0
        while not stop.is_set():
            n += 1
            net = torch.nn.Sequential(torch.nn.Linear(64 + n, 32), torch.nn.GELU(), torch.nn.Linear(32, 8)).cuda()
            torch.compile(net, dynamic=False)(torch.randn(4, 64 + n, device="cuda"))

    def python():
        while not stop.is_set():
            sum(i * i for i in range(20000))

    neighbours = {"nothing": None, "a thread that loads modules": modules, "a thread that pins memory": pins, "Python that computes": python, "torch.compile in a thread": compiles}
    plan = [(way, beside) for way in ways for beside in only or neighbours] * rounds
    cpus = os.sched_getaffinity(0)
    random.Random(3).shuffle(plan)
    rows = []
    for way, beside in plan:
        stop.clear()
        thread = neighbours[beside] and threading.Thread(target=neighbours[beside])
        if thread:
            thread.start()
            time.sleep(0.3)
        ctypes.memset(sink.pointer, 0, 2048)
        out.zero_()
        source.view[:] = data
        said, woken, delay, alone = None, None, None, max(cpus) if "alone" in way else None
        if way == WAYS[0]:
            took = by_python(cuda_once)
            right = torch.allclose(out.view(-1), torch.frombuffer(bytearray(expected), dtype=torch.float32), rtol=1e-3, atol=1e-4)
        else:
            if way == WAYS[1]:
                took = by_python(chain_once)
            elif way.startswith(WAYS[2]):
                took, delay, said = by_loop(alone, "never" not in way)
                woken = said.wake_max
            else:
                took, delay, woken = by_c(alone, "never" not in way)
            right = torch.allclose(torch.frombuffer(bytearray(bytes(sink.view)), dtype=torch.float32), torch.frombuffer(bytearray(expected), dtype=torch.float32),
                                   rtol=1e-3, atol=1e-4)
        stop.set()
        if thread:
            thread.join()
        there = sorted(t for t in took if t)
        of = lambda share: 1e6 * there[min(len(there) - 1, int(len(there) * share))]
        missed, late = ticks - len(there), sum(t > PERIOD for t in there)
        rows.append({"run": "this one", "way": way, "beside": beside, "due": ticks, "missed": missed, "late": late, "not_in_time": missed + late,
                     "p50_us": of(0.5), "p99_us": of(0.99), "p999_us": of(0.999), "max_us": 1e6 * there[-1], "right": bool(right), "wake_max_us": woken,
                     "no_cpu_ms": 1e3 * delay[0] if delay else None, "cpu_taken": delay[1] if delay else None})
        print(json.dumps({k: round(v, 1) if isinstance(v, float) else v for k, v in rows[-1].items()}), said, flush=True)
    return rows


def measure(folder, name, about, **options):
    import data_file

    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", "/tmp/server_timer.so", f"{HERE}/server_timer.c"], check=True)
    rows = sorted(serve(**options), key=lambda row: (row["beside"], (WAYS + PINNING).index(row["way"])))
    data_file.write(folder, name, about, ["docs/results/server.py", sys.argv[1]], rows, "percentiles and maximum of each turn of 1,500 frames")


if __name__ == "__main__":
    what = sys.argv[1:]
    if what[:1] == ["run"] and len(what) == 2:
        measure(what[1], "server-frames", "Frames of a server beside neighbours")
    elif what[:1] == ["pinning"] and len(what) == 2:
        measure(what[1], "server-pinning", "Frames beside a thread that pins memory", ways=PINNING, only=("a thread that pins memory",), rounds=PINNING_ROUNDS)
    else:
        raise SystemExit(__doc__)
