#!/usr/bin/env python3
"""Whether `doorbell why` names the cause that was planted: the figures of why.md.

    why.py run DOORBELL FOLDER     builds why/planted.cu with nvcc, records each mode, asks why (about a minute, one GPU)
"""

import json

import lab


def cause(call):
    return call["cause"]


def first_link(call, part):
    """Who had what the call waited for."""
    for p in call["parts"]:
        if p["cause"] == part and p["of"] and p["of"][0]["because"]:
            return p["of"][0]["because"][0]
    return {}


def all_of(calls, check):
    return bool(calls) and all(check(c) for c in calls)


def lock_held_in(functions):
    """The launches that lost the most waited for a lock, which a thread had that was in the driver, in one of these functions."""
    def check(why):
        launches = [c for c in why["worst"] if c["call"] == "cuLaunchKernel"][:5]
        links = [first_link(c, "lock") for c in launches]
        return all_of(launches, lambda c: cause(c) == "lock") and all(
            link.get("call") in functions and link.get("doing") == "driver_call" for link in links)
    return check


def largest(why):
    """The cause of the most time that is not by design."""
    return next((c["cause"] for c in why["causes"] if c["cause"] not in ("usual", "gpu")), None)


# Mode, what was planted, what has to be named, and the check.
MODES = [
    ("clean", "nothing", "no slow call", lambda why: why["slow"] == 0),
    ("full_ring", "6,000 launches, no wait", "full ring", lambda why: largest(why) == "full_ring"),
    ("lazy", "3 kernels launched first in the loop", "loading code, 3 times",
     lambda why: len(why["worst"]) >= 3 and sum("late<" in (c["kernel"] or "") and cause(c) == "code_loading" for c in why["worst"]) == 3),
    ("pageable", "16 of 800 copies from malloc's memory", "pageable memory, 16 times",
     lambda why: sum(p["calls"] for p in why["pageable"]) == 16 and sum(cause(c) == "pageable" for c in why["worst"]) >= 8),
    ("allocating", "another thread in cudaMalloc, cudaFree", "lock, its holder in the driver",
     lock_held_in(("cuMemAlloc", "cuMemFree"))),
    ("pinning", "another thread in cudaHostRegister", "lock, its holder in the driver",
     lock_held_in(("cuMemHostRegister", "cuMemHostUnregister"))),
    ("own", "cudaMalloc and cudaFree in the loop", "memory",
     lambda why: len(why["worst"]) >= 8 and sum(cause(c) == "memory" for c in why["worst"]) >= 8),
    ("preempted", "another thread on the same CPU", "CPU taken away",
     lambda why: largest(why) == "preempted" and all_of(why["worst"][:5], lambda c: cause(c) == "preempted")),
    ("holder_preempted", "another thread on the lock holder's CPU", "lock",
     lambda why: largest(why) == "lock" and all_of(why["worst"][:5], lambda c: cause(c) == "lock")),
    ("graph", "a graph that is changed 3 times", "making objects, graph upload",
     lambda why: {"making", "graph_upload"} <= {c["cause"] for c in why["causes"]}),
    ("host_function", "a function of the host's in the stream", "host function, 4 times",
     lambda why: [cause(c) for c in why["worst"]].count("host_function") == 4),
    ("threads", "2,000 threads, 200 at once", "lock", lambda why: largest(why) == "lock"),
    ("ended", "a thread that is cancelled in a call", "the call has not returned",
     lambda why: [u["call"] for u in why["first_unfinished"]] == ["cuCtxSynchronize"]),
]


def run(doorbell, folder):
    program, rows = lab.built("why/planted.cu", "-lpthread"), []
    for mode, planted, named, check in MODES:
        tape = f"{program}-{mode}.doorbell"
        lab.said([doorbell, "record", "--quiet", "--locks", "-o", tape, "--", program, mode], 120)
        told = json.loads(lab.said([doorbell, "why", "--json", "--worst", "30", tape], 120))
        largest_cause = next((c for c in told["causes"] if c["cause"] not in ("usual", "gpu")), {"ns": 0, "cause": "none"})
        rows.append(lab.tell({
            "planted": planted, "named": named, "shown": bool(check(told)), "calls": told["calls"], "ms": told["ns"] / 1e6, "slow": told["slow"],
            "lost": largest_cause["cause"].replace("_", " "), "lost_ms": largest_cause["ns"] / 1e6,
        }))
    lab.write(folder, "why-planted", "Planted causes, and what `doorbell why` says", ["docs/results/why.py", "run"], rows)
    missing = [r["planted"] for r in rows if not r["shown"]]
    print("not shown:", missing or "none")
    return 1 if missing else 0


if __name__ == "__main__":
    lab.main(__doc__, run=run)
