"""Events that all ranks have in common, by which their clocks are aligned: collectives, else calls that wait for them.

Of each source at most KEPT events are kept, whatever the length of the recording: every 2nd, 4th, 8th ... of them, so that all ranks
keep the same ones.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ._command import Command

KEPT = 256


class Thinned:
    """The n-th events of a row where 2^k divides n."""

    def __init__(self) -> None:
        self.seen = 0
        self.stride = 1
        self.kept: Dict[int, Tuple[float, float]] = {}

    def add(self, begin: float, end: float) -> None:
        if self.seen % self.stride == 0:
            self.kept[self.seen] = (begin, end)
            if len(self.kept) > KEPT:
                self.stride *= 2
                self.kept = {n: times for n, times in self.kept.items() if n % self.stride == 0}
        self.seen += 1


def of_collectives(command: Command, where: Sequence[str], pattern: str) -> Dict[str, Tuple[float, float]]:
    """When each collective ran, by its name and its number among those of that name."""
    of_name: Dict[str, Thinned] = {}
    for line in command.lines(["show", "--gpu-times", "--json", "--kernel", pattern, *where]):
        row = _object(line)
        if row is None or not row.get("name") or row.get("end_seconds") is None:
            continue
        if row["name"] in of_name or len(of_name) < 16:
            of_name.setdefault(str(row["name"]), Thinned()).add(float(row["start_seconds"]), float(row["end_seconds"]))
    return {f"{name} #{n}": times for name, row in of_name.items() for n, times in row.kept.items()}


def of_calls(command: Command, where: Sequence[str], functions: List[str]) -> Dict[str, Dict[str, Tuple[float, float]]]:
    """When each of these calls began and ended, of the thread that makes the most of them, by its number."""
    threads: Dict[str, Dict[int, Thinned]] = {name: {} for name in functions}
    if functions:
        wanted = [json.dumps(name).encode() for name in functions]
        for line in command.lines(["export", "--jsonl", *where]):
            if b'"cuda_call"' not in line or not any(name in line for name in wanted):
                continue
            row = _object(line)
            if row is None or row.get("call") not in threads or row.get("ns") is None:
                continue
            thread = threads[str(row["call"])].setdefault(int(row["tid"]), Thinned())
            thread.add(float(row["at"]), float(row["at"]) + float(row["ns"]) / 1e9)
    busiest = {name: max(of.values(), key=lambda t: t.seen) for name, of in threads.items() if of}
    return {name: {f"#{n}": times for n, times in row.kept.items()} for name, row in busiest.items() if row.seen >= 3}


def _object(line: bytes) -> Optional[Dict[str, Any]]:
    try:
        value = json.loads(line.strip().rstrip(b","))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
