"""The graphs of recordings as one table: python3 table.py OUT

OUT is what docs/results/graphs.sh left: NAME.graphs.json and NAME.launches.json (`doorbell show --graphs --json`, `--launches --json`) of each recording, and
NAME.err, what the program said. In recordings of `doorbell sample graphs` (shapes.json lists its shapes) a kernel with (number, 61, 1) blocks
stands in front of each shape.
"""

import bisect
import json
import re
import sys
from collections import defaultdict
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import lab  # noqa: E402  (the path must be set before)

MARK = 61
# Of the program: `12 diamond: 6 launches`, `29 cooperative: skipped, ...`, `shape 3, chain-10: ...`.
SAID = re.compile(r"^(?:shape )?(\d+),? ([a-z0-9A-Z-]+): (.*)$")

RAN = re.compile(r"^\d+ launches$")


def read(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def marks(launches):
    """Submission and number of each kernel that tells a shape, in order."""
    found = []
    for launch in launches or []:
        shape = launch["shape"] or {}
        if shape.get("grid", [0, 0, 0])[1:] == [MARK, 1] and shape.get("block") == [1, 1, 1]:
            found.append((launch["submission"], shape["grid"][0]))
    return sorted(found)


def by_shape(graphs, found, done):
    """Graphs by the number of their shape. Without marks (a libcuda in software sends no such kernel): in the order of the shapes that ran, if there
    is one graph for each, and two of two-graphs."""
    rows = defaultdict(list)
    if found:
        starts = [submission for submission, _ in found]
        for graph in graphs:
            begins = graph["uploaded_by"] if graph["uploaded_by"] is not None else graph["submission"]
            at = bisect.bisect_right(starts, begins) - 1
            rows[found[at][1] if at >= 0 else None].append(graph)
        return rows
    order = [number for number, name in done for _ in range(2 if name == "two-graphs" else 1)]
    for number, graph in zip(order if len(order) == len(graphs) else [None] * len(graphs), graphs):
        rows[number].append(graph)
    return rows


def row(name, graph):
    sent, upload, recipe = graph["launch"], graph["upload"] or {}, graph["recipe"]
    inside = ["", "", ""]
    if recipe:
        channels = 1 + max((g["channel"] for g in recipe["groups"]), default=0)
        inside = [f"{recipe['kernels']} / {len(recipe['nodes'])}", len(recipe["groups"]), channels]
    verdict = "understood" if recipe else "refused: " + graph["refused"]
    return [name, verdict, *inside, graph["launches"], sent["submissions"], sent["words"], upload.get("words", "")]


def lines_of(path):
    try:
        return [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return []


def shapes(out, known):
    """What the program said of each shape, and its graphs. A shape that did not run in the recording of all has a recording of its own, which counts."""
    rows, said, of = [], {}, defaultdict(list)
    recordings = sorted(out.glob("shapes*.graphs.json"), key=lambda path: (path.name != "shapes.graphs.json", path.name))
    for path in recordings:
        stem = path.name.removesuffix(".graphs.json")
        here = [SAID.match(line) for line in lines_of(out / f"{stem}.err")]
        here = {int(m[1]): m[3] for m in here if m and known.get(int(m[1])) == m[2]}
        said.update(here)
        done = [(number, known[number]) for number in sorted(here) if RAN.match(here[number])]
        for number, graphs in by_shape(read(path) or [], marks(read(out / f"{stem}.launches.json")), done).items():
            of[number] += graphs
    errors = [line for line in lines_of(out / "shapes.err") if line.startswith("error")]
    silent = (errors or ["did not run"])[0] if not said else "did not run"
    for number, name in sorted(known.items()):
        verdict = said.get(number, silent)
        if not of[number]:
            rows.append([name, "no graph on the tape" if RAN.match(verdict) else verdict] + [""] * 7)
        rows += [row(name, graph) for graph in of[number]]
    rows += [row("(of no shape)", graph) for graph in of[None]]
    return rows


def networks(out):
    rows = []
    for err in sorted(out.glob("torch-*.err")):
        name = err.stem.removeprefix("torch-")
        graphs = read(out / f"{err.stem}.graphs.json") or []
        if not graphs:
            lines = lines_of(out / f"{err.stem}.txt") + lines_of(err)
            why = next((line for line in lines if line.startswith(("skipped", "error"))), (lines or ["no output"])[-1])
            rows.append([name, "no graph on the tape: " + why] + [""] * 7)
        rows += [row(name, graph) for graph in graphs]
    return rows


def main():
    out = Path(sys.argv[1])
    known = {s["number"]: s["name"] for s in map(json.loads, lines_of(out / "shapes.json"))}
    heads = ["graph", "understood?", "kernels / nodes", "groups", "channels", "launches", "submissions", "words", "words of the upload"]
    all_rows = shapes(out, known) + networks(out)
    lab.table(heads, all_rows, 2)
    understood = sum(cells[1] == "understood" for cells in all_rows)
    refused = sum(str(cells[1]).startswith("refused") for cells in all_rows)
    print(f"\n{understood} graphs understood, {refused} refused, {len(all_rows) - understood - refused} not recorded")


if __name__ == "__main__":
    main()
