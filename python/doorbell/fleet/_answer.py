"""The answer of one job, from the folder to what is printed."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, dataclass
from typing import Any, Dict, List, Optional

from ._align import Alignment, align
from ._command import Command, find
from ._find import recordings
from ._judged import Changes, Odd, Outlier, judge
from ._late import Verdict, late_ranks
from ._map import Options
from ._partial import Part
from ._run import Cost, run

SCHEMA = "doorbell.fleet/2"


@dataclass
class Job:
    """What is known of a job. `part` has the sums and the rows of all ranks."""

    folder: str
    part: Part
    # Ranks of which no recording is there, and those whose recording could not be read, with the reason.
    missing: List[int]
    failed: Dict[int, str]
    alignment: Alignment
    verdict: Verdict
    # With fewer, rows are not compared.
    minimum_ranks: int
    outliers: List[Outlier]
    odd: List[Odd]
    changes: Optional[Changes]
    cost: Cost
    tables: Optional[str] = None

    @property
    def whole(self) -> bool:
        """Every rank has its answer."""
        return not self.missing and not self.failed

    @property
    def on_software(self) -> bool:
        """A rank was recorded on the software GPU."""
        return any(rank.facts.get("GPU") == "software GPU" for rank in self.part.ranks.values())

    def as_json(self) -> Dict[str, Any]:
        """Plain values, as docs/reference/fleet.md lists them."""
        part = self.part
        return {
            "schema": SCHEMA,
            "folder": self.folder,
            "ranks": [asdict(part.ranks[n]) for n in sorted(part.ranks)],
            "missing": self.missing,
            "failed": {str(n): why for n, why in self.failed.items()},
            "left_out": part.left_out,
            "software_gpu": self.on_software,
            "alignment": {"by": self.alignment.by, "one_clock": self.alignment.one_clock, "error_ns": self.alignment.error_ns,
                          "worst_ns": self.alignment.worst_ns, "worst_rank": self.alignment.worst_rank, "events": self.alignment.events,
                          "without": {str(n): why for n, why in self.alignment.without.items()}},
            "minimum_ranks": self.minimum_ranks,
            "compared_by": self.verdict.by,
            "together": self.verdict.together,
            "late": [asdict(one) for one in self.verdict.late],
            "no_verdict": self.verdict.why_not,
            "outliers": [asdict(one) for one in self.outliers],
            "odd": [asdict(one) for one in self.odd],
            "totals": totals(part),
            "changes": None if self.changes is None else asdict(self.changes),
            "tables": self.tables,
            "cost": asdict(self.cost),
        }


def totals(part: Part) -> List[Dict[str, Any]]:
    """Each row over all ranks: how often, how long in all, and the rank of the longest."""
    out: List[Dict[str, Any]] = []
    for kind, names in part.rows.items():
        for name, rows in names.items():
            longest = max(rows, key=lambda n: rows[n].longest_ns)
            out.append({"kind": kind, "name": name, "ranks": len(rows), "count": sum(row.count for row in rows.values()),
                        "ns": sum(row.ns for row in rows.values()), "bytes": sum(row.bytes for row in rows.values()),
                        "longest_ns": rows[longest].longest_ns, "longest_rank": longest})
    out.sort(key=lambda row: (row["kind"], -row["ns"], -row["count"], row["name"]))
    return out


def analyse(folder: str, *, before: Optional[str] = None, client: Any = None, workers: Optional[int] = None,
            processes: bool = False, command: Optional[str] = None, collectives: str = "nccl",
            tables: Optional[str] = None, force: bool = False, timeout: float = 3600.0) -> Job:
    """Reads the recordings of a job and answers: which rank is late and because of what, what is unlike on one rank, and, with the
    folder of a run `before`, what changed.

    `client` is a `distributed.Client` or a cluster; without it `workers` threads (or processes) of this machine do the same.
    `tables` is a folder for the Parquet files of all ranks.
    """
    options = Options(find(command), collectives, None if tables is None else os.path.abspath(tables), timeout)
    if tables is not None:
        _make_room(tables, force)
    found = recordings(folder)
    part, cost = run(found, options, client=client, workers=workers, processes=processes)
    then = None
    if before is not None:
        earlier = Options(options.program, collectives, None, timeout)
        then, _ = run(recordings(before), earlier, client=client, workers=workers, processes=processes)
    judged = judge(Command(options.program, timeout), part, then)
    failed = {n: rank.failed for n, rank in sorted(part.ranks.items()) if rank.failed is not None}
    worlds = [rank.world for rank in part.ranks.values() if rank.world]
    world = max([*worlds, *(n + 1 for n in part.ranks)], default=0)
    missing = [n for n in range(world) if n not in part.ranks]
    alignment = align(part)
    return Job(folder, part, missing, failed, alignment, late_ranks(part, alignment), **vars(judged), cost=cost, tables=tables)


def _make_room(folder: str, force: bool) -> None:
    """The tables of another job would be read as some of this one's."""
    there = [name for name in os.listdir(folder) if name.startswith("table=")] if os.path.isdir(folder) else []
    if there and not force:
        raise FileExistsError(f"{folder}: it has tables of another run: give another folder, or --force")
    for name in there:
        shutil.rmtree(os.path.join(folder, name))
