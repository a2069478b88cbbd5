#!/usr/bin/env python3
"""How long a copy waits for another thread's first launch of a kernel: the figures of lazy-copy.md.

    lazy_copy.py run LIBDOORBELL FOLDER     builds why/lazy_copy.cu with nvcc; each way ten times, in random order (two minutes, one GPU)
"""

import json
import os
import random
import subprocess
import sys
import tempfile

import data_file

HERE = os.path.dirname(os.path.abspath(__file__))
TIMES = 10
# The copy's way, and the program's arguments and environment.
WAYS = [
    ("CUDA", "cuda", {}),
    ("CUDA, `CUDA_MODULE_LOADING=EAGER`", "cuda", {"CUDA_MODULE_LOADING": "EAGER"}),
    ("libdoorbell", "doorbell", {}),
]
FORMS = {"bounded": "runs for half a second", "cycle": "runs until the copy is there"}


def build(into):
    source, program = os.path.join(HERE, "why", "lazy_copy.cu"), os.path.join(into, "lazy_copy")
    include = os.path.join(HERE, "..", "..", "crates", "gpu", "libdoorbell", "include")
    late = os.path.join(into, "late.o")
    subprocess.run(["nvcc", "-O2", "-w", "-DLATE", "-c", "-o", late, source], check=True)
    subprocess.run(["nvcc", "-O2", "-w", "-I", include, "-o", program, source, late, "-lpthread", "-ldl"], check=True)
    return program


def run(library, folder):
    program = build(tempfile.mkdtemp())
    # The cycle takes 15 s each time, so once is enough.
    todo = [(form, way) for form in FORMS for way in WAYS for _ in range(1 if (form, way) == ("cycle", WAYS[0]) else TIMES)]
    random.shuffle(todo)
    rows = []
    for form, (name, by, extra) in todo:
        environment = {**os.environ, "LIBDOORBELL": os.path.abspath(library), **extra}
        out = subprocess.run([program, form, by], env=environment, check=True, stdout=subprocess.PIPE, timeout=60)
        found = json.loads(out.stdout)
        rows.append({"kernel": FORMS[form], "way": name, **{k: found[k] for k in ("copy_ms", "launch_ms", "all_ms")}})
        print(json.dumps(rows[-1]), flush=True)
    order = {f: i for i, f in enumerate(FORMS.values())}
    ways = [name for name, _, _ in WAYS]
    rows.sort(key=lambda row: (order[row["kernel"]], ways.index(row["way"])))
    data_file.write(folder, "lazy-copy", "A copy next to another thread's first launch of a kernel, while a kernel runs",
                    ["docs/results/lazy_copy.py", "run"], rows)


def main():
    if sys.argv[1:2] == ["run"] and len(sys.argv) == 4:
        return run(sys.argv[2], sys.argv[3])
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main())
