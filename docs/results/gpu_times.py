#!/usr/bin/env python3
"""How true the times of `record --gpu-times` are, and what they cost: the figures of gpu-times.md.

    gpu_times.py run DOORBELL FOLDER [PART...]   on this machine's GPU; parts: own launches beside cupti
                                                 profiler sizes transfers programs million threads costs
    gpu_times.py program NAME [OUT.json]         one program; with OUT.json under torch.profiler
    gpu_times.py rows COMMIT STARTED PART...     the data files of gpu-times.md, from gpu-times/*.json: own launches beside cupti
                                                 sizes threads transfers programs costs
"""

import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter

import data_file
import names

HERE = os.path.dirname(os.path.abspath(__file__))
NVCC = ["nvcc", "-O2", "-arch=sm_90", f"{HERE}/gpu-times/own.cu"]


def recorded(doorbell, tape, command, *how):
    """What the program printed."""
    out = subprocess.run([doorbell, "record", "-q", "--force", *how, "-o", tape, "--", *command], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True, timeout=300)
    return out.stdout


def show(doorbell, tape, *view):
    answer = json.loads(subprocess.run([doorbell, "show", "--json", *view, tape], stdout=subprocess.PIPE).stdout)
    return answer["runs"] if "--gpu-times" in view else answer


def spread(values):
    values = sorted(values)
    at = lambda q: values[min(len(values) - 1, int(q * len(values)))]
    return {"n": len(values), "p1": at(0.01), "p50": at(0.5), "p99": at(0.99), "max": values[-1]} if values else None


def ns(run, key):
    return int(run["gpu"][key])


def at(name, launch, end):
    """What kernels of a class are told apart by: a graph's by their ends, others by the order of their launches."""
    return end if name.startswith("graph") else launch


def runs_of(doorbell, tape):
    """Runs by the names of their kernels. A graph's kernels were launched by no handle, so these have an address."""
    of = {}
    for run in show(doorbell, tape, "--gpu-times"):
        of.setdefault((run["name"] or "graph " + hex(run["code"])).split("(")[0], []).append(run)
    return of


def of_class(of, name, number):
    """Those of a class. A graph's kernels are known by how many there are."""
    return of.get(name) or next((runs for key, runs in of.items() if key.startswith("graph ") and len(runs) == number), [])


def own(doorbell, tmp):
    """Kernels that read the GPU's clock themselves."""
    program, tape = f"{tmp}/own", f"{tmp}/own.doorbell"
    subprocess.run([*NVCC, "-o", program], check=True)
    theirs = {}
    for line in recorded(doorbell, tape, [program], "--gpu-times").splitlines():
        name, number, start, end = line.split()
        theirs.setdefault(name, []).append((int(start), int(end), int(number)))
    summary = show(doorbell, tape, "--summary")
    print("lost", summary["lost"], "kernels without a time", [t["lacking"] for t in summary.get("kernel_times") or []], flush=True)
    ours, rows = runs_of(doorbell, tape), []
    for name, runs in theirs.items():
        mine = of_class(ours, name, len(runs))
        row = {"class": name, "kernels": len(runs), "ends": min(len(mine), len(runs))}
        if len(mine) >= len(runs):
            mine = sorted(mine, key=lambda r: at(name, r["submission"], ns(r, "end_ns")))[-len(runs):]
            pairs = [(r, own[:2]) for r, own in zip(mine, sorted(runs, key=lambda r: at(name, r[2], r[1])))]
            row["end"] = spread([ns(r, "end_ns") - end for r, (_, end) in pairs])
            row["start"] = spread([ns(r, "start_ns") - start for r, (start, _) in pairs])
            row["duration"] = spread([ns(r, "end_ns") - ns(r, "start_ns") - (e - s) for r, (s, e) in pairs])
            row["kinds"] = Counter(r["gpu"]["start"] for r, _ in pairs)
            bounded = [(r, o) for r, o in pairs if r["gpu"]["start"] == "bounded"]
            row["bounded"] = len(bounded)
            row["hold"] = sum(ns(r, "earliest_ns") <= s <= ns(r, "end_ns") for r, (s, _) in bounded)
            row["sum"] = sum(ns(r, "end_ns") - ns(r, "start_ns") for r, _ in pairs) / sum(e - s for _, (s, e) in pairs)
            row["clock_error"] = spread([r["gpu"]["clock_error_ns"] for r, _ in pairs])
        rows.append(row)
        print(row, flush=True)
    return rows


def sequence():
    """A deterministic sequence: kernels on a busy stream, behind a copy, and on an idle one. What is measured is in the range `measured`."""
    import torch
    import torchvision
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = False
    net = torchvision.models.resnet18(weights=None).cuda().eval()
    images, a = torch.randn(4, 3, 224, 224).cuda(), torch.randn(2048, 2048).cuda()
    host, device = torch.randn(1 << 20).pin_memory(), torch.empty(1 << 20).cuda()

    @torch.inference_mode()
    def step():
        # So that what follows is queued.
        torch.cuda._sleep(12_000_000)
        device.copy_(host, non_blocking=True)
        y = net(images)
        out = torch.sort(torch.softmax(a @ a, -1)[:256], -1)[0].sum() + y.sum()
        torch.cuda.synchronize()
        for _ in range(20):
            torch.softmax(a[:256], -1)
            torch.cuda.synchronize()
            a @ a
            torch.cuda.synchronize()
        return out
    return step


def profiled(to):
    import torch
    from torch.profiler import ProfilerActivity, profile
    step = sequence()
    for _ in range(3):
        step()
    if to is None:
        torch.cuda.nvtx.range_push("measured")
        for _ in range(20):
            step()
        torch.cuda.nvtx.range_pop()
        return
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
        for _ in range(20):
            step()
    profiler.export_chrome_trace(to + ".trace")
    with open(to + ".trace") as f:
        events = json.load(f)["traceEvents"]
    with open(to, "w") as f:
        json.dump(sorted((e["ts"], e["dur"], e["name"]) for e in events if e.get("cat") == "kernel"), f)


def cupti(doorbell, tmp):
    """The same kernels by CUPTI, twice, and by doorbell, each in a run of its own."""
    me = [sys.executable, os.path.abspath(__file__), "program", "sequence"]
    for i in "ab":
        subprocess.run([*me, f"{tmp}/cupti-{i}.json"], stderr=subprocess.DEVNULL, timeout=200)
    recorded(doorbell, f"{tmp}/sequence.doorbell", me, "--gpu-times")
    # (A memset that CUDA does by a kernel is none for CUPTI.)
    ours = [r for r in show(doorbell, f"{tmp}/sequence.doorbell", "--gpu-times", "--range", "measured") if r["name"]]
    ours.sort(key=lambda r: ns(r, "end_ns"))
    named = names.spelled(sorted({r["symbol"] for r in ours}))
    with open(f"{tmp}/cupti-a.json") as a, open(f"{tmp}/cupti-b.json") as b:
        a, b = json.load(a), json.load(b)
    if not len(ours) == len(a) == len(b):
        print("cupti: not as many kernels:", len(ours), len(a), len(b))
    of = {"all": []}
    for r, x, y in zip(ours, a, b):
        us = (ns(r, "end_ns") - ns(r, "start_ns")) / 1e3
        # Of kernels shorter than 5 us CUPTI's own figure is mostly the way it measures.
        kinds = ["all", *(["5 to 200 us"] if 5 <= x[1] <= 200 else []), r["gpu"]["start"]]
        for kind in kinds:
            of.setdefault(kind, []).append((us, x[1], y[1], named[r["symbol"]] == x[2]))
    rows = []
    for kind, all in of.items():
        within = sum(abs(us - x) <= max(1, 0.02 * x, abs(x - y)) for us, x, y, _ in all)
        rows.append({"kind": kind, "kernels": len(all), "same_name": sum(same for *_, same in all), "within": within,
                     "differ": spread([us - x for us, x, _, _ in all]), "cuptis": spread([abs(x - y) for _, x, y, _ in all]),
                     "sum": sum(us for us, *_ in all) / sum(x for _, x, *_ in all)})
        print(rows[-1], flush=True)
    return rows


def own_profiled(library, to):
    """The kernels of `own.cu` under torch.profiler: what they say themselves is printed, what CUPTI says is written."""
    import ctypes
    import torch
    from torch.profiler import ProfilerActivity, profile
    torch.cuda.init()
    program = ctypes.CDLL(library)
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        arguments = (ctypes.c_char_p * 2)(b"own", None)
        assert program.main(1, arguments) == 0
    profiler.export_chrome_trace(to + ".trace")
    with open(to + ".trace") as f:
        events = json.load(f)["traceEvents"]
    with open(to, "w") as f:
        kernels = [(e["name"].split("(")[0], e) for e in events if e.get("cat") == "kernel"]
        json.dump(sorted((at(name, e["args"]["correlation"], e["ts"] + e["dur"]), e["dur"], name) for name, e in kernels), f)


def beside(doorbell, tmp):
    """Durations less the kernels' own, by CUPTI and by doorbell: a run of each."""
    program, library, tape = f"{tmp}/own", f"{tmp}/own.so", f"{tmp}/own.doorbell"
    for extra in (["-o", program], ["-shared", "-Xcompiler", "-fPIC", "-o", library]):
        subprocess.run([*NVCC, *extra], check=True)

    def theirs(said):
        of = {}
        for name, number, start, end in (line.split() for line in said.splitlines()):
            of.setdefault(name, []).append((at(name, int(number), int(end)), int(end) - int(start)))
        return {name: [dur for _, dur in sorted(runs)] for name, runs in of.items()}

    me = [sys.executable, os.path.abspath(__file__), "program", "own", library, f"{tmp}/own.json"]
    said = subprocess.run(me, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=300).stdout
    by_cupti = {"own": theirs(said), "of": {}}
    with open(f"{tmp}/own.json") as f:
        for _, dur, name in json.load(f):
            by_cupti["of"].setdefault(name, []).append(1e3 * dur)
    by_us = {"own": theirs(recorded(doorbell, tape, [program], "--gpu-times")), "of": {}}
    for name, runs in runs_of(doorbell, tape).items():
        runs.sort(key=lambda r: at(name, r["submission"], ns(r, "end_ns")))
        by_us["of"][name] = [ns(r, "end_ns") - ns(r, "start_ns") for r in runs]
    rows = []
    for name, runs in by_us["own"].items():
        row = {"class": name, "kernels": len(runs)}
        for by, said in (("cupti", by_cupti), ("ours", by_us)):
            own = said["own"].get(name, [])
            of = of_class(said["of"], name, len(own))
            more = [x - y for x, y in zip(of[-len(own):], own)] if 0 < len(own) <= len(of) else []
            row[by] = spread(more)
        # (CUPTI's and ours are of two runs: each is held against the kernels' own times in its run.)
        row["within"] = sum(abs(ns - row["cupti"]["p50"]) <= 1000 for ns in more) if row["cupti"] else None
        rows.append(row)
        print(row, flush=True)
    return rows


def profiler(doorbell, tmp):
    """torch.profiler in a recorded program: doorbell leaves the times to it."""
    out, tape = f"{tmp}/profiler.json", f"{tmp}/profiler.doorbell"
    recorded(doorbell, tape, [sys.executable, os.path.abspath(__file__), "program", "sequence", out], "--gpu-times")
    with open(out) as f:
        row = {"kernels_of_cupti": len(json.load(f)), "kernel_times": show(doorbell, tape, "--summary").get("kernel_times")}
    print(row, flush=True)
    return [row]


def steps(model, number):
    import torch
    step = names.model(model)
    for _ in range(int(number)):
        step()
    torch.cuda.synchronize()


def sizes(doorbell, tmp):
    """Bytes of a recording: of a short run, and for each launch that a longer one has more."""
    rows = []
    for model in ("resnet50", "gpt2"):
        for how in (["--calls"], ["--gpu-times"], ["--gpu-times", "--no-data"]):
            runs = []
            for number in ("20", "220"):
                tape = f"{tmp}/sizes.doorbell"
                recorded(doorbell, tape, [sys.executable, os.path.abspath(__file__), "program", "steps", model, number], *how)
                summary = show(doorbell, tape, "--summary")
                runs.append({"bytes": os.path.getsize(tape), "launches": summary["launches"], "lost": summary["lost"]})
            short, long = runs
            more = (long["bytes"] - short["bytes"]) / (long["launches"] - short["launches"])
            rows.append({"model": model, "how": " ".join(how), "short": short, "long": long, "more": more})
            print(rows[-1], flush=True)
    return rows


SIZES = [4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]


def transfers_of(rounds):
    """Copies of each direction and fills, one by one and queued, with their data checked."""
    import ctypes
    import torch
    torch.cuda.init()
    with open("/proc/self/maps") as f:
        runtime = next(line.split()[-1] for line in f if "libcudart" in line)
    memset = ctypes.CDLL(runtime).cudaMemsetAsync
    memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p]
    most = max(SIZES)
    host, back = torch.randint(0, 255, (most,), dtype=torch.uint8).pin_memory(), torch.zeros(most, dtype=torch.uint8).pin_memory()
    device, other = torch.zeros(most, dtype=torch.uint8).cuda(), torch.zeros(most, dtype=torch.uint8).cuda()
    stream = torch.cuda.current_stream().cuda_stream

    def one(size, how):
        if how == "host to device":
            device[:size].copy_(host[:size], non_blocking=True)
        elif how == "device to host":
            back[:size].copy_(device[:size], non_blocking=True)
        elif how == "device to device":
            other[:size].copy_(device[:size], non_blocking=True)
        else:
            assert memset(other.data_ptr(), 7, size, stream) == 0

    def run():
        for size in SIZES:
            for how in ("host to device", "device to host", "device to device", "fill"):
                for _ in range(3):
                    one(size, how)
                    torch.cuda.synchronize()
                # Queued behind one another.
                for _ in range(3):
                    one(size, how)
                torch.cuda.synchronize()
            assert torch.equal(back[:size], host[:size]) and bool((other[:size] == 7).all())
    return lambda: [run() for _ in range(rounds)]


def moved(to):
    import torch
    run = transfers_of(10)
    transfers_of(1)()
    if to is None:
        torch.cuda.nvtx.range_push("measured")
        run()
        torch.cuda.nvtx.range_pop()
        return
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
        run()
    profiler.export_chrome_trace(to + ".trace")
    with open(to + ".trace") as f:
        events = json.load(f)["traceEvents"]
    kinds = {"Memcpy HtoD": "host to device", "Memcpy DtoH": "device to host", "Memcpy DtoD": "device to device", "Memset": "fill"}
    with open(to, "w") as f:
        json.dump(sorted((e["ts"], e["dur"], next(v for k, v in kinds.items() if e["name"].startswith(k)), int(e["args"]["bytes"]))
                         for e in events if e.get("cat") in ("gpu_memcpy", "gpu_memset")), f)


def transfers(doorbell, tmp):
    """The same copies and fills by CUPTI, twice, and by doorbell, each in a run of its own."""
    me = [sys.executable, os.path.abspath(__file__), "program", "transfers"]
    for i in "ab":
        subprocess.run([*me, f"{tmp}/moved-{i}.json"], stderr=subprocess.DEVNULL, timeout=200)
    recorded(doorbell, f"{tmp}/moved.doorbell", me, "--gpu-times")
    theirs = []
    for i in "ab":
        of = {}
        with open(f"{tmp}/moved-{i}.json") as f:
            for _, dur, kind, size in json.load(f):
                of.setdefault((kind, size), []).append(dur)
        theirs.append(of)
    ours, without = {}, Counter()
    for c in show(doorbell, f"{tmp}/moved.doorbell", "--copies", "--range", "measured"):
        place = lambda p: {"video": "device"}.get(p, p)
        kind = "fill" if c["mode"] == "fill" else f"{place(c['src_place'] or 'host')} to {place(c['dst_place'])}"
        ours.setdefault((kind, c["bytes"]), []).append(c)
        without[kind, c["bytes"]] += c["gpu"] is None
    # CUDA makes copies within the device, and fills, by kernels of its own: in the order of the sizes.
    by_kernels = {"device to device": "cudaMemcpy", "fill": "cudaMemset"}
    runs = show(doorbell, f"{tmp}/moved.doorbell", "--gpu-times", "--range", "measured")
    for kind, call in by_kernels.items():
        mine = sorted((r for r in runs if (r["call"] or {"name": ""})["name"].startswith(call)), key=lambda r: ns(r, "end_ns"))
        # (The smallest fill is made by a macro, without a kernel.)
        sizes = [size for _ in range(10) for size in SIZES[1 if kind == "fill" else 0:] for _ in range(6)]
        if len(mine) == len(sizes):
            for r, size in zip(mine, sizes):
                ours.setdefault((kind, size), []).append({**r, "mode": "kernel"})
        else:
            print(kind, "by kernels:", len(mine), "instead of", len(sizes))
    rows = []
    for (kind, size), a in sorted(theirs[0].items()):
        b, mine = theirs[1].get((kind, size), []), ours.get((kind, size), [])
        row = {"kind": kind, "bytes": size, "cuptis": len(a), "ours": len(mine), "without": without[kind, size]}
        us = [(ns(c, "end_ns") - ns(c, "start_ns")) / 1e3 for c in mine if c["gpu"]]
        row |= {"us": spread(us), "cupti_us": spread(a), "cupti_again_us": spread(b), "modes": Counter(c["mode"] for c in mine)}
        if len(us) == len(a) == len(b):
            row["within"] = sum(abs(x - y) <= 0.02 * y for x, y in zip(us, a))
            row["cupti_within"] = sum(abs(x - y) <= 0.02 * y for x, y in zip(b, a))
            row["differ"] = spread([x - y for x, y in zip(us, a)])
            row["sum"] = sum(us) / sum(a)
        rows.append(row)
        print(row, flush=True)
    return rows


def hashed(name):
    """A program whose results are one number."""
    import torch
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    digest = hashlib.sha256()
    add = lambda t: digest.update(t.detach().float().cpu().numpy().tobytes())
    if name == "ResNet-50, training":
        step = names.model("resnet50")
        for _ in range(30):
            step()
        for p in step.__closure__:
            for t in getattr(p.cell_contents, "parameters", list)():
                add(t)
    elif name == "GPT-2, generation":
        import transformers
        net = transformers.GPT2LMHeadModel(transformers.GPT2Config()).cuda().eval()
        words = torch.randint(0, 50000, (1, 32)).cuda()
        with torch.inference_mode():
            add(net.generate(words, max_new_tokens=60, do_sample=False, pad_token_id=0))
    elif name == "a CUDA graph, replayed":
        net = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(20)]).cuda().eval()
        x = torch.randn(32, 256).cuda()
        with torch.inference_mode():
            graph, y = names.captured(net, x)
            for _ in range(50):
                x.copy_(torch.randn(32, 256))
                graph.replay()
                add(y)
    elif name == "torch.compile":
        f = torch.compile(lambda x: torch.nn.functional.gelu(x @ x + 1).sum(dim=0))
        x = torch.randn(256, 256).cuda()
        for _ in range(20):
            add(f(x))
    elif name == "cuBLAS, four streams":
        streams, all = [torch.cuda.Stream() for _ in range(4)], []
        a = torch.randn(512, 512).cuda()
        torch.cuda.synchronize()
        for i in range(400):
            with torch.cuda.stream(streams[i % 4]):
                all.append(a @ a)
        torch.cuda.synchronize()
        for t in all:
            add(t)
    elif name == "JAX":
        # Or it chooses its kernels by their speed, in each run anew.
        os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"
        import jax
        import numpy
        f = jax.jit(lambda x: jax.numpy.tanh(x @ x).sum(axis=0))
        x = jax.numpy.asarray(numpy.random.default_rng(0).standard_normal((256, 256), dtype=numpy.float32))
        for _ in range(50):
            digest.update(numpy.asarray(f(x)).tobytes())
    torch.cuda.synchronize()
    print(digest.hexdigest()[:16])


PROGRAMS = ["ResNet-50, training", "GPT-2, generation", "a CUDA graph, replayed", "torch.compile", "cuBLAS, four streams", "JAX"]


def programs(doorbell, tmp):
    rows = []
    for name in PROGRAMS:
        command, tape = [sys.executable, os.path.abspath(__file__), "program", name], f"{tmp}/program.doorbell"
        bare = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=200).stdout
        with_times = recorded(doorbell, tape, command, "--gpu-times")
        kernels, launches = show(doorbell, tape, "--kernels"), show(doorbell, tape, "--launches")
        runs = show(doorbell, tape, "--gpu-times")
        own = sum(1 for l in launches if not l["empty"] and not l["again"])
        in_graphs = sum(k["in_graphs"] for k in kernels["kernels"])
        rows.append({"program": name, "same": bare == with_times and bare != "", "launches": own, "in_graphs": in_graphs,
                     "runs": len(runs), "unknown_graphs": kernels["unknown_graph_launches"], "kinds": Counter(r["gpu"]["start"] for r in runs)})
        print(rows[-1], flush=True)
    return rows


def million(doorbell, tmp):
    """A million launches, on one stream and on several; the program was built by `own`."""
    rows = []
    for streams in ("1", "4", "64"):
        for how in (["--calls"], ["--gpu-times"], ["--calls"], ["--gpu-times"]):
            tape = f"{tmp}/million.doorbell"
            began = time.perf_counter()
            recorded(doorbell, tape, [f"{tmp}/own", "many", "1000000", streams], *how)
            took = time.perf_counter() - began
            row = {"streams": int(streams), "how": how[0], "seconds": took}
            if how == ["--gpu-times"]:
                times = show(doorbell, tape, "--summary")["kernel_times"][0]
                row |= {"launches": times["kernels"], "runs": times["timed"], "lacking": times["lacking"]}
            rows.append(row)
            print(row, flush=True)
            os.remove(tape)
    return rows


def threads(doorbell, tmp):
    """Two million launches by eight threads, bare and recorded; the program was built by `own`."""
    program, rows = [f"{tmp}/own", "threads", "250000", "8"], []
    turns = 2 * [None, ["--calls"], ["--gpu-times"], ["--gpu-times", "--no-data"]]
    random.Random(4).shuffle(turns)
    for how in turns:
        tape, began = f"{tmp}/threads.doorbell", time.perf_counter()
        if how is None:
            subprocess.run(program, check=True)
        else:
            recorded(doorbell, tape, program, *how)
        row = {"how": " ".join(how or ["bare"]), "seconds": time.perf_counter() - began}
        if how is not None:
            summary = show(doorbell, tape, "--summary")
            row |= {"bytes": os.path.getsize(tape), "doorbells": summary["doorbells"], "lost": summary["lost"], "summary_seconds": time.perf_counter() - began - row["seconds"]}
            began = time.perf_counter()
            subprocess.run([doorbell, "show", "--submissions", "--limit", "20", tape], stdout=subprocess.DEVNULL)
            row["limit_20_seconds"] = time.perf_counter() - began
        rows.append(row)
        print(row, flush=True)
    return rows


def costs(doorbell, tmp, blocks=320, rounds=2):
    """Blocks with and without recording in turns, in one process; the ways in random order."""
    rows = []
    turns = [(m, way) for _ in range(rounds) for m in ("resnet50", "gpt2") for way in ("--calls", "--gpu-times")] + [(m, None) for m in ("resnet50", "gpt2")]
    random.Random(1).shuffle(turns)
    for m, way in turns:
        program = [sys.executable, f"{HERE}/names.py", "cost", m, str(blocks if way else 40)]
        tape = f"{tmp}/cost.doorbell"
        said = recorded(doorbell, tape, program, way) if way else subprocess.run(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        rows.append({"way": way or "torch.profiler", **json.loads(said.strip().splitlines()[-1])})
        r = rows[-1]
        print(r["model"], r["way"], f"{r['percent']:+.2f} % {r['interval']}", r["without"]["p50_ms"], r["with"]["p50_ms"], flush=True)
    return rows


def launches(doorbell, tmp):
    """What a launch costs, beside the same one in a pause; the program was built by `own`."""
    rows, turns = [], 8 * [["--calls"], ["--gpu-times"]]
    random.Random(2).shuffle(turns)
    for how in turns:
        said = [line.split() for line in recorded(doorbell, f"{tmp}/launches.doorbell", [f"{tmp}/own", "cost", "400"], *how).splitlines()]
        times = {which: [int(ns) for w, ns in said if w == which] for which in "ab"}
        more = [b - a for a, b in zip(times["a"], times["b"])]
        rows.append({"how": how[0], "without": spread(times["a"]), "with": spread(times["b"]), "more": spread(more)})
        print(rows[-1], flush=True)
    return rows


PARTS = {"own": own, "launches": launches, "beside": beside, "cupti": cupti, "profiler": profiler, "sizes": sizes, "transfers": transfers, "programs": programs, "million": million, "threads": threads, "costs": costs}


def run(doorbell, folder, parts):
    os.makedirs(folder, exist_ok=True)
    tmp = f"/tmp/gpu-times-{os.getpid()}"
    os.makedirs(tmp)
    names.write_machine(folder)
    for part in parts or PARTS:
        began = time.perf_counter()
        with_rows = PARTS[part](doorbell, tmp)
        with open(f"{folder}/{part}.json", "w") as f:
            json.dump(with_rows, f, indent=1)
        print(part, f"{time.perf_counter() - began:.0f} s", flush=True)


def rows(commit, started, parts):
    def load(name):
        with open(f"{HERE}/gpu-times/{name}.json") as f:
            return json.load(f)

    def write(part, about, make):
        if part in parts:
            data_file.write(f"gpu-times-{part}", about, ["docs/results/gpu_times.py", "run", part], commit, started, load("machine"),
                            [{"row": str(i + 1), **make(r)} for i, r in enumerate(load(part))])

    us = lambda v: f"{v / 1e3:.2f}"
    of = lambda s, what: {f"{what}_{q}": us(s[q]) for q in ("p1", "p50", "p99")}
    write("own", "Times beside those of the kernels themselves", lambda r: {
        "class": r["class"], "kernels": f"{r['kernels']:,}", "ends": f"{r['ends']:,}", **of(r["end"], "end"), **of(r["start"], "start"),
        "bounded": f"{r['bounded']:,}", "hold": f"{r['hold']:,}", "sum": f"{100 * r['sum'] - 100:+.1f} %"})
    write("cupti", "Durations beside CUPTI's", lambda r: {
        "kind": r["kind"].replace("_", " "), "kernels": f"{r['kernels']:,}", **{q: f"{r['differ'][q]:+.2f}" for q in ("p1", "p50", "p99")},
        "cuptis": f"{r['cuptis']['p99']:.2f}", "within": f"{100 * r['within'] / r['kernels']:.1f} %", "sum": f"{100 * r['sum'] - 100:+.1f} %"})
    moved = lambda r: {
        "kind": r["kind"], "bytes": f"{r['bytes']:,}", "copies": f"{r['ours']:,}", "ours": us(1e3 * r["us"]["p50"]), "p99": us(1e3 * r["us"]["p99"]),
        "cupti": us(1e3 * r["cupti_us"]["p50"]), "cupti_p99": us(1e3 * r["cupti_us"]["p99"]), "again": us(1e3 * r["cupti_again_us"]["p50"]),
        "differ": f"{100 * r['us']['p50'] / r['cupti_us']['p50'] - 100:+.1f} %",
        "same": f"{100 * r['cupti_again_us']['p50'] / r['cupti_us']['p50'] - 100:+.1f} %"}
    if "transfers" in parts:
        data_file.write("gpu-times-transfers", "Copies beside CUPTI's", ["docs/results/gpu_times.py", "run", "transfers"], commit, started, load("machine"),
                        [{"row": str(i + 1), **moved(r)} for i, r in enumerate(r for r in load("transfers") if r["us"] and r["bytes"] > 1)])
    write("programs", "Whole programs", lambda r: {
        "program": r["program"], "same": "yes" if r["same"] else "no", "kernels": f"{r['launches'] + r['in_graphs'] :,}", "runs": f"{r['runs']:,}"})
    three = lambda s, by: {f"{by}_{q}": us(s[q]) for q in ("p1", "p50", "p99")}
    write("beside", "Durations beside the kernels' own", lambda r: {
        "class": r["class"], "kernels": f"{r['kernels']:,}", **three(r["cupti"], "cupti"), **three(r["ours"], "ours"),
        "within": f"{100 * r['within'] / r['kernels']:.1f} %"})
    titles = {"resnet50": "ResNet-50, training", "gpt2": "GPT-2, decoding"}
    write("sizes", "Bytes of a recording", lambda r: {
        "model": titles[r["model"]], "recorded": r["how"], "short": f"{r['short']['bytes'] / r['short']['launches']:.0f}", "launches": f"{r['short']['launches']:,}",
        "more": f"{r['more']:.0f}", "lost": str(r["short"]["lost"] + r["long"]["lost"])})
    per = lambda r, what: f"{r['bytes'] / r['doorbells']:.0f}" if what == "bytes" else f"{r[what]:.2f}"
    write("threads", "Two million launches by eight threads", lambda r: {
        "recorded": r["how"], "seconds": f"{r['seconds']:.2f}", "lost": f"{r['lost']:,}" if "lost" in r else "",
        **{what: per(r, what) if "bytes" in r else "" for what in ("bytes", "summary_seconds", "limit_20_seconds")}})
    write("launches", "What a launch costs", lambda r: {
        "recorded": r["how"], "without": f"{r['without']['p50'] / 1e3:.2f}", "with": f"{r['with']['p50'] / 1e3:.2f}", "more": f"{r['more']['p50']:+}"})
    write("costs", "What they cost", lambda r: {
        "model": titles[r["model"]], "recorded": r["way"], "change": f"{r['percent']:+.1f} %", "interval": f"{r['interval'][0]:+.1f} to {r['interval'][1]:+.1f} %",
        "p50_without": f"{r['without']['p50_ms']:.2f}", "p50": f"{r['with']['p50_ms']:.2f}", "blocks": str(r["blocks"])})


if __name__ == "__main__":
    what = sys.argv[1:]
    if what[:1] == ["run"] and len(what) > 2:
        run(what[1], what[2], what[3:])
    elif what[:2] == ["program", "sequence"]:
        profiled(what[2] if len(what) > 2 else None)
    elif what[:2] == ["program", "transfers"]:
        moved(what[2] if len(what) > 2 else None)
    elif what[:2] == ["program", "steps"] and len(what) == 4:
        steps(*what[2:])
    elif what[:2] == ["program", "own"] and len(what) == 4:
        own_profiled(*what[2:])
    elif what[:1] == ["program"] and len(what) == 2:
        hashed(what[1])
    elif what[:1] == ["rows"] and len(what) > 3:
        rows(what[1], what[2], what[3:])
    else:
        raise SystemExit(__doc__)
