#!/usr/bin/env python3
"""Rows of devices.md from a run of `doorbell bench p2p -o FILE`.

    p2p.py FILE                                data/p2p.json
    p2p.py peers FILE COMMIT STARTED MACHINE   data/peers.json, from what examples/c/peers.c printed; MACHINE: a file with facts of the machine
"""

import json
import re
import sys

import data_file

WAYS = {"ce": "copy engine", "sm": "kernel", "cuda": "CUDA", "staged": "staged through the host"}


def rows(path):
    with open(path) as f:
        run = json.load(f)
    made = []
    for cell in run["cells"]:
        if cell["status"] != "done":
            continue
        rate = lambda of: "-" if of is None else f"{of['rate'] / 1e9:.1f}"
        both = cell["both"] and cell["both"]["this"]
        ns = cell["latency"]["ns"] if cell["latency"] else {}
        us = lambda key: f"{ns[key] / 1e3:.2f}" if ns.get(key) else "-"
        made.append({"row": str(len(made) + 1), "way": WAYS[cell["way"]], "from": str(cell["from"]), "to": str(cell["to"]), "alone": rate(cell["alone"]),
                     "interval": "{:.1f} to {:.1f}".format(*(cell["alone"]["interval"][end] / 1e9 for end in ("low", "high"))), "both": rate(both),
                     "p50": us("p50"), "p99": us("p99"), "max": us("max"), "samples": f"{ns.get('count', 0):,}"})
    machine = run["environment"]["facts"]
    data_file.write("p2p", "Copies between two GPUs", ["doorbell", "bench", "p2p"], run["commit"], run["started"],
                    {key: machine[key] for key in ("gpu.name", "gpu.driver", "gpu.cuda", "cpu.online", "host.virtual_machine") if key in machine}, made)


def peers(path, commit, started, machine):
    line = re.compile(r"^ *(\d+)  (\S.*?)  +(\d+)  +(\S+ \S+)  +(-|\S+ \S+)  +(\S+ \S+)  +([\d.]+)$")
    made = []
    with open(path) as f:
        for found in filter(None, map(line.match, f)):
            size, way, copies, p50, p99, most, rate = found.groups()
            made.append({"row": str(len(made) + 1), "bytes": f"{int(size):,}", "way": way, "copies": copies, "p50": p50, "max": most, "rate": rate})
    with open(machine) as f:
        data_file.write("peers", "Copies between two GPUs by libdoorbell", ["peers", "300"], commit, started, json.load(f), made)


if __name__ == "__main__":
    what = sys.argv[1:]
    if len(what) == 1:
        rows(what[0])
    elif what[:1] == ["peers"] and len(what) == 5:
        peers(*what[1:])
    else:
        raise SystemExit(__doc__)
