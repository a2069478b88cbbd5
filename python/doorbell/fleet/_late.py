"""Which rank the others wait for, and on what that rank spends the time.

A rank is late at a collective (or at the call that waits for all) if it begins after the median rank by more than the error of the
alignment. The job waits for the last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence

from ._align import Alignment
from ._outliers import MINIMUM_RANKS, Outlier
from ._partial import Part
from ._robust import median

# Of all events a late rank is the last one in at least so many.
SHARE = 0.1


@dataclass
class Late:
    rank: int
    # Events in which it was the last one by more than the error, of so many.
    last_in: int
    events: int
    # By how much it began after the median rank in those: the median, and all together.
    late_ns: int
    waited_ns: int
    error_ns: int
    # What takes longer on it than on the others, the most first.
    because: List[Outlier]


@dataclass
class Verdict:
    late: List[Late]
    # Why there is no verdict, or why it may be incomplete.
    why_not: Optional[str] = None


def late_ranks(part: Part, alignment: Alignment, outliers: Sequence[Outlier]) -> Verdict:
    """The rank that the job waited for the longest comes first."""
    events = part.anchors.get(alignment.by)
    if events is None:
        return Verdict([], "no events that all ranks have in common were recorded (collectives with --gpu-times, or calls): only times "
                           "within each rank are compared")
    ranks = sorted(r for r in alignment.offset if r in events)
    if len(ranks) < MINIMUM_RANKS:
        return Verdict([], f"{len(ranks)} ranks are aligned; with fewer than {MINIMUM_RANKS} none is called late")
    keys = [key for key in events[ranks[0]] if all(key in events[r] for r in ranks)]
    late: Dict[int, List[float]] = {}
    for key in keys:
        begins = {r: alignment.common(r, events[r][key][0]) for r in ranks}
        middle = median(list(begins.values()))
        last = max(ranks, key=lambda r: begins[r])
        by = begins[last] - middle
        if by * 1e9 > alignment.error_of[last] + alignment.error_ns:
            late.setdefault(last, []).append(by)
    found = [_late(rank, by, len(keys), alignment, outliers) for rank, by in late.items() if len(by) >= max(2.0, SHARE * len(keys))]
    found.sort(key=lambda one: -one.waited_ns)
    if found:
        return Verdict(found)
    return Verdict([], f"no rank was the last one in {100 * SHARE:.0f} % of {len(keys)} events by more than the error of the alignment")


def _late(rank: int, by: List[float], events: int, alignment: Alignment, outliers: Sequence[Outlier]) -> Late:
    because = [one for one in outliers if one.rank == rank and one.excess_ns > 0 and one.kind != "waiting calls"]
    error = alignment.error_of[rank] + alignment.error_ns
    return Late(rank, len(by), events, int(1e9 * median(by)), int(1e9 * sum(by)), error, because[:5])
