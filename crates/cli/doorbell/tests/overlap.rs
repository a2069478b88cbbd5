//! Exclusive holds of two threads overlap on the tape by no more than the time that a cache line takes to reach a core, because
//! the core may read the clock while it waits for the lock's line. Threads pass a few locks back and forth, and their raw time
//! stamps are compared.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use tape::event::{Body, Events};
use tape::file::{Item, Reader};
use tape::lock::{ended, op};
use test_support::Source;

/// A microsecond at 5 GHz, in ticks: a line from another socket takes some 100 ns.
const CACHE_LINE: u64 = 5000;

/// An exclusive hold: lock, begin, end, thread.
type Hold = (u64, u64, u64, i32);

fn exclusive(operation: u8) -> bool {
    use op::*;
    let mutex =
        (MUTEX_LOCK..=MUTEX_CLOCKLOCK).contains(&operation) || (COND_WAIT..=COND_CLOCKWAIT).contains(&operation);
    mutex || (RWLOCK_WRLOCK..=RWLOCK_CLOCKWRLOCK).contains(&operation)
}

fn holds(tape: &Path) -> Vec<Hold> {
    let mut reader = Reader::open(tape).unwrap();
    let mut all = Vec::new();
    while let Some(item) = reader.item().unwrap() {
        let Item::Events { tid, bytes, .. } = item else { continue };
        for e in Events::new(&bytes) {
            let (addr, ticks) = match e.body {
                Body::Pair(p) => (p.addr, u64::from(p.hold)),
                Body::Hold(h) if h.ended != ended::CANCELLED_WAIT => (h.addr, h.hold),
                _ => continue,
            };
            if exclusive((e.head.flags >> 8) as u8) {
                all.push((addr, e.head.tsc - ticks, e.head.tsc, tid));
            }
        }
    }
    all
}

/// Pairs of holds that overlap, and by how many ticks at most.
fn overlaps(mut holds: Vec<Hold>) -> (usize, u64) {
    holds.sort_unstable();
    let (mut found, mut most) = (0, 0);
    // The latest end of each thread's holds of the current lock: a recursive mutex has several in one thread.
    let mut ends: HashMap<i32, u64> = HashMap::new();
    let mut lock = 0;
    for (addr, begin, end, tid) in holds {
        if addr != lock {
            (lock, ends) = (addr, HashMap::new());
        }
        let before = ends.iter().filter(|(other, _)| **other != tid).map(|(_, end)| *end).max().unwrap_or(0);
        if before > begin {
            found += 1;
            most = most.max(before - begin);
        }
        let latest = ends.entry(tid).or_default();
        *latest = end.max(*latest);
    }
    (found, most)
}

fn hardly_overlap(program: &str, arguments: [&str; 2], least: usize) {
    let dir = tempfile::tempdir().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(program).with_extension("c");
    let compiled = match (Source { file: &file, compiler: "cc", flags: &[] }).compile(dir.path()) {
        Ok(compiled) => compiled,
        Err(reason) => test_support::skip!("{reason}"),
    };
    // Seen once: 331 of 250,004 overlapped, by up to 7,657 ticks, and never again. The clocks of a virtual machine's CPUs had
    // probably diverged for a while. Locks that two threads hold at a time would overlap every time.
    let mut seen: Vec<u64> = Vec::new();
    while seen.len() < TRIES && seen.last().is_none_or(|most| *most >= CACHE_LINE) {
        let tape = dir.path().join(format!("{}.doorbell", seen.len()));
        seen.push(one_try(&compiled, tape, program, arguments, least));
    }
    assert!(seen.last().is_some_and(|most| *most < CACHE_LINE), "holds of {program} overlap by up to {seen:?} ticks");
}

const TRIES: usize = 3;

/// The longest overlap of two holds, ticks.
fn one_try(compiled: &Path, tape: PathBuf, program: &str, arguments: [&str; 2], least: usize) -> u64 {
    let mut record = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    record.args(["record", "--locks", "--tap", "off", "--on-full", "wait", "-q", "-o"]).arg(&tape).arg("--");
    let out = test_support::finished(record.arg(compiled).args(arguments), program);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let holds = holds(&tape);
    assert!(holds.len() >= least, "{} exclusive holds", holds.len());
    let (all, (found, most)) = (holds.len(), overlaps(holds));
    println!("{found} of {all} holds of {program} begin before the one before ended, by up to {most} ticks");
    most
}

#[test]
fn exclusive_holds_of_every_kind_hardly_overlap() {
    hardly_overlap("contend", ["4", "20000"], 4 * 20_000);
}

#[test]
fn exclusive_holds_of_one_busy_mutex_hardly_overlap() {
    hardly_overlap("hammer", ["2", "150000"], 300_000);
    hardly_overlap("hammer", ["6", "50000"], 300_000);
}

#[test]
fn an_overlap_would_be_found() {
    let apart = vec![(1, 10, 20, 1), (1, 20, 30, 2), (2, 0, 25, 3), (1, 12, 15, 1)];
    assert_eq!(overlaps(apart), (0, 0));
    assert_eq!(overlaps(vec![(1, 10, 20, 1), (1, 17, 30, 2), (1, 29, 40, 1)]), (2, 3));
}
