#!/usr/bin/env python3
"""Whether doorbell.fleet names the slow one of two ranks, and what makes it slow: the last table of fleet.md.

    two_ranks.py run DOORBELL FOLDER [--soft SOFTCUDA] [--steps 60] [--only sleep] [--keep FOLDER]

The data file goes into FOLDER. It needs PyTorch with NCCL and two GPUs; no network. Two ranks train with an all-reduce in each step, four times: rank 1 pins memory in each
step, runs a slow kernel, sleeps, or does nothing more than rank 0. With --soft the ranks are `python/tests/fleet/rank.c` on the software GPU: what
is planted there is a lock, a sleep or nothing, and no time is one of a GPU. Exit status 1: an answer was wrong.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../../python"), os.path.join(HERE, "../../../python/tests/fleet"), os.path.join(HERE, "..")]
import lab

# What is planted into rank 1: the kind of its cause, and a word of its name; None: no rank costs NOTICED of the time. (GPUs of one kind differ by less.)
PLANTED = {
    "memory is pinned in each step": ("calls", "Host"),
    "a slow kernel": ("kernels", "spin_kernel"),
    "a sleep": ("outside", "outside of CUDA's calls"),
    "nothing": None,
}
SOFT = {"a lock that is held": ("locks", "queue_lock"), "a sleep": ("outside", "outside of CUDA's calls"), "nothing": None}
NOTICED = 0.05
# What a plant takes in each step.
EXTRA_MS = 10
PINNED = 64 << 20
# Of one recording with all that the program loads.
PATIENCE = 100


def rank_program(planted, steps):
    """One rank: a product, what is planted, an all-reduce, a wait."""
    import torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    torch.backends.cuda.matmul.allow_tf32 = False
    a, gradient = torch.randn(4096, 4096, device="cuda"), torch.ones(8 << 20, device="cuda")
    host = torch.zeros(PINNED, dtype=torch.uint8)
    cudart = torch.cuda.cudart()
    for _ in range(steps):
        product = a @ a
        if rank == 1 and planted == "memory is pinned in each step":
            cudart.cudaHostRegister(host.data_ptr(), PINNED, 0)
            cudart.cudaHostUnregister(host.data_ptr())
        elif rank == 1 and planted == "a slow kernel":
            # (It counts cycles, of which there are 1.5 to 2 in a nanosecond.)
            torch.cuda._sleep(EXTRA_MS * 1_800_000)
        elif rank == 1 and planted == "a sleep":
            time.sleep(EXTRA_MS / 1e3)
        gradient += product[0, 0]
        dist.all_reduce(gradient)
        torch.cuda.synchronize()
    dist.destroy_process_group()


def record(doorbell, folder, planted, steps):
    """Both ranks at the same time, each with its recording. Returns why not, or None."""
    os.makedirs(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for rank in range(2):
        # (Multicast between the GPUs is not what is measured, and not every machine allows it.)
        environment = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                       "NCCL_NVLS_ENABLE": "0"}
        command = [doorbell, "record", "--quiet", "--locks", "--gpu-times", "-o", os.path.join(folder, "job.doorbell"), "--",
                   sys.executable, os.path.abspath(__file__), "rank", planted, str(steps)]
        with open(os.path.join(folder, f"rank{rank}.txt"), "w") as said:
            started.append(subprocess.Popen(command, env=environment, stdout=said, stderr=subprocess.STDOUT))
    until = time.monotonic() + PATIENCE
    why = None
    for rank, process in enumerate(started):
        try:
            status = process.wait(max(1.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.terminate()
            status = "none in time"
        if status != 0:
            with open(os.path.join(folder, f"rank{rank}.txt")) as said:
                why = why or f"rank {rank} ended with status {status}: {said.read()[-600:]}"
    return why


def record_soft(maker, folder, planted, steps):
    from planted import Plan

    maker.together(folder, [Plan(steps=steps), Plan(steps=steps, held_us=20_000 if "lock" in planted else 100, sleep_us=20_000 if "sleep" in planted else 0)])


def answer(planted, expected, found):
    """A row of the table."""
    late = found.verdict.late
    cause = next((cause for cause in late[0].because if cause.explains), None) if late else None
    if expected is None:
        right = all(one.cost < NOTICED for one in late)
    else:
        right = [one.rank for one in late] == [1] and cause is not None and cause.kind == expected[0] and expected[1] in cause.name
    row = {"planted": planted, "named": late[0].rank if len(late) == 1 else ", ".join(str(one.rank) for one in late) or "none"}
    if late:
        row |= {"last": late[0].last_in, "events": late[0].events, "late_us": round(late[0].late_ns / 1e3, 1), "cost_percent": round(100 * late[0].cost, 1)}
    return {**row, "cause": f"{cause.kind}: {cause.name}" if cause else "none", "share_percent": round(100 * cause.share, 1) if cause else 0}, right


def run(arguments):
    asked = argparse.ArgumentParser(prog="two_ranks.py run")
    asked.add_argument("doorbell")
    asked.add_argument("folder")
    asked.add_argument("--soft", metavar="SOFTCUDA")
    asked.add_argument("--steps", type=int, default=60)
    asked.add_argument("--only", help="plants with this word")
    asked.add_argument("--keep", metavar="FOLDER", help="leave the recordings there")
    asked = asked.parse_args(arguments)
    os.environ["DOORBELL"] = os.path.abspath(asked.doorbell)
    if asked.soft:
        os.environ["DOORBELL_SOFTCUDA"] = os.path.abspath(asked.soft)
    from doorbell import fleet
    from planted import Maker

    maker = Maker() if asked.soft else None
    root = asked.keep or tempfile.mkdtemp(prefix="two-ranks-")
    rows, wrong = [], False
    for n, (planted, expected) in enumerate((SOFT if asked.soft else PLANTED).items()):
        if asked.only and asked.only not in planted:
            continue
        folder, since = os.path.join(root, str(n)), time.monotonic()
        if asked.soft:
            record_soft(maker, folder, planted, asked.steps)
            why = None
        else:
            why = record(os.environ["DOORBELL"], folder, planted, asked.steps)
        if why:
            wrong = True
            print(f"{planted}: {why}", flush=True)
            continue
        recorded = time.monotonic() - since
        found = fleet.analyse(folder)
        print(f"== {planted}: recorded in {recorded:.1f} s\n{fleet.text(found)}", flush=True)
        row, right = answer(planted, expected, found)
        rows.append(lab.tell(row))
        print("right" if right else "WRONG", flush=True)
        wrong |= not right
    lab.write(asked.folder, "fleet-two-ranks", "What was planted into rank 1 of two on two GPUs, and what doorbell.fleet answers",
              ["docs/results/fleet/two_ranks.py", "run"], rows, "the answer of doorbell.fleet for one recording of each job", {} if asked.soft else facts())
    if maker:
        maker.close()
    if not asked.keep:
        shutil.rmtree(root, ignore_errors=True)
    return int(wrong or not rows)


def facts():
    import torch

    return {**lab.machine(), "gpu.count": torch.cuda.device_count(), "torch": torch.__version__, "nccl": ".".join(map(str, torch.cuda.nccl.version()))}


if __name__ == "__main__":
    if len(sys.argv) > 3 and sys.argv[1] == "run":
        sys.exit(run(sys.argv[2:]))
    elif len(sys.argv) == 4 and sys.argv[1] == "rank":
        rank_program(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(__doc__)
