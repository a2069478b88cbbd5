#!/usr/bin/env python3
"""What it costs to keep doorbell on: the figures of production.md.

    production.py run DOORBELL FOLDER      on this machine's GPU
    production.py rows COMMIT STARTED      the data files of production.md, from production/*.json
"""

import json
import os
import random
import statistics
import subprocess
import sys

import data_file
import names

HERE = os.path.dirname(os.path.abspath(__file__))
DORMANT = ["--dormant", "--gpu-times"]
ROUNDS = 8


def dormant(doorbell, program):
    """A launch of an empty kernel, bare and under a recorder that is off: processes in random order."""
    ways = ROUNDS * [None, DORMANT]
    random.Random(5).shuffle(ways)
    rows = []
    for way in ways:
        command = [program, "cost", "120"]
        if way:
            command = [doorbell, "record", "-q", "--force", *way, "-o", "/tmp/dormant.doorbell", "--", *command]
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
        # Each line is a block's median launch. (In blocks `b` the program itself would switch recording on.)
        blocks = sorted(int(ns) for which, ns in (line.split() for line in said.splitlines()) if which == "a")
        rows.append({"how": " ".join(way) if way else "bare", "p10": blocks[len(blocks) // 10], "p50": statistics.median(blocks)})
        print(rows[-1], flush=True)
    return rows


def on(doorbell):
    """A step, recorded and in a pause, in blocks that take turns in one process."""
    ways = [(model, way) for model in ("resnet50", "gpt2") for way in (["--calls"], ["--calls", "--last", "256MiB"], ["--gpu-times", "--last", "256MiB"])]
    random.Random(6).shuffle(ways)
    rows = []
    for model, way in ways:
        command = [doorbell, "record", "-q", "--force", *way, "-o", "/tmp/on.doorbell", "--", sys.executable, f"{HERE}/names.py", "cost", model, "240"]
        said = names.run(command)
        rows.append({"how": " ".join(way), **json.loads(said)})
        r = rows[-1]
        print(model, r["how"], f"{r['percent']:+.2f} % {r['interval']}", r["without"]["p50_ms"], r["with"]["p50_ms"], flush=True)
    return rows


def run(doorbell, folder):
    os.makedirs(folder, exist_ok=True)
    names.write_machine(folder)
    program = "/tmp/production-own"
    subprocess.run(["nvcc", "-O2", "-arch=sm_90", "-o", program, f"{HERE}/gpu-times/own.cu"], check=True)
    for name, rows in (("dormant", dormant(doorbell, program)), ("on", on(doorbell))):
        with open(f"{folder}/{name}.json", "w") as f:
            json.dump(rows, f, indent=1)


def rows(commit, started):
    def load(name):
        with open(f"{HERE}/production/{name}.json") as f:
            return json.load(f)

    def write(name, about, make):
        data_file.write(f"production-{name}", about, ["docs/results/production.py", "run"], commit, started, load("machine"),
                        [{"row": str(i + 1), **make(r)} for i, r in enumerate(load(name))])

    write("dormant", "A launch under a recorder that is off", lambda r: {
        "how": r["how"], "p10": f"{r['p10'] / 1e3:.2f}", "p50": f"{r['p50'] / 1e3:.2f}"})
    titles = {"resnet50": "ResNet-50, training", "gpt2": "GPT-2, decoding"}
    write("on", "A step that is recorded", lambda r: {
        "model": titles[r["model"]], "recorded": r["how"], "change": f"{r['percent']:+.1f} %", "interval": f"{r['interval'][0]:+.1f} to {r['interval'][1]:+.1f} %",
        "p50_without": f"{r['without']['p50_ms']:.2f}", "p50": f"{r['with']['p50_ms']:.2f}", "blocks": str(r["blocks"])})


if __name__ == "__main__":
    data_file.command(__doc__, run, rows)
