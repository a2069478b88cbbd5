#!/usr/bin/env python3
"""Scattered pages between pinned host memory and GPU memory: CUDA's ways, kernels and libdoorbell. The figures of pages.md.

    pages.py run INCLUDE LIBRARY FOLDER [PART]     builds pages/*.cu with nvcc and runs the parts (eight minutes at most, one GPU)

INCLUDE is the folder of doorbell.h, LIBRARY is libdoorbell.so, with the program doorbell beside it. PART is one of alone, order, beside and fixed
(unchanged programs under `doorbell run --fix=pages`), otherwise all of them run. Each part writes FOLDER/pages-PART.json. The status is 1 if a byte was
wrong, or if a part failed or took too long: then its file has what was measured before.
"""

import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import lab

WAYS = ["nothing", "cuMemcpyBatchAsync", "loop", "kernel 4", "kernel 16", "kernel 132", "one pinned copy", "doorbell list", "doorbell numbers", "doorbell, sparing"]
# What the fields of a way begin with, in files that have a row for each cell.
FIELDS = dict(zip([*WAYS[1:], "CUDA", "fixed"], ["batch", "loop", "kernel_4", "kernel_16", "kernel_132", "copy", "list", "numbers", "sparing", "cuda", "fixed"]))
# Of each part: what it measures, and its runs with their time limits. `alone` has 104 cells: some end early, the largest take longer than their time.
PARTS = {
    "alone": ("Batches of scattered pages in several ways", [(["alone", "1"], 260)]),
    "order": ("Scattered pages between two kernels of a stream", [(["order", "0.5"], 60)]),
    "beside": ("Scattered pages at a given rate, and the kernels that run meanwhile", [(["beside", "gemm", "0.25"], 110), (["beside", "decode", "0.25"], 110)]),
    "fixed": ("Unchanged programs with cudaMemcpyBatchAsync, bare and under `run --fix=pages`", []),
}
# Unchanged programs, and how long each turn of each measures a cell.
PROGRAMS, CELL_S, TURNS = ("C++, cudart", "PyTorch"), "0.08", 2
# All parts together, with the build.
LIMIT_S, STARTED = 520, time.monotonic()


def cublas(nvcc):
    """The folder of cuBLAS, and nvcc's words for it: that of the toolkit, or that of PyTorch."""
    toolkits = [os.path.dirname(os.path.dirname(os.path.realpath(nvcc))), "/usr/local/cuda", "/usr"]
    for folder in toolkits + [f"{path}/nvidia/cu13" for path in sys.path]:
        for libraries in ("lib64", "lib", "targets/x86_64-linux/lib", "lib/x86_64-linux-gnu"):
            found = sorted(glob.glob(f"{folder}/{libraries}/libcublas.so*"))
            if found and os.path.exists(f"{folder}/include/cublas_v2.h"):
                words = [] if folder in toolkits else ["-isystem", f"{folder}/include"]
                return os.path.dirname(found[0]), words + ["-L", os.path.dirname(found[0]), f"-l:{os.path.basename(found[0])}"]
    return "/usr/local/cuda/lib64", ["-lcublas"]


def built(include, library, folder):
    """The programs, and the environment in which they find their libraries."""
    library, (libraries, words) = os.path.dirname(os.path.abspath(library)), cublas(lab.nvcc())
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, [library, libraries, os.environ.get("LD_LIBRARY_PATH")]))}
    program = lab.built("pages/pages.cu", "-std=c++17", "-arch=sm_90", "-Xcompiler", "-pthread", "-I", include, "-L", library, "-ldoorbell", *words,
                        "-lpthread", "-ldl", to=os.path.join(folder, "pages"))
    batches = lab.built("pages/batches.cu", "-std=c++17", "-arch=sm_90", to=os.path.join(folder, "batches"))
    return program, [[batches], [sys.executable, os.path.join(lab.HERE, "pages", "batches.py")]], environment


def measured(words, limit, environment):
    """The rows of a run, and whether it ended well in time."""
    rows, began, limit = [], time.monotonic(), min(limit, LIMIT_S - (time.monotonic() - STARTED))
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
    timer = threading.Timer(max(limit, 1), process.kill)
    timer.start()
    for line in process.stdout:
        # (The last line may be cut off.)
        if line.endswith("}\n"):
            row = json.loads(line)
            if row.get("way") == "nothing":
                row.update({name: None for name in ("p50_us", "p99_us", "max_us", "gb_s", "call_us")})
            rows.append(row)
    code = process.wait()
    timer.cancel()
    print(f"{' '.join(words[1:])}: {len(rows)} rows, {time.monotonic() - began:.0f} s, status {code}", flush=True)
    return rows, code == 0


def fixed(programs, doorbell, environment):
    """Rows of unchanged programs, bare and under the fix, in random order."""
    turns = lab.shuffled([(n, way) for n in range(len(programs)) for way in ("CUDA", "fixed")] * TURNS)
    rows, failed = [], False
    for turn, (n, way) in enumerate(turns):
        before = [doorbell, "run", "--fix=pages", "--report", "--"] if way == "fixed" else []
        more, well = measured([*before, *programs[n], CELL_S], 75, environment)
        nth = sum((n, way) == other for other in turns[:turn])
        rows += [{"program": PROGRAMS[n], "way": way, "turn": nth, **row} for row in more]
        failed = failed or not well
    rows.sort(key=lambda row: (row["program"], row["direction"], row["page_bytes"], row["pages"], row["turn"], row["way"]))
    return rows, failed


def cells(rows):
    """A row for each cell and turn, with the figures of all ways."""
    keys, found = ("program", "turn", "kernel_us", "direction", "page_bytes", "pages"), {}
    for row in rows:
        cell = {key: row[key] for key in keys if key in row}
        into = found.setdefault(tuple(cell.values()), cell)
        into.update({f"{FIELDS[row['way']]}_{name}": row[name] for name in row if name.endswith("_us") and name not in keys})
        into.update({f"{FIELDS[row['way']]}_batches": row["batches"], "wrong": into.get("wrong", 0) + row["wrong"]})
    return list(found.values())


def compare_with_copy(rows):
    """What the kernels' time next to each way is, of that next to one pinned copy in the same round."""
    rounds = {(row["beside"], row["round"]): row["unit_p50_us"] for row in rows if row["way"] == "one pinned copy"}
    for row in rows:
        row["to_copy"] = round(row["unit_p50_us"] / rounds[row["beside"], row["round"]], 4)


def print_table(part, rows):
    """p50 of the pages, and for `beside` that of the kernels (the medians of the rounds)."""
    if part == "beside":
        print("kernels, us: p50 p99 GB/s, and how much longer than next to one pinned copy in the same round [95 %]")
        for beside, way, fast in dict.fromkeys((row["beside"], row["way"], (row["asked_gb_s"] or 0) > 20) for row in rows):
            of = [row for row in rows if (row["beside"], row["way"], (row["asked_gb_s"] or 0) > 20) == (beside, way, fast)]
            figures = [statistics.median(row[name] or 0 for row in of) for name in ("unit_p50_us", "unit_p99_us", "gb_s")]
            ratio = lab.median_interval([row["to_copy"] for row in of], 2000)
            print(f"{beside:7}{way:24}" + "".join(f"{figure:10.1f}" for figure in figures) + f"  {ratio['median']:.4f} [{ratio['low']:.4f}, {ratio['high']:.4f}]")
        return
    if part == "fixed":
        print("p50, us: CUDA, fixed")
        for cell in dict.fromkeys((row["program"], row["direction"], row["page_bytes"], row["pages"]) for row in rows):
            of = [row for row in rows if (row["program"], row["direction"], row["page_bytes"], row["pages"]) == cell]
            print(*cell, *(statistics.median([row["p50_us"] for row in of if row["way"] == way] or [0]) for way in ("CUDA", "fixed")))
        return
    ways = [way for way in WAYS if any(row["way"] == way for row in rows)]
    print("pages, p50 in us:", ", ".join(ways))
    table = {}
    for row in rows:
        if part == "order" or row["pages"] in (1, 64, 1000, 10000):
            table.setdefault((row["direction"], row["page_bytes"], row["pages"], row.get("kernel_us", "")), {})[row["way"]] = row["p50_us"]
    for (direction, page, pages, kernel), of in table.items():
        print(f"{direction.split()[-1]:5}{page:8}{pages:6}{kernel:4}" + "".join(f"{of[way]:9.1f}" if way in of else "        -" for way in ways))


def run(include, library, folder, part=None):
    failed = False
    with tempfile.TemporaryDirectory() as made:
        program, programs, environment = built(include, library, made)
        doorbell = os.path.join(os.path.dirname(os.path.abspath(library)), "doorbell")
        for name in [part] if part else PARTS:
            rows, (about, runs) = [], PARTS[name]
            if name == "fixed":
                rows, not_well = fixed(programs, doorbell, environment)
                failed = failed or not_well
            for words, limit in runs:
                more, well = measured([program, *words], limit, environment)
                rows, failed = rows + more, failed or not well
            if name == "beside":
                compare_with_copy(rows)
                rows.sort(key=lambda row: (row["beside"], row["asked_gb_s"] or 0, WAYS.index(row["way"]), row["round"]))
            wrong = sum(row["wrong"] for row in rows)
            failed = failed or wrong != 0 or not rows
            lab.write(folder, f"pages-{name}", about, ["docs/results/pages.py", "run", *([part] if part else [])], rows if name == "beside" else cells(rows),
                            stored="percentiles and maximum of the batches" + (" of each round" if name == "beside" else ""))
            print_table(name, rows)
            print(f"wrong words: {wrong}", flush=True)
    return int(failed)


if __name__ == "__main__":
    lab.main(__doc__, run=run)
