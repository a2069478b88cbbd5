#!/usr/bin/env python3
"""What doorbell.fleet costs from 1 to 1,024 ranks, and whether it names what was planted: the figures of fleet.md.

    fleet.py run FOLDER    records 64 ranks with planted differences on the software GPU and answers (minutes, no GPU). The data files go into FOLDER.
                           DOORBELL is the command, DOORBELL_SOFTCUDA the library of the crate softcuda
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../python"), os.path.join(HERE, "../../python/tests/fleet")]
import lab
from planted import Maker, Plan, planted

from doorbell import fleet

RANKS = 64
REPEATS = 3


def some(folder, ranks, to):
    os.makedirs(to)
    for n in range(ranks):
        # Of more than RANKS ranks the rest are copies under other names.
        os.link(os.path.join(folder, f"job.rank{n % RANKS}.doorbell"), os.path.join(to, f"job.rank{n}.doorbell"))
    return to


def peak(folder):
    """The most memory of the process that has the answer, and of each that it starts."""
    process = subprocess.Popen([sys.executable, "-m", "doorbell.fleet", folder, "--workers", "2", "--json"], stdout=subprocess.DEVNULL,
                               env={**os.environ, "PYTHONPATH": os.path.join(HERE, "../../python")})
    _, _, usage = os.wait4(process.pid, 0)
    return usage.ru_maxrss * 1024


def cost(where, ranks, found):
    of_ranks = found.part.ranks.values()
    return {"where": where, "ranks": ranks, "seconds": found.cost.seconds, "read_bytes": sum(r.bytes_read for r in of_ranks),
            "printed_bytes": sum(r.bytes_printed for r in of_ranks), "moved_bytes": found.cost.moved_bytes, "largest_bytes": found.cost.largest_part_bytes}


def costs(job, root):
    from distributed import Client, LocalCluster

    out = []
    os.environ["PYTHONPATH"] = os.path.join(HERE, "../../python")
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        for ranks in (1, 2, 4, 8, 16, 32, 64, 1024):
            folder = some(job, ranks, os.path.join(root, f"some-{ranks}"))
            most = peak(folder)
            for _ in range(REPEATS if ranks <= RANKS else 1):
                out.append({**cost("2 threads", ranks, fleet.analyse(folder, workers=2)), "peak_bytes": most})
                out.append(cost("Dask, 2 workers", ranks, fleet.analyse(folder, client=client)))
    return sorted(out, key=lambda one: (one["where"], one["ranks"]))


def first_rank(found, kind):
    rows = [one for one in found.outliers if one.kind == kind and one.excess_ns > 0]
    return rows[0].rank if rows else None


def named(job, together):
    """What was planted, into which rank, and the rank that the answer names first."""
    found, running = fleet.analyse(job), fleet.analyse(together)
    odd = {(one.what, one.value): one.ranks for one in found.odd}
    late = running.verdict.late[0] if running.verdict.late else None
    return [
        {"planted": "a lock that is held for 4 ms instead of 0.1 ms", "into": RANKS // 2, "answer": "outlier: lock", "named": first_rank(found, "locks")},
        {"planted": "copies that read their source 100 times", "into": RANKS // 2 + 1, "answer": "outlier: copies", "named": first_rank(found, "copies")},
        {"planted": "four times the kernels", "into": 1, "answer": "launches", "named": odd.get(("launches", "16"), [None])[0]},
        {"planted": "another driver version", "into": RANKS - 2, "answer": "driver", "named": odd.get(("driver", "9.99"), [None])[0]},
        {"planted": "another Linux kernel", "into": RANKS - 1, "answer": "kernel release", "named": odd.get(("kernel release", "5.4.0"), [None])[0]},
        {"planted": "a lock that is held for 25 ms, 8 ranks that wait for each other", "into": 2, "answer": "late, because of a lock",
         "named": late.rank if late and late.because and late.because[0].kind == "locks" else None},
    ]


def run(out):
    facts, command = {"cpu.model": cpu(), "cpu.online": os.cpu_count(), "python": platform.python_version()}, ["docs/results/fleet.py", "run"]
    maker, root = Maker(), tempfile.mkdtemp(prefix="fleet-results-")
    try:
        job, together = os.path.join(root, "job"), os.path.join(root, "together")
        maker.one_after_the_other(job, planted(RANKS))
        plans = [Plan(steps=30) for _ in range(8)]
        plans[2].held_us = 25_000
        maker.together(together, plans)
        lab.write(out, "fleet-named", "Planted differences, and the rank that doorbell.fleet names", command, named(job, together), facts=facts)
        lab.write(out, "fleet-costs", "Time and bytes of doorbell.fleet from 1 to 1,024 ranks", command, costs(job, root), facts=facts)
    finally:
        maker.close()
        shutil.rmtree(root)


def cpu():
    with open("/proc/cpuinfo") as file:
        return next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "")


if __name__ == "__main__":
    lab.main(__doc__, run=run)
