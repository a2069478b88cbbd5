#!/usr/bin/env python3
"""How true the times of `record --gpu-times` are, and what they cost: the figures of gpu-times.md.

    gpu_times.py run DOORBELL FOLDER [PART...]   on this machine's GPU; the data files go into FOLDER; parts: own launches
                                                 beside cupti profiler sizes transfers programs million threads
    gpu_times.py program NAME [OUT.json]         one program; with OUT.json under torch.profiler
"""

import hashlib
import os
import statistics
import subprocess
import sys
import time
from collections import Counter

import lab
import names



def show(doorbell, tape, *view):
    answer = lab.show(doorbell, tape, *view)
    return answer["runs"] if "--gpu-times" in view else answer


def spread(values):
    values = sorted(values)
    at = lambda q: values[min(len(values) - 1, int(q * len(values)))]
    return {"n": len(values), "p1": at(0.01), "p50": at(0.5), "p99": at(0.99)} if values else None


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
    lab.built("gpu-times/own.cu", "-arch=sm_90", to=program)
    theirs = {}
    for line in lab.record(doorbell, tape, [program], "--gpu-times").splitlines():
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
            bounded = [(r, o) for r, o in pairs if r["gpu"]["start"] == "bounded"]
            row["bounded"] = len(bounded)
            row["hold"] = sum(ns(r, "earliest_ns") <= s <= ns(r, "end_ns") for r, (s, _) in bounded)
            row["sum_ratio"] = sum(ns(r, "end_ns") - ns(r, "start_ns") for r, _ in pairs) / sum(e - s for _, (s, e) in pairs)
        rows.append(lab.tell(row))
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
    step = sequence()
    for _ in range(3):
        step()
    if to is None:
        torch.cuda.nvtx.range_push("measured")
        for _ in range(20):
            step()
        torch.cuda.nvtx.range_pop()
        return
    events = lab.traced(lambda: [step() for _ in range(20)])
    lab.keep(to, sorted((e["ts"], e["dur"], e["name"]) for e in events if e.get("cat") == "kernel"))


def cupti(doorbell, tmp):
    """The same kernels by CUPTI, twice, and by doorbell, each in a run of its own."""
    me = [sys.executable, os.path.abspath(__file__), "program", "sequence"]
    for i in "ab":
        subprocess.run([*me, f"{tmp}/cupti-{i}.json"], stderr=subprocess.DEVNULL, timeout=200)
    lab.record(doorbell, f"{tmp}/sequence.doorbell", me, "--gpu-times")
    # (A memset that CUDA does by a kernel is none for CUPTI.)
    ours = [r for r in show(doorbell, f"{tmp}/sequence.doorbell", "--gpu-times", "--range", "measured") if r["name"]]
    ours.sort(key=lambda r: ns(r, "end_ns"))
    named = names.spelled(sorted({r["symbol"] for r in ours}))
    a, b = (lab.read(f"{tmp}/cupti-{i}.json") for i in "ab")
    if not len(ours) == len(a) == len(b):
        print("cupti: not as many kernels:", len(ours), len(a), len(b))
    of = {"all": []}
    for r, x, y in zip(ours, a, b):
        us = (ns(r, "end_ns") - ns(r, "start_ns")) / 1e3
        # Of kernels shorter than 5 us CUPTI's own figure is mostly the way it measures.
        kinds = ["all", *(["from 5 to 200 us"] if 5 <= x[1] <= 200 else []), r["gpu"]["start"].replace("_", " ")]
        for kind in kinds:
            of.setdefault(kind, []).append((us, x[1], y[1], named[r["symbol"]] == x[2]))
    rows = []
    for kind, all in of.items():
        within = sum(abs(us - x) <= max(1, 0.02 * x, abs(x - y)) for us, x, y, _ in all)
        rows.append({"kind": kind, "kernels": len(all), "same_name": sum(same for *_, same in all), "within": within,
                     "differ": spread([us - x for us, x, _, _ in all]), "cuptis_p99": spread([abs(x - y) for _, x, y, _ in all])["p99"],
                     "sum_ratio": sum(us for us, *_ in all) / sum(x for _, x, *_ in all)})
        print(rows[-1], flush=True)
    return rows


def own_profiled(library, to):
    """The kernels of `own.cu` under torch.profiler: what they say themselves is printed, what CUPTI says is written."""
    import ctypes
    import torch
    torch.cuda.init()
    program = ctypes.CDLL(library)

    def own_kernels():
        assert program.main(1, (ctypes.c_char_p * 2)(b"own", None)) == 0
    kernels = [(e["name"].split("(")[0], e) for e in lab.traced(own_kernels, cpu=False) if e.get("cat") == "kernel"]
    lab.keep(to, sorted((at(name, e["args"]["correlation"], e["ts"] + e["dur"]), e["dur"], name) for name, e in kernels))


def beside(doorbell, tmp):
    """Durations less the kernels' own, by CUPTI and by doorbell: a run of each."""
    program, library, tape = f"{tmp}/own", f"{tmp}/own.so", f"{tmp}/own.doorbell"
    lab.built("gpu-times/own.cu", "-arch=sm_90", to=program)
    lab.built("gpu-times/own.cu", "-arch=sm_90", "-shared", "-Xcompiler", "-fPIC", to=library)

    def theirs(said):
        of = {}
        for name, number, start, end in (line.split() for line in said.splitlines()):
            of.setdefault(name, []).append((at(name, int(number), int(end)), int(end) - int(start)))
        return {name: [dur for _, dur in sorted(runs)] for name, runs in of.items()}

    me = [sys.executable, os.path.abspath(__file__), "program", "own", library, f"{tmp}/own.json"]
    said = subprocess.run(me, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=300).stdout
    by_cupti = {"own": theirs(said), "of": {}}
    for _, dur, name in lab.read(f"{tmp}/own.json"):
        by_cupti["of"].setdefault(name, []).append(1e3 * dur)
    by_us = {"own": theirs(lab.record(doorbell, tape, [program], "--gpu-times")), "of": {}}
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
        rows.append(lab.tell(row))
    return rows


def profiler(doorbell, tmp):
    """torch.profiler in a recorded program: doorbell leaves the times to it."""
    out, tape = f"{tmp}/profiler.json", f"{tmp}/profiler.doorbell"
    lab.record(doorbell, tape, [sys.executable, os.path.abspath(__file__), "program", "sequence", out], "--gpu-times")
    row = {"kernels_of_cupti": len(lab.read(out)), "kernel_times": show(doorbell, tape, "--summary").get("kernel_times")}
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
                lab.record(doorbell, tape, [sys.executable, os.path.abspath(__file__), "program", "steps", model, number], *how)
                summary = show(doorbell, tape, "--summary")
                runs.append({"bytes": os.path.getsize(tape), "launches": summary["launches"], "lost": summary["lost"]})
            short, long = runs
            rows.append({"model": names.TITLES[model], "recorded": " ".join(how), "bytes_20": short["bytes"], "launches": short["launches"],
                         "more_bytes": long["bytes"] - short["bytes"], "more_launches": long["launches"] - short["launches"], "lost": short["lost"] + long["lost"]})
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
    kinds = {"Memcpy HtoD": "host to device", "Memcpy DtoH": "device to host", "Memcpy DtoD": "device to device", "Memset": "fill"}
    lab.keep(to, sorted((e["ts"], e["dur"], next(v for k, v in kinds.items() if e["name"].startswith(k)), int(e["args"]["bytes"]))
                        for e in lab.traced(run) if e.get("cat") in ("gpu_memcpy", "gpu_memset")))


def transfers(doorbell, tmp):
    """The same copies and fills by CUPTI, twice, and by doorbell, each in a run of its own."""
    me = [sys.executable, os.path.abspath(__file__), "program", "transfers"]
    for i in "ab":
        subprocess.run([*me, f"{tmp}/moved-{i}.json"], stderr=subprocess.DEVNULL, timeout=200)
    lab.record(doorbell, f"{tmp}/moved.doorbell", me, "--gpu-times")
    theirs = []
    for i in "ab":
        of = {}
        for _, dur, kind, size in lab.read(f"{tmp}/moved-{i}.json"):
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
        us = [(ns(c, "end_ns") - ns(c, "start_ns")) / 1e3 for c in mine if c["gpu"]]
        row = {"kind": kind, "bytes": size, "copies": len(mine), "us": spread(us), "cupti": spread(a), "again": spread(b)}
        print(row, len(a), "by CUPTI,", without[kind, size], "without a time", Counter(c["mode"] for c in mine), flush=True)
        if us and size > 1:
            rows.append(row)
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
        with_times = lab.record(doorbell, tape, command, "--gpu-times")
        kernels, launches = show(doorbell, tape, "--kernels"), show(doorbell, tape, "--launches")
        runs = show(doorbell, tape, "--gpu-times")
        own = sum(1 for l in launches if not l["empty"] and not l["again"])
        in_graphs = sum(k["in_graphs"] for k in kernels["kernels"])
        rows.append({"program": name, "same": bare == with_times and bare != "", "kernels": own + in_graphs, "runs": len(runs)})
        print(rows[-1], flush=True)
    return rows


def million(doorbell, tmp):
    """A million launches, on one stream and on several; the program was built by `own`."""
    rows = []
    for streams in ("1", "4", "64"):
        for how in (["--calls"], ["--gpu-times"], ["--calls"], ["--gpu-times"]):
            tape = f"{tmp}/million.doorbell"
            began = time.perf_counter()
            lab.record(doorbell, tape, [f"{tmp}/own", "many", "1000000", streams], *how)
            took = time.perf_counter() - began
            row = {"streams": int(streams), "how": how[0], "seconds": took}
            if how == ["--gpu-times"]:
                times = show(doorbell, tape, "--summary")["kernel_times"][0]
                row |= {"launches": times["kernels"], "runs": times["timed"], "lacking": times["lacking"]}
            rows.append(lab.tell(row))
            os.remove(tape)
    return rows


def threads(doorbell, tmp):
    """Two million launches by eight threads, bare and recorded; the program was built by `own`."""
    program, rows = [f"{tmp}/own", "threads", "250000", "8"], []
    for how in lab.shuffled(2 * [None, ["--calls"], ["--gpu-times"], ["--gpu-times", "--no-data"]], 4):
        tape, began = f"{tmp}/threads.doorbell", time.perf_counter()
        if how is None:
            subprocess.run(program, check=True)
        else:
            lab.record(doorbell, tape, program, *how)
        row = {"recorded": " ".join(how or ["bare"]), "seconds": time.perf_counter() - began}
        if how is not None:
            summary = show(doorbell, tape, "--summary")
            row |= {"bytes": os.path.getsize(tape), "doorbells": summary["doorbells"], "lost": summary["lost"], "summary_seconds": time.perf_counter() - began - row["seconds"]}
            began = time.perf_counter()
            subprocess.run([doorbell, "show", "--submissions", "--limit", "20", tape], stdout=subprocess.DEVNULL)
            row["limit_20_seconds"] = time.perf_counter() - began
        rows.append(lab.tell(row))
    return rows


def launches(doorbell, tmp):
    """What a launch costs, beside the same one in a pause; the program was built by `own`."""
    rows = []
    for how in lab.shuffled(8 * [["--calls"], ["--gpu-times"]], 2):
        said = [line.split() for line in lab.record(doorbell, f"{tmp}/launches.doorbell", [f"{tmp}/own", "cost", "400"], *how).splitlines()]
        times = {which: [int(ns) for w, ns in said if w == which] for which in "ab"}
        more = [b - a for a, b in zip(times["a"], times["b"])]
        rows.append({"recorded": how[0], "pairs": len(more), **{f"{name}_ns": statistics.median(of) for name, of in (("without", times["a"]), ("with", times["b"]), ("more", more))}})
        print(rows[-1], flush=True)
    return rows


EACH = "p1, p50 and p99 of each row, as gpu_times.py computed them"
# What each part measures, and what its figures are if they are of samples that are not kept. A part that has neither is only printed.
PARTS = {
    "own": (own, "Times beside those of the kernels themselves", f"{EACH}, in ns"),
    "launches": (launches, "What a launch costs", "the median of the blocks of each process"),
    "beside": (beside, "Durations beside the kernels' own", f"{EACH}, in ns"),
    "cupti": (cupti, "Durations beside CUPTI's", f"{EACH}, in us"),
    "profiler": (profiler, None, None),
    "sizes": (sizes, "Bytes of a recording", None),
    "transfers": (transfers, "Copies beside CUPTI's", "p50 and p99 of each row, as gpu_times.py computed them, in us"),
    "programs": (programs, "Whole programs", None),
    "million": (million, None, None),
    "threads": (threads, "Two million launches by eight threads", None),
}


def run(doorbell, folder, *parts):
    tmp = f"/tmp/gpu-times-{os.getpid()}"
    os.makedirs(tmp)
    for part in parts or PARTS:
        began = time.perf_counter()
        measure, about, stored = PARTS[part]
        rows = measure(doorbell, tmp)
        if about:
            lab.write(folder, f"gpu-times-{part}", about, ["docs/results/gpu_times.py", "run", part], rows, stored)
        print(part, f"{time.perf_counter() - began:.0f} s", flush=True)


# What is profiled or recorded, by its first word; any other is a whole program's name.
RUNS = {"sequence": lambda to=None: profiled(to), "transfers": lambda to=None: moved(to), "steps": steps, "own": own_profiled}


def program(name, *more):
    RUNS[name](*more) if name in RUNS else hashed(name)


if __name__ == "__main__":
    lab.main(__doc__, run=run, program=program)
