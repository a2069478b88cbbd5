#!/usr/bin/env python3
"""The rows of pcie.md, OUT/link.json.gz, from the folder of a run of `doorbell bench bandwidth --variant link -o FOLDER`: a row for each cell and process.

    link.py FOLDER OUT
"""

import gzip
import json
import os
import re
import statistics
import sys

import lab


def rows(run):
    sizes = {"B": 1, "KiB": 1024}
    for cell in (cell for cell in run["cells"] if cell["status"] == "measured"):
        to_host = cell["subject"].endswith("to the host")
        ios = re.match(r"(\d+)(B|KiB)(?: x (\d+))? to the", cell["subject"])
        if not ios and cell["bytes"] != 16 << 20:
            continue
        size = int(ios[1]) * sizes[ios[2]] if ios else cell["bytes"]
        named = {"cell.role": "io" if ios else "peak", "cell.target": "host" if to_host else "gpu", "cell.bytes": size, "cell.batch": int(ios[3] or 1) if ios else 1}
        each, link = cell["per_round"], (cell["metered"] or {}).get("link")
        depth = cell["arrival"]["closed"]["depth"]
        crossed = link["from_gpu" if to_host else "to_gpu"] if link else None
        for repeat in sorted(set(each["repeat"])):
            of = [n for n, r in enumerate(each["repeat"]) if r == repeat and each["samples"][n]]
            if not of:
                continue
            # So many are in progress at a time.
            payload = 1e9 * depth * cell["bytes"] / statistics.median(each["p50"][n] for n in of)
            row = {"repeat": repeat, **named, "ios": sum(each["samples"][n] for n in of) * cell["bytes"] // size, "measured.iops": payload / size, "measured.payload": payload}
            if crossed:
                way = "measured.wire.counters." + ("from_gpu" if to_host else "to_gpu")
                row.update({f"{way}.mean": crossed["counted_bytes"] / cell["metered"]["seconds"], f"{way}.bytes": crossed["counted_bytes"],
                            "measured.wire.counters.payload": crossed["payload_bytes"]})
            yield row


def main(folder, out):
    with open(f"{folder}/run.json") as f:
        run = json.load(f)
    lab.write(out, "link", "How full the link gets", ["doorbell", "bench", "bandwidth", "--variant", "link"], list(rows(run)), None, run["environment"]["facts"])
    with open(f"{out}/link.json", "rb") as f, gzip.open(f"{out}/link.json.gz", "wb") as packed:
        packed.write(f.read())
    os.remove(f"{out}/link.json")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
