#!/usr/bin/env python3
"""What names and calls cost, and whether each kernel is counted: the figures of names.md.

    names.py all DOORBELL OUT.json      everything, on this machine's GPU (about 10 minutes)
    names.py cost MODEL BLOCKS          one model, inside a recorded program: blocks with and without recording in turns (ABBA)
    names.py steps MODEL STEPS          its steps alone, for counting
"""

import ctypes
import json
import os
import random
import statistics
import subprocess
import sys
import time


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


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]


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


def compared(times):
    """By how many per cent B is slower: the median over pairs of blocks, and the interval that holds it (bootstrap, 95 %)."""
    changes = []
    for i in range(0, len(times["a"]) - 1, 2):
        a, b = sum(times["a"][i:i + 2]), sum(times["b"][i:i + 2])
        changes.append(100 * (b / a - 1))
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(changes, k=len(changes))) for _ in range(2000))
    said = {"percent": statistics.median(changes), "interval": [medians[50], medians[1949]], "blocks": 2 * len(times["a"])}
    for which, name in (("a", "without"), ("b", "with")):
        said[name] = {"p50_ms": statistics.median(times[which]), "p99_ms": quantile(times[which], 0.99), "max_ms": max(times[which])}
    return said


def cost(name, blocks):
    began = time.perf_counter()
    import torch
    step = model(name)
    for _ in range(30):
        step()
    torch.cuda.synchronize()
    started = time.perf_counter() - began
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
    print(json.dumps({"model": name, "steps_a_block": length, "start_seconds": started, **compared(times)}))


def run(command, **more):
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300, **more)
    return out.stdout.strip().splitlines()[-1] if out.returncode == 0 and out.stdout.strip() else None


def everything(doorbell, to):
    me = [sys.executable, os.path.abspath(__file__)]
    rows = []
    ways = [("torch.profiler", None, 40), ("bare", ["--tap", "off"], 80), ("commands", [], 240), ("calls", ["--calls"], 240), ("locks", ["--locks"], 240)]
    for name in ("resnet50", "gpt2"):
        for way, options, blocks in ways:
            program = [*me, "cost", name, str(blocks)]
            tape = f"/tmp/names-{os.getpid()}.doorbell"
            command = program if options is None else [doorbell, "record", "-q", "--force", *options, "-o", tape, "--", *program]
            said = run(command)
            if said is None:
                print(name, way, "failed", flush=True)
                continue
            row = {"way": way, **json.loads(said)}
            if options is not None:
                summary = json.loads(subprocess.run([doorbell, "show", "--summary", "--json", tape], stdout=subprocess.PIPE).stdout)
                row |= {"lost": summary["lost"], "pauses": summary.get("pauses"), "doorbells": summary["doorbells"],
                        "bytes": os.path.getsize(tape)}
                os.remove(tape)
            rows.append(row)
            print(f"{name:9} {way:15} {row['percent']:+6.2f} % [{row['interval'][0]:+.2f}, {row['interval'][1]:+.2f}]  "
                  f"{row['without']['p50_ms']:.3f} -> {row['with']['p50_ms']:.3f} ms a step, {row['blocks']} blocks of {row['steps_a_block']}", flush=True)
    with open(to, "w") as f:
        json.dump(rows, f, indent=1)


if __name__ == "__main__":
    what = sys.argv[1:]
    if what[:1] == ["cost"]:
        cost(what[1], int(what[2]))
    elif what[:1] == ["steps"]:
        import torch
        one = model(what[1])
        for _ in range(int(what[2])):
            one()
        torch.cuda.synchronize()
    elif what[:1] == ["all"] and len(what) == 3:
        everything(what[1], what[2])
    else:
        raise SystemExit(__doc__)
