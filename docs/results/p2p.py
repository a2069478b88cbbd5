#!/usr/bin/env python3
"""The data files of devices.md, into FOLDER.

    p2p.py matrix FILE FOLDER    p2p.json, from a run of `doorbell bench peer --variant matrix -o FILE`
    p2p.py peers FILE FOLDER     peers.json, from what examples/c/peers.c printed on this machine
"""

import json
import re
import sys

import data_file

WAYS = {"ce": "copy engine", "sm": "kernel", "cuda": "CUDA", "staged": "staged through the host"}


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
    data_file.write(folder, "p2p", "Copies between two GPUs", ["doorbell", "bench", "peer", "--variant", "matrix"], list(rows.values()),
                    "bytes over the p50 of each cell, and percentiles of the latencies, as `doorbell bench` computed them", run["environment"]["facts"])


def peers(path, folder):
    line = re.compile(r"^ *(\d+)  (\S.*?)  +(\d+)  +(\S+) (\S+)  +(?:-|\S+ \S+)  +(\S+) (\S+)  +[\d.]+$")
    us = {"ns": 1e-3, "us": 1, "ms": 1e3}
    with open(path) as f:
        made = [{"bytes": int(size), "way": way, "copies": int(copies), "p50_us": float(p50) * us[unit], "max_us": float(most) * us[most_unit]}
                for size, way, copies, p50, unit, most, most_unit in (found.groups() for found in filter(None, map(line.match, f)))]
    data_file.write(folder, "peers", "Copies between two GPUs by libdoorbell", ["peers", "300"], made, "p50 and maximum of each row, as the program printed them")


if __name__ == "__main__":
    make = {"matrix": matrix, "peers": peers}.get(sys.argv[1]) if len(sys.argv) == 4 else None
    if make is None:
        raise SystemExit(__doc__)
    make(*sys.argv[2:])
