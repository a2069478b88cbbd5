"""The clocks of all ranks on one axis, with the error of that.

A collective ends on all ranks at about the same time. So the n-th end of it on one rank and on another are one moment, and the
differences give each rank's offset and drift. What is left of the differences is the error: 95 of 100 ends are closer than that. It
has the true spread of the ends in it, too, so nothing across ranks is judged that is smaller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Dict, List, Optional, Sequence, Tuple

from ._partial import Part, Rank

Times = Dict[str, Tuple[float, float]]
# Events that two ranks must have in common.
MINIMUM_EVENTS = 3
# A rank with another number of events is aligned if its error is at most so many times that of the others.
FITS = 4
# Ranks wait for each other where half of the ends are within this part of a step, on clocks that drift by less than this.
TOGETHER = 0.25
DRIFT = 1e-3
# Two machines are assumed to be set to within this, where nothing else is known: NTP on a local network does better.
CLOCKS_APART_NS = 10_000_000
# A machine's clock that is off by more, seconds, was never set: else the events are others.
CLOCKS_WRONG = 2.0


@dataclass
class Alignment:
    # What the events are (`collectives`, `ranges NAME`, `calls NAME`, `launches`), `clocks of the machines` or `nothing`.
    by: str
    # All ranks are of one machine: its clock is that of all.
    one_clock: bool = False
    # Of the ranks that are aligned, ns. The error that is typical, and that of the worst rank.
    error_ns: int = 0
    worst_ns: int = 0
    worst_rank: Optional[int] = None
    # Half of the ends are closer to the axis.
    apart_ns: int = 0
    # Events that were looked at.
    events: int = 0
    # Seconds of the common axis are `seconds * (1 + drift) + offset` of a rank.
    offset: Dict[int, float] = field(default_factory=dict)
    drift: Dict[int, float] = field(default_factory=dict)
    error_of: Dict[int, int] = field(default_factory=dict)
    # Ranks that are not, with the reason.
    without: Dict[int, str] = field(default_factory=dict)

    def common(self, rank: int, seconds: float) -> float:
        return seconds * (1.0 + self.drift.get(rank, 0.0)) + self.offset[rank]


def align(part: Part) -> Alignment:
    """By the events whose ends fit the best, if the ranks wait for each other there; else by the machines' clocks. On one machine the ranks have one
    clock: then nothing is fitted, and how far apart the ends are is the error."""
    ranks = [n for n, rank in part.ranks.items() if rank.failed is None]
    clocks = by_clocks([part.ranks[n] for n in ranks])
    one_machine = len({part.ranks[n].host for n in ranks}) == 1 and not clocks.without
    best: Optional[Alignment] = None
    for by in sorted(by for by, of in part.steps.items() if 2 * len(of) > len(ranks)):
        found = by_events(by, part.times(by), clocks.offset if one_machine else None)
        if found is not None and not one_machine:
            found = _against_clocks(found, part, by, clocks)
        if found is not None and _is_together(found, part) and (best is None or found.error_ns < best.error_ns):
            best = found
    return clocks if best is None else _name_the_rest(best, ranks, "it has no such events")


def _is_together(found: Alignment, part: Part) -> bool:
    """Most ends are closer to each other than steps are long, and no clock would have to be a bad one for that."""
    first = min(found.offset)
    steps = part.steps[found.by][first]
    begins = [begin for begin, _, _ in steps.list.values()]
    step = (max(begins) - min(begins)) / max(1, steps.events - 1)
    return found.apart_ns <= 1e9 * step * TOGETHER and all(abs(drift) <= DRIFT for drift in found.drift.values())


def _against_clocks(found: Alignment, part: Part, source: str, clocks: Alignment) -> Optional[Alignment]:
    """Events of ranks whose clocks say that they ran at another time are not the same events."""
    apart = {r: found.offset[r] - clocks.offset[r] for r in found.offset if r in clocks.offset}
    if len(apart) < 3:
        return found
    middle = median(list(apart.values()))
    others = {r for r, by in apart.items() if abs(by - middle) > CLOCKS_WRONG}
    if not others:
        return found
    again = by_events(source, {r: times for r, times in part.times(source).items() if r not in others}, None)
    if again is not None:
        again.without.update({r: "by its clock its events are not those of the others" for r in others})
    return again


def _name_the_rest(found: Alignment, ranks: Sequence[int], reason: str) -> Alignment:
    for rank in ranks:
        if rank not in found.offset:
            found.without.setdefault(rank, reason)
    return found


def by_events(by: str, of_ranks: Dict[int, Times], clock: Optional[Dict[int, float]]) -> Optional[Alignment]:
    """First the ranks that made as many events as most. One that made more or fewer is aligned if what it has in common with those fits:
    its recording ended at another time. Else its n-th is not the n-th of the others. `clock`: the offsets, where they are known."""
    if len(of_ranks) < 2:
        return None
    counts = {rank: _ordinals(times) for rank, times in of_ranks.items()}
    usual = _commonest(list(counts.values()))
    ranks = sorted(r for r in of_ranks if counts[r] == usual)
    keys = _common(of_ranks, ranks)
    if len(ranks) < 2 or len(keys) < MINIMUM_EVENTS:
        return None
    out = Alignment(by, one_clock=clock is not None)
    ends = {r: [of_ranks[r][key][1] for key in keys] for r in ranks}
    axis = ends[ranks[0]]
    for _ in range(3):
        for r in ranks:
            out.offset[r], out.drift[r] = _line(ends[r], axis) if clock is None else (clock[r], 0.0)
        axis = [median([out.common(r, ends[r][n]) for r in ranks]) for n in range(len(keys))]
    for r in ranks:
        out.error_of[r] = _error(out, r, ends[r], axis)
    out.error_ns = int(median(list(out.error_of.values())))
    out.apart_ns = int(median([_error(out, r, ends[r], axis, 0.5) for r in ranks]))
    for r in sorted(set(of_ranks) - set(ranks)):
        both = [(of_ranks[r][key][1], on_axis) for key, on_axis in zip(keys, axis) if key in of_ranks[r]]
        if len(both) >= MINIMUM_EVENTS and 2 * len(both) >= len(keys):
            own, there = [end for end, _ in both], [on_axis for _, on_axis in both]
            out.offset[r], out.drift[r] = _line(own, there) if clock is None else (clock[r], 0.0)
            out.error_of[r] = _error(out, r, own, there)
            if out.error_of[r] <= FITS * out.error_ns:
                continue
            del out.offset[r], out.drift[r], out.error_of[r]
        out.without[r] = f"it has {_count(counts[r])} events where most ranks have {_count(usual)}, and they do not fit"
    out.events = len(_common(of_ranks, sorted(out.offset)))
    out.worst_rank = max(out.error_of, key=lambda r: out.error_of[r])
    out.worst_ns = out.error_of[out.worst_rank]
    return out


def _common(of_ranks: Dict[int, Times], ranks: Sequence[int]) -> List[str]:
    """The events that all of them have, in their order."""
    first = of_ranks[ranks[0]]
    return sorted((key for key in first if all(key in of_ranks[r] for r in ranks)), key=lambda key: first[key][1])


def _error(found: Alignment, rank: int, ends: Sequence[float], axis: Sequence[float], part: float = 0.95) -> int:
    """95 of 100 ends (or another part) are closer to the axis, ns."""
    off = sorted(abs(found.common(rank, end) - on_axis) for end, on_axis in zip(ends, axis))
    return int(1e9 * off[min(len(off) - 1, int(part * len(off)))]) + 1


def _ordinals(times: Times) -> Tuple[Tuple[str, int], ...]:
    """The events of each name; those are thinned in the same way on ranks that made equally many."""
    counts: Dict[str, int] = {}
    for key in times:
        name = key.rpartition("#")[0]
        counts[name] = counts.get(name, 0) + 1
    return tuple(sorted(counts.items()))


def _count(ordinals: Tuple[Tuple[str, int], ...]) -> int:
    return sum(count for _, count in ordinals)


def _commonest(all_of_them: List[Tuple[Tuple[str, int], ...]]) -> Tuple[Tuple[str, int], ...]:
    return max(set(all_of_them), key=lambda one: (all_of_them.count(one), one))


def _line(own: Sequence[float], axis: Sequence[float]) -> Tuple[float, float]:
    """Offset and drift that lead from a rank's times to the axis. The drift is that between the medians of the first and the last third:
    a few events that are far off change nothing."""
    apart = [a - o for o, a in zip(own, axis)]
    third = len(own) // 3
    drift = 0.0
    if third >= 8:
        between = median(own[-third:]) - median(own[:third])
        if between > 0:
            drift = (median(apart[-third:]) - median(apart[:third])) / between
    return median([d - drift * o for o, d in zip(own, apart)]), drift


def by_clocks(ranks: Sequence[Rank]) -> Alignment:
    known = [rank for rank in ranks if rank.began_ns is not None]
    if len(known) < 2:
        return Alignment("nothing", without={rank.rank: "its recording has no clock" for rank in ranks})
    first = min(rank.began_ns or 0 for rank in known)
    one_machine = len({rank.host for rank in known}) == 1
    out = Alignment("clocks of the machines")
    for rank in known:
        out.offset[rank.rank] = ((rank.began_ns or 0) - first) / 1e9
        out.error_of[rank.rank] = rank.clock_error_ns + (0 if one_machine else CLOCKS_APART_NS)
    out.without = {rank.rank: "its recording has no clock" for rank in ranks if rank.began_ns is None}
    out.error_ns = int(median(list(out.error_of.values())))
    out.worst_rank = max(out.error_of, key=lambda r: out.error_of[r])
    out.worst_ns = out.error_of[out.worst_rank]
    return out
