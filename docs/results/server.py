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
import tempfile
import threading
import time

import lab
import server_graph
from server_graph import PERIOD

SECONDS, ROUNDS = 3.0, 2
WAYS = ("CUDA, Python thread", "chain, Python thread", "Loop", "bare timer thread in C")
# The two threads that take no lock of Python's: as they are; on a CPU from which all other threads of the process are kept away; and without any sleep.
PINNING = ("Loop", "Loop, alone", "Loop, never sleeps", "bare timer thread in C", "bare timer thread in C, alone", "bare timer thread in C, never sleeps")
PINNING_ROUNDS = 8
PTX = """.version 6.0
.target sm_70
.address_size 64
.visible .entry k%d(.param .u64 at) { .reg .b64 %%r<3>; .reg .b32 %%v; ld.param.u64 %%r1, [at]; mov.u32 %%v, %d; st.global.u32 [%%r1], %%v; ret; }
"""


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


def serve(timer, ways=WAYS, only=None, rounds=ROUNDS):
    import doorbell
    import torch

    session = doorbell.open(lanes=4, profile=False)
    cuda = server_graph.Cuda()
    copy, y = cuda.captured()
    cuda.graph.replay()
    torch.cuda.synchronize()
    served = server_graph.Chain(doorbell, session, cuda, copy, y)
    chain, sink = served.chain, served.sink
    ticks = int(SECONDS / PERIOD)

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

    def by_c(cpu=None, sleeps=True):
        thread = threading.get_native_id()
        if cpu is not None:
            on(cpus - {cpu})
            os.sched_setaffinity(thread, {cpu})
        function, by = served.in_c(timer)
        before = waited(thread)
        job = server_graph.by_c(timer, function, by, ticks, 50_000 if sleeps else int(PERIOD * 1e9))
        after = waited(thread)
        if cpu is not None:
            on(cpus)
        return job.seconds(), (after[0] - before[0], after[1] - before[1]), job.wake_max / 1e3

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
    cpus, rows = os.sched_getaffinity(0), []
    for way, beside in lab.shuffled(plan, 3):
        stop.clear()
        thread = neighbours[beside] and threading.Thread(target=neighbours[beside])
        if thread:
            thread.start()
            time.sleep(0.3)
        served.clear()
        cuda.clear()
        served.source.view[:] = served.data
        said, woken, delay, alone = None, None, None, max(cpus) if "alone" in way else None
        if way == WAYS[0]:
            took = server_graph.by_python(cuda.once, ticks)
        elif way == WAYS[1]:
            took = server_graph.by_python(served.once, ticks)
        elif way.startswith(WAYS[2]):
            took, delay, said = by_loop(alone, "never" not in way)
            woken = said.wake_max
        else:
            took, delay, woken = by_c(alone, "never" not in way)
        right = (cuda if way == WAYS[0] else served).is_right()
        stop.set()
        if thread:
            thread.join()
        found = server_graph.figures(took)
        rows.append({"run": "this one", "way": way, "beside": beside, **found, "not_in_time": found["missed"] + found["late"], "right": right,
                     "wake_max_us": woken, "no_cpu_ms": 1e3 * delay[0] if delay else None, "cpu_taken": delay[1] if delay else None})
        print(json.dumps({k: round(v, 1) if isinstance(v, float) else v for k, v in rows[-1].items()}), said, flush=True)
    return rows


def measure(folder, command, name, about, **options):
    with tempfile.TemporaryDirectory() as made:
        rows = serve(ctypes.CDLL(server_graph.build(made)), **options)
    rows.sort(key=lambda row: (row["beside"], (WAYS + PINNING).index(row["way"])))
    lab.write(folder, name, about, ["docs/results/server.py", command], rows, "percentiles and maximum of each turn of 1,500 frames")


def run(folder):
    measure(folder, "run", "server-frames", "Frames of a server beside neighbours")


def pinning(folder):
    measure(folder, "pinning", "server-pinning", "Frames beside a thread that pins memory", ways=PINNING, only=("a thread that pins memory",), rounds=PINNING_ROUNDS)


if __name__ == "__main__":
    lab.main(__doc__, run=run, pinning=pinning)
