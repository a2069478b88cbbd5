"""Which rank the others wait for, by how much, and what explains which share of that.

Ranks that wait for each other end their collectives together: the job waits for the one that begins last. Ranks that do not are compared by
how long the same step takes on each. In both cases each moment of a rank's step belongs to one thing, and what a rank has more of than the
others is a cause. Two ranks are enough: each is compared with the median of the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Callable, Dict, List, Optional, Sequence

from ._align import MINIMUM_EVENTS, Alignment
from ._partial import Part, Spent, Steps

# A rank that is late is the last one in at least so many of all events, and costs at least so much of the time.
SHARE = 0.1
COST = 0.01
# It costs so many times as much as the median of the others: ranks that take turns are not late.
MORE = 2.0
# Where ranks do not wait for each other: all steps together take so much longer, and in so many of ten parts of the run. (Of equal ranks one in a
# hundred would be longer in nine; a single stall makes one part longer.)
LONGER = 0.1
PARTS = 10
LONGER_IN = 9
# A cause that explains less is not the cause; one that explains less than the second is not listed.
CAUSE = 1 / 3
LISTED = 0.05


@dataclass
class Cause:
    """What a rank has more of than the median of the others, in the events in which it was late."""

    kind: str
    # Of several of a kind of which none explains it alone: which is the largest.
    name: str
    excess_ns: int
    share: float

    @property
    def explains(self) -> bool:
        return self.share >= CAUSE


@dataclass
class Late:
    rank: int
    # Events in which it was the last one by more than the error, of so many that were looked at (parts of the run in which it was slower, of ten).
    last_in: int
    events: int
    # By how much it began after the median of the others in those: the median, and all together. (A step took longer: the mean.)
    late_ns: int
    waited_ns: int
    # The part of the time that this is.
    cost: float
    error_ns: int
    # What it did in that time, the most first.
    because: List[Cause]


@dataclass
class Verdict:
    # What was compared, and whether the ranks wait for each other there.
    by: Optional[str] = None
    together: bool = False
    late: List[Late] = field(default_factory=list)
    # Why no rank is late.
    why_not: Optional[str] = None


def late_ranks(part: Part, alignment: Alignment) -> Verdict:
    """The rank that costs the most comes first."""
    if alignment.by in part.steps:
        return _waits(part, alignment)
    by = _compared_by(part)
    if by is None:
        return Verdict(why_not="no two ranks have events in common: neither collectives with a time (--gpu-times), nor ranges of NVTX, nor calls "
                               "(--locks or --calls)")
    return _slower(part, by)


def _waits(part: Part, alignment: Alignment) -> Verdict:
    by, of = alignment.by, part.steps[alignment.by]
    table = _table(of, [r for r in _alike(of) if r in alignment.offset])
    ranks, looked = table.ranks, len(table.keys) - 1
    begins = {r: [alignment.common(r, of[r].list[key][0]) for key in table.keys] for r in ranks}
    error = {r: alignment.error_of[r] + alignment.error_ns for r in ranks}
    # By rank: the events in which it was the last one, and by how many seconds.
    last_in: Dict[int, Dict[int, float]] = {r: {} for r in ranks}
    for n in range(1, looked + 1):
        last = max(ranks, key=lambda r: begins[r][n])
        behind = begins[last][n] - median([begins[r][n] for r in ranks if r != last])
        if behind * 1e9 > error[last]:
            last_in[last][n] = behind
    time = begins[ranks[0]][-1] - begins[ranks[0]][0]
    cost = {r: sum(last_in[r].values()) * table.every / max(time, 1e-9) for r in ranks}
    # The wait for the others is no cause.
    waiting = ("waiting calls", by[len("calls "):])
    found = []
    for r in ranks:
        usual = median([cost[o] for o in ranks if o != r])
        if len(last_in[r]) >= max(2, SHARE * looked) and cost[r] >= max(MORE * usual, COST):
            waited = int(1e9 * cost[r] * time)
            causes = table.causes(r, list(last_in[r]), waited, lambda spent: spent[0] != "collectives" and spent != waiting)
            late = int(1e9 * median(list(last_in[r].values())))
            found.append(Late(r, len(last_in[r]), looked, late, waited, cost[r], error[r], causes))
    if found:
        return Verdict(by, True, sorted(found, key=lambda one: -one.waited_ns))
    most = max(ranks, key=lambda r: cost[r])
    return Verdict(by, True, why_not=f"no rank is often the last one: rank {most} was the most, at {len(last_in[most])} of {looked} events by more "
                                     f"than the error of the alignment, which is {100 * cost[most]:.1f} % of the time")


def _slower(part: Part, by: str) -> Verdict:
    table = _table(part.steps[by], _alike(part.steps[by]))
    took = {r: [sum(spent.values()) for spent in table.spent[r]][1:] for r in table.ranks}
    steps = len(table.keys) - 1
    found = []
    for r in table.ranks:
        usual = [median([took[o][n] for o in table.ranks if o != r]) for n in range(steps)]
        more = [own - others for own, others in zip(took[r], usual)]
        extra = int(sum(more))
        longer = sum(sum(more[n * steps // PARTS:(n + 1) * steps // PARTS]) > 0 for n in range(PARTS))
        if longer >= LONGER_IN and extra > LONGER * sum(usual):
            causes = table.causes(r, range(1, steps + 1), extra, lambda _: True)
            found.append(Late(r, longer, PARTS, int(extra / steps / table.every), extra, extra / sum(took[r]), 0, causes))
    if found:
        return Verdict(by, False, sorted(found, key=lambda one: -one.waited_ns))
    return Verdict(by, False, why_not=f"no rank takes {100 * LONGER:.0f} % longer than the others for the same {steps} steps")


def _compared_by(part: Part) -> Optional[str]:
    """The first of collectives, ranges, calls and launches that two ranks or more have about equally often."""
    order = {"collectives": 0, "ranges": 1, "calls": 2, "launches": 3}
    for by in sorted(part.steps, key=lambda by: order[by.split(" ")[0]]):
        ranks = _alike(part.steps[by])
        if len(ranks) > 1 and len(_common(part.steps[by], ranks)) > MINIMUM_EVENTS:
            return by
    return None


def _alike(of: Dict[int, Steps]) -> List[int]:
    """Ranks with about as many events as most."""
    usual = median([steps.events for steps in of.values()]) if of else 0
    return sorted(r for r, steps in of.items() if abs(steps.events - usual) <= LONGER * usual)


def _common(of: Dict[int, Steps], ranks: Sequence[int]) -> List[str]:
    """Events of all of them, in the order of the first."""
    return [key for key in of[ranks[0]].list if all(key in of[r].list for r in ranks)]


@dataclass
class _Table:
    """What ranks did between events that all of them have."""

    ranks: List[int]
    keys: List[str]
    # Of so many events one is looked at.
    every: float
    # By rank, for each key: what was done since the key before.
    spent: Dict[int, List[Dict[Spent, int]]]

    def causes(self, rank: int, events: Sequence[int], whole: int, counts: Callable[[Spent], bool]) -> List[Cause]:
        """What the rank has more of than the median of the others in these events, and its share: of the whole, or of all of these if they are
        more, because the rank saved time elsewhere."""
        excess: Dict[Spent, float] = {}
        for n in events:
            own, others = self.spent[rank][n], [self.spent[r][n] for r in self.ranks if r != rank]
            for what in {what for spent in (own, *others) for what in spent if counts(what)}:
                excess[what] = excess.get(what, 0.0) + own.get(what, 0) - median([spent.get(what, 0) for spent in others])
        whole = max(1, whole, int(sum(ns for ns in excess.values() if ns > 0)))

        def cause(kind: str, name: str, ns: float) -> Cause:
            return Cause(kind, name, int(ns), ns / whole)

        causes = [cause(kind, name or f"all {kind} that are not named", ns) for (kind, name), ns in excess.items() if ns > 0]
        causes.sort(key=lambda one: -one.excess_ns)
        for kind in {kind for kind, _ in excess}:
            of_kind = [one for one in causes if one.kind == kind]
            together = cause(kind, f"{len(of_kind)} together, the most {of_kind[0].name}" if of_kind else "",
                             sum(ns for what, ns in excess.items() if what[0] == kind))
            if of_kind and together.explains and not of_kind[0].explains:
                causes.append(together)
        causes.sort(key=lambda one: -one.excess_ns)
        return [one for one in causes if one.share >= LISTED][:5] or causes[:1]


def _table(of: Dict[int, Steps], ranks: List[int]) -> _Table:
    keys = _common(of, ranks)
    wanted = set(keys)
    # (What one rank names and another does not is compared together with all that is not named.)
    folded = {kind for r in ranks for kind, name in of[r].of if name is None}
    named = {what for r in ranks for what in of[r].of if what[0] not in folded or all(what in of[o].of for o in ranks)}
    spent: Dict[int, List[Dict[Spent, int]]] = {}
    for r in ranks:
        columns = [what if what in named else (what[0], None) for what in of[r].of]
        spent[r], since = [], {}
        for key, (_, _, ns) in of[r].list.items():
            for what, value in zip(columns, ns):
                since[what] = since.get(what, 0) + value
            if key in wanted:
                spent[r].append(since)
                since = {}
    return _Table(ranks, keys, max(of[r].events for r in ranks) / len(keys), spent)
