#!/usr/bin/env python3
"""What the order between a CUDA stream and copies costs (examples/c/order_cost.c): the figures of copy.md.

    order_cost.py run PROGRAM FOLDER       on this machine's GPU; PROGRAM is the example, compiled; the data file goes into FOLDER

Four processes; in each, all cells take turns.
"""

import re

import lab

PROCESSES, ROUNDS = 4, 3000
WHAT = {"kernel end -> bytes there": "there", "kernel end -> next kernel": "next", "CPU: the call": "call",
        "CPU: the call that holds": "hold"}
LINE = re.compile(rf"^({'|'.join(map(re.escape, WHAT))})\s{{2,}}(.*?)\s{{2,}}(\d+)\s+(\d+)\s+(\d+)\s+(\d+)$", re.M)


def run(program, folder):
    found = []
    for process in range(PROCESSES):
        said = lab.said([program, str(ROUNDS), "--seconds", "60"])
        print(said, flush=True)
        assert f"{ROUNDS} rounds" in said and "all data right" in said
        for what, way, count, p50, p99, most in LINE.findall(said):
            found.append({"process": process, "what": WHAT[what], "between": way.replace("ours", "doorbell"), "rounds": int(count), "p50_ns": int(p50),
                          "p99_ns": int(p99), "max_ns": int(most)})
    found.sort(key=lambda row: row["what"] != "next")
    lab.write(folder, "order-cost", "What the order between a stream and copies costs", ["docs/results/order_cost.py", "run"], found,
                    "p50, p99 and maximum of each process, as the program printed them")


if __name__ == "__main__":
    lab.main(__doc__, run=run)
