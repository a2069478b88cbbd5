"""What changed since the run before: rank by rank, so that ranks which always differ do not hide it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Dict, List, Optional

from ._outliers import MINIMUM_RANKS, PART_OF_MEDIAN, PART_OF_TIME
from ._partial import Part, Row
from ._robust import median, spread

KINDS = ("locks", "copies", "kernels", "collectives", "calls", "outside", "waiting calls")
# Of the robust standard error of the median of the differences.
DEVIATIONS = 4.0


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


def changes(before: Part, after: Part) -> Changes:
    """The largest difference first."""
    both = [n for n, rank in after.ranks.items()
            if rank.failed is None and n in before.ranks and before.ranks[n].failed is None]
    out = Changes([], _facts(before, after), [], [])
    for kind in KINDS:
        out.new.extend(f"{kind}: {name}" for name in _only(after, before, kind))
        out.gone.extend(f"{kind}: {name}" for name in _only(before, after, kind))
    if len(both) < MINIMUM_RANKS:
        out.why_not = f"the jobs have {len(both)} ranks in common; times are judged from {MINIMUM_RANKS} on"
        return out
    seconds = median([after.ranks[n].seconds for n in both])
    for kind in KINDS:
        rows, then = after.rows.get(kind, {}), before.rows.get(kind, {})
        for name in sorted(set(rows) & set(then)):
            change = _change(kind, name, then[name], rows[name], both)
            apart = abs(change.after_ns - change.before_ns)
            floor = max(PART_OF_MEDIAN * change.before_ns, PART_OF_TIME * 1e9 * seconds)
            if apart > max(DEVIATIONS * change.error_ns, floor):
                out.times.append(change)
    out.times.sort(key=lambda one: -abs(one.after_ns - one.before_ns))
    return out


def _change(kind: str, name: str, then: Dict[int, Row], now: Dict[int, Row], ranks: List[int]) -> Change:
    def ns(rows: Dict[int, Row], n: int) -> float:
        return float(rows[n].ns) if n in rows else 0.0

    apart = [ns(now, n) - ns(then, n) for n in ranks]
    before = median([ns(then, n) for n in ranks])
    # (1.2533: the standard error of a median over that of a mean.)
    error = 1.2533 * spread(apart) / math.sqrt(len(ranks))
    return Change(kind, name, int(before), int(before + median(apart)), int(error), len(ranks))


def _only(one: Part, other: Part, kind: str) -> List[str]:
    """In at least half of the ranks of one, and in none of the other. Where the other has more rows than it names, that is not known."""
    if any(rank.folded.get(kind) for rank in other.ranks.values()):
        return []
    read = sum(rank.failed is None for rank in one.ranks.values())
    there = other.rows.get(kind, {})
    if not there:
        return []
    return sorted(name for name, rows in one.rows.get(kind, {}).items() if 2 * len(rows) >= read and name not in there)


def _facts(before: Part, after: Part) -> List[Fact]:
    def usual(part: Part) -> Dict[str, str]:
        counts: Dict[str, Dict[str, int]] = {}
        for rank in part.ranks.values():
            for what, value in rank.facts.items():
                of = counts.setdefault(what, {})
                of[value] = of.get(value, 0) + 1
        return {what: max(of, key=lambda value: of[value]) for what, of in counts.items()}

    then, now = usual(before), usual(after)
    found = [Fact(what, then.get(what, "not known"), now.get(what, "not known"))
             for what in sorted({*then, *now}) if then.get(what) != now.get(what)]
    ranks = [sum(rank.failed is None for rank in part.ranks.values()) for part in (before, after)]
    if ranks[0] != ranks[1]:
        found.append(Fact("ranks", str(ranks[0]), str(ranks[1])))
    return found
