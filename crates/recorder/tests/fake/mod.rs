//! An agent that does what a test tells it, by the protocol of `tape::region`; and the two roles that the test binary plays
//! when it is started again: the program with the agent in it, and the recorder.
#![allow(dead_code)] // each test file uses its part

use std::ffi::{CString, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tape::event::{EntryBody, GapBody, NoteBody, entry_flags, kind};
use tape::file::{End, Item, Reader, TapeError};
use tape::region::{self, Control, PAGE, RINGS, RingHead};
use tape::ring::Writer;

pub struct Region {
    fd: i32,
    base: *mut u8,
    ring_bytes: usize,
}

// SAFETY: the region is atomics, and bytes that one claimant writes.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

pub struct Claimed {
    pub head: &'static RingHead,
    pub data: *mut u8,
    pub writer: Writer,
}

// SAFETY: moved to the thread that writes, never shared.
unsafe impl Send for Claimed {}

fn map(fd: i32, at: *mut u8, len: usize, offset: usize) -> *mut u8 {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE | fixed);
    // SAFETY: a fresh mapping, or over address space of our own.
    let p = unsafe { libc::mmap(at.cast(), len, prot, flags, fd, offset as i64) };
    assert_ne!(p, libc::MAP_FAILED);
    p.cast()
}

impl Region {
    /// As the agent's constructor does it.
    pub fn attach() -> Region {
        let path = std::env::var("DOORBELL_REGION").expect("started by the recorder");
        let path = CString::new(path).unwrap();
        // SAFETY: a NUL-terminated path.
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        assert!(fd >= 0);
        let base = map(fd, std::ptr::null_mut(), region::RINGS_AT, 0);
        let r = Region { fd, base, ring_bytes: 0 };
        let c = r.control();
        assert_eq!((c.magic, c.version), (region::MAGIC, region::VERSION));
        c.pid.store(std::process::id() as i32, Ordering::Release);
        c.state.store(1, Ordering::Release);
        Region { ring_bytes: c.ring_bytes as usize, ..r }
    }

    pub fn control(&self) -> &'static Control {
        // SAFETY: mapped and never unmapped.
        unsafe { &*self.base.cast::<Control>() }
    }

    pub fn slots(&self) -> &'static [region::Slot] {
        // SAFETY: inside the region; atomics only.
        unsafe { std::slice::from_raw_parts(self.base.add(region::SLOTS_AT).cast(), region::SLOTS) }
    }

    /// Claims a ring for this thread. `None`: all are taken.
    pub fn claim(&self) -> Option<Claimed> {
        for i in 0..RINGS {
            let at = region::ring_at(i, self.ring_bytes);
            let head = map(self.fd, std::ptr::null_mut(), PAGE, at);
            // SAFETY: the ring's head page, never unmapped once claimed.
            let h: &'static RingHead = unsafe { &*head.cast::<RingHead>() };
            if h.state.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                // SAFETY: our own mapping; `h` is not used any more.
                unsafe { libc::munmap(head.cast(), PAGE) };
                continue;
            }
            // SAFETY: no arguments.
            h.tid.store(unsafe { libc::gettid() }, Ordering::Relaxed);
            h.generation.fetch_add(1, Ordering::Relaxed);
            self.control().rings.fetch_max(i as u32 + 1, Ordering::AcqRel);
            let data = map(self.fd, std::ptr::null_mut(), 2 * self.ring_bytes, at + PAGE);
            // SAFETY: the second half of the address range just mapped.
            map(self.fd, unsafe { data.add(self.ring_bytes) }, self.ring_bytes, at + PAGE);
            // SAFETY: claimed, mapped twice in a row.
            let writer = unsafe { Writer::new(h, data, self.ring_bytes as u64) };
            return Some(Claimed { head: h, data, writer });
        }
        None
    }

    pub fn claim_patiently(&self) -> Claimed {
        loop {
            match self.claim() {
                Some(c) => return c,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

impl Claimed {
    /// One note, published. False if it did not fit.
    pub fn note(&mut self, text: &str) -> bool {
        let body = NoteBody { text: text.len() as u32, pad: 0 };
        let fits = self.writer.push(kind::NOTE, 0, 1, &body, text.as_bytes(), &[]);
        self.writer.publish();
        fits
    }

    /// An entry whose words all say its number. False if it did not fit.
    pub fn entry(&mut self, seq: u64, words: usize) -> bool {
        let gp = (words as u64) << 42;
        let body = EntryBody { gp, seq, slot: 1, index: 0, words: words as u32, lack: 0 };
        let payload = (seq as u32).to_le_bytes().repeat(words);
        let fits = self.writer.push(kind::ENTRY, 0, 1, &body, &payload, &[]);
        self.writer.publish();
        fits
    }
}

/// Arguments that tests give to a role, behind its name.
pub fn told() -> Vec<String> {
    std::env::args().skip_while(|a| a != "--nocapture").skip(1).collect()
}

fn role(name: &str, arguments: &[&str]) -> Vec<OsString> {
    let mut command = vec![std::env::current_exe().unwrap().into_os_string()];
    for a in ["--ignored", "--exact", name, "--nocapture"].iter().chain(arguments) {
        command.push(a.into());
    }
    command
}

/// The program to record: this test binary, playing what `plays_the_program` says.
pub fn program(arguments: &[&str]) -> Vec<OsString> {
    role("plays_the_program", arguments)
}

/// The recorder in a process of its own, writing to `out`; it exits with the program's status.
pub fn recorder(out: &Path, arguments: &[&str]) -> Command {
    let mut all = vec![out.to_str().unwrap()];
    all.extend(arguments);
    let command = role("plays_the_recorder", &all);
    let mut c = Command::new(&command[0]);
    c.args(&command[1..]);
    c
}

pub fn options(command: Vec<OsString>, out: &Path) -> recorder::Options<'static> {
    recorder::Options {
        command,
        out: out.into(),
        tap: recorder::Tap::Auto,
        wait_on_full: false,
        locks: false,
        switches: false,
        calls: false,
        ring_bytes: 1 << 20,
        no_data: false,
        no_args: false,
        limit: None,
        // No library: the loader says so and goes on.
        agent: b"none",
        soft: None,
        version: "test",
    }
}

/// What a tape holds.
#[derive(Default)]
pub struct Tape {
    pub notes: Vec<String>,
    /// Notes by the recorder.
    pub remarks: Vec<String>,
    /// Counter and words of each entry.
    pub entries: Vec<(u64, Vec<u32>, u16)>,
    pub gaps: Vec<GapBody>,
    pub stray: usize,
    pub end: Option<End>,
    pub error: Option<TapeError>,
}

pub fn read(path: &Path) -> Tape {
    let mut t = Tape::default();
    let mut r = Reader::open(path).unwrap();
    loop {
        match r.item() {
            Ok(Some(Item::Events { bytes, .. })) => {
                let mut events = tape::event::Events::new(&bytes);
                for e in &mut events {
                    match e.body {
                        tape::event::Body::Note(text) => t.notes.push(String::from_utf8_lossy(text).into_owned()),
                        tape::event::Body::Gap(g) => t.gaps.push(g),
                        tape::event::Body::Entry(b, w) => {
                            let words = w.chunks(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
                            t.entries.push((b.seq, words, e.head.flags & entry_flags::SCRUBBED));
                        }
                        _ => t.stray += 1,
                    }
                }
                t.stray += events.rest();
            }
            Ok(Some(Item::Note(text))) => t.remarks.push(text),
            Ok(Some(Item::End(end))) => t.end = Some(*end),
            Ok(Some(_)) => {}
            Ok(None) => return t,
            Err(e) => {
                t.error = Some(e);
                return t;
            }
        }
    }
}

pub fn wait_for(what: &str, mut seen: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !seen() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited a minute for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn wait_for_file(path: &str) -> PathBuf {
    wait_for(path, || Path::new(path).exists());
    path.into()
}
