//! Recordings as JSON Lines.

#[path = "../../../explain/decode/tests/synthetic/mod.rs"]
mod synthetic;

use decode::Recording;
use serde_json::Value;

fn rows(tape: synthetic::Tape) -> Vec<Value> {
    let dir = tempfile::tempdir().unwrap();
    let (path, mut tape, mut out) = (dir.path().join("t.doorbell"), tape, Vec::new());
    tape.write(&path);
    export::jsonl(&Recording::open(&path).unwrap(), &mut out).unwrap();
    String::from_utf8(out).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

#[test]
fn the_export_is_one_json_object_a_line() {
    let rows = rows(synthetic::one_of_everything());
    let count = |kind: &str| rows.iter().filter(|r| r["type"] == kind).count();
    assert_eq!((count("header"), count("end"), count("channel")), (1, 1, 2));
    assert_eq!((count("submission"), count("copy"), count("launch"), count("note")), (7, 4, 1, 1));
    assert_eq!(rows[0]["type"], "header");
    let copy = rows.iter().find(|r| r["type"] == "copy" && r["mode"] == "copy_engine").unwrap();
    assert_eq!((copy["bytes"].as_u64(), copy["src_place"].as_str()), (Some(64 << 20), Some("host")));
    let alloc = rows.iter().find(|r| r["what"] == "RM_ALLOC HOPPER_CHANNEL_GPFIFO_A").unwrap();
    assert_eq!((alloc["call"].as_str(), alloc["status_name"].as_str()), (Some("ioctl"), Some("NV_OK")));
    let launch = rows.iter().position(|r| r["type"] == "launch").unwrap();
    assert_eq!(rows[launch]["shape"]["grid"], serde_json::json!([64, 2, 1]));
    assert_eq!(rows[launch - 1]["type"], "submission", "a launch follows its submission");
}

#[test]
fn segments_without_their_words_and_with_late_ones_say_so() {
    let rows = rows(synthetic::late_and_uncopied());
    let entry = |n: usize| rows.iter().filter(|r| r["type"] == "submission").nth(n).unwrap()["entries"][0].clone();
    assert_eq!((entry(0)["late"].as_bool(), entry(0)["lack"].as_str()), (Some(true), None));
    assert_eq!(entry(1)["lack"].as_str(), Some("the program died before they were copied"));
}

#[test]
fn each_run_of_a_kernel_follows_its_launch() {
    let rows = rows(synthetic::kernel_times());
    let runs: Vec<&Value> = rows.iter().filter(|r| r["type"] == "kernel_run").collect();
    let us = |r: &Value, key: &str| (r[key].as_f64().unwrap() * 1e7).round() / 10.0;
    // (The recording's second 0 is time stamp 1,000, and the GPU's clock gains 1 us in 100 ms.)
    let found: Vec<_> = runs
        .iter()
        .map(|r| {
            (us(r, "start_seconds"), us(r, "end_seconds"), r["gpu"]["start"].as_str().unwrap(), r["in_graph"] == true)
        })
        .collect();
    let (idle, busy, bounded) = ("after_the_doorbell", "after_the_one_before", "bounded");
    assert_eq!(
        found,
        [
            (201.3, 209.0, idle, false),
            (210.0, 229.0, busy, false),
            (203.3, 224.0, bounded, false),
            (301.3, 319.0, bounded, true),
            (319.3, 324.0, busy, true),
            (319.3, 329.0, busy, true)
        ]
    );
    for (i, row) in rows.iter().enumerate().filter(|(_, r)| r["type"] == "kernel_run" && r["in_graph"] == false) {
        assert_eq!((&rows[i - 1]["type"], &rows[i - 1]["gpu"]), (&"launch".into(), &row["gpu"]));
    }
}
