#!/usr/bin/env python3
"""The data file of launch lanes in launch.md: `lanes.py FILE FOLDER` reads what lanes.c has printed on this machine."""

import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import data_file  # noqa: E402  (in the folder above)

LINE = re.compile(r"(\d+) threads?, ([\w ]+): (\d+) launches, (\d+) a second; (?:launch .*?; )?call p50 ([\d.]+) p99 ([\d.]+) p99\.9 ([\d.]+) max ([\d.]+) us; (\d+) BUSY, \d+ FULL")
NAMES = ("threads", "way", "launches", "a_second", "p50_us", "p99_us", "p999_us", "max_us", "busy")
TYPES = (int, str, int, int, float, float, float, float, int)
ORDER = ["CUDA", "one lane", "8 lanes"]


def main(path, folder):
    with open(path) as f:
        found = [[of(word) for of, word in zip(TYPES, match.groups())] for match in map(LINE.match, f) if match]
    rows = [dict(zip(NAMES, words)) for words in sorted(found, key=lambda words: (words[0], ORDER.index(words[1])))]
    data_file.write(folder, "launch-lanes", "Launches a second by threads on launch lanes and by CUDA", ["docs/results/launch/lanes.c"], rows,
                    "percentiles of each turn, from the histogram of the program")


if __name__ == "__main__":
    main(*sys.argv[1:])
