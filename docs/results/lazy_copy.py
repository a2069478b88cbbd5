#!/usr/bin/env python3
"""How long a copy waits for another thread's first launch of a kernel: the figures of lazy-copy.md.

    lazy_copy.py run LIBDOORBELL FOLDER     builds why/lazy_copy.cu with nvcc; each way ten times, in random order (two minutes, one GPU)
"""

import json
import os
import tempfile

import lab

TIMES = 10
# The copy's way, and the program's arguments and environment.
WAYS = [
    ("CUDA", "cuda", {}),
    ("CUDA, `CUDA_MODULE_LOADING=EAGER`", "cuda", {"CUDA_MODULE_LOADING": "EAGER"}),
    ("libdoorbell", "doorbell", {}),
]
FORMS = {"bounded": "runs for half a second", "cycle": "runs until the copy is there"}


def run(library, folder):
    late = lab.built("why/lazy_copy.cu", "-DLATE", "-c", to=os.path.join(tempfile.mkdtemp(), "late.o"))
    include = os.path.join(lab.HERE, "../../crates/gpu/libdoorbell/include")
    program = lab.built("why/lazy_copy.cu", "-I", include, late, "-lpthread", "-ldl")
    # The cycle takes 15 s each time, so once is enough.
    todo = [(form, way) for form in FORMS for way in WAYS for _ in range(1 if (form, way) == ("cycle", WAYS[0]) else TIMES)]
    rows = []
    for form, (name, by, extra) in lab.shuffled(todo):
        found = json.loads(lab.said([program, form, by], 60, env={**os.environ, "LIBDOORBELL": os.path.abspath(library), **extra}))
        rows.append(lab.tell({"kernel": FORMS[form], "way": name, **{k: found[k] for k in ("copy_ms", "launch_ms", "all_ms")}}))
    order = {f: i for i, f in enumerate(FORMS.values())}
    ways = [name for name, _, _ in WAYS]
    rows.sort(key=lambda row: (order[row["kernel"]], ways.index(row["way"])))
    lab.write(folder, "lazy-copy", "A copy next to another thread's first launch of a kernel, while a kernel runs",
                    ["docs/results/lazy_copy.py", "run"], rows)


if __name__ == "__main__":
    lab.main(__doc__, run=run)
