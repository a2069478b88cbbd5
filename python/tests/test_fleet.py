"""doorbell.fleet without recordings: what is added up and aligned, and who is late. Needs no library; one test needs the command."""

import multiprocessing
import os
import random
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from doorbell import fleet
from doorbell.fleet import _run
from doorbell.fleet._align import align
from doorbell.fleet._command import Command
from doorbell.fleet._find import recordings
from doorbell.fleet._judged import judge
from doorbell.fleet._late import late_ranks
from doorbell.fleet._map import Options, failed, map_recording
from doorbell.fleet._partial import Part, Rank, Row, Steps, merge
from doorbell.fleet._run import run
from doorbell.fleet._text import plain
from doorbell.fleet._find import Recording


def rank(n, **more):
    return Rank(n, f"job.rank{n}.doorbell", host=more.pop("host", f"node{n // 8}"), complete=True, seconds=10.0, world=more.pop("world", None),
                began_ns=more.pop("began_ns", 10**18), **more)


def job(ranks):
    return merge(Part(ranks={n: rank(n)}) for n in range(ranks))


OUTSIDE, GEMM, NCCL, LAUNCH = ("outside", "outside of CUDA's calls"), ("kernels", "gemm"), ("collectives", "nccl"), ("calls", "cuLaunchKernel")


def collectives(ranks, *, late=None, late_s=0.0, turns=False, noise_s=2e-6, offset_s=0.5, drift=0.0, host=None, count=200, spent_on=OUTSIDE, part_of=1.0,
                by="collectives"):
    """Each rank's own clock; `late` begins each collective later (with `turns` each rank in turn), and all end together. What it does in that time is
    `spent_on`, to a part; the rest is spread over calls."""
    rng = random.Random(1)
    parts = []
    for n in range(ranks):
        own_offset, own_drift = rng.uniform(-offset_s, offset_s), rng.uniform(-drift, drift)
        listed, at, rng_steps = {}, 0.0, random.Random(5)
        calls = [("calls", f"cu{k}") for k in range(8)]
        last = None
        for k in range(count):
            at += 0.01 * rng_steps.uniform(0.9, 1.1) + late_s
            end = at + late_s + 0.001 + rng.gauss(0, noise_s)
            by_s = late_s if (k % ranks if turns else late) == n else 0.0
            begin = at + by_s + rng.gauss(0, noise_s)
            more = by_s * 1e9
            ns = [0, 5_000_000, 0, 1_000_000, *[int(more * (1 - part_of) / 8)] * 8]
            columns = [OUTSIDE, GEMM, NCCL, LAUNCH, *calls]
            ns[columns.index(spent_on)] += int(more * part_of)
            if last is not None:
                ns[2] = max(0, int(1e9 * (begin - last)) - sum(ns))
            listed[f"nccl #{k}"] = (*[(t - own_offset) * (1 + own_drift) for t in (begin, end)], ns if last is not None else [])
            last = begin
        own = rank(n, began_ns=10**18 + int(1e9 * own_offset))
        if host:
            own.host = host
        parts.append(Part(ranks={n: own}, steps={by: {n: Steps(count, columns, listed)}}))
    return merge(parts)


class Sums(unittest.TestCase):
    def test_parts_are_merged_in_any_order_and_grouping(self):
        parts = [Part(ranks={n: rank(n)}, rows={"locks": {"queue": {n: Row(n, 10 * n, n)}}}) for n in range(20)]
        whole = merge(parts)
        grouped = merge([merge(parts[10:]), merge(parts[:10])])
        self.assertEqual(whole.rows, grouped.rows)
        self.assertEqual(sorted(whole.ranks), sorted(grouped.ranks))

    def test_of_two_recordings_of_a_rank_the_first_counts_and_the_other_is_named(self):
        first = Part(ranks={0: rank(0)}, rows={"calls": {"f": {0: Row(1, 5)}}})
        second = Part(ranks={0: Rank(0, "old.rank0.doorbell")}, rows={"calls": {"f": {0: Row(9, 900)}}})
        whole = merge([first, second])
        self.assertEqual(whole.rows["calls"]["f"][0], Row(1, 5))
        self.assertIn("old.rank0.doorbell", whole.left_out[0])


class Clocks(unittest.TestCase):
    def test_offsets_and_drifts_are_found_and_the_error_is_that_of_the_ends(self):
        part = collectives(16, offset_s=0.5, drift=20e-6, noise_s=2e-6)
        found = align(part)
        self.assertEqual((found.by, found.one_clock), ("collectives", False))
        self.assertLess(found.error_ns, 20_000)
        self.assertGreater(found.error_ns, 500)
        begins = [found.common(n, part.steps["collectives"][n].list["nccl #150"][0]) for n in range(16)]
        self.assertLess(max(begins) - min(begins), 40e-6)

    def test_the_late_rank_is_named_above_the_error_and_nobody_below_it(self):
        part = collectives(16, late=11, late_s=200e-6)
        verdict = late_ranks(part, align(part))
        self.assertEqual([one.rank for one in verdict.late], [11])
        self.assertAlmostEqual(verdict.late[0].late_ns, 200_000, delta=20_000)
        part = collectives(16, late=11, late_s=200e-6, noise_s=500e-6)
        verdict = late_ranks(part, align(part))
        self.assertEqual(verdict.late, [])
        self.assertIn("error of the alignment", verdict.why_not)

    def test_a_rank_with_other_events_or_another_day_is_left_out_with_the_reason(self):
        part = collectives(16)
        steps = part.steps["collectives"][3]
        times = steps.list
        del times["nccl #199"]
        found = align(part)
        self.assertEqual((found.without, found.events), ({}, 199), "its recording ended before the last one")
        # It began to record later: each of its numbers is that of another collective.
        steps.list = {f"nccl #{n}": times[f"nccl #{n + 1}"] for n in range(198)}
        self.assertIn("198 events", align(part).without[3])
        part = collectives(16)
        part.ranks[5].began_ns += 3600 * 10**9
        self.assertIn("clock", align(part).without[5])

    def test_without_events_the_clocks_of_the_machines_are_used_and_their_error_is_stated(self):
        found = align(job(8))
        self.assertEqual(found.by, "clocks of the machines")
        self.assertEqual(found.error_ns, 0)
        far = merge([Part(ranks={n: rank(n, host=f"node{n}")}) for n in range(8)])
        self.assertEqual(align(far).error_ns, 10_000_000)
        self.assertEqual(late_ranks(far, align(far)).late, [])
        for own in far.ranks.values():
            own.began_ns = None
        self.assertEqual(align(far).by, "nothing")

    def test_on_one_machine_nothing_is_fitted(self):
        # Ranks that ran one after the other: a fit would call that aligned.
        part = collectives(8, host="one")
        for n, own in part.ranks.items():
            own.began_ns = 10**18 + n * 10**9
        self.assertEqual(align(part).by, "clocks of the machines")
        self.assertTrue(align(collectives(8, host="one", offset_s=0.0)).one_clock)


class Two(unittest.TestCase):
    """Two ranks are enough."""

    def verdict(self, **planted):
        part = collectives(2, **planted)
        return late_ranks(part, align(part))

    def test_the_one_that_begins_last_is_late_and_what_it_does_then_is_the_cause(self):
        for spent_on in (OUTSIDE, GEMM, LAUNCH):
            verdict = self.verdict(late=1, late_s=25e-3, spent_on=spent_on)
            self.assertEqual((verdict.by, verdict.together, [one.rank for one in verdict.late]), ("collectives", True, [1]))
            late = verdict.late[0]
            self.assertEqual((late.last_in, late.events), (199, 199))
            self.assertAlmostEqual(late.late_ns, 25_000_000, delta=100_000)
            self.assertEqual((late.because[0].kind, late.because[0].name), spent_on)
            self.assertAlmostEqual(late.because[0].share, 1.0, delta=0.02)

    def test_a_cause_that_explains_less_than_a_third_is_not_the_cause(self):
        verdict = self.verdict(late=1, late_s=25e-3, spent_on=LAUNCH, part_of=0.25)
        causes = verdict.late[0].because
        # (The rest is eight calls of 9 % each, which together are a cause.)
        self.assertEqual([(cause.kind, cause.explains) for cause in causes][:2], [("calls", True), ("calls", False)])
        self.assertIn("9 together, the most cuLaunchKernel", causes[0].name)
        part = collectives(2, late=1, late_s=25e-3, spent_on=LAUNCH, part_of=0.25)
        for steps in part.steps["collectives"].values():
            steps.list = {key: (begin, end, [0, 0, 0, *ns[3:4], *[0] * 8] if ns else []) for key, (begin, end, ns) in steps.list.items()}
        late = late_ranks(part, align(part)).late[0]
        self.assertEqual([cause.explains for cause in late.because], [False])
        said = "\n".join(fleet._text.causes_in_words(late))
        self.assertNotIn("because of", said)
        self.assertIn("not enough to be the cause: call cuLaunchKernel", said)

    def test_ranks_that_take_turns_or_differ_by_little_are_not_late(self):
        for planted in ({"turns": True, "late_s": 5e-3}, {}, {"late": 1, "late_s": 50e-6}):
            verdict = self.verdict(**planted)
            self.assertEqual((verdict.late, verdict.together), ([], True), planted)
            self.assertIn("no rank is often the last one", verdict.why_not)

    def test_without_common_ends_the_same_steps_are_compared(self):
        part = collectives(2, by="ranges step")
        for n, steps in part.steps["ranges step"].items():
            stretched = {}
            for k, (key, (begin, end, ns)) in enumerate(steps.list.items()):
                more = 4_000_000 if n else 0
                stretched[key] = (begin + more * k / 1e9, end + more * k / 1e9, [ns[0] + more, *ns[1:]] if ns else [])
            steps.list = stretched
        verdict = late_ranks(part, align(part))
        self.assertEqual((verdict.by, verdict.together, [one.rank for one in verdict.late]), ("ranges step", False, [1]))
        self.assertEqual((verdict.late[0].because[0].kind, round(verdict.late[0].because[0].share, 2)), ("outside", 1.0))
        verdict = late_ranks(job(2), align(job(2)))
        self.assertIn("neither collectives with a time", verdict.why_not)


@unittest.skipIf("DOORBELL" not in os.environ, "no command in DOORBELL")
class Judged(unittest.TestCase):
    def test_the_command_judges_totals_and_its_answer_is_read(self):
        part, before = job(16), job(8)
        for n, own in [*part.ranks.items(), *before.ranks.items()]:
            own.facts = {"driver": "570.10" if n == 12 else "580.95"}
        for of, ns in ((part, 2_000_000), (before, 500_000_000)):
            of.rows["locks"] = {"queue": {n: Row(20, 80_000_000 if n == 9 else ns) for n in of.ranks}}
        found = judge(Command(os.environ["DOORBELL"], 60.0), part, before)
        self.assertEqual([(one.rank, one.kind, one.name, one.excess_ns) for one in found.outliers], [(9, "locks", "queue", 78_000_000)])
        self.assertEqual([(one.what, one.value, one.ranks, one.usual) for one in found.odd], [("driver", "570.10", [12], "580.95")])
        self.assertEqual([(one.what, one.before, one.after) for one in found.changes.facts], [("ranks", "8", "16")])
        self.assertEqual([(one.name, one.before_ns, one.after_ns) for one in found.changes.times], [("queue", 500_000_000, 2_000_000)])


class Printing(unittest.TestCase):
    def test_names_do_not_act_on_the_terminal(self):
        self.assertEqual(plain("x\x1b]0;T\x07\x9b\u202e\u2066\u200f\u2028\n\té"), "x?]0;T????????é")


class Reading(unittest.TestCase):
    def test_a_folder_without_recordings_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(fleet.NoRecordings, "no recording"):
                recordings(folder)
            # A pipe would be waited for.
            os.mkfifo(os.path.join(folder, "a.rank0.doorbell"))
            with self.assertRaisesRegex(fleet.NoRecordings, "no recording"):
                recordings(folder)
        with self.assertRaisesRegex(fleet.NoRecordings, "no such folder"):
            recordings("/nonexistent")

    def test_a_recording_that_cannot_be_read_is_a_rank_that_failed(self):
        options = Options("/nonexistent/doorbell")
        part = map_recording(Recording("a.rank3.doorbell", 3), options)
        self.assertIn("/nonexistent/doorbell", part.ranks[3].failed)
        part = map_recording(Recording("a.doorbell", None), options)
        self.assertEqual((part.ranks, len(part.left_out)), ({}, 1))

    def test_a_task_that_dies_is_one_rank_and_the_rest_goes_on(self):
        found = [Recording(f"a.rank{n}.doorbell", n) for n in range(40)]
        part, cost = run(found, Options("/nonexistent/doorbell"), workers=2)
        self.assertEqual(len(part.ranks), 40)
        self.assertTrue(all(own.failed for own in part.ranks.values()))
        self.assertGreater(cost.moved_bytes, 0)
        part = merge([failed(found[3], "its task failed: KilledWorker"), job(3)])
        self.assertEqual(sorted(part.ranks), [0, 1, 2, 3])


    @unittest.skipIf(multiprocessing.get_start_method() != "fork", "processes are not forked here")
    def test_a_process_that_is_killed_ends_nothing(self):
        real, _run.sized = _run.sized, dies_in_a_child
        try:
            found = [Recording(f"a.rank{n}.doorbell", n) for n in range(40)]
            part, _ = run(found, Options("/nonexistent/doorbell"), workers=2, processes=True)
        finally:
            _run.sized = real
        self.assertEqual(len(part.ranks), 40)
        self.assertIn("/nonexistent/doorbell", part.ranks[3].failed)


def dies_in_a_child(recording, options, parent=os.getpid()):
    if recording.rank == 3 and os.getpid() != parent:
        os._exit(1)
    part = map_recording(recording, options)
    return part, 1


if __name__ == "__main__":
    unittest.main()
