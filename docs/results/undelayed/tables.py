#!/usr/bin/env python3
"""docs/results/undelayed/tables.py OUT: the runs of undelayed.sh as Markdown, the samples of a program's runs put together.

A percentile is the nearest rank, and stands only with ten samples beyond it. A difference is to the same program's p99.9 beside
nothing, over the same runs. (The figures are undelayed.py's, which needs libdoorbell: in DOORBELL_LIB, as undelayed.sh has it.)
"""

import collections
import glob
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "../../../examples/python"), os.path.join(HERE, "../../../python")]
import lab  # noqa: E402  (the path must be set before)
from undelayed import WITHIN, figures, text  # noqa: E402


def read(folder, program):
    """Row -> series -> figures, and row -> calls and the longest, in the order of the first run."""
    samples, paused, calls = {}, collections.Counter(), {}
    for path in sorted(glob.glob(os.path.join(folder, f"{program}-*.raw"))):
        for line in open(path):
            _round, kind, threads, series, *words = line.split()
            into = samples.setdefault((int(threads), kind), {}).setdefault(series, [])
            for word in words:
                ns, _, times = word.partition("*")
                into += [int(ns)] * int(times or 1)
    for path in sorted(glob.glob(os.path.join(folder, f"{program}-*.json"))):
        for row in lab.read(path)["rows"]:
            key = row["threads"], row["beside"]
            had = calls.get(key, (0, 0))
            calls[key] = had[0] + row["calls"], max(had[1], row["longest"])
            for series, said in row.items():
                if isinstance(said, dict):
                    paused[key, series] += said["paused"]
    rows = {}
    for key, of in sorted(samples.items(), key=lambda row: row[0][0]):
        rows[key] = collections.defaultdict(lambda: figures([]), {series: figures(found) for series, found in of.items()})
        for series in of:
            rows[key][series]["at_least"] = "at least " * bool(paused[key, series])
    return rows, calls


def said(of, *names):
    return ", ".join(of.get("at_least", "") * (name == "max" and "max" in of) + text(of.get(name)) for name in names)


def show(folder, program):
    rows, calls = read(folder, program)
    nothing = rows.get((0, "nothing"))
    if not nothing:
        return
    first, second, others, judged = [], [], [], 0
    set_up = [name for name in ("released", "pin_device", "pin_host", "unpin", "prepare", "release") if any(name in of for of in rows.values())]
    for (threads, kind), of in rows.items():
        label = f"{threads} {kind}" if threads else kind
        ours, base = of["doorbell"].get("p99.9"), nothing["doorbell"].get("p99.9")
        more = "-"
        if threads and ours is not None and base is not None:
            judged, more = judged + 1, f"{(ours - base) / 1000:+.2f} us"
            if ours > base + WITHIN:
                others.append(f"{label} ({more})")
        done, longest = calls.get((threads, kind), (0, 0))
        first.append([label, f"{done:,}, {text(longest)}" if threads else "", f"{of['cuda']['samples']:,}", said(of["cuda"], "p50", "p99", "max"),
                      f"{of['doorbell']['samples']:,}", said(of["doorbell"], "p50", "p99", "p99.9", "max"), more])
        second.append([label, said(of["submit"], "p50", "p99.9"), *(f"{of[name]['samples']:,}, {said(of[name], 'p50', 'max')}" for name in set_up)])
    print(f"## {program}\n")
    lab.table(["beside", "its calls, longest", "CUDA: samples", "p50, p99, max", "ours: samples", "p50, p99, p99.9, max", "p99.9 more"], first)
    print()
    lab.table(["beside", "submit: p50, p99.9", *(f"{name}: samples, p50, max" for name in set_up)], second)
    print(f"\nWithin 10 us of beside nothing: {judged - len(others)} of {judged}" + ("; not " + ", ".join(others) if others else "") + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for program in ("c", "python"):
        show(sys.argv[1], program)
