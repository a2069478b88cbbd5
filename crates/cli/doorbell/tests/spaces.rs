//! Several address spaces of one process, made and used by several threads at the same time: copies arrive, and every doorbell
//! is on the tape.
//!
//! The program is this file's binary, started again (`plays_spaces`).

mod work;

use gpu::Site;
use serde_json::Value;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use work::{SAYS, Work, say};

/// Longer than a program takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const THREADS: usize = 6;

/// So many programs, one after the other, each of which makes and frees address spaces `times` times.
fn spaces(tap: &str, programs: usize, times: usize) {
    let dir = tempfile::tempdir().unwrap();
    let tape = dir.path().join("t.doorbell");
    for n in 0..programs {
        let what = format!("program {n} under {tap}");
        let mut record = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
        record.args(["record", "--force", "--gpu", "soft", "--tap", tap, "-q", "-o"]).arg(&tape).arg("--");
        record.arg(std::env::current_exe().unwrap());
        record.args(["plays_spaces", "--exact", "--ignored", "--nocapture"]).env("TIMES", times.to_string());
        let out = test_support::finished_within(&mut record, PATIENCE, &what);
        let out = out.unwrap_or_else(|| panic!("{what}: still running after {PATIENCE:?}"));
        let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert_eq!(out.status.code(), Some(0), "{what}: {:?}: {text}", out.status);
        let said = text.lines().find_map(|l| l.split_once(SAYS)?.1.strip_prefix("entries ")?.parse::<u64>().ok());
        let mut show = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
        let shown = test_support::finished(show.args(["show", "--summary", "--json"]).arg(&tape), "show");
        let summary: Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!(summary["lost"], 0, "{what}: {}", summary["lost_detail"]);
        assert_eq!(summary["entries"].as_u64(), said, "{what}");
        assert_eq!(summary["trouble"], serde_json::json!([]), "{what}");
    }
}

#[test]
#[ignore = "2 s; run by .ci/run"]
fn address_spaces_of_several_threads_copy_right_under_trap() {
    spaces("trap", 6, 6);
}

#[test]
fn address_spaces_of_several_threads_copy_right_under_patch() {
    spaces("patch", 6, 6);
}

#[test]
#[ignore = "half a minute; run by .ci/run --long"]
fn long_many_address_spaces_of_several_threads_copy_right() {
    for tap in ["trap", "patch"] {
        spaces(tap, 8, 40);
    }
}

#[test]
#[ignore = "a program for the tests above"]
fn plays_spaces() {
    let times: u32 = std::env::var("TIMES").expect("started by a test").parse().unwrap();
    let entries = AtomicU64::new(0);
    let together = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (entries, together) = (&entries, &together);
            scope.spawn(move || {
                // All at the same time: the first mappings of a doorbell page, and the first handlers, race with one another.
                together.wait();
                for time in 0..times {
                    let space = Work::space();
                    let site = if thread % 2 == 0 { Site::Libcuda } else { Site::Displacement };
                    let mut channels: Vec<_> = (0..2).map(|_| Work::in_space(&space, site)).collect();
                    for work in &mut channels {
                        work.rounds(1 + (time + thread as u32) % 4);
                    }
                    // One channel stays open while the next one is made.
                    let mut next = Work::in_space(&space, site);
                    channels.remove(0).done(entries);
                    next.rounds(2);
                    channels.push(next);
                    channels.into_iter().for_each(|work| work.done(entries));
                }
            });
        }
    });
    say("entries", entries.load(Ordering::Relaxed));
}

impl Work {
    /// Counts the channel's entries, and frees the channel.
    fn done(self, entries: &AtomicU64) {
        entries.fetch_add(self.channel.entries_written(), Ordering::Relaxed);
    }
}
