#!/usr/bin/env python3
"""What it costs to keep doorbell on: the figures of production.md.

    production.py run DOORBELL FOLDER      on this machine's GPU; the data file goes into FOLDER. (A step: names.py costs.)
"""

import statistics

import lab

DORMANT = ["--dormant", "--gpu-times"]
ROUNDS = 8


def dormant(doorbell, program):
    """A launch of an empty kernel, bare and under a recorder that is off: processes in random order."""
    rows = []
    for way in lab.shuffled(ROUNDS * [None, DORMANT], 5):
        command = [program, "cost", "120"]
        said = lab.record(doorbell, "/tmp/dormant.doorbell", command, *way, limit=60) if way else lab.said(command, 60)
        # Each line is a block's median launch. (In blocks `b` the program itself would switch recording on.)
        blocks = sorted(int(ns) for which, ns in (line.split() for line in said.splitlines()) if which == "a")
        rows.append(lab.tell({"how": " ".join(way) if way else "bare", "p10_ns": blocks[len(blocks) // 10], "p50_ns": statistics.median(blocks)}))
    return rows


def run(doorbell, folder):
    program = lab.built("gpu-times/own.cu", "-arch=sm_90")
    lab.write(folder, "production-dormant", "A launch under a recorder that is off", ["docs/results/production.py", "run"],
                    dormant(doorbell, program), "p10 and p50 of the blocks of each process")


if __name__ == "__main__":
    lab.main(__doc__, run=run)
