"""Jobs with planted differences: `rank.c` recorded with libcuda and the GPU in software.

Needs DOORBELL, the command, and DOORBELL_SOFTCUDA, the library of the crate softcuda; a C compiler. `Missing` says what is not there.
"""

import json
import mmap
import os
import shutil
import struct
import subprocess
import tempfile
import zlib
from dataclasses import dataclass, field
from typing import Dict, List, Optional

HERE = os.path.dirname(os.path.abspath(__file__))


class Missing(Exception):
    """What recording needs and this machine has not."""


@dataclass
class Plan:
    """What a rank does, and what is planted into it."""

    steps: int = 20
    held_us: int = 100
    kernels: int = 4
    # Outside of CUDA's calls, in each step.
    sleep_us: int = 0
    # A fault of the software GPU: `slow-copy:20`.
    fault: Optional[str] = None
    # Keys of the recording's header, with a text that is no longer.
    header: Dict[str, str] = field(default_factory=dict)
    options: List[str] = field(default_factory=lambda: ["--gpu-times", "--locks"])


class Maker:
    """Has the program and the library in a folder of its own."""

    def __init__(self) -> None:
        self.doorbell = os.environ.get("DOORBELL") or ""
        library = os.environ.get("DOORBELL_SOFTCUDA") or ""
        for name, path in (("DOORBELL", self.doorbell), ("DOORBELL_SOFTCUDA", library)):
            if not os.path.isfile(path):
                raise Missing(f"{name} names no file")
        compiler = shutil.which("cc")
        if compiler is None:
            raise Missing("no C compiler")
        self.dir = tempfile.mkdtemp(prefix="doorbell-fleet-")
        os.symlink(os.path.abspath(library), os.path.join(self.dir, "libcuda.so.1"))
        self.program = os.path.join(self.dir, "rank")
        subprocess.run([compiler, "-O1", "-g", "-pthread", "-o", self.program, os.path.join(HERE, "rank.c"), "-ldl"], check=True)

    def close(self) -> None:
        shutil.rmtree(self.dir, ignore_errors=True)

    def _start(self, folder: str, rank: int, ranks: int, plan: Plan, more: List[str]) -> "subprocess.Popen[bytes]":
        asked = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LD_LIBRARY_PATH": self.dir, "DOORBELL_SOFTCUDA_COPIES": "engine"}
        if plan.fault:
            asked["DOORBELL_SOFTGPU_FAULT"] = plan.fault
        # (A job of one rank gets no rank into the name.)
        out = os.path.join(folder, "job.doorbell" if ranks > 1 else f"job.rank{rank}.doorbell")
        command = [self.doorbell, "record", "--quiet", "--force", "--gpu", "soft", *plan.options, "-o", out, "--", self.program,
                   *map(str, (plan.steps, plan.held_us, plan.kernels, plan.sleep_us)), *more]
        return subprocess.Popen(command, env={**os.environ, **asked}, stderr=subprocess.PIPE)

    def recorded(self, path: str, program: List[str]) -> None:
        """One recording of a program and all that it starts."""
        asked = {"DOORBELL_SOFTCUDA_COPIES": "engine"}
        command = [self.doorbell, "record", "--quiet", "--gpu", "soft", "--gpu-times", "--locks", "-o", path, "--", *program]
        subprocess.run(command, env={**os.environ, **asked}, check=True)

    def one_after_the_other(self, folder: str, plans: List[Plan]) -> None:
        os.makedirs(folder, exist_ok=True)
        for rank, plan in enumerate(plans):
            self._ended(self._start(folder, rank, len(plans), plan, []), rank)
            self._header(folder, rank, plan)

    def together(self, folder: str, plans: List[Plan]) -> None:
        """All at once: in each step every rank waits for all others."""
        os.makedirs(folder, exist_ok=True)
        word = os.path.join(self.dir, "word")
        with open(word, "wb") as out:
            out.write(bytes(mmap.PAGESIZE))
        started = [self._start(folder, rank, len(plans), plan, [word, str(len(plans))]) for rank, plan in enumerate(plans)]
        for rank, process in enumerate(started):
            self._ended(process, rank)
        for rank, plan in enumerate(plans):
            self._header(folder, rank, plan)

    @staticmethod
    def _ended(process: "subprocess.Popen[bytes]", rank: int) -> None:
        _, said = process.communicate(timeout=120)
        if process.returncode:
            raise RuntimeError(f"rank {rank}: {said.decode(errors='replace')}")

    @staticmethod
    def _header(folder: str, rank: int, plan: Plan) -> None:
        path = os.path.join(folder, f"job.rank{rank}.doorbell")
        for key, value in plan.header.items():
            rewrite_header(path, key, value)


def rewrite_header(path: str, key: str, value: str) -> None:
    """Gives a field of the recording's header another text that is no longer, as crates/record/tape/src/file/chunk.rs lays it out."""
    with open(path, "r+b") as file:
        file.seek(16)
        head = bytearray(file.read(48))
        length = struct.unpack_from("<I", head, 8)[0]
        payload = file.read(length)
        header = json.loads(payload)
        was, now = json.dumps(header[key]).encode(), json.dumps(value).encode()
        assert len(now) <= len(was), (key, header[key])
        before = json.dumps(key).encode() + b":" + was
        assert payload.count(before) == 1, payload
        replaced = payload.replace(before, json.dumps(key).encode() + b":" + now + b" " * (len(was) - len(now)))
        assert len(replaced) == length and json.loads(replaced)[key] == value, (key, value)
        struct.pack_into("<I", head, 32, zlib.crc32(replaced))
        struct.pack_into("<I", head, 44, zlib.crc32(bytes(head[:44])))
        file.seek(16)
        file.write(bytes(head) + replaced)


def planted(ranks: int, *, held_us: int = 4000, reads: int = 100) -> List[Plan]:
    """A job in which a rank has a slow lock, one a slow link, one twice the kernels, one another driver and one another Linux."""
    plans = [Plan() for _ in range(ranks)]
    plans[ranks // 2].held_us = held_us
    plans[ranks // 2 + 1].fault = f"slow-copy:{reads}"
    plans[1].kernels = 16
    plans[ranks - 2].header = {"driver": "9.99"}
    plans[ranks - 1].header = {"kernel": "5.4.0"}
    return plans
