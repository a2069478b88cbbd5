#!/usr/bin/env python3
"""docs/results/undelayed/tables.py OUT: the runs of undelayed.sh as Markdown, the samples of a program's runs put together.

A percentile is the nearest rank, and stands only with ten samples beyond it. A difference is to the same program's p99.9 beside
nothing, over the same runs.
"""

import collections
import glob
import json
import os
import sys

WITHIN = 10_000


class Series:
    """Samples as times and how often each was seen."""

    def __init__(self):
        self.times, self.paused = collections.Counter(), 0

    @property
    def count(self):
        return sum(self.times.values())

    def percentile(self, of, out_of):
        count = self.count
        if count < (1 if of * 2 == out_of else 10 * out_of // (out_of - of)):
            return None
        rank = -(-count * of // out_of)
        for ns, times in sorted(self.times.items()):
            rank -= times
            if rank <= 0:
                return ns

    p50 = property(lambda self: self.percentile(1, 2))
    p99 = property(lambda self: self.percentile(99, 100))
    p999 = property(lambda self: self.percentile(999, 1000))

    @property
    def max(self):
        return ("at least " if self.paused else "") + text(max(self.times)) if self.times else "-"


def text(ns):
    """A time, three digits of it."""
    if ns is None:
        return "-"
    value = float(ns)
    for unit in ("ns", "us", "ms", "s"):
        if value < 999.5 or unit == "s":
            break
        value /= 1000
    return f"{value:.{0 if unit == 'ns' or value >= 99.95 else 1 if value >= 9.995 else 2}f} {unit}"


def read(folder, program):
    """Row -> series -> samples, and row -> calls and the longest, in the order of the first run."""
    rows, calls = {}, {}
    for path in sorted(glob.glob(os.path.join(folder, f"{program}-*.raw"))):
        for line in open(path):
            _round, kind, threads, series, *words = line.split()
            samples = rows.setdefault((int(threads), kind), collections.defaultdict(Series))[series].times
            for word in words:
                ns, _, times = word.partition("*")
                samples[int(ns)] += int(times or 1)
    for path in sorted(glob.glob(os.path.join(folder, f"{program}-*.json"))):
        for row in json.load(open(path))["rows"]:
            key = row["threads"], row["beside"]
            had = calls.get(key, (0, 0))
            calls[key] = had[0] + row["calls"], max(had[1], row["longest"])
            for series, said in row.items():
                if isinstance(said, dict) and key in rows:
                    rows[key][series].paused += said["paused"]
    return dict(sorted(rows.items(), key=lambda row: row[0][0])), calls


def table(head, lines):
    print("| " + " | ".join(head) + " |")
    print("|---" + "|--:" * (len(head) - 1) + "|")
    for line in lines:
        print("| " + " | ".join(str(cell) for cell in line) + " |")
    print()


def show(folder, program):
    rows, calls = read(folder, program)
    nothing = rows.get((0, "nothing"))
    if not nothing:
        return
    first, others, judged = [], [], 0
    for (threads, kind), of in rows.items():
        label = f"{threads} {kind}" if threads else kind
        ours, base = of["doorbell"].p999, nothing["doorbell"].p999
        more = "-"
        if threads and ours is not None and base is not None:
            judged, more = judged + 1, f"{(ours - base) / 1000:+.2f} us"
            if ours > base + WITHIN:
                others.append(f"{label} ({more})")
        done, longest = calls.get((threads, kind), (0, 0))
        cuda, door = of["cuda"], of["doorbell"]
        first.append([label, f"{done:,}, {text(longest)}" if threads else "", f"{cuda.count:,}",
                      f"{text(cuda.p50)}, {text(cuda.p99)}, {cuda.max}", f"{door.count:,}",
                      f"{text(door.p50)}, {text(door.p99)}, {text(door.p999)}, {door.max}", more])
    print(f"## {program}\n")
    table(["beside", "its calls, longest", "CUDA: samples", "p50, p99, max", "ours: samples", "p50, p99, p99.9, max", "p99.9 more"], first)
    series = [name for name in ("released", "pin_device", "pin_host", "unpin", "prepare", "release")
              if any(of[name].times for of in rows.values())]
    table(["beside", "submit: p50, p99.9", *(f"{name}: samples, p50, max" for name in series)],
          [[f"{threads} {kind}" if threads else kind, f"{text(of['submit'].p50)}, {text(of['submit'].p999)}",
            *(f"{of[name].count:,}, {text(of[name].p50)}, {of[name].max}" for name in series)] for (threads, kind), of in rows.items()])
    print(f"Within 10 us of beside nothing: {judged - len(others)} of {judged}" + ("; not " + ", ".join(others) if others else "") + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for program in ("c", "python"):
        show(sys.argv[1], program)
