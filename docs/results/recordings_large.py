#!/usr/bin/env python3
"""How long readers of a recording of ten million submissions take, without its stored summary and with it.

docs/results/recordings_large.py LARGE FOLDER    LARGE: cargo build --release -p decode --example large; the data file goes into FOLDER
"""

import json
import os
import subprocess
import sys

import data_file

SUBMISSIONS = 10_000_000
TURNS = 2


def main():
    large, folder = sys.argv[1:]
    tape, rows = f"{folder}/large.doorbell", []
    say = lambda *words: subprocess.run([large, *words], check=True, capture_output=True, text=True).stdout
    for turn in range(TURNS):
        say("write", tape, str(SUBMISSIONS))
        for stored in (False, True):
            if stored:
                say("store", tape)
            rows += [{"stored": stored, "what": row["what"], "seconds": row["seconds"], "cpu_seconds": row["cpu"], "walked": row["walked"]}
                     for row in json.loads(say("time", tape))]
    facts = {"cpu.online": os.cpu_count(), "host.virtual_machine": True, "recording.bytes": os.path.getsize(tape)}
    os.remove(tape)
    data_file.write(folder, "recordings-large", "Readers of a recording of ten million submissions", ["docs/results/recordings_large.py"], rows, facts=facts)


main()
