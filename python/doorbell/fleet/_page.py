"""The answer as one page: no script, no network, one file."""

from __future__ import annotations

import os
from html import escape
from typing import Iterable, List, Sequence

from ._answer import Job, totals
from ._text import (SOFTWARE, alignment_in_words, causes_in_words, compared_in_words, duration, labelled, late_in_words, odd_in_words,
                    ranks_in_words, size)

STYLE = """
:root { color-scheme: light dark; --ink: #1d1f21; --soft: #667; --paper: #fff; --line: #d5d8dd; --bad: #b3261e; --mark: #f3c0bb; --bar: #4878a8 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --soft: #9aa; --paper: #16181a; --line: #3a3f45; --bad: #ff8a80; --mark: #70302b;
  --bar: #6f9fd0 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 76rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem } p, li { max-width: 60rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; display: block; overflow-x: auto }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
th { color: var(--soft); font-weight: 600 } td.n, th.n { text-align: right; white-space: nowrap } td.w { max-width: 36rem; overflow-wrap: anywhere }
.bad { color: var(--bad); font-weight: 600 } .soft { color: var(--soft) } svg { width: 100%; height: auto } svg text { fill: var(--soft); font-size: 11px }
.bar { fill: var(--bar) } .late { fill: var(--bad) } .gap { fill: var(--mark) }
"""


def page(job: Job) -> str:
    name = os.path.basename(os.path.abspath(job.folder))
    body = [*_top(job, name), *_strip(job), *_outliers(job), *_changed(job), *_totals(job), *_ranks(job)]
    return ("<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">"
            f"<title>{escape(name)}: which rank is slow</title><style>{STYLE}</style>\n<body>\n" + "\n".join(body) + "\n</body></html>\n")


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> List[str]:
    """A head that begins with `#` is one of numbers."""
    kinds = ["n" if head.startswith("#") else "w" for head in heads]
    out = ["<table><tr>" + "".join(f'<th class="{k}">{escape(h.lstrip("#"))}</th>' for k, h in zip(kinds, heads)) + "</tr>"]
    out += ["<tr>" + "".join(f'<td class="{k}">{escape(cell)}</td>' for k, cell in zip(kinds, row)) + "</tr>" for row in rows]
    return [*out, "</table>"]


def _top(job: Job, name: str) -> List[str]:
    read = sum(rank.failed is None for rank in job.part.ranks.values())
    out = [f"<h1>{escape(name)}: {read} ranks</h1>"]
    if job.missing:
        out.append(f'<p class="bad">No recording of rank {ranks_in_words(job.missing)}</p>')
    out += [f'<p class="bad">Rank {n} could not be read: {escape(why or "")}</p>' for n, why in job.failed.items()]
    if job.verdict.late:
        out.append("<ul>")
        for late in job.verdict.late[:5]:
            because = "".join(f"<li>{escape(words)}</li>" for words in causes_in_words(late))
            out.append(f"<li><b>{escape(late_in_words(late, job.verdict.together))}</b><ul>{because}</ul></li>")
        out.append("</ul>")
    else:
        out.append(f"<p><b>No rank is late:</b> {escape(job.verdict.why_not or '')}</p>")
    out.append(f"<p>{escape(compared_in_words(job))}</p>")
    if job.on_software:
        out.append(f'<p class="soft">{SOFTWARE}</p>')
    return [*out, f'<p class="soft">{escape(alignment_in_words(job))}</p>']


def _strip(job: Job) -> List[str]:
    """A bar for each rank: how late it is in all, or the largest time that it loses to something which the median rank does not."""
    lost = {n: 0 for n, rank in job.part.ranks.items() if rank.failed is None}
    for one in job.outliers:
        if one.kind != "waiting calls":
            lost[one.rank] = max(lost[one.rank], one.excess_ns)
    for late_one in job.verdict.late:
        lost[late_one.rank] = max(lost[late_one.rank], late_one.waited_ns)
    last = max([*job.part.ranks, *job.missing], default=0)
    most, late = max([*lost.values(), 1]), {one.rank for one in job.verdict.late}
    wide = 1000.0 / (last + 1)
    bars = []
    for n in range(last + 1):
        tall = 2 + 88 * lost.get(n, 0) / most if n in lost else 90.0
        look = "gap" if n not in lost else "late" if n in late else "bar"
        what = f"rank {n}: " + (duration(lost[n]) if n in lost else "no answer")
        bars.append(f'<rect class="{look}" x="{n * wide:.2f}" y="{95 - tall:.2f}" width="{wide * .85:.2f}" height="{tall:.2f}">'
                    f"<title>{what}</title></rect>")
    step = max(1, (last + 1) // 16)
    bars += [f'<text x="{n * wide:.2f}" y="110">{n}</text>' for n in range(0, last + 1, step)]
    return ["<h2>Time lost, by rank</h2>",
            '<p class="soft">How late it is in all, or its largest excess over the median rank in a row below. Red: late. Pale: no recording.'
            f" Highest bar: {duration(most)}.</p>", f'<svg viewBox="0 0 1000 115" role="img">{"".join(bars)}</svg>']


def _outliers(job: Job) -> List[str]:
    out = ["<h2>Unlike the others</h2>", *(f"<p>{escape(odd_in_words(one))}</p>" for one in job.odd[:100])]
    found = [one for one in job.outliers if one.excess_ns > 0 and one.kind != "waiting calls"][:100]
    if found:
        out += _table(["#rank", "what", "#its time", "#the median's", "#spread", "#count", "#the median's"],
                      ([str(o.rank), labelled(o.kind, o.name), duration(o.ns), duration(o.median_ns), duration(o.spread_ns),
                        f"{o.count:,}", f"{o.median_count:,}"] for o in found))
    return out if len(out) > 1 else [*out, "<p>Nothing.</p>"]


def _changed(job: Job) -> List[str]:
    if job.changes is None:
        return []
    c = job.changes
    out = ["<h2>Since the run before</h2>"]
    out += [f"<p>{escape(f'{one.what}: {one.before}, now {one.after}')}</p>" for one in c.facts]
    out += [f"<p>new: {escape(name)}</p>" for name in c.new[:50]] + [f"<p>gone: {escape(name)}</p>" for name in c.gone[:50]]
    if c.times:
        out += _table(["what", "#a rank before", "#a rank now", "#error", "#ranks"],
                      ([labelled(o.kind, o.name), duration(o.before_ns), duration(o.after_ns), duration(o.error_ns), str(o.ranks)]
                       for o in c.times[:100]))
    if c.why_not:
        out.append(f"<p>{escape(c.why_not)}</p>")
    return out if len(out) > 1 else [*out, "<p>Nothing changed by more than its error.</p>"]


def _totals(job: Job) -> List[str]:
    out = ["<h2>All ranks together</h2>"]
    shown: dict[str, int] = {}
    rows = []
    for row in totals(job.part):
        shown[row["kind"]] = shown.get(row["kind"], 0) + 1
        if shown[row["kind"]] <= 12:
            rows.append([labelled(row["kind"], row["name"]), str(row["ranks"]), f"{row['count']:,}", duration(row["ns"]),
                         duration(row["longest_ns"]), str(row["longest_rank"])])
    return [*out, *_table(["what", "#ranks", "#count", "#time", "#longest", "#on rank"], rows)]


def _ranks(job: Job) -> List[str]:
    def row(n: int) -> List[str]:
        rank = job.part.ranks[n]
        facts = ", ".join(rank.facts.get(key, "") for key in ("driver", "GPU", "doorbell") if rank.facts.get(key))
        error = job.alignment.error_of.get(n)
        return [str(n), rank.host, facts, f"{rank.seconds:.3f} s", size(rank.bytes_read), "" if error is None else duration(error),
                rank.failed or "; ".join(rank.lacks)]

    return ["<h2>Ranks</h2>", *_table(["#rank", "machine", "driver, GPU, doorbell", "#recorded", "#recording", "#alignment error", "lacks"],
                                       map(row, sorted(job.part.ranks)))]
