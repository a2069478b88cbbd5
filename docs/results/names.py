#!/usr/bin/env python3
"""What names and calls cost, and whether each kernel is counted: the figures of names.md.

    names.py costs DOORBELL FOLDER [WAY...]
                                        what recording costs, on this machine's GPU: FOLDER/costs.json.gz (some four minutes a way)
    names.py counts DOORBELL FOLDER [PROGRAM...]
                                        kernels and copies, and those of torch.profiler in another run (about 5 minutes)
    names.py cost MODEL BLOCKS          one model, inside a recorded program: blocks with and without recording in turns (ABBA)
    names.py program NAME [OUT.json]    one program, for counting; with OUT.json under torch.profiler
"""

import ctypes
import json
import os
import statistics
import subprocess
import sys
import time

import lab


def model(name):
    """One step of it."""
    import torch
    torch.manual_seed(0)
    if name == "resnet50":
        import torchvision
        net = torchvision.models.resnet50().cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        images, labels = torch.randn(8, 3, 64, 64).cuda(), torch.randint(0, 1000, (8,)).cuda()

        def step():
            optimizer.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
        return step
    if name == "gpt2":
        import transformers
        net = transformers.GPT2LMHeadModel(transformers.GPT2Config()).cuda().eval()
        words = torch.randint(0, 50000, (1, 32)).cuda()

        @torch.inference_mode()
        def step():
            # One token behind a cache: the step of a server that answers one user.
            out = net(words[:, -1:], past_key_values=cache(), use_cache=True)
            return out.logits

        with torch.inference_mode():
            past = net(words, use_cache=True).past_key_values

        def cache():
            if hasattr(past, "crop"):
                past.crop(32)
            return past
        return step
    raise SystemExit(f"no such model: {name}")


def blocks_in_turns(step, blocks, length, begin, end):
    """Milliseconds a step, of each block, by turns ABBA: `begin` before the blocks of B, `end` behind them."""
    import torch
    times = {"a": [], "b": []}
    for turn in range(blocks // 4):
        for which in ("abba", "baab")[turn % 2]:
            if which == "b":
                begin()
            torch.cuda.synchronize()
            began = time.perf_counter_ns()
            for _ in range(length):
                step()
            torch.cuda.synchronize()
            times[which].append((time.perf_counter_ns() - began) / 1e6 / length)
            if which == "b":
                end()
    return times


def cost(name, blocks):
    blocks = int(blocks)
    import torch
    step = model(name)
    for _ in range(30):
        step()
    torch.cuda.synchronize()
    clock = time.perf_counter_ns()
    for _ in range(20):
        step()
    torch.cuda.synchronize()
    # Blocks of some 50 ms.
    length = max(1, int(50e6 * 20 / (time.perf_counter_ns() - clock)))
    say = getattr(ctypes.CDLL(None), "doorbell_agent_recording", None)
    if say is not None:
        say(0)
        times = blocks_in_turns(step, blocks, length, lambda: say(1), lambda: say(0))
    else:
        from torch.profiler import ProfilerActivity, profile
        session = []

        def begin():
            session.append(profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]))
            session[0].start()
        times = blocks_in_turns(step, blocks, length, begin, lambda: session.pop().stop())
    print(json.dumps(times))


WAYS = {"torch.profiler": (None, 40), "nothing": (["--tap", "off"], 200), "commands": ([], 400), "--calls": (["--calls"], 200),
        "--calls --last 256MiB": (["--calls", "--last", "256MiB"], 200), "--gpu-times": (["--gpu-times"], 200),
        "--gpu-times --last 256MiB": (["--gpu-times", "--last", "256MiB"], 200), "--python": (["--python"], 200),
        "--locks=waits": (["--locks=waits"], 200), "--locks": (["--locks"], 200)}
TITLES = {"resnet50": "ResNet-50, training", "gpt2": "GPT-2, decoding"}
PROCESSES = 5


def costs(doorbell, folder, *only):
    """Each way of recording in PROCESSES processes, in random order. Every block is kept."""
    me, tape = [sys.executable, os.path.abspath(__file__)], f"/tmp/names-{os.getpid()}.doorbell"
    stages = {}
    for model, way in lab.shuffled(PROCESSES * [(model, way) for model in TITLES for way in only or WAYS], 7):
        options, blocks = WAYS[way]
        program = [*me, "cost", model, str(blocks)]
        said, _, status = lab.ended(program if options is None else [doorbell, "record", "-q", "--force", *options, "-o", tape, "--", *program], 300)
        if status or not said.strip():
            print(model, way, "failed", flush=True)
            continue
        times = json.loads(said.strip().splitlines()[-1])
        stage = stages.setdefault((model, way), {"point": {"model": TITLES[model], "recorded": way}, "cells": {"paused": [], "recorded": []}})
        for cell, of in (("paused", "a"), ("recorded", "b")):
            stage["cells"][cell].append([[round(1e6 * ms)] for ms in times[of]])
        middle = {of: statistics.median(times[of]) for of in "ab"}
        print(f"{model:9} {way:26} {middle['a']:.3f} -> {middle['b']:.3f} ms a step", flush=True)
    order = sorted(stages, key=lambda of: (list(TITLES).index(of[0]), list(WAYS).index(of[1])))
    lab.write_samples(folder, "costs", "What recording costs, by blocks in turns", ["docs/results/names.py", "costs"], [stages[of] for of in order])


def captured(net, x):
    """A CUDA graph of `net(x)`, and the tensor that it writes."""
    import torch
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            net(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = net(x)
    return graph, y


def graphs():
    """A model of timm replayed as a CUDA graph."""
    import timm
    import torch
    torch.manual_seed(0)
    net = timm.create_model("resnet18").cuda().eval()
    images = torch.randn(4, 3, 64, 64).cuda()
    with torch.inference_mode():
        graph, _ = captured(net, images)
        for _ in range(20):
            graph.replay()


def steps_of(name):
    def run():
        step = model(name)
        for _ in range(20):
            step()
    return run


def compiled():
    import torch
    f = torch.compile(lambda x: torch.nn.functional.gelu(x @ x + 1).sum(dim=0))
    x = torch.randn(256, 256).cuda()
    for _ in range(20):
        f(x)


def generation():
    import torch
    import transformers
    torch.manual_seed(0)
    net = transformers.GPT2LMHeadModel(transformers.GPT2Config()).cuda().eval()
    with torch.inference_mode():
        net.generate(torch.randint(0, 50000, (1, 16)).cuda(), max_new_tokens=20, do_sample=False, pad_token_id=0)


def moves():
    """Copies of each direction, pinned and pageable, and memsets."""
    import torch
    pinned, pageable, gpu = torch.empty(1 << 20).pin_memory(), torch.ones(1 << 20), torch.empty(1 << 20).cuda()
    other = torch.empty_like(gpu)
    for _ in range(10):
        gpu.copy_(pinned, non_blocking=True)
        gpu.copy_(pageable)
        other.copy_(gpu)
        pinned.copy_(gpu, non_blocking=True)
        pageable.copy_(other)
        torch.cuda.synchronize()
        torch.zeros(1 << 20, device="cuda", dtype=torch.uint8)
        float(gpu[0])


def jax_training():
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax
    import jax.numpy as jnp
    a, b = jax.random.split(jax.random.PRNGKey(0))
    weights = [jax.random.normal(a, (256, 512)) * 0.05, jax.random.normal(b, (512, 10)) * 0.05]
    x, y = jnp.ones((64, 256)), jnp.zeros((64, 10))

    @jax.jit
    def step(weights):
        def loss(weights):
            return jnp.mean((jax.nn.relu(x @ weights[0]) @ weights[1] - y) ** 2)
        return [w - 0.1 * g for w, g in zip(weights, jax.grad(loss)(weights))]
    for _ in range(20):
        weights = step(weights)
    jax.block_until_ready(weights)


def cupy_arrays():
    import cupy
    x = cupy.random.RandomState(1).rand(512, 512, dtype=cupy.float32)
    own = cupy.RawKernel("extern \"C\" __global__ void twice(float *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2; }",
                         "twice")
    for _ in range(20):
        x = cupy.tanh(x @ x) + x.sum(axis=0)
        own((1024,), (256,), (x, x.size))
        cupy.sort(x[0])
    cupy.cuda.Device().synchronize()


def triton_kernel():
    import torch
    from names_triton import add
    x, y = torch.ones(1 << 16, device="cuda"), torch.ones(1 << 16, device="cuda")
    out = torch.empty_like(x)
    for _ in range(20):
        add[(64,)](x, y, out, x.numel(), BLOCK=1024)


def static_cudart():
    """Kernels and copies of a library that has the CUDA runtime inside."""
    library = lab.built("names/static.cu", "--shared", "-cudart", "static", "-Xcompiler", "-fPIC")
    if ctypes.CDLL(library).run(20) != 0:
        raise SystemExit("static.cu: a call of CUDA failed")


def rank(number, ranks, to):
    import torch
    torch.cuda.set_device(number)

    def training():
        torch.distributed.init_process_group("nccl", init_method="tcp://127.0.0.1:29533", rank=number, world_size=ranks)
        net = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(
            torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).cuda(), device_ids=[number])
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        x = torch.ones(64, 512, device="cuda")
        for _ in range(20):
            optimizer.zero_grad(set_to_none=True)
            net(x).sum().backward()
            optimizer.step()
    watched(training, to and f"{to}.{number}")
    torch.distributed.destroy_process_group()


def ddp(to):
    """Data parallel training on two GPUs, a process each. Each profiles itself."""
    import torch
    torch.multiprocessing.spawn(rank, (2, to), 2)
    if to is not None:
        import collections
        all_ranks = collections.Counter()
        for number in range(2):
            all_ranks.update(lab.read(f"{to}.{number}"))
        lab.keep(to, all_ranks)


PROGRAMS = {"resnet50": steps_of("resnet50"), "gpt2 decoding": steps_of("gpt2"), "gpt2 generate": generation,
            "timm resnet18, CUDA graph": graphs, "torch.compile": compiled, "copies": moves, "JAX": jax_training, "CuPy": cupy_arrays,
            "Triton": triton_kernel, "C++, static cudart": static_cudart}


def watched(steps, to):
    """Runs them; under torch.profiler, whose kernels and copies go to a file, if there is one."""
    import torch
    if to is None:
        steps()
        torch.cuda.synchronize()
        return
    import collections
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        steps()
        torch.cuda.synchronize()
    on_gpu = [e.name for e in profiler.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    lab.keep(to, collections.Counter(on_gpu))


def program(name, to=None):
    if name == "DDP, two GPUs":
        ddp(to)
    else:
        watched(PROGRAMS[name], to)


def programs():
    """With the one for two GPUs, where there are two."""
    import torch
    return [*PROGRAMS, *(["DDP, two GPUs"] if torch.cuda.device_count() > 1 else [])]


def spelled(symbols):
    """Names as CUPTI spells them: those of c++filt. (doorbell's own demangler writes `(unsigned long)2` for `2ul`.)"""
    out = subprocess.run(["c++filt"], input="\n".join(symbols), stdout=subprocess.PIPE, text=True).stdout.split("\n")
    return dict(zip(symbols, out))


def moved(doorbell, tape, launches, copies):
    """Calls that copy or set memory, and how many of them have a copy, a fill or a kernel that is theirs."""
    import collections
    of, calls, with_commands = collections.Counter(), collections.Counter(), 0
    theirs = {(row["tid"], row["call"]["number"]) for row in launches + copies if row["call"]}
    with subprocess.Popen([doorbell, "export", "--jsonl", tape], stdout=subprocess.PIPE, text=True) as lines:
        for line in lines.stdout:
            if not line.startswith('{"type":"cuda_call"'):
                continue
            call = json.loads(line)
            of[call["tid"]] += 1
            if call["kind"] in ("copy", "async copy", "memset"):
                calls[call["kind"]] += 1
                with_commands += (call["tid"], call.get("number", of[call["tid"]])) in theirs
    return calls, with_commands


def counts(doorbell, folder, *only):
    me = [sys.executable, os.path.abspath(__file__), "program"]
    rows = []
    for name in only or programs():
        tape, profiled = f"/tmp/names-{os.getpid()}.doorbell", f"/tmp/names-{os.getpid()}.json"
        lab.record(doorbell, tape, [*me, name], "--calls")
        subprocess.run([*me, name, profiled], timeout=300, stderr=subprocess.DEVNULL)
        summary, kernels, launches, copies = (lab.show(doorbell, tape, view) for view in ("--summary", "--kernels", "--launches", "--copies"))
        theirs = lab.read(profiled)
        mine = {}
        names = spelled([k["symbol"] for k in kernels["kernels"] if k["symbol"]])
        for k in kernels["kernels"]:
            key = names.get(k["symbol"], k["symbol"])
            mine[key] = mine.get(key, 0) + k["launches"] + k["in_graphs"]
        kinds = {k: n for k, n in theirs.items() if k.startswith("Mem")}
        # (Names of some thousand letters CUPTI leaves as they are.)
        long = spelled([k for k in theirs if k.startswith("_Z")])
        named = {long.get(k, k): n for k, n in theirs.items() if not k.startswith("Mem")}
        real = [l for l in launches if not l["empty"]]
        differ = {k: [n, mine.get(k, 0)] for k, n in named.items() if mine.get(k, 0) != n}
        extra = {k: n for k, n in mine.items() if k and k not in named}
        theirs_of = lambda kind: sum(n for k, n in kinds.items() if k.startswith(kind))
        calls, with_commands = moved(doorbell, tape, launches, copies)
        row = {"program": name, "kernels": len(named), "runs": sum(named.values()), "same": len(named) - len(differ), "launches": len(real),
               "with_call": sum(l["call"] is not None for l in real), "with_name": sum(l["name"] is not None for l in real), "lost": summary["lost"],
               "copies": theirs_of("Memcpy"), "memsets": theirs_of("Memset"), "copy_calls": calls["copy"] + calls["async copy"],
               "memset_calls": calls["memset"], "with_commands": with_commands}
        rows.append(row)
        print(f"{name}: {row['kernels']} kernels of the profiler, {row['runs']} runs; {row['same']} with the same count; recorded {row['launches']} launches, "
              f"{row['with_call']} with call, {row['with_name']} with name; without name {mine.get(None, 0)}; lost {row['lost']}", flush=True)
        for k, (a, b) in list(differ.items())[:6]:
            print(f"    profiler {a}, recorded {b}: {k[:110]}")
        for k, n in list(extra.items())[:6]:
            print(f"    only recorded, {n}: {k[:110]}")
        print(f"    moves of the profiler: {kinds}; calls recorded: {dict(calls)}, {with_commands} with their commands", flush=True)
        os.remove(tape)
        # (After each: one that hangs loses itself only.)
        lab.write(folder, "names-ddp" if only == ("DDP, two GPUs",) else "names-counts", "Kernels and copies beside torch.profiler",
                        ["docs/results/names.py", "counts"], rows)


if __name__ == "__main__":
    lab.main(__doc__, costs=costs, counts=counts, cost=cost, program=program)
