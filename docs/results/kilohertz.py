#!/usr/bin/env python3
"""A 1 kHz loop in C beside a thread that loads modules (examples/c/frame_loop.c): the figures of kilohertz.md.

    kilohertz.py run PROGRAM FOLDER       on this machine's GPU; PROGRAM is the example, compiled
    kilohertz.py rows COMMIT STARTED      the data file, from kilohertz/loops.json

Each process runs the loop by doorbell, then by CUDA, under one scheduling class. The classes take turns, in random order.
"""

import json
import os
import random
import re
import subprocess

import data_file

HERE = os.path.dirname(os.path.abspath(__file__))
CLASSES, ROUNDS, SECONDS = ("other", "deadline"), 4, 6
LINE = re.compile(r"(doorbell|CUDA): (\d+) of the (\d+) frames that were due, of 4096 bytes, (every result right|there are WRONG results); "
                  r"p50 (\S+ \S+), p99 (-|\S+ \S+), max (\S+ \S+) of these; (\d+) of \d+ missed")
UNITS = {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}


def us(text):
    return None if text == "-" else float(text.split()[0]) * UNITS[text.split()[1]]


def run(program, folder):
    import names

    os.makedirs(folder, exist_ok=True)
    names.write_machine(folder)
    plan, found = list(CLASSES) * ROUNDS, []
    random.Random(5).shuffle(plan)
    for wanted in plan:
        said = subprocess.run([program, str(SECONDS), wanted], stdout=subprocess.PIPE, text=True, check=True).stdout
        print(said, flush=True)
        lines = LINE.findall(said)
        assert len(lines) == 2, said
        for way, made, due, right, p50, p99, most, missed in lines:
            found.append({"class": re.search("runs under (SCHED_[A-Z]+)", said)[1], "way": way, "due": int(due), "made": int(made), "missed": int(missed),
                          "p50": us(p50), "p99": us(p99), "max": us(most), "right": right.startswith("every"), "modules": int(re.search(r"loaded (\d+) modules", said)[1])})
    with open(f"{folder}/loops.json", "w") as f:
        json.dump(found, f, indent=1)


def rows(commit, started):
    with open(f"{HERE}/kilohertz/loops.json") as f, open(f"{HERE}/kilohertz/machine.json") as m:
        found, machine, made = json.load(f), json.load(m), []
    for kind in sorted({row["class"] for row in found}, reverse=True):
        for way in ("doorbell", "CUDA"):
            of = [row for row in found if (row["class"], row["way"]) == (kind, way)]
            each = lambda key, form: " ".join("-" if row[key] is None else format(row[key], form) for row in of)
            made.append({"row": str(len(made) + 1), "class": kind, "way": way, "due": f"{sum(r['due'] for r in of):,}", "made": f"{sum(r['made'] for r in of):,}",
                         "missed": each("missed", ",d"), "p50": each("p50", ",.0f"), "p99": each("p99", ",.0f"), "max": each("max", ",.0f"),
                         "right": "yes" if all(r["right"] for r in of) else "no"})
    data_file.write("kilohertz", "A 1 kHz loop beside a thread that loads modules", ["docs/results/kilohertz.py", "run"], commit, started, machine, made)


if __name__ == "__main__":
    data_file.command(__doc__, run, rows)
