//! Recordings as traces for Perfetto: as many events as rows, on tracks where they nest, and what the arrows join.

#[path = "../../../explain/decode/tests/synthetic/mod.rs"]
mod synthetic;
mod trace;

use decode::Recording;
use serde_json::Value;
use synthetic::Tape;
use trace::{Event, Kind, Trace};

fn exported(tape: Tape) -> (Trace, Vec<Value>) {
    let (trace, rows) = written(tape);
    let trace = Trace::read(&trace);
    trace.assert_nested();
    (trace, rows)
}

fn written(mut tape: Tape) -> (Vec<u8>, Vec<Value>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.doorbell");
    tape.write(&path);
    let r = Recording::open(&path).unwrap();
    let (mut trace, mut lines) = (Vec::new(), Vec::new());
    export::perfetto(&r, &mut trace).unwrap();
    export::jsonl(&r, &mut lines).unwrap();
    let rows = String::from_utf8(lines).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    (trace, rows)
}

fn rows<'a>(all: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    all.iter().filter(move |r| r["type"] == kind)
}

fn recording(t: &Trace) -> &Event {
    t.of("recording").next().unwrap()
}

#[test]
fn every_row_is_an_event() {
    let (t, all) = exported(synthetic::calls_and_locks());
    let count = |category: &str| t.of(category).count();
    let has = |kind: &str, key: &str| rows(&all, kind).filter(|r| !r[key].is_null() && r[key] != 0).count();
    assert_eq!(count("doorbell"), rows(&all, "submission").count());
    assert_eq!(count("copy") + count("fill"), rows(&all, "copy").count());
    assert_eq!(count("launch") + count("empty launch"), rows(&all, "launch").count());
    assert_eq!(count("cuda call"), rows(&all, "cuda_call").count());
    assert_eq!(count("driver call"), rows(&all, "call").count());
    assert_eq!(count("lock wait") + count("condition wait"), has("lock", "wait_ns"));
    assert_eq!(t.of("lock hold").filter(|e| e.kind == Kind::Begin).count(), has("lock", "hold_ns"));
    let neither = rows(&all, "lock").filter(|r| r["wait_ns"] == 0 && r["hold_ns"].is_null());
    assert_eq!(count("lock operation"), neither.count());
    assert_eq!(count("off CPU"), rows(&all, "switch").filter(|r| r["what"] != "on").count());
    for what in ["doorbell", "copy", "launch", "cuda call", "driver call", "lock wait", "lock hold", "off CPU"] {
        assert!(count(what) > 0, "{what}");
    }
    // Times are CLOCK_MONOTONIC: 5 s when the recording began.
    for (e, row) in t.of("doorbell").zip(rows(&all, "submission")) {
        assert_eq!(e.ns, 5_000_000_000 + (row["seconds"].as_f64().unwrap() * 1e9).round() as u64);
        assert_eq!(e.number("submission"), row["number"].as_u64().unwrap());
    }
    assert_eq!(t.clocks[0], [("BUILTIN_CLOCK_MONOTONIC", 5_000_000_000)]);
    for (argument, of) in [
        ("complete", "bool_value"),
        ("bytes", "uint_value"),
        ("tid", "int_value"),
        ("dst", "pointer_value"),
        ("gpu_times", "string_value"),
        ("in_call", "string_value_iid"),
    ] {
        assert_eq!(t.argument_types[argument], of, "{argument}");
    }
    let bytes = |e: &Event| e.number("bytes");
    let (of_events, of_rows) = (t.of("copy").chain(t.of("fill")).map(bytes).sum(), rows(&all, "copy"));
    assert_eq!(Some(of_events), of_rows.map(|r| r["bytes"].as_u64()).sum::<Option<u64>>());
}

/// [`synthetic::copy_times`] has 4 MiB from 210 to 400 us, submitted at 200, then work of two streams until 692 us.
#[test]
fn a_range_has_the_times_of_the_gpus_work_in_it() {
    let mut tape = synthetic::copy_times();
    tape.range(200, 199_000, 203_000, "step");
    let (t, all) = exported(tape);
    let begin = t.of("nvtx").find(|e| e.kind == Kind::Begin).unwrap();
    let work = &rows(&all, "range").next().unwrap()["all_threads"];
    assert_eq!((&work["runs"], &work["copies"]), (&2.into(), &1.into()));
    for name in ["gpu_busy", "queued", "idle"] {
        let short = name.trim_start_matches("gpu_");
        let ns = work[format!("{short}_ns")].as_u64().unwrap();
        assert!(ns > 0 && begin.double(&format!("{name}_ms")) == ns as f64 / 1e6, "{name}: {work}");
    }
    // Without times there is nothing of them.
    let mut tape = synthetic::calls_and_locks();
    tape.range(200, 100_000, 203_000, "step");
    let (t, all) = exported(tape);
    assert!(
        t.of("nvtx").all(|e| e.arguments.is_empty()) && rows(&all, "range").all(|row| row["all_threads"].is_null())
    );
}

#[test]
fn arrows_lead_from_calls_to_what_they_sent_and_from_waiters_to_holders() {
    let (t, _) = exported(synthetic::calls_and_locks());
    let call = t.of("cuda call").find(|e| e.name == "cuMemcpyHtoDAsync").unwrap();
    let doorbell = t.of("doorbell").find(|e| e.flows.contains(&call.flows[0])).unwrap();
    assert_eq!((doorbell.text("in_call"), doorbell.track), ("cuMemcpyHtoDAsync", call.track));
    assert!(call.ns < doorbell.ns);
    let sent: Vec<_> = t.of("copy").filter(|e| doorbell.flows.contains(&e.flows[0])).collect();
    assert_eq!(sent.len(), 1);
    assert!(t.place(sent[0]).starts_with("channel 1 COPY"), "{}", t.place(sent[0]));
    let wait = t.of("lock wait").next().unwrap();
    let held = t.of("lock hold").find(|e| e.kind == Kind::Instant && e.flows == wait.flows).unwrap();
    assert_eq!((t.place(wait), t.place(held), held.number("waiter")), ("lock waits", "locks held", 101));
    assert!(wait.ns < held.ns);
    // On the track of the thread that held it, while it did.
    let hold =
        t.of("lock hold").find(|e| e.kind == Kind::Begin && e.track == held.track && e.name == wait.name).unwrap();
    let thread = |e: &Event| &t.tracks[&t.tracks[&e.track].0.unwrap()].1;
    assert_eq!((thread(hold).as_str(), thread(wait).as_str()), ("thread 100", "thread 101"));
}

#[test]
fn kernels_that_ran_are_slices_in_lanes_of_their_stream_and_launches_lead_to_them() {
    let (t, all) = exported(synthetic::kernel_times());
    let runs: Vec<&Event> = t.of("kernel").collect();
    assert_eq!((runs.len(), rows(&all, "kernel_run").count()), (6, 6));
    for (run, row) in runs.iter().zip(rows(&all, "kernel_run")) {
        assert_eq!(run.ns, 5_000_000_000 + (row["start_seconds"].as_f64().unwrap() * 1e9).round() as u64);
        assert_eq!(
            (run.text("start"), run.number("queued_ns")),
            (row["gpu"]["start"].as_str().unwrap(), row["gpu"]["queued_ns"].as_u64().unwrap())
        );
        assert_eq!(run.number("in_graph"), u64::from(row["in_graph"] == true));
        assert!(t.place(run).starts_with("work of stream 0x5"), "{}", t.place(run));
        let channel = t.tracks[&run.track].0.unwrap();
        assert!(t.tracks[&channel].1.starts_with("channel 0 GRAPHICS"), "{:?}", t.tracks[&channel]);
        let end = t.events.iter().find(|e| e.track == run.track && e.kind == Kind::End && e.ns > run.ns).unwrap();
        assert_eq!(end.ns, 5_000_000_000 + (row["end_seconds"].as_f64().unwrap() * 1e9).round() as u64);
    }
    // A track for each stream, and one more for the kernel of the graph that runs while another one does.
    let lane = |n: usize| runs.iter().position(|run| run.track == runs[n].track).unwrap();
    assert_eq!([0, 1, 2, 3, 4, 5].map(lane), [0, 0, 2, 3, 3, 5]);
    assert_eq!(t.place(runs[3]), t.place(runs[5]));
    for run in &runs[..3] {
        let launch = t.of("launch").find(|e| e.flows.contains(&run.flows[0])).unwrap();
        assert_eq!((launch.number("submission"), launch.ns < run.ns), (run.number("submission"), true));
        assert_eq!(t.events.iter().filter(|e| e.flows.contains(&run.flows[0])).count(), 2);
        assert_eq!((run.name.as_str(), run.text("in_call")), ("add", "cuLaunchKernel"));
    }
    for run in &runs[3..] {
        assert!(t.of("doorbell").any(|e| e.flows.contains(&run.flows[0]) && e.text("in_call") == "cudaGraphLaunch"));
    }
    let title = t.tracks.values().find(|(_, name)| name.starts_with("GPU 0")).unwrap();
    assert!(title.1.contains("times of all but kernels"), "{title:?}");
}

#[test]
fn copies_that_ran_are_slices_below_their_channel() {
    let (t, all) = exported(synthetic::copy_times());
    let copies: Vec<&Event> = t.of("copy").chain(t.of("fill")).collect();
    let ran: Vec<&&Event> = copies.iter().filter(|e| e.kind == Kind::Begin).collect();
    assert_eq!((copies.len(), ran.len()), (4, 3));
    for (run, row) in ran.iter().zip(rows(&all, "copy")) {
        assert_eq!(run.ns, 5_000_000_000 + (row["start_seconds"].as_f64().unwrap() * 1e9).round() as u64);
        assert_eq!((run.number("bytes"), run.text("start")), (row["bytes"].as_u64().unwrap(), "stored"));
        assert!(t.place(run).starts_with("work of stream 0x51"), "{}", t.place(run));
        let channel = t.tracks[&run.track].0.unwrap();
        assert!(t.tracks[&channel].1.contains(" COPY"), "{:?}", t.tracks[&channel]);
        assert!(t.of("doorbell").any(|e| e.flows.contains(&run.flows[0])), "its doorbell leads to it");
    }
}

#[test]
fn tracks_have_the_names_of_threads_channels_and_gpus() {
    let (t, _) = exported(synthetic::two_gpus());
    let mut names: Vec<&str> = t.tracks.values().map(|(_, name)| name.as_str()).collect();
    names.sort_unstable();
    assert!(names.contains(&"process 4242"), "{names:?}");
    assert!(names.iter().any(|n| n.starts_with("GPU 1: NVIDIA H100 80GB HBM3")), "{names:?}");
    assert!(names.iter().any(|n| n.starts_with("channel 1 COPY") && n.contains("GPU 1, pid 4242")), "{names:?}");
}

#[test]
fn missing_events_are_on_the_first_track() {
    let (t, _) = exported(synthetic::one_of_everything());
    let whole = recording(&t).clone();
    assert_eq!(whole.number("lost"), 0);
    assert_eq!(whole.number("clock_error_ns"), 0);
    let mut cut = synthetic::one_of_everything();
    cut.gap(100, 3, 2, 100);
    let (t, rows) = exported(cut);
    assert_eq!(t.place(recording(&t)), "doorbell: INCOMPLETE recording");
    assert_eq!((recording(&t).number("complete"), recording(&t).number("lost_events")), (0, 3));
    assert!(recording(&t).number("lost") > 0);
    let row = &rows[1];
    assert_eq!((&row["type"], &row["complete"]), (&"recording".into(), &false.into()));
    assert_eq!(row["lost"].as_u64(), Some(recording(&t).number("lost")));
    assert_eq!(recording(&t).text("incomplete_because"), row["incomplete_because"][0]);
}

/// `PERFETTO_PYTHON`: an interpreter that has Perfetto's package.
#[test]
fn perfetto_s_own_package_reads_the_same_events() {
    let Some(python) = std::env::var_os("PERFETTO_PYTHON") else {
        test_support::skip!("PERFETTO_PYTHON names no Python with the package perfetto");
    };
    let tapes =
        [synthetic::calls_and_locks(), synthetic::kernel_times(), synthetic::copy_times(), synthetic::two_gpus()];
    for tape in tapes {
        let (bytes, _) = written(tape);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.perfetto-trace");
        std::fs::write(&path, &bytes).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/trace/read.py");
        let out = std::process::Command::new(&python).arg(script).arg(&path).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let theirs: Vec<Value> = serde_json::from_slice(&out.stdout).unwrap();
        let t = Trace::read(&bytes);
        let ours = t.events.iter().map(|e| {
            let arguments = e.arguments.iter().map(|(name, value)| match value {
                trace::Value::Number(n) => serde_json::json!([name, n]),
                trace::Value::Double(v) => serde_json::json!([name, v]),
                trace::Value::Text(text) => serde_json::json!([name, text]),
            });
            let (parent, track) = &t.tracks[&e.track];
            serde_json::json!([
                e.ns,
                format!("{:?}", e.kind),
                track,
                parent,
                e.category,
                e.name,
                e.flows,
                arguments.collect::<Vec<_>>()
            ])
        });
        assert_eq!(ours.collect::<Vec<_>>(), theirs);
    }
}

#[test]
fn no_tape_makes_a_trace_that_cannot_be_read() {
    let mut random = 7u64;
    for round in 0..20 {
        let mut tape = if round % 2 == 0 { synthetic::calls_and_locks() } else { synthetic::kernel_times() };
        tape.flip(12, |n| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) as usize % n
        });
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.doorbell");
        tape.write(&path);
        let r = Recording::open(&path).unwrap();
        let mut trace = Vec::new();
        if export::perfetto(&r, &mut trace).is_ok() {
            Trace::read(&trace);
        }
    }
}
