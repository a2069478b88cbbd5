#!/usr/bin/env python3
"""Kernels that are loaded at their first launch, and `run --fix` with a plan of a recording.

    fix_late.py run DOORBELL FOLDER      builds fix/late.cu, records it, plans, runs it bare and fixed in turns; FOLDER/fix-late.json

The first kernel's first launch loads the library itself: it has a column of its own. The status is 1 if another first launch under the plan took more than twice the median of that kernel's
others and 50 us more.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import data_file

HERE = os.path.dirname(os.path.abspath(__file__))
ROUNDS = 10


def done(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    if done.returncode:
        raise SystemExit(f"{command}: {done.returncode} {done.stderr[-500:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")], done.stderr


def run(doorbell, folder):
    nvcc, rows, late = shutil.which("nvcc", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin"), [], 0
    with tempfile.TemporaryDirectory() as made:
        app, recording, plan = (os.path.join(made, name) for name in ("late", "late.doorbell", "fix.toml"))
        done(nvcc, "-O2", "-std=c++17", "-arch=native", "-o", app, os.path.join(HERE, "fix", "late.cu"))
        done(doorbell, "record", "--locks", "-o", recording, "--", app)
        done(doorbell, "plan", recording, "-o", plan)
        with open(plan) as f:
            text = f.read()
        print(text)
        rows.append({"what": "plan", "kernels": text.count("[[kernel]]")})
        ways = {"bare": [app], "fixed": [doorbell, "run", f"--fix={plan}", "--report", "--", app]}
        for round in range(ROUNDS):
            for way in ways if round % 2 else reversed(ways):
                lines, report = done(*ways[way])
                library, *kernels = [line for line in lines if "kernel" in line]
                slow = [line for line in kernels if line["first_us"] > 2 * line["median_us"] and line["first_us"] > line["median_us"] + 50]
                late += len(slow) if way == "fixed" else 0
                first = [line["first_us"] for line in kernels]
                rows.append({"what": "run", "way": way, "round": round, "library_us": library["first_us"], "kernels": len(kernels), "late": len(slow),
                             "first_p50_us": statistics.median(first), "first_max_us": max(first),
                             "others_p50_us": statistics.median(line["median_us"] for line in kernels), "start_ms": lines[0]["start_us"] / 1e3})
                print(rows[-1], report.strip().replace("\n", "; "), flush=True)
    data_file.write(folder, "fix-late", "Kernels that a plan loads early", ["fix_late.py", "run"], rows, stored="figures of each run")
    return int(late > 0)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", doorbell, folder]:
            sys.exit(run(doorbell, folder))
        case _:
            raise SystemExit(__doc__)
