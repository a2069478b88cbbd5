#!/usr/bin/env python3
"""What it costs to keep doorbell on: the figures of production.md.

    production.py run DOORBELL FOLDER      on this machine's GPU; the data file goes into FOLDER. (A step: names.py costs.)
"""

import os
import random
import statistics
import subprocess

import data_file

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
        rows.append({"how": " ".join(way) if way else "bare", "p10_ns": blocks[len(blocks) // 10], "p50_ns": statistics.median(blocks)})
        print(rows[-1], flush=True)
    return rows


def run(doorbell, folder):
    program = "/tmp/production-own"
    subprocess.run(["nvcc", "-O2", "-arch=sm_90", "-o", program, f"{HERE}/gpu-times/own.cu"], check=True)
    data_file.write(folder, "production-dormant", "A launch under a recorder that is off", ["docs/results/production.py", "run"],
                    dormant(doorbell, program), "p10 and p50 of the blocks of each process")


if __name__ == "__main__":
    data_file.command(__doc__, run)
