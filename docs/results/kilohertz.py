#!/usr/bin/env python3
"""A 1 kHz loop in C beside a thread that loads modules (examples/c/frame_loop.c): the figures of kilohertz.md.

    kilohertz.py run PROGRAM FOLDER       on this machine's GPU; PROGRAM is the example, compiled; the data file goes into FOLDER

Each process runs the loop by doorbell, then by CUDA, under one scheduling class. The classes take turns, in random order.
"""

import re

import lab

CLASSES, ROUNDS, SECONDS = ("other", "deadline"), 4, 6
LINE = re.compile(r"(doorbell|CUDA): (\d+) of the (\d+) frames that were due, of 4096 bytes, (every result right|there are WRONG results); "
                  r"p50 (\S+ \S+), p99 (-|\S+ \S+), max (\S+ \S+) of these; (\d+) of \d+ missed")
UNITS = {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}


def us(text):
    return None if text == "-" else float(text.split()[0]) * UNITS[text.split()[1]]


def run(program, folder):
    found = []
    for wanted in lab.shuffled(CLASSES * ROUNDS, 5):
        said = lab.said([program, str(SECONDS), wanted])
        print(said, flush=True)
        lines = LINE.findall(said)
        assert len(lines) == 2, said
        for way, made, due, right, p50, p99, most, missed in lines:
            found.append({"class": re.search("runs under (SCHED_[A-Z]+)", said)[1], "way": way, "due": int(due), "made": int(made), "missed": int(missed),
                          "p50_us": us(p50), "p99_us": us(p99), "max_us": us(most), "right": right.startswith("every")})
    found.sort(key=lambda row: (row["class"] != "SCHED_OTHER", row["way"] != "doorbell"))
    lab.write(folder, "kilohertz", "A 1 kHz loop beside a thread that loads modules", ["docs/results/kilohertz.py", "run"], found,
                    "p50, p99 and maximum of each process, as the program printed them")


if __name__ == "__main__":
    lab.main(__doc__, run=run)
