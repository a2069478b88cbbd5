"""What is unlike on one rank: rows far from the median of all ranks, and facts that most ranks have otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional

from ._partial import Part, Row
from ._robust import median, spread

# With fewer ranks no row is called an outlier: the median of four has two of them in it. (Who waits for whom needs two ranks only.)
MINIMUM_RANKS = 5
# How many robust standard deviations, which part of the median, and which part of the rank's time.
DEVIATIONS = 6.0
PART_OF_MEDIAN = 0.1
PART_OF_TIME = 0.001
# Kinds of rows that are judged by their time, most direct cause first.
TIMED = ("locks", "copies", "kernels", "calls", "outside", "waiting calls")


@dataclass
class Outlier:
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
    # None of most ranks has it at all.
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


def outliers(part: Part) -> List[Outlier]:
    """The largest excess first. Collectives are no outliers: a late rank makes them long on all others."""
    ranks = [n for n, rank in part.ranks.items() if rank.failed is None]
    found: List[Outlier] = []
    if len(ranks) < MINIMUM_RANKS:
        return found
    for kind in TIMED:
        for name, rows in part.rows.get(kind, {}).items():
            found.extend(_of_row(part, kind, name, rows, ranks))
    found.sort(key=lambda one: -abs(one.excess_ns))
    return found


def _of_row(part: Part, kind: str, name: str, rows: Dict[int, Row], ranks: List[int]) -> List[Outlier]:
    if all(rows[n].ns == 0 for n in rows):
        return []
    # A rank that has more rows than it names has this one for at most so long.
    times = [float(rows[n].ns if n in rows else part.ranks[n].folded.get(kind, 0)) for n in ranks]
    counts = [float(rows[n].count) if n in rows else 0.0 for n in ranks]
    middle, sigma, usual = median(times), spread(times), int(median(counts))
    found = []
    for n, ns in zip(ranks, times):
        if n not in rows and kind in part.ranks[n].folded:
            continue
        floor = PART_OF_TIME * 1e9 * part.ranks[n].seconds
        if abs(ns - middle) > max(DEVIATIONS * sigma, PART_OF_MEDIAN * middle, floor):
            row = rows.get(n, Row(0, 0))
            found.append(Outlier(n, kind, name, row.ns, int(middle), int(sigma), int(ns - middle), row.count, usual,
                                 len(ranks), alone=middle == 0 and usual == 0))
    return found


def odd_facts(part: Part) -> List[Odd]:
    """Driver, versions, processor, and which kernels ran: where at most a quarter of the ranks differ from the rest."""
    ranks = [rank for rank in part.ranks.values() if rank.failed is None]
    found: List[Odd] = []
    if len(ranks) < MINIMUM_RANKS:
        return found
    for what in sorted({what for rank in ranks for what in rank.facts}):
        found.extend(_differing(what, {rank.rank: rank.facts.get(what, "not known") for rank in ranks}))
    for what in sorted({what for rank in ranks for what in rank.counts}):
        values = [float(rank.counts.get(what, 0)) for rank in ranks]
        middle, sigma = median(values), spread(values)
        for rank in ranks:
            value = rank.counts.get(what, 0)
            if abs(value - middle) > max(DEVIATIONS * sigma, PART_OF_MEDIAN * middle, 1.0):
                found.append(Odd(what, str(value), [rank.rank], f"{middle:g} (median)", len(ranks) - 1))
    named = [rank.rank for rank in ranks if not rank.folded.get("kernels")]
    if len(named) >= MINIMUM_RANKS:
        for name, rows in sorted(part.rows.get("kernels", {}).items()):
            found.extend(_differing(f"kernel {name}", {n: "runs" if n in rows else "does not run" for n in named}))
    return found


def _differing(what: str, values: Dict[int, str]) -> List[Odd]:
    of_value: Dict[str, List[int]] = {}
    for rank, value in sorted(values.items()):
        of_value.setdefault(value, []).append(rank)
    usual = _usual(of_value)
    if usual is None:
        return []
    return [Odd(what, value, ranks, usual, len(of_value[usual])) for value, ranks in sorted(of_value.items()) if value != usual]


def _usual(of_value: Dict[str, List[int]]) -> Optional[str]:
    most = max(of_value, key=lambda value: len(of_value[value]))
    return most if 4 * len(of_value[most]) >= 3 * sum(map(len, of_value.values())) else None
