"""One recording to its part of the answer. Runs where the recording is read: in a thread, a process, or a worker of Dask.

The command computes; this picks. What the command cannot say of a recording is listed in `Rank.lacks`, and the rest goes on.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

from ._anchors import of_calls, of_collectives
from ._command import Command, CommandFailed
from ._find import Recording
from ._partial import ROWS, Edge, Part, Rank, Row
from ._tables import write_tables

# Of the longest waits and the slowest calls of a rank.
WAITS = 50
SLOW = 10


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
    command = Command(options.program, options.timeout)
    summary = command.json(["show", "--summary", "--json", recording.path])
    of_processes: Dict[int, List[Dict[str, Any]]] = {}
    for process in summary["processes"]:
        if process["rank"] is not None:
            of_processes.setdefault(process["rank"]["rank"], []).append(process)
    if recording.rank is None and len(of_processes) > 1:
        return _several(recording, options, of_processes)
    rank = recording.rank
    if rank is None:
        if not of_processes:
            return failed(recording, "it has no rank, neither in its name nor in its processes")
        rank = next(iter(of_processes))
    return _one(recording, options, rank, summary, command, [])


def _several(recording: Recording, options: Options, ranks: Dict[int, List[Dict[str, Any]]]) -> Part:
    """One recording of all ranks of a machine: `doorbell record mpirun ./app`."""
    whole = Part()
    for rank, processes in sorted(ranks.items()):
        # The image that did the most is the rank's program, others are what it was started through.
        process = max(processes, key=lambda p: (p["submissions"], p["driver_calls"]))
        command = Command(options.program, options.timeout)
        only = ["--process", str(process["pid"])]
        summary = command.json(["show", "--summary", "--json", *only, recording.path])
        part = _one(recording, options, rank, summary, command, only)
        whole.ranks.update(part.ranks)
        for kind, names in part.rows.items():
            for name, rows in names.items():
                whole.rows.setdefault(kind, {}).setdefault(name, {}).update(rows)
        for kind, histograms in part.histograms.items():
            for name, steps in histograms.items():
                whole.add_steps(kind, name, steps.items())
        for key, edge in part.edges.items():
            whole.add_edge(key, edge)
        whole.slow_calls.extend(part.slow_calls)
        for source, anchors in part.anchors.items():
            whole.anchors.setdefault(source, {}).update(anchors)
    return whole


def _one(recording: Recording, options: Options, number: int, summary: Dict[str, Any], command: Command,
         only: List[str]) -> Part:
    began = time.monotonic()
    part = Part()
    rank = part.ranks[number] = _rank(recording, number, summary)
    where = [*only, recording.path]

    def attempt(what: str, do: Callable[[], None]) -> None:
        try:
            do()
        except CommandFailed as reason:
            rank.lacks.append(f"{what}: {reason}")
        except (KeyError, TypeError, IndexError) as reason:
            rank.lacks.append(f"{what}: the command's answer lacks {reason}; is it of another version?")

    _copies(part, number, summary)
    if summary.get("locks"):
        attempt("locks and calls", lambda: _locks(part, rank, command, where))
    else:
        rank.lacks.append("locks: recorded without --locks")
        attempt("calls", lambda: _calls(part, rank, command.json(["show", "--calls", "--json", "--limit", str(ROWS), *where])))
    attempt("causes", lambda: _causes(part, number, command, where))
    attempt("kernels", lambda: _kernels(part, rank, command, where, options.collectives))
    attempt("collectives", lambda: _anchors(part, number, options, summary, command, where))
    if options.tables is not None:
        folder = options.tables
        attempt("tables", lambda: write_tables(command, where, number, folder))
    rank.bytes_read = os.path.getsize(recording.path)
    rank.bytes_printed, rank.views = command.printed, command.views
    rank.map_seconds = time.monotonic() - began
    return part


def _rank(recording: Recording, number: int, summary: Dict[str, Any]) -> Rank:
    by = summary.get("recorded_by") or {}
    clock = summary.get("clock")
    worlds = [p["rank"]["world_size"] for p in summary["processes"] if p["rank"] and p["rank"]["world_size"]]
    rank = Rank(number, recording.path, complete=summary["complete"], lost=summary["lost"], host=by.get("host", ""),
                seconds=summary["seconds"] or 0.0, world=max(worlds) if worlds else None)
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
    return rank


def _copies(part: Part, rank: int, summary: Dict[str, Any]) -> None:
    for way in summary["copies"]["copy_engine_detail"]["by_place"]:
        if way.get("timed"):
            name = f"{_place(way['from'], way['from_gpu'])} to {_place(way['to'], way['to_gpu'])}"
            part.add_row("copies", name, rank, Row(way["timed"], way["gpu_ns"], way["longest_ns"], way["timed_bytes"]))


def _place(place: Optional[str], gpu: Optional[int]) -> str:
    # The number of a GPU is that of its machine: the same link has another one on each rank.
    return "GPU" if gpu is not None or place == "video" else place or "the stream"


def _locks(part: Part, rank: Rank, command: Command, where: List[str]) -> None:
    locks = command.json(["show", "--locks", "--json", "--limit", str(max(ROWS, WAITS)), *where])
    symbols = locks["symbols"]
    for lock in locks["locks"][:ROWS]:
        if lock["contended"]:
            name = lock_name(lock["name"], symbols)
            part.add_row("locks", name, rank.rank, Row(lock["contended"], lock["wait_ns"], lock["longest_wait_ns"]))
            part.add_steps("locks", name, _steps(lock.get("wait_histogram", [])))
    _fold(rank, "locks", [lock["wait_ns"] if lock["contended"] else 0 for lock in locks["locks"]])
    for wait in locks["waits"][:WAITS]:
        for holder in wait["holders"][:3]:
            key = (lock_name(wait["lock"], symbols), site(wait["site"], symbols), site(holder["site"], symbols))
            ns = holder["of_wait_ns"]
            part.add_edge(key, Edge(1, ns, ns, rank.rank))
    if locks["calls"] is not None:
        _calls(part, rank, locks["calls"])


def lock_name(name: str, symbols: Dict[str, Any]) -> str:
    """`queue_lock (rank+0x4120/mutex)` where the source calls it so."""
    place = name.rpartition("/")[0] or name
    known = symbols.get(place, {}).get("name")
    return f"{known} ({name})" if known else name


def site(place: str, symbols: Dict[str, Any]) -> str:
    known = symbols.get(place)
    if not known or not known.get("name"):
        return place
    return f"{known['name']} at {os.path.basename(known['file'])}:{known['line']}" if known.get("file") else str(known["name"])


def _calls(part: Part, rank: Rank, calls: Dict[str, Any]) -> None:
    for call in calls["calls"][:ROWS]:
        name = " ".join(filter(None, [call["call"], call["direction"], call["size"]]))
        # What waits for others by design is no cause of a late rank.
        kind = "waiting calls" if call["kind"] == "synchronize" else "calls"
        part.add_row(kind, name, rank.rank, Row(call["calls"], call["ns"], call["max_ns"], call["bytes"]))
        part.add_steps(kind, name, _steps(call.get("histogram", [])))
    for kind in ("calls", "waiting calls"):
        _fold(rank, kind, [call["ns"] for call in calls["calls"]])


def _causes(part: Part, rank: int, command: Command, where: List[str]) -> None:
    why = command.json(["why", "--json", "--worst", str(SLOW), *where])
    for cause in why["causes"]:
        if cause["cause"] not in BY_DESIGN:
            part.add_row("causes", cause["cause"], rank, Row(cause["calls"], cause["ns"], cause["longest_ns"]))
    for call in why["worst"]:
        what = next((of["what"] for p in call["parts"] if p["cause"] == call["cause"] for of in p["of"]), None)
        part.slow_calls.append({"rank": rank, "call": call["call"], "kernel": call["kernel"], "ns": call["ns"],
                                "lost_ns": call["lost_ns"], "cause": call["cause"], "what": what, "at": call["at"]})


def _fold(rank: Rank, kind: str, ns: List[int]) -> None:
    """The command lists what took the most first: a row that it did not list has at most the time of the last one."""
    if len(ns) >= ROWS and ns[ROWS - 1] > 0:
        rank.folded[kind] = ns[ROWS - 1]


# Time that a call takes because of what was asked for, or that other rows here have.
BY_DESIGN = ("usual", "gpu", "engine", "queue")


def _kernels(part: Part, rank: Rank, command: Command, where: List[str], collectives: str) -> None:
    kernels = command.json(["show", "--kernels", "--json", "--limit", str(ROWS), *where])
    together = re.compile(collectives)
    for kernel in kernels["kernels"][:ROWS]:
        gpu, name = kernel["gpu"], _kernel_name(kernel)
        # A late rank makes these long on all others.
        kind = "collectives" if together.search(name) else "kernels"
        ran = kernel["launches"] + (kernel["in_graphs"] or 0)
        if gpu is not None:
            part.add_row(kind, name, rank.rank, Row(gpu["runs"], gpu["total_ns"], gpu["longest_ns"]))
            part.add_steps(kind, name, _steps(kernel.get("gpu_histogram", [])))
        part.add_row("runs", name, rank.rank, Row(ran, 0))
    for kind in ("kernels", "collectives"):
        _fold(rank, kind, [(kernel["gpu"] or {}).get("total_ns", 0) for kernel in kernels["kernels"]])
    if len(kernels["kernels"]) >= ROWS:
        rank.folded["runs"] = max(kernel["launches"] + (kernel["in_graphs"] or 0) for kernel in kernels["kernels"])
    if not kernels["gpu_times"]:
        rank.lacks.append("kernel times: recorded without --gpu-times")
    for times in kernels["kernel_times"] or []:
        if times["timed"] < times["kernels"]:
            rank.lacks.append(f"kernel times: {times['kernels'] - times['timed']} of {times['kernels']} runs have none "
                              f"({', '.join(row['reason'] for row in times['lacking'])})")


def _kernel_name(kernel: Dict[str, Any]) -> str:
    """Addresses differ from rank to rank; what a kernel without a name is launched with does not."""
    if kernel["name"]:
        return str(kernel["name"])
    shape = kernel["shape"]
    grid, block = ("x".join(map(str, shape[key])) for key in ("grid", "block"))
    return f"without a name ({grid} blocks of {block}, {shape['registers']} registers)"


def _anchors(part: Part, rank: int, options: Options, summary: Dict[str, Any], command: Command, where: List[str]) -> None:
    if summary.get("kernel_times"):
        anchors = of_collectives(command, where, options.collectives)
        if anchors:
            part.anchors["collectives"] = {rank: anchors}
            return
    calls = part.rows.get("waiting calls", {})
    by_time = sorted(calls, key=lambda name: -calls[name][rank].ns)
    for name, anchors in of_calls(command, where, by_time[:3]).items():
        part.anchors[f"calls {name}"] = {rank: anchors}


def _steps(steps: List[Dict[str, int]]) -> List[Tuple[int, int]]:
    return [(step["from_ns"], step["count"]) for step in steps]
