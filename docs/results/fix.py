#!/usr/bin/env python3
"""Frames next to set-up calls: without and with `doorbell run --fix=pins,copies`, and next to a program that was rewritten. The figures of fix.md.

    fix.py run DOORBELL FOLDER     builds fix/frames.c with cc; each kind of call in each way, in random order, twice (six minutes, one GPU)
    fix.py pairs DOORBELL FOLDER   the calls' own times: each by CUDA and answered in turn, in one process (a minute, one GPU)
    fix.py plan DOORBELL FOLDER    what `plan` predicts from a recording, and what its fix then saves, twice (two minutes, one GPU)
"""

import json
import os
import re
import statistics
import sys

import lab

MIB = 1 << 20
ROUNDS = 2
WAYS = ["CUDA", "fixed", "rewritten"]
# The neighbour's call; bytes and calls in each turn.
KINDS = {
    "nothing": ("nothing", [(64, 15)]),
    "pin": ("`cuMemHostAlloc`", [(2, 15), (64, 15), (1024, 13)]),
    "register": ("`cuMemHostRegister`", [(64, 15)]),
    "to-gpu": ("`cuMemcpyHtoD`", [(4, 15), (64, 15)]),
    "to-gpu-async-default": ("`cuMemcpyHtoDAsync`", [(64, 15)]),
    "from-gpu": ("`cuMemcpyDtoH`", [(4, 15), (64, 15)]),
    "from-gpu-async-default": ("`cuMemcpyDtoHAsync`", [(64, 15)]),
    "to-gpu-async": ("`cuMemcpyHtoDAsync`, non-blocking stream", [(64, 15)]),
}


def pairs(doorbell, folder):
    """A row for each call: medians, and the median of the pairs' ratios (of a launch: of the differences) with its 95 % interval by bootstrap."""
    program, found = lab.built("fix/pairs.c"), {}
    for _ in range(ROUNDS):
        for row in lab.objects(lab.said([doorbell, "run", "--fix=pins,copies", "--", program, "40"], 200)):
            found.setdefault((row["what"], row["mib"]), []).append(row)
    rows = []
    for (call, mib), of in found.items():
        launch = call == "cuLaunchKernel"
        values = [row["found_ns"] - row["cuda_ns"] if launch else row["found_ns"] / row["cuda_ns"] for row in of]
        name, found_of = "ns_more" if launch else "ratio", lab.median_interval(values)
        rows.append(lab.tell({"call": f"`{call}`", "mib": mib or None, "pairs": len(of), "cuda_us": statistics.median(row["cuda_ns"] for row in of) / 1e3,
                     "answered_us": statistics.median(row["found_ns"] for row in of) / 1e3, name: found_of["median"],
                     f"{name}_low": found_of["low"], f"{name}_high": found_of["high"], "is_cudas_own": all(row["is_cudas"] for row in of)}))
    lab.write(folder, "fix-own", "Own times of calls, by CUDA and answered", ["docs/results/fix.py", "pairs"], rows, stored="medians of the pairs")


def plan(doorbell, folder):
    """Rows of what `plan` predicts, next to what its file saves. A fix saves what is lost without it and not with it."""
    program = lab.built("fix/frames.c")
    server = [sys.executable, os.path.join(lab.HERE, "fix_server.py"), "frames", "Python, CUDA"]
    cases = {f"{KINDS[kind][0]} of {mib} MiB": [program, kind, "cuda", str(mib * MIB), "15"]
             for kind, mib in (("pin", 64), ("pin", 1024), ("to-gpu", 64), ("to-gpu-async-default", 64), ("from-gpu", 64), ("from-gpu-async-default", 64))}
    cases |= {f"PyTorch server, {beside}": server + [beside, "-"] for beside in ("pins", "`.to(\"cuda\")`")}
    tape, file = (os.path.join(os.path.dirname(program), name) for name in ("a.doorbell", "fix.toml"))
    order, rows = [case for case in cases if os.environ.get("ONLY", "") in case] * ROUNDS, []
    for name in lab.shuffled(order):
        def turn(*before):
            return json.loads(lab.said([*before, *cases[name]], 120).splitlines()[-1])
        turn(doorbell, "record", "--locks", "--quiet", "--force", "-o", tape, "--")
        lab.said([doorbell, "plan", tape, "--force", "-o", file])
        with open(file) as f:
            found = re.findall(r"saves up to (\S+ \S+) of \S+ calls?, (\S+ \S+) of one", f.read())
        ms = lambda text: float(text.split()[0].replace(",", "")) * {"ms": 1, "us": 1e-3, "s": 1e3}[text.split()[1]]
        bare, fixed = turn(), turn(doorbell, "run", f"--fix={file}", "--")
        # (Of the frames that were made: the others were due meanwhile.)
        lost = lambda row: row["sum_us"] - fixed["p50_us"] * (row.get("frames") or row["due"] - row["missed"])
        row = {"program": name, "predicted_of_one_ms": max((ms(one) for _, one in found), default=0),
               "predicted_ms": sum(ms(total) for total, _ in found),
               "saved_of_one_ms": round((bare["max_us"] - fixed["max_us"]) / 1e3, 3),
               "saved_ms": round((lost(bare) - lost(fixed)) / 1e3, 3)}
        rows.append(lab.tell(row))
    rows.sort(key=lambda row: list(cases).index(row["program"]))
    lab.write(folder, "fix-plan", "What `plan` predicts from a recording, and what its fix saves", ["docs/results/fix.py", "plan"], rows)


def run(doorbell, folder):
    program = lab.built("fix/frames.c")
    cells = [(kind, mib, calls, way) for kind, (_, sizes) in KINDS.items() for mib, calls in sizes for way in WAYS
             if kind not in ("nothing", "to-gpu-async") or way != "rewritten"]
    rows = []
    for turn in range(ROUNDS):
        for kind, mib, calls, way in lab.shuffled(cells):
            words = [program, kind, "rewritten" if way == "rewritten" else "cuda", str(mib * MIB), str(calls)]
            report = os.path.join(os.path.dirname(program), "report")
            if way == "fixed":
                words = [doorbell, "run", "--fix=pins,copies", "--out", report, "--force", "--"] + words
            found, passed = json.loads(lab.said(words, 90)), 0
            if way == "fixed":
                with open(report) as f:
                    text = f.read()
                assert "turned itself off" not in text, text
                passed = text.count("passed on")
            row = {"call": KINDS[kind][0], "mib": None if kind == "nothing" else mib, "way": way, "turn": turn,
                   **{k: v for k, v in found.items() if k not in ("kind", "bytes")}, "reasons": passed}
            rows.append(lab.tell(row))
    order = [KINDS[kind][0] for kind in KINDS]
    rows.sort(key=lambda row: (order.index(row["call"]), row["mib"] or 0, WAYS.index(row["way"]), row["turn"]))
    lab.write(folder, "fix-calls", "Frames next to set-up calls, with and without `run --fix=pins,copies`", ["docs/results/fix.py", "run"], rows,
                    stored="percentiles and maximum of each turn")


if __name__ == "__main__":
    lab.main(__doc__, run=run, pairs=pairs, plan=plan)
