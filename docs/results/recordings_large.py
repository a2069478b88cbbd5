#!/usr/bin/env python3
"""How long readers of a recording of ten million submissions take, without its stored summary and with it.

docs/results/recordings_large.py run LARGE FOLDER    LARGE: cargo build --release -p decode --example large; the data file goes into FOLDER
"""

import json
import os

import lab

SUBMISSIONS = 10_000_000
TURNS = 2


def run(large, folder):
    tape, rows = f"{folder}/large.doorbell", []
    say = lambda *words: lab.said([large, *words], None)
    for turn in range(TURNS):
        say("write", tape, str(SUBMISSIONS))
        for stored in (False, True):
            if stored:
                say("store", tape)
            rows += [{"stored": stored, "what": row["what"], "seconds": row["seconds"], "cpu_seconds": row["cpu"], "walked": row["walked"]}
                     for row in json.loads(say("time", tape))]
    facts = {"cpu.online": os.cpu_count(), "host.virtual_machine": True, "recording.bytes": os.path.getsize(tape)}
    os.remove(tape)
    lab.write(folder, "recordings-large", "Readers of a recording of ten million submissions", ["docs/results/recordings_large.py", "run"], rows, facts=facts)


if __name__ == "__main__":
    lab.main(__doc__, run=run)
