#!/usr/bin/env python3
"""How much longer does a call of a recorded program take while `doorbell why --now` looks at it?

    now_cost.py DOORBELL [--turns N] [--seconds S]

Builds now/calls.c and the library with CUDA's names of doorbell's tests with cc. One recording (--locks --calls) of one program has all turns, in random
order: `nothing`, `looks` (a look every 200 ms) and `stacks` (the same with --stacks). The thread that is measured has a CPU of its own; the recorder,
the looks and this script have the others. It needs no GPU.

    --turns N     turns of each kind [default: 10]
    --seconds S   length of a turn [default: 2]
"""

import argparse
import collections
import os
import random
import statistics
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
STUB = os.path.join(HERE, "../../crates/cli/doorbell/tests/now_many/libcuda.c")
EVERY = 0.2
LOOKS = {"nothing": None, "looks": [], "stacks": ["--stacks"]}
MOST_US = 1000


def percentile(counts, part):
    left = part * (sum(counts.values()) - 1)
    for ns in sorted(counts):
        left -= counts[ns]
        if left < 0:
            return ns
    return max(counts)


def turn(program, why, kind, looks, seconds):
    """The times of a turn's calls, and how long each look took."""
    program.stdin.write(f"{kind} {seconds * 1000}\n")
    program.stdin.flush()
    took, begun = [], time.monotonic()
    if looks is not None:
        while (at := time.monotonic()) + EVERY < begun + seconds:
            subprocess.run([*why, *looks], stdout=subprocess.DEVNULL, check=True)
            took.append(time.monotonic() - at)
            time.sleep(max(0, at + EVERY - time.monotonic()))
    pairs = (word.split(":") for word in program.stdout.readline().split())
    return {int(ns): int(n) for ns, n in pairs}, took


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("doorbell")
    arguments.add_argument("--turns", type=int, default=10)
    arguments.add_argument("--seconds", type=float, default=2)
    o = arguments.parse_args()
    doorbell = os.path.abspath(o.doorbell)
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise SystemExit("now_cost: it needs two CPUs")
    os.sched_setaffinity(0, cpus[:-1])
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "libcuda.so.1")
        cc = ["cc", "-O2", "-w"]
        subprocess.run([*cc, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, STUB], check=True)
        subprocess.run([*cc, "-pthread", "-o", f"{folder}/calls", f"{HERE}/now/calls.c", library], check=True)
        os.mkdir(f"{folder}/run", 0o700)
        place = {**os.environ, "LD_LIBRARY_PATH": folder, "XDG_RUNTIME_DIR": f"{folder}/run"}
        record = [doorbell, "record", "--quiet", "--tap", "off", "--locks", "--calls", "-o", f"{folder}/a.doorbell", "--", f"{folder}/calls", str(cpus[-1])]
        program = subprocess.Popen(record, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=place)
        os.environ.update(place)
        why = [doorbell, "why", "--now", program.stdout.readline().split()[1]]
        plan = [(kind, how) for kind in ("lock", "call") for how in LOOKS] * o.turns
        random.shuffle(plan)
        turns, looks = collections.defaultdict(list), collections.defaultdict(list)
        for kind, how in plan:
            counts, took = turn(program, why, kind, LOOKS[how], o.seconds)
            turns[kind, how].append(counts)
            looks[how] += took
        program.stdin.close()
        program.wait()
    print(f"{o.turns} turns of {o.seconds:g} s of each, on {len(cpus)} CPUs; medians of the turns, in us (`most`: the longest call of all turns)\n")
    print("| call | while | calls | p50 | p99 | p99.9 | most | p99.9 against nothing | calls against nothing |\n|---|---|---:|---:|---:|---:|---:|---:|---:|")
    worst = 0
    for (kind, how), all_of in sorted(turns.items(), key=lambda row: (row[0][0], list(LOOKS).index(row[0][1]))):
        def of(part, turns=all_of):
            return statistics.median(percentile(counts, part) for counts in turns) / 1000
        added = of(0.999) - of(0.999, turns[kind, "nothing"])
        worst = max(worst, added)
        calls, most = sum(sum(c.values()) for c in all_of), max(max(c) for c in all_of) / 1000
        share = calls / sum(sum(c.values()) for c in turns[kind, "nothing"]) - 1
        more = " | " if how == "nothing" else f"{added:+.2f} | {share:+.0%}"
        print(f"| {kind} | {how} | {calls:,} | {of(0.5):.3f} | {of(0.99):.3f} | {of(0.999):.2f} | {most:,.0f} | {more} |")
    for how, took in looks.items():
        if took:
            print(f"\n{how}: {len(took)} looks, half took {statistics.median(took) * 1000:.0f} ms or less, at most {max(took) * 1000:.0f} ms")
    print(f"\nno call is delayed by more than {MOST_US} us (p99.9, against nothing): {'holds' if worst <= MOST_US else 'DOES NOT HOLD'}")
    return int(worst > MOST_US)


if __name__ == "__main__":
    raise SystemExit(main())
