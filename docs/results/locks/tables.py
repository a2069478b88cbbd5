"""The paper's Tables 1 and 2 from what locks.sh recorded: python3 tables.py FOLDER N

What one inference does is the difference of two recordings of the same program, with 2 N and with N inferences, divided by
N: the start is in both, and cancels. Where the two differ by something that does not divide, the figure is a mean.
"""

import json
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import lab  # noqa: E402  (the path must be set before)

# Tables 1 and 2 of the paper (Titan V, driver 550, CUDA 12.2.2, TensorRT): launches, their mean, copies, their mean, GPU
# time, end to end with and without graph, launch time with and without, locking operations with and without. Its count is
# that of a shim which counts pthread_mutex_unlock.
PAPER = {
    "vit-s": (60, 5.5, 2, 187, 2208, 2356, 2378, 144, 152, 147, 1088),
    "regnet-y": (47, 6.0, 2, 1793, 5275, 5464, 5491, 148, 155, 171, 1242),
    "deit-b": (60, 5.8, 2, 1700, 4902, 5052, 5073, 153, 154, 327, 1412),
    "detr": (180, 5.9, 3, 743, 7045, 7846, 8432, 153, 154, 192, 3566),
    "segformer": (88, None, 2, None, None, 16385, 16743, 269, 294, 71, 1543),
}
CUDA = ("libcuda", "libcudart", "libcudart_static", "libcublas", "libcudnn", "libnvidia")
MUTEX = ("mutex_lock", "mutex_trylock", "mutex_timedlock", "mutex_clocklock", "mutex_unlock")
RWLOCK = tuple(f"rwlock_{what}" for what in "rdlock wrlock tryrdlock trywrlock timedrdlock timedwrlock clockrdlock clockwrlock unlock".split())


def load(path):
    try:
        with open(path) as f:
            text = f.read()
        # What a program prints may stand before its line of JSON.
        try:
            return json.loads(text)
        except ValueError:
            return json.loads(text.strip().splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return None


def added(operations, names):
    return sum(operations.get(name, 0) for name in names)


def locks(tape):
    """Operations of all locks, and of those that CUDA's libraries made; nothing where the tape lost some."""
    if not tape:
        return None
    cudas = [lock for lock in tape["locks"] if lock["name"].split("+")[0].startswith(CUDA)]
    merged = {}
    for lock in cudas:
        for name, n in lock["operations"].items():
            merged[name] = merged.get(name, 0) + n
    return {
        "lost": tape.get("lost_events", 0),
        "mutex": added(merged, MUTEX),
        "rwlock": added(merged, RWLOCK),
        "unlock": merged.get("mutex_unlock", 0),
        "all": added(tape["operations"], MUTEX + RWLOCK),
    }


def calls(tape):
    """Takings of locks within CUDA's calls; launches and copies with all their time, ns."""
    if not tape or not tape.get("totals"):
        return None
    totals = tape["totals"]

    def of(kinds, key):
        return sum(totals[kind][key] for kind in kinds if kind in totals)

    every = list(totals)
    copies = [kind for kind in ("copy", "async copy")]
    return {
        "lost": tape.get("cut", 0),
        "launch_calls": of(["launch"], "calls"),
        "launch_ns": of(["launch"], "ns"),
        "graph_calls": of(["graph launch"], "calls"),
        "graph_ns": of(["graph launch"], "ns"),
        "copy_calls": of(copies, "calls"),
        "copy_ns": of(copies, "ns"),
        "in_calls_mutex": of(every, "mutex_locks"),
        "in_calls_read": of(every, "read_locks"),
        "in_calls_write": of(every, "write_locks"),
    }


def summary(tape):
    if not tape:
        return None
    copies = tape.get("copies", {})
    return {
        "launches": tape.get("launches", 0),
        # What stands inline in the command stream (parameters of launches, small copies) is another count.
        "copies": copies.get("copy_engine") or 0,
        "inline": copies.get("inline") or 0,
        "lost": tape.get("lost", 0),
    }


def per_inference(folder, model, way, n):
    """Differences of the two recordings, and what makes them doubtful."""
    found, doubts = {}, []
    for kind, of in (("locks", locks), ("summary", summary), ("calls", calls)):
        both = [of(load(os.path.join(folder, f"{model}-{way}-{count}-{kind}.json"))) for count in (n, 2 * n)]
        if None in both:
            doubts.append(f"{way}: no recording ({kind})")
            continue
        if any(b["lost"] for b in both):
            doubts.append(f"{way}: the tape lost something ({kind})")
        for key in both[0]:
            found[key] = (both[1][key] - both[0][key]) / n
        for what in ("launch", "graph", "copy"):
            # Of all calls of the longer recording; the first ones are in it.
            if both[1].get(f"{what}_calls"):
                found[f"{what}_us"] = both[1][f"{what}_ns"] / both[1][f"{what}_calls"] / 1e3
    outs = [load(os.path.join(folder, f"{model}-{way}-{count}.out")) for count in (n, 2 * n)]
    if None not in outs and outs[0]["sum"] != outs[1]["sum"]:
        doubts.append(f"{way}: the two recordings' results differ ({outs[0]['sum']} and {outs[1]['sum']})")
    return found, doubts


LAUNCH_CALLS = ("LaunchKernel", "LaunchCooperativeKernel")


def calls_of(profiler, words):
    """Number per inference and mean latency of the runtime's calls whose names hold one of these words, by the profiler."""
    rows = [c for name, c in (profiler or {}).items() if any(w in name for w in words) and not name.startswith("cuGraph")]
    count = sum(c["per_inference"] for c in rows)
    return count, sum(c["per_inference"] * c["mean_us"] for c in rows) / count if count else None


def show(value, digits=0):
    return "" if value is None else f"{value:,.{digits}f}"


def main():
    folder, n = sys.argv[1], int(sys.argv[2])
    doubts, table1, table2, table3 = [], [], [], []
    for model, paper in PAPER.items():
        times = load(os.path.join(folder, f"{model}-times.json"))
        if not times:
            doubts.append(f"{model}: not run")
            continue
        runs = {run["graph"]: run for run in times["runs"]}
        both = {}
        for way in ("eager", "graph"):
            both[way], new = per_inference(folder, model, way, n)
            doubts += [f"{model}, {d}" for d in new]
        for graph, run in runs.items():
            if run.get("failed"):
                doubts.append(f"{model}, {'graph' if graph else 'eager'}: {run['failed']}")
            elif not run.get("right"):
                doubts.append(f"{model}, {'graph' if graph else 'eager'}: its output was not right")
            elif graph and not run.get("copies_in_graph"):
                doubts.append(f"{model}: its copies could not be captured; they stand beside the graph")
        eager, graph = runs[False], runs.get(True, {})
        found = both["eager"]
        launches, launch_us = found.get("launch_calls"), found.get("launch_us")
        copies, copy_us = found.get("copy_calls"), found.get("copy_us")
        by_profiler = calls_of(eager.get("profiler"), LAUNCH_CALLS), calls_of(eager.get("profiler"), ("Memcpy",))
        table1.append(
            [times["title"], show(found.get("launches"), 1), show(launches, 1), show(by_profiler[0][0], 1)]
            + [f"{show(launch_us, 1)} ({show(by_profiler[0][1], 1)})", f"{paper[0]} / {show(paper[1], 1)}"]
            + [show(found.get("copies"), 1), show(found.get("inline"), 1), show(copies if copies is not None else by_profiler[1][0], 1)]
            + [f"{show(copy_us, 1)} ({show(by_profiler[1][1], 1)})", f"{paper[2]} / {show(paper[3])}"]
            + [show(eager["gpu"]["mean_us"] if eager.get("gpu") else None), show(paper[4])]
        )

        def of(run, what, key="mean_us"):
            return show(run[what][key]) if run.get(what) else ""

        def pair(key):
            return " / ".join(show(both[way].get(key), 1) for way in ("graph", "eager"))

        table2.append(
            [times["title"], f"{of(graph, 'end_to_end')} / {of(eager, 'end_to_end')}", f"{paper[5]:,} / {paper[6]:,}"]
            + [f"{of(graph, 'end_to_end', 'max_us')} / {of(eager, 'end_to_end', 'max_us')}"]
            + [f"{of(graph, 'gpu')} / {of(eager, 'gpu')}"]
            + [f"{of(graph, 'launch')} / {of(eager, 'launch')}", f"{paper[7]} / {paper[8]}"]
            + [pair("mutex"), pair("rwlock"), pair("unlock"), f"{paper[9]:,} / {paper[10]:,}", pair("all")]
        )
        modes = ("in_calls_mutex", "in_calls_read", "in_calls_write", "launch_calls", "graph_calls", "copy_calls")
        table3.append([times["title"]] + [pair(key) for key in modes] + [show(both["graph"].get("graph_us"), 1)])
    print("### Table 1: calls of one inference, without a graph; times in us\n")
    lab.table(
        ["model", "launches (commands)", "launch calls", "(profiler)", "mean, tape (profiler)", "paper", "copies (engine)", "inline writes", "copy calls", "mean, tape (profiler)"]
        + ["paper", "GPU time", "paper"],
        table1,
    )
    print("\n### Table 2: with / without a CUDA graph; times in us, operations of one inference\n")
    lab.table(
        ["model", "end to end", "paper", "max", "GPU", "launch time", "paper", "CUDA's mutexes", "CUDA's rwlocks"]
        + ["CUDA's mutex unlocks", "paper's count", "all of the process"],
        table2,
    )
    print("\n### Within CUDA's calls: locks taken by one inference, with / without a CUDA graph\n")
    lab.table(
        ["model", "mutexes", "rwlocks, read", "rwlocks, write", "launch calls", "graph launches", "copy calls", "mean of a graph launch"],
        table3,
    )
    print("\nOperations are locks and unlocks, those of locks that CUDA's libraries made and those of all. The paper's count")
    print("is of mutex unlocks. A call's mean is the tape's (recordings ran beside one another) and, in brackets, the")
    print("profiler's. Fractions: CUDA's and PyTorch's own threads take locks too, and not in step with the inferences.")
    for doubt in doubts:
        print(f"- {doubt}")


if __name__ == "__main__":
    main()
