"""doorbell.fleet on recorded jobs: 64 ranks on the software GPU with planted differences. Skips say what is missing.

Needs the command in DOORBELL and softcuda's library in DOORBELL_SOFTCUDA, and a C compiler. Dask, DuckDB and pandas are used where they are.
"""

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "fleet")]

from doorbell import fleet
from planted import Maker, Missing, Plan, planted, rewrite_header

try:
    import duckdb
except ImportError:
    duckdb = None
try:
    import pandas
    import pyarrow
except ImportError:
    pandas = pyarrow = None
try:
    import distributed
except ImportError:
    distributed = None
try:
    from hta.trace_analysis import TraceAnalysis
except ImportError:
    TraceAnalysis = None

RANKS = 64
maker = None
root = None


def setUpModule():
    global maker, root
    try:
        maker = Maker()
    except Missing as why:
        raise unittest.SkipTest(str(why))
    root = tempfile.mkdtemp(prefix="doorbell-fleet-jobs-")
    maker.one_after_the_other(os.path.join(root, "job"), loud(RANKS))


def loud(ranks):
    """More than what the scheduler of a busy machine takes from a rank."""
    return planted(ranks, held_us=15_000, reads=400)


def tearDownModule():
    if maker is not None:
        maker.close()
        shutil.rmtree(root, ignore_errors=True)


def job():
    return os.path.join(root, "job")


def copied(name, ranks):
    """Some ranks of the job in a folder of their own."""
    to = os.path.join(root, name)
    shutil.rmtree(to, ignore_errors=True)
    os.makedirs(to)
    for n in ranks:
        shutil.copy(os.path.join(job(), f"job.rank{n}.doorbell"), to)
    return to


def shown(folder, rank, view, *more):
    path = os.path.join(folder, f"job.rank{rank}.doorbell")
    return json.loads(subprocess.run([maker.doorbell, "show", view, "--json", *more, path], stdout=subprocess.PIPE, check=True).stdout)


def worst(found, kind, word):
    """The rank that is the furthest above the median in a row."""
    rows = [one for one in found.outliers if one.kind == kind and word in one.name and one.excess_ns > 0]
    return rows[0].rank if rows else None


class Planted(unittest.TestCase):
    def test_one_command_names_each_planted_difference(self):
        found = fleet.analyse(job())
        self.assertTrue(found.whole and not found.part.left_out, found.failed)
        self.assertEqual(sorted(found.part.ranks), list(range(RANKS)))
        self.assertEqual(worst(found, "locks", "queue_lock"), RANKS // 2)
        self.assertEqual(worst(found, "copies", "host to device"), RANKS // 2 + 1)
        odd = {(one.what, one.value): one.ranks for one in found.odd}
        self.assertEqual(odd["driver", "9.99"], [RANKS - 2])
        self.assertEqual(odd["kernel release", "5.4.0"], [RANKS - 1])
        self.assertEqual(odd["launches", "16"], [1])
        # They ran one after the other and waited for nobody: the same steps are compared, and two ranks are slower.
        self.assertFalse(found.verdict.together)
        slower = {one.rank: [cause.kind for cause in one.because] for one in found.verdict.late}
        self.assertIn("locks", slower[RANKS // 2])
        self.assertIn("copies", slower[RANKS // 2 + 1])
        said = fleet.text(found)
        for words in (f"rank {RANKS // 2}: lock queue_lock", f"rank {RANKS // 2 + 1}: copies host to device", f"rank {RANKS - 2}: driver: 9.99"):
            self.assertIn(words, said)

    def test_sums_are_those_of_the_command(self):
        some = copied("sums", range(6))
        found = fleet.analyse(some)
        launches = sum(shown(some, n, "--summary")["launches"] for n in range(6))
        self.assertEqual(sum(own.counts["launches"] for own in found.part.ranks.values()), launches)
        waits = [lock for n in range(6) for lock in shown(some, n, "--locks")["locks"] if lock["contended"]]
        rows = found.part.rows["locks"]
        # (To the rounding of each.)
        self.assertAlmostEqual(sum(row.ns for ranks in rows.values() for row in ranks.values()), sum(lock["wait_ns"] for lock in waits), delta=len(waits))
        self.assertEqual(sum(row.count for ranks in rows.values() for row in ranks.values()), sum(lock["contended"] for lock in waits))

    def test_ranks_that_run_together_have_a_late_one_and_its_lock(self):
        plans = [Plan(steps=30) for _ in range(8)]
        plans[2].held_us = 25_000
        folder = os.path.join(root, "together")
        maker.together(folder, plans)
        found = fleet.analyse(folder)
        self.assertTrue(found.alignment.one_clock)
        self.assertEqual(found.alignment.by, "calls cuCtxSynchronize")
        late = found.verdict.late[0]
        self.assertEqual(late.rank, 2, fleet.text(found))
        self.assertGreater(late.late_ns, late.error_ns)
        self.assertEqual((late.because[0].kind, "queue_lock" in late.because[0].name), ("locks", True))

    def test_kernels_with_times_of_the_gpu_are_the_events_where_they_are_collectives(self):
        # (The software GPU's kernels have no names.)
        found = fleet.analyse(copied("collectives", range(2, 8)), collectives="^without a name")
        runs = json.loads(subprocess.run([maker.doorbell, "show", "--gpu-times", "--json", os.path.join(job(), "job.rank5.doorbell")],
                                         stdout=subprocess.PIPE, check=True).stdout)["runs"]
        (steps,) = [steps for by, of in found.part.steps.items() if by == "collectives" for rank, steps in of.items() if rank == 5]
        self.assertEqual((steps.events, len(steps.list)), (len(runs), len(runs)))
        begin, end, _ = list(steps.list.values())[-1]
        self.assertAlmostEqual(begin, runs[-1]["start_seconds"], delta=1e-6)
        self.assertAlmostEqual(end, runs[-1]["end_seconds"], delta=1e-6)

    def test_what_a_rank_did_adds_up_to_its_time(self):
        found = fleet.analyse(copied("adds", range(2)))
        for by, of in found.part.steps.items():
            for steps in of.values():
                begins = [begin for begin, _, _ in steps.list.values()]
                for before, (begin, _, ns) in zip(begins, list(steps.list.values())[1:]):
                    self.assertAlmostEqual(sum(ns), 1e9 * (begin - before), delta=100, msg=by)

    def test_the_page_needs_no_network(self):
        found = fleet.analyse(copied("page", range(RANKS // 2 - 3, RANKS // 2 + 4)))
        page = fleet.page(found)
        self.assertIn("queue_lock", page)
        for word in ("http:", "https:", "<script", "src=", "@import", "url("):
            self.assertNotIn(word, page)


class TwoRanks(unittest.TestCase):
    """Each is recorded with a plant in rank 1."""

    def found(self, name, plant, options=("--gpu-times", "--locks")):
        plans = [Plan(steps=30, options=list(options)) for _ in range(2)]
        plans[1] = Plan(steps=30, options=list(options), **plant)
        folder = os.path.join(root, name)
        maker.together(folder, plans)
        return fleet.analyse(folder)

    def test_the_late_one_is_named_with_what_explains_it(self):
        for name, plant, options, kind, words in (
                ("asleep", {"sleep_us": 25_000}, ["--gpu-times", "--locks"], "outside", "outside of CUDA's calls"),
                ("held", {"held_us": 25_000}, ["--gpu-times", "--locks"], "locks", "queue_lock"),
                ("calls", {"sleep_us": 25_000}, ["--calls"], "outside", "outside of CUDA's calls")):
            found = self.found(name, plant, options)
            said = fleet.text(found)
            self.assertEqual([one.rank for one in found.verdict.late], [1], said)
            self.assertTrue(found.verdict.together)
            cause = found.verdict.late[0].because[0]
            self.assertTrue(cause.kind == kind and words in cause.name and cause.share > 0.5, said)
            self.assertIn("rank 1 is late", said)
            self.assertIn("because of ", said)

    def test_ranks_that_do_not_wait_for_each_other_are_compared_by_their_steps(self):
        folder = os.path.join(root, "alone")
        maker.one_after_the_other(folder, [Plan(steps=30), Plan(steps=30, sleep_us=25_000)])
        found = fleet.analyse(folder)
        said = fleet.text(found)
        self.assertEqual([one.rank for one in found.verdict.late], [1], said)
        self.assertEqual((found.verdict.together, found.verdict.late[0].because[0].kind), (False, "outside"), said)
        self.assertIn("The ranks do not wait for each other there: no collectives were found", said)


class InOtherTools(unittest.TestCase):
    @unittest.skipIf(TraceAnalysis is None, "Holistic Trace Analysis is not installed")
    def test_holistic_trace_analysis_reads_all_ranks_and_their_bandwidth(self):
        folder, traces = copied("hta", range(2)), os.path.join(root, "hta.traces")
        os.makedirs(traces, exist_ok=True)
        for n in range(2):
            subprocess.run([maker.doorbell, "export", "--kineto", os.path.join(folder, f"job.rank{n}.doorbell"), "-o", os.path.join(traces, f"{n}.json")],
                           check=True)
        logging.disable(logging.INFO)
        read = TraceAnalysis(trace_dir=traces)
        self.assertEqual(sorted(read.t.get_all_traces()), [0, 1])
        kernels, _ = read.get_gpu_kernel_breakdown(visualize=False)[:2]
        self.assertGreater(len(kernels), 0)
        self.assertEqual(sorted(read.get_temporal_breakdown(visualize=False)["rank"]), [0, 1])
        self.assertEqual(sorted(set(read.get_memory_bw_summary(ranks=[0, 1]).index.get_level_values(0))), [0, 1])
        for n in range(2):
            copied_by = shown(folder, n, "--copies")
            (least, most) = (f([copy["bytes"] / (int(copy["gpu"]["end_ns"]) - int(copy["gpu"]["start_ns"])) for copy in copied_by if copy["gpu"]]) for f in (min, max))
            trace = read.t.get_trace(n)
            seen = trace[trace["memory_bw_gbps"] > 0]["memory_bw_gbps"]
            self.assertEqual(len(seen), sum(copy["gpu"] is not None for copy in copied_by))
            self.assertTrue(0.9 * least <= seen.min() <= seen.max() <= 1.1 * most, (least, most, seen.min(), seen.max()))


class Runs(unittest.TestCase):
    def test_what_changed_since_the_run_before(self):
        before, after = os.path.join(root, "before"), os.path.join(root, "after")
        maker.one_after_the_other(before, [Plan() for _ in range(8)])
        maker.one_after_the_other(after, [Plan(held_us=6000, header={"driver": "9.99"}) for _ in range(8)])
        found = fleet.analyse(after, before=before)
        self.assertIn(("driver", "soft", "9.99"), [(one.what, one.before, one.after) for one in found.changes.facts])
        locks = [one for one in found.changes.times if one.kind == "locks"]
        self.assertTrue(locks and "queue_lock" in locks[0].name and locks[0].after_ns > 3 * locks[0].before_ns, found.changes)
        self.assertIn("now 9.99", fleet.text(found))


class BadInputs(unittest.TestCase):
    def test_missing_cut_and_broken_recordings_are_named_and_the_rest_is_answered(self):
        folder = os.path.join(root, "bad")
        maker.one_after_the_other(folder, loud(12))
        path = os.path.join(folder, "job.rank{}.doorbell").format
        with open(path(3), "r+b") as file:
            file.truncate(os.path.getsize(path(3)) // 2)
        with open(path(4), "wb") as file:
            file.write(b"no recording")
        with open(path(5), "wb"):
            pass
        rewrite_header(path(2), "doorbell", "0.0.9")
        os.remove(path(8))
        with open(os.path.join(folder, "norank.doorbell"), "wb") as file:
            file.write(b"nothing")
        found = fleet.analyse(folder)
        self.assertEqual(found.missing, [8])
        self.assertEqual(sorted(found.failed), [4, 5])
        self.assertIn("not a doorbell recording", found.failed[4])
        self.assertTrue(any("damage" in why for why in found.part.ranks[3].lacks), found.part.ranks[3].lacks)
        self.assertIn(("doorbell", "0.0.9", [2]), [(one.what, one.value, one.ranks) for one in found.odd])
        self.assertTrue(any("norank.doorbell" in why for why in found.part.left_out))
        self.assertEqual(worst(found, "locks", "queue_lock"), 6)
        said = fleet.text(found)
        self.assertIn("MISSING: no recording of rank 8", said)
        self.assertIn("FAILED: rank 4", said)

    def test_one_recording_of_several_ranks_gives_each_of_them(self):
        folder = os.path.join(root, "several")
        os.makedirs(folder, exist_ok=True)
        each = "for n in 0 1 2 3 4 5; do held=100; [ $n = 4 ] && held=15000; RANK=$n WORLD_SIZE=6 LD_LIBRARY_PATH={0} {1} 20 $held 4 0 & done; wait"
        maker.recorded(os.path.join(folder, "node.doorbell"), ["sh", "-c", each.format(maker.dir, maker.program)])
        found = fleet.analyse(folder)
        self.assertEqual((sorted(found.part.ranks), found.missing, found.failed), (list(range(6)), [], {}))
        self.assertEqual({own.counts["launches"] for own in found.part.ranks.values()}, {4})
        self.assertEqual(worst(found, "locks", "queue_lock"), 4)

    def test_a_recording_without_times_locks_or_calls_says_so(self):
        folder = os.path.join(root, "bare")
        maker.one_after_the_other(folder, [Plan(options=[]) if n == 2 else Plan(options=["--calls"]) if n == 3 else Plan() for n in range(6)])
        found = fleet.analyse(folder)
        self.assertTrue(found.whole)
        self.assertTrue(any("--gpu-times" in why for why in found.part.ranks[3].lacks), found.part.ranks[3].lacks)
        self.assertTrue(any("without --locks" in why for why in found.part.ranks[2].lacks), found.part.ranks[2].lacks)

    def test_the_command_line(self):
        folder = copied("line", range(8))
        page, tables = os.path.join(root, "job.html"), os.path.join(root, "line.tables")
        environment = {**os.environ, "PYTHONPATH": os.path.join(HERE, "..")}

        def line(*arguments):
            return subprocess.run([sys.executable, "-m", "doorbell.fleet", *arguments], env=environment, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, check=False, text=True)

        out = line(folder, "--html", page, "--json")
        self.assertEqual((out.returncode, out.stderr), (2, ""), "56 ranks are missing")
        answer = json.loads(out.stdout)
        self.assertEqual((answer["schema"], len(answer["ranks"]), len(answer["missing"])), ("doorbell.fleet/2", 8, RANKS - 8))
        self.assertTrue(os.path.getsize(page) > 1000)
        out = line(folder, "--html", page)
        self.assertIn("--force", out.stderr)
        empty = os.path.join(root, "empty")
        os.makedirs(empty, exist_ok=True)
        out = line(empty)
        self.assertEqual(out.returncode, 2)
        self.assertTrue(out.stderr.startswith("error: ") and "no recording" in out.stderr, out.stderr)
        self.assertFalse(os.path.exists(tables))


class Tables(unittest.TestCase):
    def setUp(self):
        self.folder = copied("some", range(4))
        self.tables = os.path.join(root, "tables")
        shutil.rmtree(self.tables, ignore_errors=True)
        self.found = fleet.analyse(self.folder, tables=self.tables)

    def test_they_are_there_and_not_mixed_with_those_of_another_run(self):
        self.assertEqual(sorted(os.listdir(os.path.join(self.tables, "table=copies"))), [f"rank={n}" for n in range(4)])
        self.assertEqual([name for name in os.listdir(self.tables) if not name.startswith("table=")], [])
        with self.assertRaises(FileExistsError):
            fleet.analyse(self.folder, tables=self.tables)
        fleet.analyse(copied("fewer", range(2)), tables=self.tables, force=True)
        self.assertEqual(sorted(os.listdir(os.path.join(self.tables, "table=copies"))), ["rank=0", "rank=1"])

    @unittest.skipIf(duckdb is None, "duckdb is not installed")
    def test_duckdb_counts_what_the_command_counts(self):
        def counts(sql):
            return dict(duckdb.sql(sql.format(tables=self.tables)).fetchall())

        read = "read_parquet('{tables}/table=%s/*/*.parquet', hive_partitioning = true)"
        summaries = {n: shown(self.folder, n, "--summary") for n in range(4)}
        copies = counts(f"select rank, count(*) from {read % 'copies'} where mode = 'copy_engine' group by rank")
        self.assertEqual(copies, {n: s["copies"]["copy_engine"] for n, s in summaries.items()})
        moved = counts(f"select rank, sum(bytes)::bigint from {read % 'copies'} where mode = 'copy_engine' group by rank")
        self.assertEqual(moved, {n: s["copies"]["copy_engine_detail"]["bytes"] for n, s in summaries.items()})
        times = counts(f"select rank, sum(gpu_end_ns - gpu_start_ns)::bigint from {read % 'copies'} where mode = 'copy_engine' group by rank")
        self.assertEqual(times, {n: sum(w["gpu_ns"] for w in s["copies"]["copy_engine_detail"]["by_place"]) for n, s in summaries.items()})
        runs = counts(f"select rank, count(*) from {read % 'kernel_runs'} group by rank")
        kernels = {n: sum(k["gpu"]["runs"] for k in shown(self.folder, n, "--kernels")["kernels"] if k["gpu"]) for n in range(4)}
        self.assertEqual(runs, kernels)
        calls = counts(f"select rank, count(*) from {read % 'cuda_calls'} where ns is not null group by rank")
        self.assertEqual(calls, {n: sum(t["calls"] for t in shown(self.folder, n, "--calls")["totals"].values()) for n in range(4)})

    @unittest.skipIf(pandas is None, "pandas or pyarrow is not installed")
    def test_pandas_reads_all_ranks_at_once(self):
        frame = pandas.read_parquet(os.path.join(self.tables, "table=launches"))
        self.assertEqual(sorted(frame["rank"].astype(int).unique()), [0, 1, 2, 3])


class OnDask(unittest.TestCase):
    @unittest.skipIf(distributed is None, "dask.distributed is not installed")
    def test_a_local_cluster_gives_the_same_answer_and_goes_on_after_a_failed_rank(self):
        folder = copied("dask", range(10))
        with open(os.path.join(folder, "job.rank9.doorbell"), "wb") as file:
            file.write(b"no recording")
        here = fleet.analyse(folder)
        os.environ["PYTHONPATH"] = os.path.join(HERE, "..")
        with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
            on_cluster = fleet.analyse(folder, client=cluster)
            with distributed.Client(cluster) as client:
                on_client = fleet.analyse(folder, client=client)
        for found in (on_cluster, on_client):
            self.assertEqual(found.part.rows, here.part.rows)
            self.assertEqual(found.part.steps, here.part.steps)
            self.assertEqual(sorted(found.failed), [9])
            self.assertEqual([(o.rank, o.kind, o.name, o.ns) for o in found.outliers], [(o.rank, o.kind, o.name, o.ns) for o in here.outliers])
        self.assertIn("Dask", on_client.cost.where)

    @unittest.skipIf(distributed is None, "dask.distributed is not installed")
    def test_a_worker_that_dies_costs_the_rank_that_it_was_reading(self):
        import dask
        from doorbell.fleet import _run

        real = _run.sized

        def dies(recording, options):
            if recording.rank == 3:
                os._exit(1)
            return real(recording, options)

        os.environ["PYTHONPATH"] = os.path.join(HERE, "..")
        _run.sized = dies
        try:
            with dask.config.set({"distributed.scheduler.allowed-failures": 0}), \
                    distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
                found = fleet.analyse(copied("dies", range(6)), client=cluster)
        finally:
            _run.sized = real
        self.assertEqual(list(found.failed), [3])
        self.assertIn("its task failed: KilledWorker", found.failed[3])
        self.assertEqual(len(found.part.rows["locks"]), 1)

    def test_processes_give_the_same_answer_as_threads(self):
        folder = copied("processes", range(5))
        self.assertEqual(fleet.analyse(folder, processes=True, workers=2).part.rows, fleet.analyse(folder, workers=1).part.rows)


if __name__ == "__main__":
    unittest.main()
