"""What one rank gives to the answer, and how the parts of many ranks are added up.

A part has totals of one recording, at most ROWS rows of a kind, and at most 256 events of a name. So a job of 1,000 ranks fits into
one process, and parts are merged in any order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Iterable, List, Optional, Tuple

# Rows of a kind that a rank names; the rest is counted in `folded`.
ROWS = 64
# Kind of row, its name, then for each rank.
Rows = Dict[str, Dict[str, Dict[int, "Row"]]]
# What time is spent on: a kind, and a name; None for all that are not named.
Spent = Tuple[str, Optional[str]]


@dataclass
class Row:
    """One kernel, call, lock, direction of copies or cause on one rank: how often, how long in all, the longest, and bytes."""

    count: int
    ns: int
    longest_ns: int = 0
    bytes: int = 0


@dataclass
class Steps:
    """Events of one rank that all ranks have: collectives, ranges, calls or launches. Of many every 2nd, 4th, 8th ... is there."""

    # All that there were.
    events: int
    of: List[Spent]
    # By its key, in order: begin and end in seconds of the rank's recording, and for each of `of` the ns since the one before.
    list: Dict[str, Tuple[float, float, List[int]]]


@dataclass
class Rank:
    """What is known of one rank as a whole."""

    rank: int
    file: str
    # Why nothing is known of it, or None.
    failed: Optional[str] = None
    # Parts of the answer that its recording lacks, with the reason.
    lacks: List[str] = field(default_factory=list)
    # Facts that should be the same on all ranks: driver, GPU, versions.
    facts: Dict[str, str] = field(default_factory=dict)
    host: str = ""
    world: Optional[int] = None
    complete: bool = False
    lost: int = 0
    seconds: float = 0.0
    # CLOCK_REALTIME where its seconds count from, and the error of that reading.
    began_ns: Optional[int] = None
    clock_error_ns: int = 0
    counts: Dict[str, int] = field(default_factory=dict)
    # By kind, where a rank has more rows than it names: how many ns one of the others has at most.
    folded: Dict[str, int] = field(default_factory=dict)
    bytes_read: int = 0
    bytes_printed: int = 0
    map_seconds: float = 0.0


@dataclass
class Part:
    """The answer of one rank or of many."""

    ranks: Dict[int, Rank] = field(default_factory=dict)
    rows: Rows = field(default_factory=dict)
    # By what ranks are compared by (`collectives`, `ranges NAME`, `calls NAME`, `launches`), then by rank.
    steps: Dict[str, Dict[int, Steps]] = field(default_factory=dict)
    # Recordings that are no part of the answer, with the reason.
    left_out: List[str] = field(default_factory=list)

    def times(self, by: str) -> Dict[int, Dict[str, Tuple[float, float]]]:
        """Begin and end of each event on each rank."""
        return {rank: {key: (begin, end) for key, (begin, end, _) in steps.list.items()} for rank, steps in self.steps[by].items()}


def merge(parts: Iterable[Part]) -> Part:
    """All parts as one. Of two recordings of one rank the later is kept: the folder has those of an earlier run."""
    whole = Part()
    for part in parts:
        twice = {rank for rank in part.ranks if rank in whole.ranks}
        for rank in sorted(twice):
            whole.left_out.append(f"{part.ranks[rank].file}: rank {rank} is in {whole.ranks[rank].file}, too")
        whole.left_out.extend(part.left_out)
        whole.ranks.update({n: rank for n, rank in part.ranks.items() if n not in twice})
        for kind, names in part.rows.items():
            for name, rows in names.items():
                mine = whole.rows.setdefault(kind, {}).setdefault(name, {})
                mine.update({n: row for n, row in rows.items() if n not in twice})
        for by, of in part.steps.items():
            whole.steps.setdefault(by, {}).update({n: steps for n, steps in of.items() if n not in twice})
    return whole
