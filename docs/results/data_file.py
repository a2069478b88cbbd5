"""Writes the rows of a page's table as a data file (docs/reference/data-files.md)."""

import json
import os
import sys


def write(name, about, command, commit, started, machine, rows):
    """data/NAME.json, a line for each row."""
    head = {"schema": "doorbell.rows/1", "name": name, "about": about, "doorbell": "0.1.0", "commit": commit, "command": command,
            "started": started, "functional": False, "complete": True, "machine": machine, "experiment": "", "rows": []}
    text = ",\n".join(json.dumps(row, separators=(",", ":"), sort_keys=True) for row in rows)
    here = os.path.dirname(os.path.abspath(__file__))
    with open(f"{here}/data/{name}.json", "w") as f:
        f.write(json.dumps(head, separators=(",", ":"))[:-2] + "\n" + text + "]}\n")


def command(about, run, rows):
    """Calls what the command line names: `run A B` or `rows A B`; prints `about` otherwise."""
    function = {"run": run, "rows": rows}.get(sys.argv[1]) if len(sys.argv) == 4 else None
    if function is None:
        raise SystemExit(about)
    function(*sys.argv[2:])
