#!/usr/bin/env python3
"""What recordings say about graphs, next to what the kernels themselves have counted.

    seen.py graphs DOORBELL [FOLDER]     builds seen/graphs.cu with nvcc, and runs each of its modes bare and recorded

A row for each kernel of each mode: launches, runs in graphs, and runs with a time. FOLDER keeps the recordings. The status is 1 if a figure differs.
"""

import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def printed(words, limit=60):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit)
    return done.returncode, done.stdout, done.stderr


def view(doorbell, recording, *words):
    code, out, error = printed([doorbell, "show", *words, "--json", recording])
    if code:
        raise SystemExit(f"{recording}: {error}")
    return json.loads(out)


def counted(text):
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return {row["kernel"]: row for row in rows if "kernel" in row}, [row for row in rows if "failed" in row]


def mode(program, doorbell, folder, name):
    """Rows: kernel, figure, expected, found."""
    code, out, _ = printed([program, name])
    expected, failed = counted(out)
    if code or failed:
        return [(name, "bare", "status 0", f"{code} {failed}")]
    file = os.path.join(folder, f"{name}.doorbell")
    code, out, error = printed([doorbell, "record", "--gpu-times", "-q", "--force", "-o", file, "--", program, name])
    if code or counted(out)[0] != expected:
        return [(name, "recorded", expected, f"{code} {out} {error[-300:]}")]
    kernels, rows = view(doorbell, file, "--kernels"), []
    for kernel, row in expected.items():
        found = [k for k in kernels["kernels"] if (k["name"] or "").startswith(f"{kernel}(")]
        total = {"launches": sum(k["launches"] for k in found), "in_graphs": sum(k["in_graphs"] or 0 for k in found), "timed": sum((k["gpu"] or {}).get("runs", 0) for k in found)}
        want = {"launches": row["launches"], "in_graphs": row["in_graphs"], "timed": row["launches"] + row["in_graphs"]}
        rows.append((f"{name}: {kernel}", "launches, in graphs, timed", tuple(want.values()), tuple(total.values())))
    others = [k for k in kernels["kernels"] if not any((k["name"] or "").startswith(f"{kernel}(") for kernel in expected)]
    rows += [(f"{name}: {k['name'] or hex(k['code'])}", "others", None, (k["launches"], k["in_graphs"], (k["gpu"] or {}).get("runs", 0))) for k in others]
    if kernels["unknown_graph_launches"]:
        rows.append((name, "launches of graphs that are not understood", 0, kernels["unknown_graph_launches"]))
    return rows


def graphs(doorbell, folder=None):
    nvcc = shutil.which("nvcc", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")
    with tempfile.TemporaryDirectory() as made:
        program = os.path.join(made, "graphs")
        subprocess.run([nvcc, "-O2", "-arch=sm_90", "-std=c++17", "-rdc=true", "-o", program, os.path.join(HERE, "seen", "graphs.cu"), "-lcudadevrt"], check=True)
        names = printed([program])[1].split()
        if folder:
            os.makedirs(folder, exist_ok=True)
        wrong = 0
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for rows in pool.map(lambda name: mode(program, doorbell, folder or made, name), names):
                for what, figure, expected, found in rows:
                    well = expected is None or expected == found
                    wrong += not well
                    print("same  " if well else "DIFFER", what, figure, found, "" if well else f"not {expected}", flush=True)
        print(f"{len(names)} modes, {wrong} figures differ")
    return int(wrong > 0)


if __name__ == "__main__":
    if sys.argv[1:2] != ["graphs"] or len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    sys.exit(graphs(*sys.argv[2:]))
