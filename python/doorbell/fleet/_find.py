"""The recordings of a job."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import List, Optional

_RANK = re.compile(r"\.rank(\d+)\.")


class NoRecordings(Exception):
    """The folder has none."""


@dataclass(frozen=True)
class Recording:
    path: str
    # From its name, `app.rank3.doorbell`; None: the recording itself has to have it.
    rank: Optional[int]


def recordings(folder: str) -> List[Recording]:
    """Those of a folder and of its folders, one of each machine for example, by rank, then by name."""
    if not os.path.isdir(folder):
        raise NoRecordings(f"{folder}: no such folder")
    found: List[Recording] = []
    for where, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = os.path.join(where, name)
            # (A pipe would be waited for.)
            if name.endswith(".doorbell") and os.path.isfile(path):
                rank = _RANK.search(name)
                found.append(Recording(path, int(rank.group(1)) if rank else None))
    if not found:
        raise NoRecordings(f"{folder}: no recording (*.doorbell) in it; `srun doorbell record -o job.doorbell ./app` makes one of each rank")
    # Of two recordings of a rank the one that was written last comes first, and is the one that counts.
    found.sort(key=lambda r: (r.rank is None, r.rank or 0, -os.path.getmtime(r.path), r.path))
    return found
