#!/usr/bin/env python3
"""What doorbell says of the GPU's work in ranges of NVTX, next to torch.profiler.

    ranges.py run DOORBELL FOLDER        ten programs recorded and profiled in turns, three times; FOLDER/ranges.json
    ranges.py programs [TRACES]          the programs; TRACES: a folder for torch.profiler's traces

For each range, of the calling thread and of all threads: kernels, copies and fills, and the time in which at least one of them ran, per instance. The
status is 1 if a time differs from the profiler's by more than 1 % and more than 1 us a kernel (medians of the three).
"""

import collections
import contextlib
import os
import statistics
import sys
import threading

import lab

HERE = os.path.abspath(__file__)
ROUNDS, WARM, INSTANCES = 3, 5, 20


def union(spans):
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def programs():
    import torch
    from torch import nn

    device, measured, program = torch.device("cuda"), [False], [""]

    @contextlib.contextmanager
    def in_range(name):
        if not measured[0]:
            yield
            return
        name = f"{program[0]}: {name}"
        with torch.profiler.record_function(name):
            torch.cuda.nvtx.range_push(name)
            try:
                yield
            finally:
                torch.cuda.nvtx.range_pop()

    def times(step):
        for n in range(WARM + INSTANCES):
            measured[0] = n >= WARM
            step()
        torch.cuda.synchronize()
        measured[0] = False

    def mlp(width=2048, depth=4):
        return nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU()))).to(device)

    def train(model, data, optimizer):
        def step():
            with in_range("step"):
                with in_range("forward"):
                    loss = model(data).square().mean()
                with in_range("backward"):
                    loss.backward()
                with in_range("optimizer"):
                    optimizer.step()
                    optimizer.zero_grad()
            torch.cuda.synchronize()
        times(step)

    def training():
        model = mlp()
        train(model, torch.randn(1024, 2048, device=device), torch.optim.Adam(model.parameters()))

    def convolutions():
        model = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), *(nn.Conv2d(64, 64, 3, padding=1) for _ in range(6)),
                              nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 100)).to(device)
        train(model, torch.randn(32, 3, 112, 112, device=device), torch.optim.SGD(model.parameters(), 0.01, momentum=0.9))

    def transformer():
        layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
        model = nn.TransformerEncoder(layer, 4).to(device)
        train(model, torch.randn(8, 256, 512, device=device), torch.optim.AdamW(model.parameters()))

    def decoding():
        layer, head = mlp(1024, 6), nn.Linear(1024, 8192).to(device)

        @torch.no_grad()
        def request():
            with in_range("request"):
                with in_range("prefill"):
                    hidden = layer(torch.randn(512, 1024, device=device))[-1:]
                for _ in range(8):
                    with in_range("decode"):
                        token = head(hidden).argmax()
                        hidden = layer(hidden + token)
                with in_range("answer"):
                    token.item()
        times(request)

    def copies():
        host, back = torch.randn(8 << 20).pin_memory(), torch.empty(8 << 20).pin_memory()
        there = torch.empty(8 << 20, device=device)

        def step():
            with in_range("upload"):
                there.copy_(host, non_blocking=True)
            with in_range("compute"):
                there.mul_(1.5).add_(1)
            with in_range("download"):
                back.copy_(there, non_blocking=True)
            torch.cuda.synchronize()
        times(step)

    def graph():
        model, data = mlp(1024, 8), torch.randn(64, 1024, device=device)
        with torch.no_grad():
            model(data)
            torch.cuda.synchronize()
            made = torch.cuda.CUDAGraph()
            with torch.cuda.graph(made):
                out = model(data)
        made.replay()

        def step():
            with in_range("replay"):
                made.replay()
            with in_range("after"):
                out.sum()
            torch.cuda.synchronize()
        times(step)

    def small():
        data = torch.randn(4096, device=device)

        def step():
            with in_range("many"):
                for _ in range(200):
                    data.add_(1e-6)
            with in_range("few"):
                data.cos_()
            torch.cuda.synchronize()
        times(step)

    def fills():
        rows = torch.empty(64, 1 << 20, device=device, dtype=torch.uint8)

        def step():
            with in_range("zero"):
                rows.zero_()
            with in_range("sort"):
                torch.sort(torch.randn(1 << 20, device=device))
            with in_range("nonzero"):
                torch.nonzero(rows[0])
            torch.cuda.synchronize()
        times(step)

    def streams():
        one, two = torch.cuda.Stream(), torch.cuda.Stream()
        a, b = (torch.randn(2048, 2048, device=device) for _ in range(2))

        def step():
            with in_range("both"):
                with torch.cuda.stream(one), in_range("first"):
                    for _ in range(4):
                        a @ a
                with torch.cuda.stream(two), in_range("second"):
                    for _ in range(16):
                        b.add_(1)
            torch.cuda.synchronize()
        times(step)

    def threads():
        models = [mlp(1024, 3) for _ in range(2)]
        turn = threading.Barrier(2)

        def serve(n):
            data = torch.randn(256, 1024, device=device)
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                for i in range(WARM + INSTANCES):
                    turn.wait()
                    measured[0] = i >= WARM
                    turn.wait()
                    with in_range(f"request {n}"):
                        models[n](data)
                        torch.cuda.current_stream().synchronize()
        all = [threading.Thread(target=serve, args=(n,)) for n in range(2)]
        [thread.start() for thread in all]
        [thread.join() for thread in all]

    for run in (training, convolutions, transformer, decoding, copies, graph, small, fills, streams, threads):
        program[0] = run.__name__
        torch.manual_seed(1)
        yield run


def all_programs(traces=None):
    for run in programs():
        if not traces:
            run()
        else:
            lab.keep(os.path.join(traces, f"{run.__name__}.json"), lab.traced(run))


def projected(traces):
    found = {}
    for trace in os.listdir(traces):
        found.update(projected_one(lab.read(os.path.join(traces, trace))))
    return found


def projected_one(events):
    """Of each range: kernels, copies and fills, and busy microseconds, of its thread and of all threads; and of the whole."""
    events = [e for e in events if e.get("ph") == "X"]
    calls = {e["args"]["correlation"]: e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e.get("args", {})}
    work = [(e, calls.get(e["args"].get("correlation"))) for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    ranges = collections.defaultdict(list)
    for e in events:
        if e.get("cat") == "user_annotation" and not e["name"].startswith(("ProfilerStep", "Optimizer.")):
            ranges[e["name"]].append(e)
    found = {}
    for name, instances in ranges.items():
        one = {}
        for who in ("work", "all_threads"):
            runs, busy = 0, 0.0
            for r in instances:
                spans = [(k["ts"], k["ts"] + k["dur"]) for k, call in work
                         if call and r["ts"] <= call["ts"] <= r["ts"] + r["dur"] and (who == "all_threads" or call["tid"] == r["tid"])]
                runs, busy = runs + len(spans), busy + union(spans)
            one[who] = {"runs": runs / len(instances), "busy_us": busy / len(instances)}
        found[name] = {"instances": len(instances), **one}
    return found


def recorded(doorbell, file):
    found = {}
    for row in lab.show(doorbell, file, "--nvtx")["ranges"]:
        of = {who: {"runs": row[who]["runs"] / row["count"], "busy_us": row[who]["busy_ns"] / 1e3 / row["count"]} for who in ("work", "all_threads")}
        found[row["text"]] = {"instances": row["count"], **of}
    return found


def run(doorbell, folder):
    file, traces = os.path.join(folder, "ranges.doorbell"), os.path.join(folder, "traces")
    os.makedirs(traces, exist_ok=True)
    rounds, rows, wrong = [], [], 0
    for _ in range(ROUNDS):
        lab.said([doorbell, "record", "--gpu-times", "--nvtx", "-q", "--force", "-o", file, "--", sys.executable, HERE, "programs"], None)
        lab.said([sys.executable, HERE, "programs", traces], None)
        rounds.append((recorded(doorbell, file), projected(traces)))
    for text in rounds[0][1]:
        for who in ("work", "all_threads"):
            ours, theirs = ([r[i].get(text, {}).get(who, {"runs": 0, "busy_us": 0}) for r in rounds] for i in (0, 1))
            mid = lambda of, key: statistics.median(one[key] for one in of)
            row = {"range": text, "threads": "own" if who == "work" else "all", "instances": rounds[0][1][text]["instances"],
                   "profiler_runs": mid(theirs, "runs"), "runs": mid(ours, "runs"), "profiler_busy_us": mid(theirs, "busy_us"), "busy_us": mid(ours, "busy_us")}
            apart = abs(row["busy_us"] - row["profiler_busy_us"])
            row["same"] = apart <= max(0.01 * row["profiler_busy_us"], row["profiler_runs"])
            wrong += not row["same"]
            rows.append(row)
            print(f"{'same  ' if row['same'] else 'DIFFER'} {text:24} {row['threads']:3} {row['profiler_runs']:7.1f} {row['runs']:7.1f} runs"
                  f" {row['profiler_busy_us']:9.1f} {row['busy_us']:9.1f} us  {row['busy_us'] / max(row['profiler_busy_us'], 1e-9):.4f}", flush=True)
    lab.write(folder, "ranges", "The GPU's work in ranges of NVTX: doorbell and torch.profiler", ["ranges.py", "run"], rows,
                    stored=f"medians of {ROUNDS} runs of each kind, in turns, per instance of a range; busy_us: at least one kernel, copy or fill of it ran")
    print(f"{len(rows)} figures, {wrong} differ")
    return int(wrong > 0)


if __name__ == "__main__":
    lab.main(__doc__, run=run, programs=all_programs)
