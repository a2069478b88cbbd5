#!/usr/bin/env python3
"""Kernels that are loaded at their first launch, and `run --fix` with a plan of a recording.

    fix_late.py run DOORBELL FOLDER      builds fix/late.cu, records it, plans, runs it bare and fixed in turns; FOLDER/fix-late.json

The first kernel's first launch loads the library itself: it has a column of its own. The status is 1 if another first launch under the plan took more than twice the median of that kernel's
others and 50 us more.
"""

import statistics

import lab

ROUNDS = 10


def run(doorbell, folder):
    app, late = lab.built("fix/late.cu", "-std=c++17", "-arch=native"), 0
    recording, plan = f"{app}.doorbell", f"{app}.toml"
    lab.said([doorbell, "record", "--locks", "-o", recording, "--", app], 120)
    lab.said([doorbell, "plan", recording, "-o", plan], 120)
    with open(plan) as f:
        text = f.read()
    print(text)
    rows = [{"what": "plan", "kernels": text.count("[[kernel]]")}]
    ways = {"bare": [app], "fixed": [doorbell, "run", f"--fix={plan}", "--", app]}
    for round in range(ROUNDS):
        for way in ways if round % 2 else reversed(ways):
            lines = lab.objects(lab.said(ways[way], 120))
            library, *kernels = [line for line in lines if "kernel" in line]
            slow = [line for line in kernels if line["first_us"] > 2 * line["median_us"] and line["first_us"] > line["median_us"] + 50]
            late += len(slow) if way == "fixed" else 0
            first = [line["first_us"] for line in kernels]
            rows.append(lab.tell({"what": "run", "way": way, "round": round, "library_us": library["first_us"], "kernels": len(kernels), "late": len(slow),
                                  "first_p50_us": statistics.median(first), "first_max_us": max(first),
                                  "others_p50_us": statistics.median(line["median_us"] for line in kernels), "start_ms": lines[0]["start_us"] / 1e3}))
    lab.write(folder, "fix-late", "Kernels that a plan loads early", ["fix_late.py", "run"], rows, stored="figures of each run")
    return int(late > 0)


if __name__ == "__main__":
    lab.main(__doc__, run=run)
