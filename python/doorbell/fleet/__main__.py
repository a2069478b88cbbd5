"""`python -m doorbell.fleet JOB_FOLDER`. Exit status: 0 every rank is in the answer, 2 one is missing or an error."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, List, Optional

from . import CommandFailed, NoRecordings, analyse, page, text
from ._text import plain


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m doorbell.fleet", description="Which rank of a job is slow, and why")
    parser.add_argument("folder", metavar="JOB_FOLDER", help="has a recording of each rank, also in folders of its own")
    parser.add_argument("--before", metavar="FOLDER", help="recordings of a run before: what changed since")
    parser.add_argument("--html", metavar="FILE", help="write one page that needs no network, for example job.html")
    parser.add_argument("--json", action="store_true", help="JSON, numbers as numbers")
    parser.add_argument("--tables", metavar="DIR", help="leave Parquet of all ranks in DIR/table=NAME/rank=N")
    parser.add_argument("--force", action="store_true", help="replace the file of --html and the tables of --tables")
    parser.add_argument("--workers", type=int, metavar="N", help="so many threads of this machine read recordings")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of Dask, for example tcp://head:8786: its workers read the recordings")
    parser.add_argument("--collectives", metavar="REGEX", default="nccl",
                        help="names of kernels that all ranks run together (default: nccl)")
    parser.add_argument("--command", metavar="PATH", help="the command doorbell; else that of DOORBELL, or in PATH")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", default=3600.0, help="of one view of one recording")
    return parser


def _client(address: Optional[str]) -> Any:
    if address is None:
        return None
    try:
        from distributed import Client
    except ImportError:
        raise CommandFailed("--scheduler needs Dask: pip install 'doorbell-gpu[fleet]'") from None
    return Client(address)


def main(argv: Optional[List[str]] = None) -> int:
    asked = arguments().parse_args(argv)
    try:
        if asked.html and os.path.exists(asked.html) and not asked.force:
            raise FileExistsError(f"{asked.html} exists: --force replaces it")
        job = analyse(asked.folder, before=asked.before, client=_client(asked.scheduler), workers=asked.workers,
                      command=asked.command, collectives=asked.collectives, tables=asked.tables, force=asked.force,
                      timeout=asked.timeout)
        if asked.html:
            with open(asked.html, "w", encoding="utf-8") as out:
                out.write(page(job))
    except (CommandFailed, NoRecordings, OSError) as error:
        print(plain(f"error: {error}"), file=sys.stderr)
        return 2
    if asked.json:
        json.dump(job.as_json(), sys.stdout, indent=2)
        print()
    else:
        sys.stdout.write(text(job))
    return 0 if job.whole else 2


if __name__ == "__main__":
    sys.exit(main())
