#!/usr/bin/env python3
"""Whether programs have the same results under `doorbell run --fix=pins,copies`, bit for bit, and what it costs a program that makes no such calls.

    fix_programs.py run DOORBELL FOLDER [APP]     each program twice bare, twice fixed, in random order: FOLDER/fix-programs.json (six minutes, one H200)
    fix_programs.py random APP SECONDS DOORBELL   sequences of calls by 1, 8 and 32 threads, bare and fixed, until the time is over
    fix_programs.py cost DOORBELL FOLDER          100,000 launches, bare and fixed, in 20 pairs of processes: FOLDER/fix-cost.json (two minutes)
    fix_programs.py one NAME                      a program of fix/frameworks.py: it prints a hash of all its results

APP is crates/cli/doorbell/tests/fix/app.c, built with `cc -O2 -pthread app.c -o app -ldl`. Standard output and exit status must be the same. A program
whose two bare runs differ is `not repeatable`. Lines that begin with `known:` are not compared. $JOBS (3) programs run at a time, so their seconds are not
those of one alone. $TOTAL (320): the seconds after which no program begins. $ONLY: a part of the names of those that run.
`run` and `random` end with 1 if a result differed or a fix turned itself off.
"""

import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
ME = os.path.abspath(__file__)
sys.path.insert(0, f"{HERE}/fix")
from frameworks import NOT_THERE, PROGRAMS, one  # noqa: E402  (the path must be set before)
import cuda_programs  # noqa: E402
import everyday as the_programs  # noqa: E402
import lab  # noqa: E402

LIMIT, JOBS, TOTAL = 120, int(os.environ.get("JOBS", "3")), float(os.environ.get("TOTAL", "320"))
PAIRS = 20
APP_MODES = (["pins"], ["contexts"], ["copies"], ["threads", "8", "200"], ["threads", "32", "60"])
ENVIRONMENT = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_FLAGS": "--xla_gpu_autotune_level=0", "PYTHONHASHSEED": "0",
               "HF_HUB_OFFLINE": "1", "TORCHINDUCTOR_DETERMINISTIC": "1", "PATH": os.environ["PATH"] + ":/usr/local/cuda/bin"}
UNMEASURED = dict.fromkeys("bare_same pins copies mib reasons passed_on off known known_differ bare_s fixed_s passed_because".split())


def once(command, work, limit, environment=None):
    """Its standard output, status and seconds, and the end of its standard error. What is left of it at the time limit is ended."""
    with tempfile.TemporaryFile(dir=work) as said, tempfile.TemporaryFile(dir=work) as complaints:
        began = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=complaints, start_new_session=True, env=environment)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = "timeout"
            # (doorbell passes the first on, also to a program in another group.)
            process.terminate()
            time.sleep(2)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        seconds = time.monotonic() - began
        said.seek(0)
        complaints.seek(max(0, complaints.seek(0, 2) - 600))
        return said.read().decode(errors="replace"), status, seconds, complaints.read().decode(errors="replace").strip()


def reported(path):
    """Calls answered by each fix, MiB, and calls that were passed on by their reasons."""
    text = open(path).read() if os.path.exists(path) else ""
    units = {"KiB": 1 / 1024, "MiB": 1, "GiB": 1024, "TiB": 1024 * 1024}
    answered = {fix: (int(calls.replace(",", "")), float(n.replace(",", "")) * units.get(unit, 1 / (1 << 20)))
                for fix, calls, n, unit in re.findall(r"^doorbell: (pins|copies|code|memory): ([\d,]+) calls? answered, ([\d.,]+) (\w+)", text, re.M)}
    passed = {why: int(calls.replace(",", "")) for calls, why in re.findall(r"^doorbell: \w+: ([\d,]+) passed on: (.*)", text, re.M)}
    calls = {fix: answered.get(fix, (0, 0))[0] for fix in ("pins", "copies", "code", "memory")}
    return {**calls, "mib": round(sum(mib for _, mib in answered.values()), 1), "passed": passed, "off": len(answered) < 2 or "turned itself off" in text}


def fixed_way(doorbell, report, command, fixes="pins,copies"):
    return [doorbell, "run", f"--fix={fixes}", "--out", report, "--force", "--", *command]


def seen(text, known=False):
    return [line for line in text.splitlines() if line.startswith("known:") == known]


def judged(bare, fixed, reports):
    """The row of a program's runs: (standard output, status, seconds, standard error) each. Of two reports, the fewest calls answered."""
    what = [(seen(text), status) for text, status, *_ in bare + fixed]
    bare_same = all(w == what[0] for w in what[:len(bare)])
    same = "yes" if all(w == what[0] for w in what) else "no"
    if what[0][1] != 0:
        same = "not there" if what[0][1] == NOT_THERE else "fails bare"
    elif not bare_same:
        same = "not repeatable"
    other = next((w for w in what if w != what[0]), what[0])
    lines = [f"{a} | {b}" for a, b in zip([*what[0][0], f"status {what[0][1]}"], [*other[0], f"status {other[1]}"]) if a != b]
    known = [(a, b) for a, b in zip(seen(bare[0][0], True), seen(fixed[0][0], True))]
    least = lambda key: min(report[key] for report in reports)
    complaints = bare[0][3] if what[0][1] != 0 else fixed[0][3]
    why = [] if same == "yes" else [*(lines or ["another number of lines"] * (other != what[0]))[:3], complaints[-200:]]
    return {"bare_same": "yes" if bare_same else "no", "same": same, "pins": least("pins"), "copies": least("copies"), "mib": least("mib"),
            "reasons": len(reports[0]["passed"]), "passed_on": sum(reports[0]["passed"].values()), "off": "yes" if any(r["off"] for r in reports) else "no",
            "known": len(known), "known_differ": sum(a != b for a, b in known), "bare_s": round(statistics.median(r[2] for r in bare), 2),
            "fixed_s": round(statistics.median(r[2] for r in fixed), 2), "why": "; ".join(w for w in why if w),
            "passed_because": "; ".join(f"{n} x {why}" for why, n in reports[0]["passed"].items())}


def measured(doorbell, command, work, ends):
    """Two runs bare and two fixed, in random order."""
    environment = {**os.environ, **ENVIRONMENT, **{f"{what}_CACHE_DIR": f"{work}/{what}" for what in ("TORCHINDUCTOR", "TRITON", "CUPY")}}
    turns, runs, reports = 2 * ["bare", "fixed"], {"bare": [], "fixed": []}, []
    random.shuffle(turns)
    if time.monotonic() > ends:
        return {**UNMEASURED, "same": "not run", "why": "the time was over"}
    try:
        command = command(work)
    except Missing as e:
        return {**UNMEASURED, "same": "not there", "why": str(e)}
    for way in turns:
        limit = min(LIMIT, ends + 30 - time.monotonic())
        if limit < 1:
            return {**UNMEASURED, "same": "not run", "why": "the time was over"}
        report = f"{work}/report"
        if os.path.exists(report):
            os.remove(report)
        runs[way].append(once(command if way == "bare" else fixed_way(doorbell, report, command), work, limit, environment))
        reports += [reported(report)] if way == "fixed" else []
        if limit < LIMIT and runs[way][-1][1] == "timeout":
            return {**UNMEASURED, "same": "not run", "why": "the time was over"}
        if way == "bare" and runs[way][-1][1] == NOT_THERE:
            return {**UNMEASURED, "same": "not there", "why": runs[way][-1][3][-200:]}
    return judged(runs["bare"], runs["fixed"], reports)


class Missing(Exception):
    """The machine lacks what the program needs."""


def versions(kind, work):
    """cuda_programs.py's program for the runtime of this machine's nvcc, with 16 MiB instead of 256 KiB."""
    if not shutil.which("nvcc"):
        raise Missing("no nvcc")
    kernel, root = cuda_programs.KERNEL, os.path.dirname(os.path.dirname(os.path.realpath(shutil.which("nvcc"))))
    with open(f"{HERE}/programs/versions.c") as f, open(f"{work}/versions.c", "w") as c, open(f"{work}/add.cu", "w") as cu:
        c.write(f'#define KERNEL "{work}/add.fatbin"\n' + f.read().replace("COUNT = 1 << 16", "COUNT = 1 << 22"))
        cu.write(kernel)
    culibos = ["-lculibos"] * os.path.exists(f"{root}/lib64/libculibos.a")
    libraries = ["-lcudart", f"-Wl,-rpath,{root}/lib64"] if kind == "dynamic" else ["-lcudart_static", *culibos, "-lpthread", "-ldl", "-lrt"]
    for words in (["nvcc", "-fatbin", "--no-compress", "-arch=sm_90", "add.cu", "-o", "add.fatbin"],
                  ["gcc", "-O1", "-w", f"-I{root}/include", "versions.c", "-o", "app", f"-L{root}/lib64", *libraries]):
        made = subprocess.run(words, cwd=work, capture_output=True, text=True)
        if made.returncode:
            raise Missing(made.stderr[-200:])
    return [f"{work}/app"]


def everyday(number, work):
    """The command of a program of everyday.py, if the machine has it."""
    os.environ["MAKEFILE"] = the_programs.MAKEFILE
    programs = the_programs.programs(work)
    if number is None:
        return [name for name, *_ in programs]
    _, needs, prepare, command = programs[number]
    why = next(filter(None, map(the_programs.missing, needs)), None)
    if why or (prepare and subprocess.run(prepare, shell=True, capture_output=True).returncode):
        raise Missing(why or "could not be made ready")
    return command


def cases(work, app):
    """Name, what it uses, and what makes its command in a folder."""
    for name, (uses, _) in PROGRAMS.items():
        yield name, uses, lambda work, name=name: [sys.executable, ME, "one", name]
    for mib, n in ((64, 64 << 20), (33, (33 << 20) + 12345)):
        yield (f"pinned memory of {mib} MiB, looked at", "CUDA's driver: attributes, fork, files, mlock (fix/pinned.py)",
               lambda work, n=n: [sys.executable, f"{HERE}/fix/pinned.py", str(n)])
    for kind in ("dynamic", "static"):
        yield f"cudart, {kind}", "CUDA's runtime: copies of 16 MiB, launches, a graph (cuda_programs.py)", lambda work, kind=kind: versions(kind, work)
    for words in APP_MODES if app else ():
        yield f"app.c, {' '.join(words)}", "CUDA's driver (tests/fix/app.c)", lambda work, words=words: [os.path.abspath(app), *words]
    for number, name in enumerate(everyday(None, work)):
        yield f"everyday: {name}", "no pinned memory (everyday.py)", lambda work, number=number: everyday(number, work)


def run(doorbell, folder, app=None):
    doorbell = os.path.abspath(doorbell)
    rows = []
    os.environ["PATH"] = ENVIRONMENT["PATH"]
    ends = time.monotonic() + TOTAL
    with tempfile.TemporaryDirectory() as tmp:
        listed = [case for case in cases(tmp, app) if os.environ.get("ONLY", "") in case[0]]

        def row_of(case):
            (name, uses, command), work = case, tempfile.mkdtemp(dir=tmp)
            try:
                found = measured(doorbell, command, work, ends)
            except Exception as e:
                found = {**UNMEASURED, "same": "not run", "why": repr(e)}
            print(json.dumps({"program": name, "uses": uses, **found}), flush=True)
            shutil.rmtree(work, ignore_errors=True)
            return {"program": name, "uses": uses, **found}

        with ThreadPoolExecutor(JOBS) as pool:
            rows = list(pool.map(row_of, listed))
    # (As in everyday.py, programs of others that are not there have no row.)
    kept = [row for row in rows if not (row["program"].startswith("everyday") and row["same"] in ("not there", "fails bare"))]
    lab.write(folder, "fix-programs", "Programs' results, bare and under `run --fix=pins,copies`", ["docs/results/fix_programs.py", "run"], kept)
    answered = lambda row: bool(row["pins"] or row["copies"])
    counts = {"same, with calls answered": sum(row["same"] == "yes" and answered(row) for row in kept),
              "same, without": sum(row["same"] == "yes" and not answered(row) for row in kept),
              **{same: sum(row["same"] == same for row in kept) for same in ("no", "not repeatable", "fails bare", "not there", "not run")},
              "turned itself off": sum(row["off"] == "yes" for row in kept), "seconds": round(time.monotonic() - ends + TOTAL)}
    print(json.dumps(counts))
    return bool(counts["no"] or counts["turned itself off"])


def random_sequences(app, seconds, doorbell):
    """A sequence is a step of a thread in app.c: memory made or freed, a copy to the GPU, a copy back, at times code and a large block, each checked."""
    doorbell = os.path.abspath(doorbell)
    ends, differ, sums, runs, sequences = time.monotonic() + float(seconds), 0, {"pins": 0, "copies": 0, "code": 0, "memory": 0, "mib": 0}, 0, 0
    with tempfile.TemporaryDirectory() as work:
        while time.monotonic() < ends:
            threads = (1, 8, 32)[runs % 3]
            steps = random.randint(50, 150) * 8 // max(4, threads)
            # (The last word is for an app.c that takes a seed.)
            command, report = [os.path.abspath(app), "threads", str(threads), str(steps), str(random.randrange(1 << 30))], f"{work}/report"
            ways = [("bare", command), ("fixed", fixed_way(doorbell, report, command, "pins,copies,code,memory"))]
            random.shuffle(ways)
            found = {way: once(words, work, LIMIT) for way, words in ways}
            counted, runs, sequences = reported(report), runs + 1, sequences + threads * steps
            sums = {key: round(sums[key] + counted[key], 1) for key in sums}
            right = found["bare"][:2] == found["fixed"][:2] and found["bare"][1] == 0 and ": wrong 0\n" in found["bare"][0] and not counted["off"]
            differ += not right
            if not right:
                print(json.dumps({"command": command, **found, "report": counted}), flush=True)
    print(json.dumps({"runs": runs, "sequences": sequences, **{f"answered_{key}": value for key, value in sums.items()},
                      "runs_that_differ": differ, "all_same": differ == 0 and runs > 0}))
    return differ != 0 or runs == 0


def cost(doorbell, folder):
    doorbell = os.path.abspath(doorbell)
    rows = []
    with tempfile.TemporaryDirectory() as work:
        launches = f"{work}/launches"
        lab.built("fix/launches.c", to=launches)
        ways = {"bare": [launches], "fixed": [doorbell, "run", "--fix=pins,copies", "--", launches]}
        # (The first pair reads the files from the disk.)
        for pair in range(-1, PAIRS):
            found = {}
            for way in random.sample(list(ways), 2):
                text, status, seconds, complaints = once(ways[way], work, LIMIT)
                assert status == 0, (way, status, complaints)
                found[way] = {**json.loads(text), "process_ms": round(seconds * 1e3, 3)}
            bare, fixed = found["bare"], found["fixed"]
            row = {"pair": pair, "first": next(iter(found)), "ratio": fixed["ms"] / bare["ms"], "process_ratio": fixed["process_ms"] / bare["process_ms"],
                   **{f"more_{unit}": fixed[key] - bare[key] for unit, key in (("ns", "p50_ns"), ("kib", "peak_kib"), ("process_ms", "process_ms"))},
                   **{f"{way}_{key}": found[way][key] for way in ways for key in ("ms", "process_ms", "p50_ns", "peak_kib")}}
            if pair >= 0:
                rows.append(row)
                print(json.dumps(row), flush=True)
    lab.write(folder, "fix-cost", "Launches of a program that makes no call that is answered", ["docs/results/fix_programs.py", "cost"], rows,
                    stored="the median launch and the times of each process")
    for key in ("ratio", "process_ratio", "more_ns", "more_kib", "more_process_ms"):
        print(json.dumps({"of": key, **lab.median_interval([row[key] for row in rows])}))
    return 0


if __name__ == "__main__":
    lab.main(__doc__, run=run, random=random_sequences, cost=cost, one=one)
