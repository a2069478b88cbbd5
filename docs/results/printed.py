#!/usr/bin/env python3
"""Data files of devices.md and launch.md from what programs printed on this machine, into FOLDER.

    printed.py matrix FILE FOLDER    p2p.json, from a run of `doorbell bench peer --variant matrix -o FILE`
    printed.py peers FILE FOLDER     peers.json, from examples/c/peers.c
    printed.py lanes FILE FOLDER     launch-lanes.json, from launch/lanes.c
"""

import json
import re

import lab

WAYS = {"ce": "copy engine", "sm": "kernel", "cuda": "CUDA", "staged": "staged through the host"}
LANES = re.compile(r"(\d+) threads?, ([\w ]+): (\d+) launches, (\d+) a second; (?:launch .*?; )?call p50 ([\d.]+) p99 ([\d.]+) p99\.9 ([\d.]+) max ([\d.]+) us; (\d+) BUSY, \d+ FULL")
LANE_FIELDS = ("threads", "way", "launches", "a_second", "p50_us", "p99_us", "p999_us", "max_us", "busy")
LANE_TYPES = (int, str, int, int, float, float, float, float, int)
LANE_WAYS = ["CUDA", "one lane", "8 lanes"]


def matrix(path, folder):
    with open(f"{path}/run.json") as f:
        run = json.load(f)
    rows = {}
    for cell in (cell for cell in run["cells"] if cell["status"] == "measured"):
        way, start, _, end = cell["subject"].split()
        row = rows.setdefault(cell["subject"], {"way": WAYS[way], "from": int(start), "to": int(end), "samples": 0})
        done, alone = cell["figures"]["done"], {"name": "loads", "value": "none"} in cell["point"]
        if cell["bytes"] > 16:
            row["alone_GBps" if alone else "both_GBps"] = cell["bytes"] / done["p50"]
        elif alone:
            row.update({f"{key}_us": done[key] / 1e3 for key in ("p50", "p99", "max") if done.get(key)}, samples=cell["samples"])
    lab.write(folder, "p2p", "Copies between two GPUs", ["doorbell", "bench", "peer", "--variant", "matrix"], list(rows.values()),
                    "bytes over the p50 of each cell, and percentiles of the latencies, as `doorbell bench` computed them", run["environment"]["facts"])


def peers(path, folder):
    line = re.compile(r"^ *(\d+)  (\S.*?)  +(\d+)  +(\S+) (\S+)  +(?:-|\S+ \S+)  +(\S+) (\S+)  +[\d.]+$")
    us = {"ns": 1e-3, "us": 1, "ms": 1e3}
    with open(path) as f:
        made = [{"bytes": int(size), "way": way, "copies": int(copies), "p50_us": float(p50) * us[unit], "max_us": float(most) * us[most_unit]}
                for size, way, copies, p50, unit, most, most_unit in (found.groups() for found in filter(None, map(line.match, f)))]
    lab.write(folder, "peers", "Copies between two GPUs by libdoorbell", ["peers", "300"], made, "p50 and maximum of each row, as the program printed them")


def lanes(path, folder):
    with open(path) as f:
        found = [[of(word) for of, word in zip(LANE_TYPES, match.groups())] for match in map(LANES.match, f) if match]
    rows = [dict(zip(LANE_FIELDS, words)) for words in sorted(found, key=lambda words: (words[0], LANE_WAYS.index(words[1])))]
    lab.write(folder, "launch-lanes", "Launches a second by threads on launch lanes and by CUDA", ["docs/results/launch/lanes.c"], rows,
                    "percentiles of each turn, from the histogram of the program")


if __name__ == "__main__":
    lab.main(__doc__, matrix=matrix, peers=peers, lanes=lanes)
