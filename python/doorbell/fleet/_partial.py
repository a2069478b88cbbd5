"""What one rank gives to the answer, and how the parts of many ranks are added up.

A part has totals of one recording, at most ROWS rows of a kind, never rows of single events. So a job of 1,000 ranks fits into
one process, and parts are merged in any order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Optional, Tuple

# Rows of a kind that a rank names; the rest is counted in `folded`.
ROWS = 64
# Slow calls and edges of locks that are kept of all ranks together.
TOP = 20
EDGES = 256

# Kind of row, its name, then for each rank.
Rows = Dict[str, Dict[str, Dict[int, "Row"]]]
# Kind of row, its name, shortest time of a step in ns: how many.
Histograms = Dict[str, Dict[str, Dict[int, int]]]
# Source of anchors (`collectives`, or `calls NAME`), rank, key of the event: begin and end in seconds of the rank's recording.
Anchors = Dict[str, Dict[int, Dict[str, Tuple[float, float]]]]


@dataclass
class Row:
    """One kernel, call, lock, direction of copies or cause on one rank: how often, how long in all, the longest, and bytes."""

    count: int
    ns: int
    longest_ns: int = 0
    bytes: int = 0


@dataclass
class Edge:
    """Waits of one place for a lock that another place held, of the longest waits of each rank."""

    waits: int
    ns: int
    longest_ns: int
    rank: int


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
    # By kind, where a rank has more rows than it names: how many ns one of the others has at most (`runs`: how many times it ran).
    folded: Dict[str, int] = field(default_factory=dict)
    bytes_read: int = 0
    bytes_printed: int = 0
    views: int = 0
    map_seconds: float = 0.0


@dataclass
class Part:
    """The answer of one rank or of many."""

    ranks: Dict[int, Rank] = field(default_factory=dict)
    rows: Rows = field(default_factory=dict)
    histograms: Histograms = field(default_factory=dict)
    edges: Dict[Tuple[str, str, str], Edge] = field(default_factory=dict)
    # The calls that lost the most: as `worst[]` of `doorbell why --json`, with `rank`.
    slow_calls: List[Dict[str, Any]] = field(default_factory=list)
    anchors: Anchors = field(default_factory=dict)
    # Recordings that are no part of the answer, with the reason.
    left_out: List[str] = field(default_factory=list)

    def add_row(self, kind: str, name: str, rank: int, row: Row) -> None:
        ranks = self.rows.setdefault(kind, {}).setdefault(name, {})
        before = ranks.get(rank)
        if before is not None:
            row = Row(before.count + row.count, before.ns + row.ns, max(before.longest_ns, row.longest_ns),
                      before.bytes + row.bytes)
        ranks[rank] = row

    def add_steps(self, kind: str, name: str, steps: Iterable[Tuple[int, int]]) -> None:
        histogram = self.histograms.setdefault(kind, {}).setdefault(name, {})
        for from_ns, count in steps:
            histogram[from_ns] = histogram.get(from_ns, 0) + count

    def add_edge(self, key: Tuple[str, str, str], edge: Edge) -> None:
        before = self.edges.get(key)
        if before is not None:
            longest = before if before.longest_ns >= edge.longest_ns else edge
            edge = Edge(before.waits + edge.waits, before.ns + edge.ns, longest.longest_ns, longest.rank)
        self.edges[key] = edge


def merge(parts: Iterable[Part]) -> Part:
    """All parts as one. Of two recordings of one rank the later is kept: the folder has those of an earlier run."""
    whole = Part()
    for part in parts:
        twice = [rank for rank in part.ranks if rank in whole.ranks]
        for rank in twice:
            whole.left_out.append(f"{part.ranks[rank].file}: rank {rank} is in {whole.ranks[rank].file}, too")
        _add(whole, part, set(twice))
    whole.slow_calls.sort(key=lambda call: -call["lost_ns"])
    del whole.slow_calls[TOP:]
    if len(whole.edges) > EDGES:
        longest = sorted(whole.edges.items(), key=lambda item: -item[1].ns)
        whole.edges = dict(longest[:EDGES])
    return whole


def _add(whole: Part, part: Part, without: set[int]) -> None:
    whole.left_out.extend(part.left_out)
    if without and len(part.ranks) == len(without):
        return
    whole.ranks.update({n: rank for n, rank in part.ranks.items() if n not in without})
    for kind, names in part.rows.items():
        for name, ranks in names.items():
            for n, row in ranks.items():
                if n not in without:
                    whole.add_row(kind, name, n, row)
    for kind, histograms in part.histograms.items():
        for name, steps in histograms.items():
            whole.add_steps(kind, name, steps.items())
    for key, edge in part.edges.items():
        whole.add_edge(key, edge)
    whole.slow_calls.extend(call for call in part.slow_calls if call["rank"] not in without)
    for source, ranks_of in part.anchors.items():
        kept = {n: anchors for n, anchors in ranks_of.items() if n not in without}
        whole.anchors.setdefault(source, {}).update(kept)


def percentile(steps: Dict[int, int], percent: float) -> Optional[int]:
    """From a merged histogram: at most 1/16 too small."""
    wanted = sum(steps.values()) * percent / 100.0
    seen = 0
    for from_ns in sorted(steps):
        seen += steps[from_ns]
        if seen >= wanted:
            return from_ns
    return None
