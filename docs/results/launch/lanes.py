#!/usr/bin/env python3
"""The table of launch lanes in launch.md: `lanes.py COMMIT STARTED` reads lanes.txt, which lanes.c has printed, and server/machine.json of the same machine."""

import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import data_file  # noqa: E402  (in the folder above)

LINE = re.compile(r"(\d+) threads?, ([\w ]+): (\d+) launches, (\d+) a second; (?:launch .*?; )?call p50 ([\d.]+) p99 ([\d.]+) p99\.9 ([\d.]+) max ([\d.]+) us; (\d+) BUSY, (\d+) FULL")


def main(commit, started):
    with open(f"{HERE}/lanes.txt") as f:
        found = [LINE.match(line).groups() for line in f if LINE.match(line)]
    with open(f"{HERE}/../server/machine.json") as f:
        machine = json.load(f)
    order = ["CUDA", "one lane", "8 lanes"]
    rows = []
    for threads, way, launches, a_second, p50, p99, p999, most, busy, full in sorted(found, key=lambda r: (int(r[0]), order.index(r[1]))):
        rows.append({"row": str(len(rows) + 1), "threads": threads, "way": way, "launches": f"{int(launches):,}", "a_second": f"{int(a_second):,}",
                     "p50": f"{float(p50):.2f}", "p99": f"{float(p99):.2f}", "p999": f"{float(p999):.2f}", "max": f"{float(most):.0f}", "busy": f"{int(busy):,}"})
    data_file.write("launch-lanes", "Launches a second by threads on launch lanes and by CUDA", ["docs/results/launch/lanes.c"], commit, started, machine, rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
