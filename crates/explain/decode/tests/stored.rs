//! A stored summary is the same as one from a walk, and is not used where it must not be.

#[path = "synthetic/mod.rs"]
mod synthetic;

use decode::{Recording, store_summary, store_summary_unless, summary, summary_of_walk};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(600);

fn json(s: &schema::Summary) -> String {
    serde_json::to_string(s).unwrap()
}

/// Stores the summary in a copy, and returns the walk's summary from before.
fn stored(path: &Path) -> String {
    let before = json(&summary_of_walk(&Recording::open(path).unwrap()).unwrap());
    assert!(store_summary(path, LONG).unwrap());
    assert!(!store_summary(path, LONG).unwrap(), "one is enough");
    before
}

/// Recordings of all kinds.
fn all(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for (i, mut tape) in synthetic::of_every_kind().into_iter().enumerate() {
        // (A number without a short decimal form.)
        tape.end.iter_mut().for_each(|end| end.seconds = 0.1 + 0.2 + i as f64 / 3.0);
        all.push(dir.join(i.to_string()));
        tape.write(&all[i]);
    }
    all.push(dir.join("large"));
    synthetic::large(all.last().unwrap(), 2000);
    all
}

#[test]
fn the_stored_summary_is_the_walks() {
    let dir = tempfile::tempdir().unwrap();
    for path in all(dir.path()) {
        let before = stored(&path);
        let r = Recording::open(&path).unwrap();
        assert_eq!(json(&summary(&r).unwrap()), before);
        assert_eq!(json(&summary_of_walk(&r).unwrap()), before, "it changes nothing else");
        assert!(tape::file::Reader::open(&path).unwrap().has_index());
    }
}

/// Stores a changed summary: its number of submissions shows which of the two is printed.
fn changed(path: &Path) -> u64 {
    let mut t = synthetic::one_of_everything();
    t.write(path);
    let r = Recording::open(path).unwrap();
    let mut s = summary_of_walk(&r).unwrap();
    s.submissions += 1000;
    // (Layout and doorbell as in `stored.rs`.)
    let value = serde_json::json!({
        "layout": 2, "doorbell": env!("CARGO_PKG_VERSION"), "chunks": 2, "summary": s,
    });
    assert!(tape::file::Writer::add_summary(path, &serde_json::to_vec(&value).unwrap(), std::iter::empty()).unwrap());
    s.submissions
}

#[test]
fn one_of_another_layout_or_doorbell_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let of = |path: &Path| summary(&Recording::open(path).unwrap()).unwrap().submissions;
    let taken = changed(&path);
    assert_eq!(of(&path), taken);
    for (what, value) in
        [("layout", 1.into()), ("doorbell", "0.0.1".into()), ("chunks", 3.into()), ("summary", 7.into())]
    {
        let mut t = synthetic::one_of_everything();
        t.write(&path);
        let s = summary_of_walk(&Recording::open(&path).unwrap()).unwrap();
        let mut stored = serde_json::json!({
            "layout": 2, "doorbell": env!("CARGO_PKG_VERSION"), "chunks": 2, "summary": s,
        });
        stored["summary"]["submissions"] = taken.into();
        stored[what] = value;
        assert!(
            tape::file::Writer::add_summary(&path, &serde_json::to_vec(&stored).unwrap(), std::iter::empty()).unwrap()
        );
        assert_eq!(of(&path), taken - 1000, "{what}");
    }
}

#[test]
fn of_damaged_events_the_walk_tells() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    synthetic::large(&path, 2000);
    stored(&path);
    let bytes = std::fs::read(&path).unwrap();
    let at = bytes.len() as u64 / 2;
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[bytes[at as usize] ^ 4], at).unwrap();
    let r = Recording::open(&path).unwrap();
    assert!(summary(&r).unwrap().damage.is_some() && r.damage().is_some());
}

/// A recorder that is killed while it stores the summary has written a part of it: the recording is still complete.
#[test]
fn cut_anywhere_behind_the_end_nothing_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    synthetic::one_of_everything().write(&path);
    let whole = std::fs::metadata(&path).unwrap().len();
    let before = stored(&path);
    let all = std::fs::metadata(&path).unwrap().len();
    let file = File::options().write(true).open(&path).unwrap();
    for cut in (whole..all).rev() {
        file.set_len(cut).unwrap();
        let r = Recording::open(&path).unwrap();
        assert!(r.damage().is_none() && r.end().is_some(), "{cut} of {all}");
        assert_eq!(json(&summary(&r).unwrap()), before, "{cut} of {all}");
    }
}

#[test]
fn a_recording_without_end_gets_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let mut t = synthetic::one_of_everything();
    t.end = None;
    t.write(&path);
    let before = std::fs::read(&path).unwrap();
    assert!(!store_summary(&path, LONG).unwrap());
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn one_that_takes_too_long_is_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    synthetic::large(&path, 5000);
    let before = std::fs::read(&path).unwrap();
    assert!(!store_summary(&path, Duration::ZERO).unwrap());
    let bytes = std::fs::read(&path).unwrap();
    assert!(!store_summary_unless(&path, LONG, || true).unwrap());
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "skipped, it leaves the file as it was");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert!(store_summary(&path, LONG).unwrap());
}
