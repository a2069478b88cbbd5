//! `kill -9` against a count that the program keeps itself: in a file that it maps it counts each submission before it is made and
//! again after. The tape must have at least the submissions that were done and at most those that were begun.
//!
//! The program is this file's binary, started again (`plays_counting`), on the software GPU.

mod work;

use gpu::Pushbuffer;
use serde_json::Value;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use work::Work;

/// Longer than any step here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Submitting threads, all processes together.
const SLOTS: usize = 8;

/// One thread's count.
#[repr(C, align(64))]
struct Slot {
    pid: AtomicU64,
    /// Copies before the counting began. Each submission after that is one.
    before: AtomicU64,
    begun: AtomicU64,
    done: AtomicU64,
}

/// The file, mapped shared: the stores of a killed program remain.
fn counts(path: &Path) -> &'static [Slot; SLOTS] {
    let file = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    let size = size_of::<[Slot; SLOTS]>();
    file.set_len(size as u64).unwrap();
    // SAFETY: a fresh mapping of a file of this size, never unmapped; atomics are valid for any bytes.
    unsafe {
        let (rights, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let at = libc::mmap(std::ptr::null_mut(), size, rights, shared, file.as_raw_fd(), 0);
        assert_ne!(at, libc::MAP_FAILED);
        &*at.cast()
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::SeqCst)
}

/// A recording of the counting program; `slots` has the slots in which each process counts.
struct Storm {
    dir: tempfile::TempDir,
    recorder: Child,
    slots: &'static [Slot; SLOTS],
    used: usize,
}

impl Storm {
    /// Starts it and waits until every thread submits.
    fn begin(tap: &str, threads: &[usize]) -> Storm {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("counts");
        let slots = counts(&path);
        let mut c = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
        c.args(["record", "--gpu", "soft", "--tap", tap, "--on-full", "wait", "-o"]).arg(dir.path().join("t.doorbell"));
        c.arg("--").arg(std::env::current_exe().unwrap());
        c.args(["plays_counting", "--exact", "--ignored", "--nocapture"]).env("COUNTS", &path);
        c.env("DOORBELL_SOFTGPU_COUNTERS", dir.path().join("consumed"));
        c.env("THREADS", threads.iter().map(usize::to_string).collect::<Vec<_>>().join(","));
        let said = std::fs::File::create(dir.path().join("said")).unwrap();
        c.stdin(Stdio::null()).stdout(said.try_clone().unwrap()).stderr(said);
        let mut storm = Storm { dir, recorder: c.spawn().unwrap(), slots, used: threads.iter().sum() };
        let begun = Instant::now();
        while storm.used().iter().any(|slot| get(&slot.done) < 200) {
            let ended = storm.recorder.try_wait().unwrap();
            if begun.elapsed() > PATIENCE || ended.is_some() {
                test_support::kill_tree(storm.recorder.id() as i32);
                panic!("{threads:?} threads under {tap} never submitted, {ended:?}: {}", storm.complaints());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        storm
    }

    fn used(&self) -> &[Slot] {
        &self.slots[..self.used]
    }

    fn complaints(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("said")).unwrap_or_default()
    }

    /// After a random time, kills every process of the program.
    fn kill(&mut self) -> Value {
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..300_000)));
        let mut pids: Vec<i32> = self.used().iter().map(|slot| get(&slot.pid) as i32).collect();
        // Children first: the recording ends with the first process.
        pids.reverse();
        pids.dedup();
        for pid in pids {
            // SAFETY: a process of the program that this test started.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.recorder.try_wait().unwrap() {
                break status;
            }
            if begun.elapsed() > PATIENCE {
                test_support::kill_tree(self.recorder.id() as i32);
                panic!("the recorder goes on after its program was killed");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        assert_eq!(status.code(), Some(128 + libc::SIGKILL), "{}", self.complaints());
        let mut show = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
        show.args(["show", "--summary", "--json"]).arg(self.dir.path().join("t.doorbell"));
        let out = test_support::finished(&mut show, "show");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    }
}

/// The software GPU's own count of copies: `doorbell_softgpu::Counters::copies`. (A program with that crate in it would use it
/// instead of the preloaded one.)
fn copies_of_gpu(counters: &Path) -> u64 {
    let bytes = std::fs::read(counters).unwrap();
    assert_eq!(&bytes[..8], b"SOFTGPU2");
    u64::from_ne_bytes(bytes[48..56].try_into().unwrap())
}

/// The number on the tape is between the numbers that these threads had done and had begun, and the GPU has not consumed more than
/// that. A doorbell that finds its channel's tap in use by another thread is handed over to that thread, and the tape counts that.
/// If the kill happens before that thread rings, the doorbell never reaches the GPU either, and the GPU's own count is the lower
/// bound.
fn between(summary: &Value, consumed: u64, slots: &[&Slot], what: &str) {
    let sum = |of: fn(&Slot) -> &AtomicU64| slots.iter().map(|slot| get(of(slot))).sum::<u64>();
    let before = sum(|s| &s.before);
    let (done, begun) = (before + sum(|s| &s.done), before + sum(|s| &s.begun));
    let number = |at: &str| summary.pointer(at).and_then(Value::as_u64).unwrap_or_else(|| panic!("{what}: no {at}"));
    let (on_tape, handed_over) = (number("/copies/copy_engine"), number("/tap/handed_over"));
    let what = format!("{what}: consumed {consumed}, done {done}, on the tape {on_tape}, begun {begun}");
    println!("{what}, {handed_over} handed over");
    let least = if handed_over == 0 { done } else { consumed };
    assert!((least..=begun).contains(&on_tape), "{what}, {handed_over} handed over");
    assert!(slots.len() > 1 || handed_over == 0, "{what}: one thread hands nothing over");
    assert!(consumed <= on_tape, "{what}: the GPU has seen more");
    assert!(begun - done <= slots.len() as u64 && done > 200, "{what}");
    assert_eq!(number("/lost"), 0, "{what}: {}", summary["lost_detail"]);
}

/// Several processes, each started by the one before it, and all killed: each has its own part of the recording.
fn processes_killed_under(tap: &str, threads: &[usize]) {
    let mut storm = Storm::begin(tap, threads);
    let summary = storm.kill();
    let processes = summary["processes"].as_array().map_or(&[][..], Vec::as_slice);
    let mut slots = storm.used();
    for (n, threads) in threads.iter().enumerate() {
        let (of, rest) = slots.split_at(*threads);
        slots = rest;
        let pid = get(&of[0].pid);
        let process = processes.iter().find(|p| p["pid"] == pid);
        let process =
            process.unwrap_or_else(|| panic!("process {n}, {pid}, is not on the tape: {}", summary["processes"]));
        let sum = |of: &[Slot], count: fn(&Slot) -> &AtomicU64| {
            of.iter().map(|s| get(&s.before) + get(count(s))).sum::<u64>()
        };
        let (done, begun) = (sum(of, |s| &s.done), sum(of, |s| &s.begun));
        let (on_tape, lost) = (process["copies"].as_u64().unwrap(), &process["lost"]);
        println!("process {n} under {tap}: done {done}, on the tape {on_tape}, begun {begun}, lost {lost}");
        // (One thread never hands a doorbell over.)
        assert!(
            on_tape <= begun && (on_tape >= done || *threads > 1),
            "process {n}: {done}..{begun}, on the tape {on_tape}"
        );
        assert_eq!(*lost, 0, "process {n}");
    }
    assert_eq!(summary["lost"], 0, "{}", summary["lost_detail"]);
}

#[test]
fn the_tape_has_what_three_killed_processes_counted() {
    for tap in ["trap", "patch"] {
        processes_killed_under(tap, &[1, 1, 1]);
        processes_killed_under(tap, &[2, 1, 2]);
    }
}

fn killed_under(tap: &str, threads: usize) {
    let mut storm = Storm::begin(tap, &[threads]);
    let summary = storm.kill();
    let slots: Vec<&Slot> = storm.used().iter().collect();
    let consumed = copies_of_gpu(&storm.dir.path().join("consumed"));
    between(&summary, consumed, &slots, &format!("{threads} threads under {tap}"));
    assert_eq!(summary["end"]["signal"], 9);
}

#[test]
fn the_tape_has_what_a_killed_program_counted() {
    for tap in ["trap", "patch"] {
        for threads in [1, 1, 3] {
            killed_under(tap, threads);
        }
    }
}

#[test]
#[ignore = "20 kills under each tap; run by .ci/run"]
fn the_tape_has_what_many_killed_programs_counted() {
    for n in 0..20 {
        for tap in ["trap", "patch"] {
            killed_under(tap, 1 + n % 4);
        }
    }
}

// ---- the program

/// Counts in the slots from `FIRST` on, one thread and channel each. `THREADS` of several processes: the first starts the next.
#[test]
#[ignore = "a program for the tests above"]
fn plays_counting() {
    let of = |name: &str| std::env::var(name).expect("started by a test");
    let first: usize = std::env::var("FIRST").map_or(0, |n| n.parse().unwrap());
    let threads: Vec<usize> = of("THREADS").split(',').map(|n| n.parse().unwrap()).collect();
    let child = (threads.len() > 1).then(|| {
        let rest: Vec<String> = threads[1..].iter().map(usize::to_string).collect();
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(std::env::args_os().skip(1)).env("THREADS", rest.join(","));
        again.env("FIRST", (first + threads[0]).to_string()).spawn().unwrap()
    });
    let slots = counts(Path::new(&of("COUNTS")));
    // One address space, like CUDA's.
    let space = Work::space();
    std::thread::scope(|scope| {
        for slot in &slots[first..first + threads[0]] {
            scope.spawn(|| count(slot, Work::in_space(&space, gpu::Site::Libcuda)));
        }
    });
    drop(child);
}

fn count(slot: &Slot, mut work: Work) {
    work.rounds(2);
    let mut words = Pushbuffer::new(work.channel.space(), 64).unwrap();
    words.copy(work.target.va(), work.source.va(), 64).unwrap();
    let words = words.validate(&work.channel).unwrap();
    slot.pid.store(u64::from(std::process::id()), Ordering::SeqCst);
    slot.before.store(u64::from(work.round), Ordering::SeqCst);
    loop {
        slot.begun.fetch_add(1, Ordering::SeqCst);
        // The ring is full at times.
        while work.channel.submit(&words).is_err() {
            std::thread::yield_now();
        }
        slot.done.fetch_add(1, Ordering::SeqCst);
    }
}
