#!/usr/bin/env python3
"""What the order between a CUDA stream and copies costs (examples/c/order_cost.c): the figures of copy.md.

    order_cost.py run PROGRAM FOLDER       on this machine's GPU; PROGRAM is the example, compiled
    order_cost.py rows COMMIT STARTED      the data file, from order-cost/cells.json

Four processes; in each, all cells take turns.
"""

import json
import os
import re
import subprocess

import data_file

HERE = os.path.dirname(os.path.abspath(__file__))
PROCESSES, ROUNDS = 4, 3000
WHAT = {"kernel end -> bytes there": "there", "bytes there -> next kernel": "after", "kernel end -> next kernel": "next", "CPU: the call": "call",
        "CPU: the call that holds": "hold"}
LINE = re.compile(rf"^({'|'.join(map(re.escape, WHAT))})\s{{2,}}(.*?)\s{{2,}}(\d+)\s+(\d+)\s+(\d+)\s+(\d+)$", re.M)


def run(program, folder):
    import names

    os.makedirs(folder, exist_ok=True)
    names.write_machine(folder)
    found = []
    for process in range(PROCESSES):
        said = subprocess.run([program, str(ROUNDS), "--seconds", "60"], stdout=subprocess.PIPE, text=True, check=True).stdout
        print(said, flush=True)
        assert f"{ROUNDS} rounds" in said and "all data right" in said
        for what, way, count, p50, p99, most in LINE.findall(said):
            found.append({"process": process, "what": WHAT[what], "way": way, "count": int(count), "p50": int(p50), "p99": int(p99), "max": int(most)})
    with open(f"{folder}/cells.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(row) for row in found) + "\n]\n")


def rows(commit, started):
    with open(f"{HERE}/order-cost/cells.json") as f, open(f"{HERE}/order-cost/machine.json") as m:
        found, machine, made = json.load(f), json.load(m), []

    def of(way, what, figure):
        each = sorted(row[figure] / 1e3 for row in found if (row["way"], row["what"]) == (way, what))
        return f"{each[0]:.1f} to {each[-1]:.1f}" if each else ""

    for way in dict.fromkeys(row["way"] for row in found if row["what"] == "next"):
        made.append({"row": str(len(made) + 1), "between": way.replace("ours", "doorbell"), "there": of(way, "there", "p50"), "next": of(way, "next", "p50"), "next_p99": of(way, "next", "p99"),
                     "next_max": of(way, "next", "max"), "call": of(way, "call", "p50"), "hold": of(way, "hold", "p50")})
    data_file.write("order-cost", "What the order between a stream and copies costs", ["docs/results/order_cost.py", "run"], commit, started, machine, made)


if __name__ == "__main__":
    data_file.command(__doc__, run, rows)
