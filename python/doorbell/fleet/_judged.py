"""What one rank has otherwise than most, and what changed since the job before. `doorbell compare --ranks` judges; this has its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional

from ._command import Command
from ._partial import Part


@dataclass
class Outlier:
    """A row that is unlike on a rank."""

    rank: int
    kind: str
    name: str
    # Its time, and the median's of all ranks; more where `excess_ns` is above 0.
    ns: int
    median_ns: int
    spread_ns: int
    excess_ns: int
    count: int
    median_count: int
    ranks: int
    # Most ranks have no such row.
    alone: bool


@dataclass
class Odd:
    """A fact in which a few ranks differ from most."""

    what: str
    value: str
    ranks: List[int]
    # What most have, and how many.
    usual: str
    usual_ranks: int


@dataclass
class Change:
    kind: str
    name: str
    # Medians over the ranks that both jobs have.
    before_ns: int
    after_ns: int
    error_ns: int
    ranks: int


@dataclass
class Fact:
    what: str
    before: str
    after: str


@dataclass
class Changes:
    times: List[Change]
    facts: List[Fact]
    # Rows of most ranks of one job that no rank of the other has.
    new: List[str]
    gone: List[str]
    why_not: Optional[str] = None


@dataclass
class Judged:
    # With fewer, rows are not compared.
    minimum_ranks: int
    outliers: List[Outlier]
    odd: List[Odd]
    changes: Optional[Changes]


def judge(command: Command, part: Part, before: Optional[Part]) -> Judged:
    jobs = {"job": _totals(part), "before": None if before is None else _totals(before)}
    found = command.json(["compare", "--ranks"], jobs)
    changes = found["changes"]
    if changes is not None:
        changes = Changes([Change(**one) for one in changes["times"]], [Fact(one["what"], one["a"], one["b"]) for one in changes["facts"]],
                          changes["new"], changes["gone"], changes["why_not"])
    return Judged(found["minimum_ranks"], [Outlier(**one) for one in found["outliers"]], [Odd(**one) for one in found["odd"]], changes)


def _totals(part: Part) -> Dict[str, Any]:
    """The ranks that were read, and their rows."""
    ranks = [{"rank": n, "seconds": rank.seconds, "facts": rank.facts, "counts": rank.counts, "folded": rank.folded}
             for n, rank in part.ranks.items() if rank.failed is None]
    rows = [{"kind": kind, "name": name, "of": {n: (row.count, row.ns) for n, row in of.items()}}
            for kind, names in part.rows.items() for name, of in names.items()]
    return {"ranks": ranks, "rows": rows}
