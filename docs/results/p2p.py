#!/usr/bin/env python3
"""Rows of devices.md from a run of `doorbell bench p2p -o FILE`.

    p2p.py FILE        data/p2p.json
"""

import json
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
        ns = cell["latency"]["ns"] if cell["latency"] else {}
        us = lambda key: f"{ns[key] / 1e3:.2f}" if ns.get(key) else "-"
        made.append({"row": str(len(made) + 1), "way": WAYS[cell["way"]], "from": str(cell["from"]), "to": str(cell["to"]), "alone": rate(cell["alone"]),
                     "interval": "{:.1f} to {:.1f}".format(*(cell["alone"]["interval"][end] / 1e9 for end in ("low", "high"))), "both": rate(cell["both"]),
                     "p50": us("p50"), "p99": us("p99"), "max": us("max"), "samples": f"{ns.get('count', 0):,}"})
    machine = run["environment"]["facts"]
    data_file.write("p2p", "Copies between two GPUs", ["doorbell", "bench", "p2p"], run["commit"], run["started"],
                    {key: machine[key] for key in ("gpu.name", "gpu.driver", "gpu.cuda", "cpu.online", "host.virtual_machine") if key in machine}, made)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    rows(sys.argv[1])
