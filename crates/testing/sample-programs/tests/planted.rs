//! Each planted fault is found by the check that is meant for it, and reported correctly.

use doorbell_softgpu::{Mode, Planted, SoftDriver};
use sample_programs::checks::{self, Ground, Verdict};
use std::sync::Arc;
use std::time::Duration;

/// From the second on: the first is a new channel's answer.
const LOST: Planted = Planted::LostRelease { from: 2 };

/// Runs a check on a GPU with this fault: its complaint.
#[track_caller]
fn complaint(check: &str, fault: Planted) -> String {
    let mut ground = Ground::soft(Arc::new(SoftDriver::broken(Mode::Strict, fault)));
    // A lost event gets a shorter time limit than a late one.
    if matches!(fault, Planted::LostRelease { .. }) {
        ground.patience = Duration::from_millis(300);
    }
    match checks::run(checks::find(check).unwrap(), &ground).verdict {
        Verdict::Failed(why) => why,
        other => panic!("{check} with {fault:?}: {other:?}"),
    }
}

#[track_caller]
fn says(complaint: &str, part: &str) {
    assert!(complaint.contains(part), "it says: {complaint}");
}

#[test]
fn a_copy_that_drops_its_last_byte() {
    says(&complaint("tiny", Planted::ShortCopy), "copy engine 2: Plain copy of 8 bytes");
    says(&complaint("tiny", Planted::ShortCopy), "last byte differs at offset 7 of 8 bytes");
    says(&complaint("guards", Planted::ShortCopy), "last byte differs at offset 0 of 1 bytes");
    says(&complaint("sizes", Planted::ShortCopy), "last byte differs at offset");
    says(&complaint("prepared", Planted::ShortCopy), "last byte differs at offset 999 of 1000 bytes");
    says(&complaint("pipelined", Planted::ShortCopy), "the first at offset 1020");
}

#[test]
fn a_copy_that_writes_one_byte_past() {
    says(&complaint("tiny", Planted::LongCopy), "a byte was written 1 past the end");
    says(&complaint("guards", Planted::LongCopy), "a byte was written 1 past the end");
    says(&complaint("sizes", Planted::LongCopy), "a byte was written 1 past the end");
}

#[test]
#[ignore = "waits for ten seconds; run by .ci/run"]
fn a_semaphore_that_never_comes() {
    for check in ["tiny", "inline", "timestamps", "full", "acquire", "bounded-wait", "prepared", "prepared-inline"] {
        says(&complaint(check, LOST), "semaphore did not reach");
    }
    says(&complaint("tiny", LOST), "semaphore did not reach 1 within 3");
}

#[test]
fn a_channel_that_dies() {
    says(&complaint("tiny", Planted::DeadChannel { entry: 2, xid: 31 }), "killed by error 31");
    says(&complaint("inline", Planted::DeadChannel { entry: 2, xid: 13 }), "killed by error 13");
    says(&complaint("wrap", Planted::DeadChannel { entry: 300, xid: 69 }), "killed by error 69");
    says(&complaint("prepared", Planted::DeadChannel { entry: 5000, xid: 32 }), "killed by error 32");
}

#[test]
fn a_timestamp_that_goes_backwards() {
    let text = complaint("timestamps", Planted::ClockBack);
    says(&text, "of round 1 goes backwards");
}
