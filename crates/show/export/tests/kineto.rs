//! Recordings as PyTorch's profiler would write them.

#[path = "../../../explain/decode/tests/synthetic/mod.rs"]
mod synthetic;

use decode::Recording;
use serde_json::Value;

fn written(mut tape: synthetic::Tape) -> String {
    let dir = tempfile::tempdir().unwrap();
    let (path, mut out) = (dir.path().join("t.doorbell"), Vec::new());
    tape.write(&path);
    export::kineto(&Recording::open(&path).unwrap(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn exported(tape: synthetic::Tape) -> Value {
    serde_json::from_str(&written(tape)).unwrap()
}

fn events<'a>(trace: &'a Value, ph: &'a str, cat: &'a str) -> Vec<&'a Value> {
    let all = trace["traceEvents"].as_array().unwrap().iter();
    all.filter(|e| e["ph"] == ph && e["cat"] == cat).collect()
}

#[test]
fn calls_and_waits_have_durations_and_what_the_gpu_got_has_none() {
    let t = exported(synthetic::calls_and_locks());
    let call = events(&t, "X", "cuda_driver")[0];
    assert_eq!(
        (call["name"].as_str(), call["ts"].as_f64(), call["dur"].as_f64()),
        (Some("cuMemcpyHtoDAsync"), Some(99.05), Some(0.85))
    );
    let sent = events(&t, "i", "gpu_memcpy");
    assert_eq!(sent[0]["name"], "Memcpy HtoD");
    assert_eq!((sent.len(), events(&t, "i", "gpu_memset").len(), events(&t, "i", "kernel").len()), (2, 1, 1));
    assert_eq!(sent[0]["args"]["correlation"], call["args"]["correlation"]);
    assert!(sent[0]["args"]["correlation"].is_u64());
    assert_eq!(events(&t, "X", "lock_wait")[0]["dur"].as_f64(), Some(0.5));
    assert_eq!(events(&t, "i", "doorbell").len(), 3);
    for cat in ["gpu_memcpy", "gpu_memset", "kernel"] {
        assert_eq!(events(&t, "X", cat).len(), 0, "no duration of the GPU is known");
    }
    assert!(t["gpu_times"].as_str().unwrap().contains("not recorded"));
    // An arrow from each doorbell that sent something to each of these.
    assert_eq!((events(&t, "s", "ac2g").len(), events(&t, "f", "ac2g").len()), (3, 4));
}

#[test]
fn missing_events_are_in_the_metadata_and_rows_have_names() {
    let mut tape = synthetic::two_gpus();
    tape.gap(100, 3, 2, 100);
    let t = exported(tape);
    assert_eq!(
        (t["doorbell"]["complete"].as_bool(), t["doorbell"]["lost_detail"]["gap_events"].as_u64()),
        (Some(false), Some(3))
    );
    assert_eq!(t["doorbell"]["clock_error_ns"], 0);
    assert_eq!(t["deviceProperties"].as_array().unwrap().len(), 2);
    let names: Vec<&Value> = t["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "M").collect();
    let has = |what: &str, pid: u64, text: &str| {
        names.iter().any(|e| e["name"] == what && e["pid"] == pid && e["args"].to_string().contains(text))
    };
    assert!(
        has("process_name", 4242, "app")
            && has("process_labels", 1, "GPU 1")
            && has("thread_name", 1, "channel 1 COPY")
    );
}

#[test]
fn a_gpu_is_told_from_a_process_of_the_same_number() {
    let mut tape = synthetic::one_of_everything();
    tape.end.as_mut().unwrap().pid = 0;
    tape.processes = vec![tape::file::Process { index: 0, pid: 1, ..Default::default() }];
    assert!(events(&exported(tape), "i", "kernel").iter().all(|e| e["pid"] == 0));
    let mut tape = synthetic::one_of_everything();
    tape.processes = vec![tape::file::Process { index: 0, pid: 0, ..Default::default() }];
    tape.end.as_mut().unwrap().pid = 0;
    assert!(events(&exported(tape), "i", "kernel").iter().all(|e| e["pid"] == "GPU 0"));
}

#[test]
fn kernels_that_ran_have_durations_and_what_tools_join_them_by() {
    let t = exported(synthetic::kernel_times());
    let runs = events(&t, "X", "kernel");
    let us = |e: &Value, key: &str| (e[key].as_f64().unwrap() * 10.0).round() / 10.0;
    let found: Vec<_> = runs.iter().map(|e| (us(e, "ts"), us(e, "dur"))).collect();
    assert_eq!(found, [(201.3, 7.7), (210.0, 19.0), (203.3, 20.7), (301.3, 17.7), (319.3, 4.7), (319.3, 9.7)]);
    assert_eq!((runs[0]["name"].as_str(), runs[0]["pid"].as_u64()), (Some("add(int*)"), Some(0)));
    // Two kernels of one stream in a row. Those of the graph overlap, so they have separate rows but one stream.
    let rows: Vec<_> =
        runs.iter().map(|e| (e["tid"].as_u64().unwrap(), e["args"]["stream"].as_u64().unwrap())).collect();
    assert_eq!(rows, [(1, 1), (1, 1), (2, 2), (3, 3), (3, 3), (4, 3)]);
    let named = |tid: u64| {
        let is = |e: &&Value| e["name"] == "thread_name" && e["pid"] == 0 && e["tid"] == tid;
        t["traceEvents"].as_array().unwrap().iter().find(is).unwrap()["args"]["name"].as_str().unwrap()
    };
    assert!(named(1).starts_with("stream 0x51, channel 0 GRAPHICS"), "{}", named(1));
    assert!(named(4).starts_with("stream 0x53 (2), channel 0 GRAPHICS"), "{}", named(4));
    // Each is joined with its call, which has no stream: tools would take it for work of the GPU.
    let calls = events(&t, "X", "cuda_driver").into_iter().chain(events(&t, "X", "cuda_runtime"));
    let calls: Vec<&Value> = calls.collect();
    for (run, call) in runs.iter().zip(["cuLaunchKernel", "cuLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch"]) {
        let joined = calls.iter().find(|c| c["args"]["correlation"] == run["args"]["correlation"]).unwrap();
        assert_eq!((joined["name"].as_str(), &joined["args"]["stream"]), (Some(call), &Value::Null));
        assert!(run["args"]["correlation"].is_u64() && joined["ts"].as_f64() < run["ts"].as_f64());
    }
    // The one without an end, and the graph's QMDs, which are launches at their doorbells: no kernel is counted twice.
    assert_eq!((events(&t, "i", "kernel").len(), events(&t, "i", "launch").len()), (0, 4));
    assert_eq!((events(&t, "s", "ac2g").len(), events(&t, "f", "ac2g").len()), (5, 10));
    assert!(t["gpu_times"].as_str().unwrap().starts_with("Kernels have"));
}

/// Holistic Trace Analysis looks for it line by line, with the space.
#[test]
fn the_rank_is_where_tools_look_for_it() {
    let mut tape = synthetic::copy_times();
    let rank = tape::file::Rank { rank: 3, world_size: Some(8), ..Default::default() };
    tape.processes = vec![tape::file::Process { index: 0, pid: 4242, rank: Some(rank), ..Default::default() }];
    let text = written(tape);
    assert!(text.lines().any(|line| line.contains("\"rank\": 3")), "{}", &text[..text.len().min(2000)]);
    let all: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(all["distributedInfo"], serde_json::json!({ "rank": 3, "world_size": 8 }));
}

#[test]
fn copies_that_ran_have_durations_bytes_and_their_call() {
    let mut tape = synthetic::copy_times();
    tape.range(200, 199_000, 203_000, "step");
    let t = exported(tape);
    let step = &events(&t, "X", "user_annotation")[0]["args"];
    let (busy, idle) = (step["gpu_busy_ms"].as_f64().unwrap(), step["idle_ms"].as_f64().unwrap());
    // From 199 to 450 us; the clocks are read with an error.
    assert!((0.19..=0.24).contains(&busy) && (busy + idle - 0.251).abs() < 1e-3, "{step}");
    let us = |e: &Value, key: &str| e[key].as_f64().unwrap().round();
    let found = |cat: &str| {
        let all = events(&t, "X", cat).into_iter();
        let one = |e: &Value| (e["name"].clone(), us(e, "ts"), us(e, "dur"), e["args"]["bytes"].as_u64().unwrap());
        all.map(one).collect::<Vec<_>>()
    };
    let (there, back) = (("Memcpy HtoD".into(), 209.0, 190.0, 4 << 20), ("Memcpy DtoH".into(), 459.0, 220.0, 4 << 20));
    assert_eq!(found("gpu_memcpy"), [there, back]);
    assert_eq!(found("gpu_memset"), [("Memset".into(), 689.0, 2.0, 4096)]);
    let calls = events(&t, "X", "cuda_driver");
    for (run, call) in events(&t, "X", "gpu_memcpy").iter().zip(["cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync"]) {
        let joined = calls.iter().find(|c| c["args"]["correlation"] == run["args"]["correlation"]).unwrap();
        assert_eq!((joined["name"].as_str(), &run["args"]["start"]), (Some(call), &"stored".into()));
        let bandwidth = run["args"]["memory bandwidth (GB/s)"].as_f64().unwrap();
        let expected = f64::from(4 << 20) / (run["dur"].as_f64().unwrap() * 1e3);
        assert!((bandwidth - expected).abs() < 0.01 * expected, "{bandwidth} {expected}");
    }
    // The copy without times is at its doorbell.
    assert_eq!((events(&t, "i", "gpu_memcpy").len(), events(&t, "i", "gpu_memset").len()), (1, 0));
}
