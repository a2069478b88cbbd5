"""Recordings of all ranks of a job as one answer: which rank is late, on which call, kernel or lock, what is unlike on one rank, and
what changed since the run before.

    from doorbell import fleet

    job = fleet.analyse("job/")                     # threads of this machine
    job = fleet.analyse("job/", client=client)      # a Client or a cluster of Dask
    print(fleet.text(job))

`python -m doorbell.fleet job/` prints the same. The command `doorbell` reads each recording where it lies; only its totals travel.
This needs neither a GPU nor any package; Dask, DuckDB and pandas are used if they are there.
"""

from ._align import Alignment
from ._answer import Job, analyse
from ._command import CommandFailed
from ._find import NoRecordings
from ._judged import Change, Changes, Odd, Outlier
from ._late import Cause, Late, Verdict
from ._page import page
from ._partial import Part, Rank, Row
from ._text import text

__all__ = ["Alignment", "Cause", "Change", "Changes", "CommandFailed", "Job", "Late", "NoRecordings", "Odd", "Outlier",
           "Part", "Rank", "Row", "Verdict", "analyse", "page", "text"]
