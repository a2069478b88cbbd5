"""The answer as text, the most important line first."""

from __future__ import annotations

import unicodedata
from typing import Dict, List, Sequence, Tuple

from ._answer import Job
from ._judged import Odd, Outlier
from ._late import Late

# Rows of a kind that are printed; JSON and the page have all.
SHOWN = 10
# Characters that change the order of the text around them.
TURNS = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
MARKS = "\u061c\u200e\u200f"
SOFTWARE = "recorded on the software GPU: its times are no speed of a GPU"
SINGULAR = {"locks": "lock", "copies": "", "kernels": "kernel", "calls": "call", "waiting calls": "waiting call",
            "conditions": "wait for", "collectives": "collective", "outside": ""}


def text(job: Job) -> str:
    lines = [*_head(job), "", *_late(job), "", *_unlike(job)]
    if job.changes is not None:
        lines += ["", *_changes(job)]
    lines += ["", *_gaps(job), *_cost(job)]
    return "\n".join(map(plain, lines)) + "\n"


def plain(line: str) -> str:
    """A line without characters of names that a terminal would act on, or that change the order of the text."""
    return "".join("?" if unicodedata.category(c) in ("Cc", "Zl", "Zp") or unicodedata.bidirectional(c) in TURNS or c in MARKS else c
                   for c in line)


def duration(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:.3g} {unit}" if abs(ns) < 1000 * size else f"{ns / size:.0f} {unit}"
    return f"{ns:.0f} ns"


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}"


def ranks_in_words(ranks: Sequence[int]) -> str:
    """`3, 5-9 and 12`; the first so many of a long list."""
    spans: List[List[int]] = []
    for n in sorted(ranks):
        if spans and spans[-1][1] == n - 1:
            spans[-1][1] = n
        else:
            spans.append([n, n])
    words = [f"{a}" if a == b else f"{a}-{b}" for a, b in spans]
    if len(words) > 12:
        words = [*words[:12], f"{len(words) - 12} more"]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def by_row(found: Sequence[Outlier]) -> List[List[Outlier]]:
    """Outliers of one row together, the worst rank first."""
    rows: Dict[Tuple[str, str], List[Outlier]] = {}
    for one in found:
        rows.setdefault((one.kind, one.name), []).append(one)
    return list(rows.values())


def row_in_words(row: Sequence[Outlier]) -> str:
    """The rank that is the furthest off, and which others are."""
    first, *others = row
    words = f"rank {first.rank}: {outlier_in_words(first)}"
    if others:
        words += (f"; also {_ranks_word(len(others))} {ranks_in_words([one.rank for one in others])}, "
                  f"by at most {duration(others[0].excess_ns)}")
    return words


def _ranks_word(count: int) -> str:
    return "rank" if count == 1 else "ranks"


def outlier_in_words(one: Outlier) -> str:
    times = f"{duration(one.ns)} in {one.count:,}"
    usual = "none on most ranks" if one.alone else f"the median rank has {duration(one.median_ns)} in {one.median_count:,}"
    return f"{labelled(one.kind, one.name)}: {times}; {usual}"


def labelled(kind: str, name: str) -> str:
    return f"{SINGULAR[kind]} {name}".strip()


def late_in_words(one: Late, together: bool) -> str:
    if together:
        return (f"rank {one.rank} is late: the last one at {one.last_in} of {one.events} events, by {duration(one.late_ns)} "
                f"(median; error {duration(one.error_ns)}); {duration(one.waited_ns)} in all, {100 * one.cost:.1f} % of the time")
    return (f"rank {one.rank} is slower: in {one.last_in} of {one.events} parts of the run, by {duration(one.late_ns)} a step (mean); "
            f"{duration(one.waited_ns)} in all, {100 * one.cost:.1f} % of its time")


def causes_in_words(one: Late) -> List[str]:
    """The causes that explain a third or more, then what else there is."""
    words: List[str] = []
    for cause in one.because:
        how = "because of" if cause.explains else "not enough to be the cause:" if not words else "and"
        words.append(f"{how} {labelled(cause.kind, cause.name)}: {duration(cause.excess_ns)} more than the others, "
                     f"{100 * cause.share:.0f} % of it")
    return words or ["nothing that was recorded takes longer on it than on the others"]


def compared_in_words(job: Job) -> str:
    """What the ranks were compared by."""
    verdict = job.verdict
    if verdict.by is None or verdict.together:
        return "" if verdict.by is None else f"compared by who begins last: {verdict.by}"
    return (f"compared by how long the same step takes, from one of these to the next: {verdict.by}. The ranks do not wait for each other there: "
            f"{'their ends are too far apart' if verdict.by == 'collectives' else 'no collectives were found'}")


def odd_in_words(one: Odd) -> str:
    return f"{_ranks_word(len(one.ranks))} {ranks_in_words(one.ranks)}: {one.what}: {one.value}; {one.usual_ranks} ranks: {one.usual}"


def alignment_in_words(job: Job) -> str:
    a = job.alignment
    if a.by == "nothing":
        return "ranks are not aligned: the recordings have neither common events nor clocks"
    events = f", {a.events} events" if a.events else ""
    hosts = len({rank.host for rank in job.part.ranks.values() if rank.failed is None})
    assumed = "; clocks of different machines are assumed to be within 10 ms" if a.by.startswith("clocks") and hosts > 1 else ""
    return (f"{len(a.offset)} ranks aligned by {'the clock of their machine and ' if a.one_clock else ''}{a.by}{events}: error {duration(a.error_ns)}, "
            f"of rank {a.worst_rank} {duration(a.worst_ns)}{assumed}")


def _head(job: Job) -> List[str]:
    read = [rank for rank in job.part.ranks.values() if rank.failed is None]
    hosts = len({rank.host for rank in read})
    lines = [f"{job.folder}: {len(read)} ranks on {hosts} machine{'s' * (hosts != 1)}"]
    if job.missing:
        lines.append(f"MISSING: no recording of rank {ranks_in_words(job.missing)}")
    lines += [f"FAILED: rank {n}: {why}" for n, why in list(job.failed.items())[:SHOWN]]
    if len(job.failed) > SHOWN:
        lines.append(f"FAILED: {len(job.failed) - SHOWN} more")
    lines += [f"left out: {why}" for why in job.part.left_out[:SHOWN]]
    if job.on_software:
        lines.append(SOFTWARE)
    lines.append(alignment_in_words(job))
    lines += [f"not aligned: rank {n}: {why}" for n, why in list(job.alignment.without.items())[:SHOWN]]
    return lines


def _late(job: Job) -> List[str]:
    lines = [words for words in [compared_in_words(job)] if words]
    if not job.verdict.late:
        return [*lines, f"late: none: {job.verdict.why_not}"]
    for one in job.verdict.late[:3]:
        lines.append(late_in_words(one, job.verdict.together))
        lines += [f"  {words}" for words in causes_in_words(one)]
    lines.append(f"more of it: doorbell why {job.part.ranks[job.verdict.late[0].rank].file}")
    return lines


def _unlike(job: Job) -> List[str]:
    read = sum(rank.failed is None for rank in job.part.ranks.values())
    if read < job.minimum_ranks:
        return [f"totals of rows: compared from {job.minimum_ranks} ranks on"]
    lines = [f"unlike the others ({read} ranks, by median and MAD):"]
    # What a rank loses comes first; where it waits for others is a result.
    more = by_row([one for one in job.outliers if one.excess_ns > 0 and one.kind != "waiting calls"])
    rest = [one for one in job.outliers if one.excess_ns > 0 and one.kind == "waiting calls"]
    lines += [f"  {row_in_words(row)}" for row in more[:SHOWN]]
    lines += [f"  {odd_in_words(one)}" for one in job.odd[:SHOWN]]
    if rest:
        ranks = sorted({one.rank for one in rest})
        verb = "waits" if len(ranks) == 1 else "wait"
        lines.append(f"  {_ranks_word(len(ranks))} {ranks_in_words(ranks)} {verb} for longer in {rest[0].name}, which is a result of others")
    hidden = max(0, len(more) - SHOWN) + max(0, len(job.odd) - SHOWN)
    if hidden:
        lines.append(f"  and {hidden} more (--json, --html)")
    return lines if len(lines) > 1 else [f"no outlier among {read} ranks (by median and MAD)"]


def _changes(job: Job) -> List[str]:
    assert job.changes is not None
    c = job.changes
    lines = ["since the run before:"]
    lines += [f"  {one.what}: {one.before}, now {one.after}" for one in c.facts]
    lines += [f"  new: {name}" for name in c.new[:SHOWN]] + [f"  gone: {name}" for name in c.gone[:SHOWN]]
    lines += [f"  {labelled(one.kind, one.name)}: {duration(one.before_ns)} a rank, now {duration(one.after_ns)} "
              f"(medians of {one.ranks} ranks, error {duration(one.error_ns)})" for one in c.times[:SHOWN]]
    if c.why_not:
        lines.append(f"  {c.why_not}")
    return lines if len(lines) > 1 else ["since the run before: nothing changed by more than its error"]


def _gaps(job: Job) -> List[str]:
    """What recordings lack, the same reasons together."""
    reasons: Dict[str, List[int]] = {}
    for n, rank in job.part.ranks.items():
        for why in rank.lacks:
            reasons.setdefault(why, []).append(n)
    ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
    lines = [f"lacking on rank {ranks_in_words(ranks)}: {why}" for why, ranks in ordered[:SHOWN]]
    if len(ordered) > SHOWN:
        lines.append(f"lacking: {len(ordered) - SHOWN} more reasons (--json)")
    return lines


def _cost(job: Job) -> List[str]:
    ranks = job.part.ranks.values()
    read, printed = sum(rank.bytes_read for rank in ranks), sum(rank.bytes_printed for rank in ranks)
    return [f"{size(read)} of recordings, {size(printed)} printed by the command, {size(job.cost.moved_bytes)} moved, "
            f"{job.cost.seconds:.2f} s on {job.cost.where}"]
