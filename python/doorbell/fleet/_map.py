"""One recording to its part of the answer. Runs where the recording is read: in a thread, a process, or a worker of Dask.

The command computes: `doorbell show --rank` walks the recording once. What a recording lacks is listed in `Rank.lacks`, and the rest goes on.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

from ._command import Command, CommandFailed
from ._find import Recording
from ._partial import ROWS, Part, Rank, Row, Steps
from ._tables import write_tables


@dataclass(frozen=True)
class Options:
    program: str
    # A regular expression of the names of kernels that all ranks run together.
    collectives: str = "nccl"
    # Where the Parquet files go, or None.
    tables: Optional[str] = None
    # Of one call of the command, seconds.
    timeout: float = 3600.0


def map_recording(recording: Recording, options: Options) -> Part:
    """Never raises: a recording that cannot be read is a rank that failed, with the reason."""
    try:
        return _map(recording, options)
    except Exception as error:  # One rank must not end the answer for all others.
        return failed(recording, str(error) if isinstance(error, CommandFailed) else f"{type(error).__name__}: {error}")


def failed(recording: Recording, reason: str) -> Part:
    part = Part()
    if recording.rank is None:
        part.left_out.append(f"{recording.path}: {reason}")
    else:
        part.ranks[recording.rank] = Rank(recording.rank, recording.path, failed=reason)
    return part


def _map(recording: Recording, options: Options) -> Part:
    began = time.monotonic()
    command = Command(options.program, options.timeout)
    ranks = command.json(["show", "--rank", "--json", "--kernel", options.collectives, recording.path])["ranks"]
    whole = Part()
    for found in ranks:
        # A recording of several (`doorbell record mpirun ./app`) has the number of each.
        number = recording.rank if recording.rank is not None and len(ranks) == 1 else found["rank"]
        if number is None:
            return failed(recording, "it has no rank, neither in its name nor in its processes")
        rank = whole.ranks[number] = _rank(recording, number, found)
        _rows(whole, rank, found["rows"])
        for steps in found["steps"]:
            listed = {f"{step['event']} #{step['number']}": (step["begin_ns"] / 1e9, step["end_ns"] / 1e9, step["ns"])
                      for step in steps["list"]}
            of = [(spent["kind"], spent["name"]) for spent in steps["of"]]
            whole.steps.setdefault(steps["by"], {})[number] = Steps(steps["events"], of, listed)
        if options.tables is not None:
            only = ["--process", str(found["summary"]["processes"][0]["pid"])] if len(ranks) > 1 else []
            try:
                write_tables(command, [*only, recording.path], number, options.tables)
            except CommandFailed as reason:
                rank.lacks.append(f"tables: {reason}")
        rank.bytes_read, rank.bytes_printed = os.path.getsize(recording.path), command.printed
        rank.map_seconds = time.monotonic() - began
    return whole


def _rank(recording: Recording, number: int, found: Dict[str, Any]) -> Rank:
    summary = found["summary"]
    by = summary.get("recorded_by") or {}
    clock = summary.get("clock")
    rank = Rank(number, recording.path, complete=summary["complete"], lost=summary["lost"], host=by.get("host", ""),
                seconds=summary["seconds"] or 0.0, world=found["world_size"])
    facts = {"driver": summary["driver"], "GPU": summary["gpu"], "CUDA": summary["cuda"], "kernel release": by.get("kernel"),
             "processor": by.get("cpu"), "doorbell": by.get("doorbell"), "program": summary["program"]["exe"]}
    rank.facts = {name: str(value) for name, value in facts.items() if value}
    if clock is not None:
        rank.began_ns, rank.clock_error_ns = int(clock["realtime_ns"]), clock["error_ns"]
    rank.counts = {"doorbells": summary["doorbells"], "launches": summary["launches"],
                   "copies": summary["copies"]["copy_engine"], "copied bytes": summary["copies"]["copy_engine_detail"]["bytes"],
                   "driver calls": summary["driver_calls"]}
    if summary["damage"]:
        rank.lacks.append(f"all after the damage: {summary['damage']}")
    elif not rank.complete:
        rank.lacks.extend(f"something: {why}" for why in summary["incomplete_because"])
    if not summary.get("locks"):
        rank.lacks.append("locks: recorded without --locks")
    if summary.get("kernel_times") is None:
        rank.lacks.append("kernel times: recorded without --gpu-times")
    for times in summary.get("kernel_times") or []:
        if times["timed"] < times["kernels"]:
            rank.lacks.append(f"kernel times: {times['kernels'] - times['timed']} of {times['kernels']} runs have none "
                              f"({', '.join(row['reason'] for row in times['lacking'])})")
    if found["cut"]:
        rank.lacks.append("steps: the recording is longer than is looked at; only its first part was compared")
    return rank


def _rows(part: Part, rank: Rank, rows: List[Dict[str, Any]]) -> None:
    count: Dict[str, int] = {}
    for row in rows:
        kind = row["kind"]
        part.rows.setdefault(kind, {}).setdefault(row["name"], {})[rank.rank] = Row(row["count"], row["ns"], row["longest_ns"], row["bytes"])
        count[kind] = count.get(kind, 0) + 1
        if count[kind] >= ROWS and row["ns"]:
            # The longest come first: one that is not listed has at most as much.
            rank.folded[kind] = row["ns"]
