#!/usr/bin/env python3
"""How long does each of the driver's calls hold other threads' launches, copies and waits up? The figures of holds.md.

    holds.py run [FOLDER] [--only PATTERN] [--fix DOORBELL] [--seconds S] [--minutes M]

Builds fix/holds.c with cc, makes each turn twice and "nothing" six times, in random order, in one process (about seven minutes, one GPU), and prints a table.
With a FOLDER, holds.json goes there, or with --fix holds-memory.json.

    --only PATTERN   only the calls with this regular expression (and "nothing"), for example 'cuMemAlloc$|cuGraph'
    --fix DOORBELL   under `DOORBELL run --fix=memory`, for example with --only '^alloc$'
    --seconds S      a turn makes no more calls after this time [default: 12]
    --minutes M      after this time no turn is made any more: what is left has rows that say so [default: 9]
"""

import argparse
import bisect
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import lab

MIB = 1 << 20
ROUNDS, NOTHINGS = 2, 3
CALLS, SLOW = 25, 13
LATE_NS = PERIOD_NS = 500_000
# A call's frames: those that overlap it, and those of two periods after it.
AFTER_NS = 2 * PERIOD_NS
# A call that lengthens the median of its longest frames by so much holds others up. One that takes less than SHORT_US itself is not looked at.
MARKED_US, SHORT_US = 200, 100
# Each kind of fix/calls.h: what follows the name of the call, and sizes: MiB where `in_mib`, otherwise kernels or nodes.
KINDS = {kind: (suffix, in_mib, sizes) for kind, suffix, in_mib, *sizes in [
    ("alloc", "", True, 2, 64, 2048),
    ("alloc-async", "", True, 2, 64, 2048),
    ("alloc-pitch", "", True, 64),
    ("alloc-managed", "", True, 4),
    ("pin", "", True, 4, 64, 1024),
    ("register", ", fresh pages", True, 4, 64, 1024),
    ("register-touched", ", touched pages", True, 64),
    ("map", ", on the GPU", True, 2, 64, 2048),
    ("to-gpu", ", pageable", True, 1, 64),
    ("from-gpu", ", pageable", True, 1, 64),
    ("set", "", True, 64),
    ("memory-left", "", False, 0),
    ("pointer", "", True, 4),
    ("share", "", True, 4),
    ("pool", "", False, 0),
    ("trim", "", True, 64),
    ("array", "", True, 64),
    ("texture", "", False, 0),
    ("surface", "", False, 0),
    ("load-new", ", PTX, {:,} kernels", False, 1, 50, 400),
    ("load-cached", ", cached PTX, {:,} kernels", False, 1, 50, 400),
    ("load-cubin", ", cubin, {:,} kernels", False, 1, 50, 400),
    ("library", ", cubin, {:,} kernels", False, 1, 50, 400),
    ("link", ", PTX, {:,} kernels", False, 1, 50, 400),
    ("get-function", "", False, 50),
    ("function-attribute", "", False, 0),
    ("occupancy", "", False, 0),
    ("stream", "", False, 0),
    ("stream-priority", "", False, 0),
    ("event", "", False, 0),
    ("event-sync", ", a kernel of 2 ms", False, 0),
    ("event-query", "", False, 0),
    ("stream-sync", ", a kernel of 2 ms", False, 0),
    ("stream-wait", "", False, 0),
    ("context-sync", ", a kernel of 2 ms", False, 0),
    ("host-function", "", False, 0),
    ("graph", ", {:,} nodes", False, 500),
    ("instantiate", ", {:,} nodes", False, 20, 500, 2000),
    ("upload", ", {:,} nodes", False, 500),
    ("update", ", {:,} nodes", False, 500),
    ("graph-launch", ", {:,} nodes", False, 500),
    ("capture", ", 100 launches", False, 0),
    ("context", "", False, 0),
    ("limit-stack", ", stack", False, 0),
    ("limit-printf", ", printf buffer", False, 0),
    ("device", "", False, 0),
    ("peer", "", False, 0),
]}


def name_of(kind, size):
    """A turn as fix/holds.c has it."""
    if kind == "nothing":
        return "nothing:0:75"
    in_mib = KINDS[kind][1]
    return f"{kind}:{size * MIB if in_mib else size}:{SLOW if in_mib and size == 1024 else CALLS}"


def chosen(program, pattern):
    """The kinds of which a call, or their own name, has this pattern."""
    listed = dict(line.split(": ") for line in subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines())
    assert set(listed) == {"nothing", *KINDS}, set(listed) ^ {"nothing", *KINDS}
    try:
        kinds = [kind for kind in KINDS if any(re.search(pattern, word) for word in [kind, *re.split(",? ", listed[kind])])]
    except re.error as wrong:
        raise SystemExit(f"--only {pattern}: {wrong}")
    if not kinds:
        raise SystemExit(f"--only {pattern}: no call has that. There are:\n" + "\n".join(f"    {kind}: {calls}" for kind, calls in listed.items()))
    return kinds


def made(command, plan, seconds, until):
    """Yields what fix/holds.c printed of each turn. If it ends early, the next turn has a new process."""
    with tempfile.TemporaryDirectory() as cache:
        # (An empty cache of CUDA's own: its state is known, and nothing stays.)
        place = {**os.environ, "CUDA_CACHE_PATH": cache, "CUDA_CACHE_DISABLE": "0"}
        left, any_made = list(plan), False
        while left and time.monotonic() < until:
            with tempfile.TemporaryFile("w+") as said:
                process = subprocess.Popen([*command, str(seconds), *left], stdout=subprocess.PIPE, stderr=said, text=True, env=place)
                while left and time.monotonic() < until:
                    limit = seconds + 60
                    timer = threading.Timer(limit, process.kill)
                    timer.start()
                    line, late = process.stdout.readline(), not timer.is_alive()
                    timer.cancel()
                    if not line.endswith("\n"):
                        break
                    any_made = True
                    left.pop(0)
                    yield json.loads(line)
                else:
                    process.kill()
                process.stdout.close()
                status = process.wait()
                if left and time.monotonic() < until:
                    said.seek(0)
                    why = (said.read().strip().splitlines() or [f"status {status}"])[-1]
                    if not any_made:
                        raise SystemExit(f"holds: {why}")
                    yield {"turn": left.pop(0), "failed": f"no end after {limit:.0f} s" if late else f"the process ended: {why}"}
        for turn in left:
            yield {"turn": turn, "failed": "no time was left"}


def at(ordered, part):
    return ordered[int(part * (len(ordered) - 1))]


def us(ns):
    return round(ns / 1e3, 1)


def figures(found, step):
    """Of the calls of one step of a turn, and of the frames until the next call. None if there are none."""
    calls, frames = found["calls"], found["frames"]
    began, dues, ends = [call[1] for call in calls], [frame[0] for frame in frames], [frame[1] for frame in frames]
    # A frame is of the last call that began before its end, or before it had to end.
    owner = [bisect.bisect_left(began, min(end, due + PERIOD_NS)) - 1 for due, end, *_ in frames]
    own = [frame for frame, call in zip(frames, owner) if call >= 0 and calls[call][0] == step]
    mine = [call for call in calls if call[0] == step]
    # Of each call: the longest of the frames that it overlaps, and of their copies, launches and waits.
    held = []
    for _, first, last in mine:
        near = frames[bisect.bisect_right(ends, first):bisect.bisect_left(dues, last + AFTER_NS)]
        if near:
            held.append([max(column) for column in zip(*([end - due, *parts] for due, end, *parts in near))])
    if not mine or not own or not held:
        return None
    took = sorted(last - first for _, first, last in mine)
    lengths = sorted(end - due for due, end, *_ in own)
    row = {"calls": len(mine), "own_p50_us": us(statistics.median(took)), "own_max_us": us(took[-1]), "frames": len(own),
           "late": sum(length > LATE_NS for length in lengths), "p50_us": us(at(lengths, .5)), "p99_us": us(at(lengths, .99)),
           "p999_us": us(at(lengths, .999)), "max_us": us(lengths[-1])}
    for number, part in enumerate(["held", "copy", "launch", "wait"]):
        ordered = [value[number] for value in held]
        row[f"{part}_p50_us"] = us(statistics.median(ordered))
        row[f"{part}_max_us"] = us(max(ordered) if part == "held" else max(frame[number + 1] for frame in own))
    return row


def rows_of(found, number):
    """A row for each measured step of a turn. What failed has a row that says why."""
    kind, size, _ = found["turn"].split(":")
    suffix, in_mib, _ = KINDS.get(kind, ("", False, []))
    of = {"kind": kind, "mib": int(size) // MIB if in_mib else None, "count": int(size) if "{" in suffix else None, "turn": number,
          "error": found["failed"].replace("_v2:", ":") if "failed" in found else None}
    if found.get("wrong"):
        of["error"] = f"{found['wrong']} wrong results of frames"
    rows = []
    for step, name in enumerate(found.get("steps", [kind])):
        if name:
            call = name if kind == "nothing" else ", ".join(f"`{one}`" for one in name.split(", ")) + suffix.format(int(size))
            call = call.replace(" 1 kernels", " 1 kernel")
            rows.append({"call": call, **of, **(figures(found, step) or {} if "calls" in found else {})})
    return rows


def judged(rows, frames):
    """Each row next to the frames without a neighbour: by how much the frames near a call were longer than 99.9 % of those."""
    lengths = sorted(end - due for due, end, *_ in frames)
    usual, longest = us(at(lengths, .999)), us(lengths[-1])
    turns = {}
    for row in rows:
        if "calls" in row:
            row["more_p50_us"] = round(max(0, row["held_p50_us"] - usual), 1)
            row["more_max_us"] = round(max(0, row["held_max_us"] - usual), 1)
            turns.setdefault((row["call"], row["mib"]), []).append(row)
    for row in rows:
        if "calls" in row:
            more, own = (statistics.median(turn[field] for turn in turns[row["call"], row["mib"]]) for field in ("more_p50_us", "own_p50_us"))
            row["holds"] = "yes" if more > MARKED_US else "short" if own < SHORT_US else "no"
        else:
            row["error"] = row["error"] or "no call was made"
            row["holds"] = "not measured"
    print(f"\nWithout a neighbour: {len(lengths):,} frames, p99.9 {usual} us, longest {longest} us. *: by more than {MARKED_US} us, in the median. "
          "By (us): a call's longest frame above that p99.9, median and maximum of the calls. Copy, launch, wait: the median of the calls' longest.")


def print_table(rows):
    groups, failed = {}, {}
    for row in rows:
        if "calls" in row:
            groups.setdefault((row["call"], row["mib"]), []).append(row)
        if row["error"]:
            failed.setdefault((row["call"], row["mib"], row["error"]), []).append(row["turn"])
    heads = ["call", "MiB", "calls", "own p50", "max", "frames", "late", "p99.9", "longest", "by, p50", "max", "copy", "launch", "wait"]
    lines = [heads]
    for (call, mib), of in sorted(groups.items(), key=lambda pair: -max(row["max_us"] for row in pair[1])):
        total, most = (lambda field: sum(row[field] for row in of)), (lambda field: max(row[field] for row in of))
        middle = lambda field: statistics.median(row[field] for row in of)
        figures_of = [total("calls"), middle("own_p50_us"), most("own_max_us"), total("frames"), total("late"), most("p999_us"), most("max_us"),
                      middle("more_p50_us"), most("more_max_us"), middle("copy_p50_us"), middle("launch_p50_us"), middle("wait_p50_us")]
        mark = "* " if of[0]["holds"] == "yes" else "  "
        lines.append([mark + call.replace("`", ""), "-" if mib is None else f"{mib:,}"] + [f"{f:,}" if isinstance(f, int) else f"{f:,.1f}" for f in figures_of])
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        print("  ".join(cell.ljust(width) if column == 0 else cell.rjust(width) for column, (cell, width) in enumerate(zip(line, widths))).rstrip())
    for (call, mib, error), turns in failed.items():
        print(f"failed: {call.replace('`', '')}{'' if mib is None else f', {mib:,} MiB'}: {error} (turns {', '.join(map(str, turns))})")


def positive(text):
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not more than 0")
    return value


def main():
    words = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip(), add_help=False)
    words.add_argument("run", choices=["run"])
    words.add_argument("folder", nargs="?")
    words.add_argument("--only", default="")
    words.add_argument("--fix")
    words.add_argument("--seconds", type=positive, default=12)
    words.add_argument("--minutes", type=positive, default=9)
    given = words.parse_args()
    program = lab.built("fix/holds.c")
    kinds = chosen(program, given.only)
    command = [given.fix, "run", "--fix=memory", "--", program] if given.fix else [program]
    until = time.monotonic() + 60 * given.minutes
    plan = []
    for _ in range(ROUNDS):
        turns = [name_of(kind, size) for kind in kinds for size in KINDS[kind][2]] + [name_of("nothing", 0)] * NOTHINGS
        plan += lab.shuffled(turns)
    rows, quiet, seen = [], [], {}
    for found in made(command, plan, given.seconds, until):
        number = seen[found["turn"]] = seen.get(found["turn"], -1) + 1
        if found["turn"] == name_of("nothing", 0):
            quiet += found.get("frames", [])
        if "not_ended" in found:
            print(f"{found['turn']}: {found['not_ended']} failed after it", file=sys.stderr)
        for unit in ("gpu", "host"):
            if found.get(f"{unit}_kib_more", 0) > 64 << 10:
                print(f"{found['turn']}: {found[f'{unit}_kib_more'] >> 10} MiB more of {unit} memory after it", file=sys.stderr)
        for row in rows_of(found, number):
            rows.append(lab.tell(row))
    if not quiet:
        raise SystemExit("holds: no turn without a neighbour was made, so there is nothing to compare with")
    order = ["nothing", *KINDS]
    judged(rows, quiet)
    # (A table has sizes in the order in which the file first has them.)
    rows.sort(key=lambda row: (row["mib"] or 0, order.index(row["kind"]), row["count"] or 0))
    print_table(rows)
    if given.folder:
        name, title = ("holds-memory", "The same under `run --fix=memory`") if given.fix else ("holds", "How long calls hold other threads up")
        lab.write(given.folder, name, title, ["docs/results/holds.py", "run"], rows,
                        stored="percentiles and maximum of each turn")
    return 0


if __name__ == "__main__":
    sys.exit(main())
