"""Parquet of all ranks in one folder: `table=copies/rank=3/part.parquet`. DuckDB, pandas, Polars and Spark read the two keys as columns."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Sequence

from ._command import Command


def write_tables(command: Command, where: Sequence[str], rank: int, folder: str) -> None:
    """One rank's, made beside their place and moved there: a table is there as a whole or not at all."""
    os.makedirs(folder, exist_ok=True)
    made = tempfile.mkdtemp(prefix=f".rank{rank}-", dir=folder)
    try:
        exported = os.path.join(made, "tables")
        command.run(["export", "--parquet", *where, "-o", exported])
        for name in sorted(os.listdir(exported)):
            table, extension = os.path.splitext(name)
            if extension != ".parquet":
                continue
            to = os.path.join(folder, f"table={table}", f"rank={rank}")
            os.makedirs(to, exist_ok=True)
            os.replace(os.path.join(exported, name), os.path.join(to, "part.parquet"))
    finally:
        shutil.rmtree(made, ignore_errors=True)
