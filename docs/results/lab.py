"""What the programs of this folder share: they start programs, take turns in random order, and write the data file of a page (docs/reference/data-files.md).

In a data file figures are numbers, and the units are in the names of the fields."""

import collections
import datetime
import gzip
import inspect
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
STARTED = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def machine():
    """What the figures are of."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu, driver = subprocess.run(query, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[0].split(", ")
    with open("/proc/cpuinfo") as f:
        facts = {"gpu.name": gpu, "gpu.driver": driver, "cpu.online": os.cpu_count(), "host.virtual_machine": "hypervisor" in f.read()}
    try:
        import torch
        facts["gpu.cuda"] = torch.version.cuda
    except ImportError:
        pass
    return facts


def _head(schema, name, about, command, facts):
    # (A copy of the tree without its history: COMMIT names the commit.)
    commit = os.environ.get("COMMIT") or subprocess.run(["git", "-C", HERE, "rev-parse", "HEAD"], stdout=subprocess.PIPE, text=True).stdout.strip()
    return {"schema": schema, "name": name, "about": about, "doorbell": "0.1.0", "commit": commit or None, "command": command, "started": STARTED,
            "functional": False, "complete": True, "machine": machine() if facts is None else facts, "experiment": ""}


def median_interval(values, times=10000):
    """The median, and its 95 % interval by bootstrap."""
    numbers = random.Random(1)
    found = sorted(statistics.median(numbers.choices(values, k=len(values))) for _ in range(times))
    return {"median": statistics.median(values), "low": found[times // 40], "high": found[times - 1 - times // 40]}


def write(folder, name, about, command, rows, stored=None, facts=None):
    """FOLDER/NAME.json, a line for each row. `stored`: what the figures are, if their samples are not kept."""
    head = {**_head("doorbell.rows/1", name, about, command, facts), **({"stored": stored} if stored else {}), "rows": []}
    text = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/{name}.json", "w") as f:
        f.write(json.dumps(head, separators=(",", ":"))[:-2] + "\n" + text + "]}\n")


def _round(values):
    """The samples of a round as text: crates/bench/run-folder/src/data_file/series.rs."""
    text, before = "", 0
    for value, count in sorted(collections.Counter(values).items()):
        for number in [2 * (value - before)] if count == 1 else [2 * (value - before) + 1, count - 2]:
            while True:
                digit, number = number & 31, number >> 5
                text += LETTERS[digit + 32 * bool(number)]
                if not number:
                    break
        before = value
    return text


def write_samples(folder, name, about, command, stages, facts=None):
    """FOLDER/NAME.json.gz with every sample. A stage: `point`, and `cells` with a list of repeats, a repeat a list of rounds, a round a list of
    nanoseconds. The first cell is what the others are compared with."""
    made = []
    for number, stage in enumerate(stages):
        first = next(iter(stage["cells"]))
        cells = [{"subject": subject, "what": subject, "bytes": 0, "back_to_back": 1, "observe": "done", **({"baseline": first} if subject != first else {}),
                  "done": {"rounds": [_round(samples) for repeat in repeats for samples in repeat]}} for subject, repeats in stage["cells"].items()]
        repeats = stage["cells"][first]
        made.append({"number": number, "point": list(stage["point"].items()), "policy": "stock", "rounds": len(repeats[0]), "repeats": len(repeats),
                     "seconds": 0.0, "cells": cells})
    os.makedirs(folder, exist_ok=True)
    with gzip.open(f"{folder}/{name}.json.gz", "wt") as f:
        f.write(json.dumps({**_head("doorbell.digest/1", name, about, command, facts), "stages": made}, separators=(",", ":")) + "\n")


def said(command, limit=300, **more):
    """What a command prints. If it fails, this program ends."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit, **more)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.returncode} {done.stderr[-500:]}")
    return done.stdout


def ended(command, limit, **more):
    """Standard output, standard error and status of a command, which may fail, or `timeout`."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=limit, **more)
        out, errors, status = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as e:
        out, errors, status = e.stdout, e.stderr, "timeout"
    return *((text or b"").decode(errors="replace") for text in (out, errors)), status


def objects(text):
    """The lines that are JSON objects."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def traced(run, cpu=True):
    """What torch.profiler's trace of `run` has, of the GPU and of the CPU."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA, *[ProfilerActivity.CPU] * cpu]) as profiler:
        run()
    with tempfile.TemporaryDirectory() as folder:
        profiler.export_chrome_trace(f"{folder}/trace")
        return read(f"{folder}/trace")["traceEvents"]


def read(path):
    with open(path) as f:
        return json.load(f)


def keep(path, found):
    with open(path, "w") as f:
        json.dump(found, f)


def table(heads, rows, texts=1):
    """A table in Markdown, whose columns are numbers but for the first ones."""
    print("| " + " | ".join(heads) + " |")
    print("|---" * texts + "|--:" * (len(heads) - texts) + "|")
    for row in rows:
        print("| " + " | ".join(str(cell).replace("|", "/") for cell in row) + " |")


def tell(row):
    print(json.dumps(row), flush=True)
    return row


def nvcc():
    return shutil.which("nvcc", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin") or "nvcc"


def built(source, *words, to=None):
    """Compiles a program of this folder, .c or .cu, with more words for the compiler. Its path."""
    to = to or os.path.join(tempfile.mkdtemp(), os.path.splitext(os.path.basename(source))[0])
    before, after = ([nvcc(), "-O2", "-w"], []) if source.endswith(".cu") else (["cc", "-O2", "-w"], ["-pthread", "-ldl"])
    said([*before, "-o", to, os.path.join(HERE, source), *words, *after])
    return to


def record(doorbell, tape, command, *how, limit=300):
    """Records a command, whose errors are not shown. What it prints."""
    words = [doorbell, "record", "-q", "--force", *how, "-o", tape, "--", *command]
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=limit).stdout


def show(doorbell, tape, *view):
    return json.loads(said([doorbell, "show", "--json", *view, tape]))


def shuffled(plan, seed=None):
    plan = list(plan)
    random.Random(seed).shuffle(plan)
    return plan


def main(about, **commands):
    """Calls the command that the command line names, with the words after it, and ends with the status that it returns. Prints `about` for others."""
    name, *words = sys.argv[1:] or [None]
    try:
        inspect.signature(commands[name]).bind(*words)
    except (KeyError, TypeError):
        raise SystemExit(about)
    sys.exit(commands[name](*words))
