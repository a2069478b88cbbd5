//! What a rank contributes, of tapes that are written here.

#[path = "../../decode/tests/synthetic/mod.rs"]
mod synthetic;

use decode::Recording;
use decode::walk::Pattern;
use schema::rank::{Rank, Steps};

fn rank(mut tape: synthetic::Tape, together: &str) -> Rank {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.doorbell");
    tape.write(&path);
    let r = Recording::open(&path).unwrap();
    slow_calls::rank(&r, decode::summary(&r).unwrap(), &Pattern::new(together).unwrap()).unwrap()
}

/// What was done adds up to the time from one event to the next.
fn adds_up(steps: &Steps) {
    for pair in steps.list.windows(2) {
        let (time, spent) = (pair[1].begin_ns - pair[0].begin_ns, pair[1].ns.iter().sum::<u64>() as i64);
        assert!((time - spent).abs() <= pair[1].ns.len() as i64 + 1, "{time} {spent} {pair:?}");
    }
}

/// Two kernels in a row in one stream from 201 to 209 and from 210 to 229 us, and one of another stream that ends at 224 us. When that one began is not
/// known: after its doorbell at 202 us. It waits for what was submitted before it and ended before it did: the first.
#[test]
fn a_collective_whose_start_is_not_known_began_after_what_was_submitted_before_it() {
    let found = rank(synthetic::kernel_times(), "add");
    let steps = &found.steps[0];
    assert_eq!((steps.by.as_str(), steps.events, found.steps.len()), ("collectives", 6, 1));
    let us: Vec<i64> = steps.list.iter().map(|step| (step.begin_ns + 500) / 1000).collect();
    assert_eq!(us[..3], [201, 209, 210], "{steps:?}");
    adds_up(steps);
    let all = found.rows.iter().find(|row| row.kind == "collectives").unwrap();
    assert_eq!(all.name, "add(int*)");
}

#[test]
fn copies_and_time_outside_of_calls_are_rows() {
    let found = rank(synthetic::copy_times(), "nccl");
    let row = |kind: &str, name: &str| found.rows.iter().find(|row| row.kind == kind && row.name == name).unwrap();
    let there = row("copies", "copies host to device");
    assert_eq!((there.count, there.ns / 1000, there.bytes), (1, 190, 4 << 20));
    assert_eq!(row("kernels", "add(int*)").count, 1);
    assert!(found.steps.iter().all(|steps| steps.by != "collectives"));
    found.steps.iter().for_each(adds_up);
}

#[test]
fn every_kind_of_recording_has_rows() {
    for tape in synthetic::of_every_kind() {
        let found = rank(tape, "nccl");
        assert!(!found.cut);
        found.steps.iter().for_each(adds_up);
    }
}
