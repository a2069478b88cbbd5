//! An agent that a test controls, by the protocol of `tape::session` and `tape::rings`. Also the two roles that the test binary plays when it
//! is started again: the program with the agent in it, and the recorder.
#![allow(dead_code)] // each test file uses its part

use std::ffi::{CString, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tape::event::{EntryBody, GapBody, NO_RING, NoteBody, ThreadBody, entry_flags, kind};
use tape::file::{End, Item, Process, ProcessEnd, Reader, TapeError, Unwatched};
use tape::region::{self, Control, FIXED_BYTES, PAGE, RingHead};
use tape::ring::Writer;
use tape::rings::{Rings, Size};
use tape::session::{Claim, SESSION_BYTES, Session};

/// More time than an agent has, because the machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(20);

/// The session, as an agent's constructor finds it.
#[derive(Clone, Copy)]
pub struct Joined {
    base: *mut u8,
}

// SAFETY: atomics, and numbers that no process writes.
unsafe impl Send for Joined {}
// SAFETY: as above.
unsafe impl Sync for Joined {}

/// A region, as an agent has it.
pub struct Region {
    pub joined: Joined,
    pub claim: Claim,
    fd: i32,
    /// The offset in the slab where it begins.
    begins: usize,
    base: *mut u8,
}

// SAFETY: the region is atomics, and bytes that one owner writes.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

pub struct Claimed {
    pub head: &'static RingHead,
    pub data: *mut u8,
    pub writer: Writer,
    pub ring: usize,
    pub ordinal: u32,
}

// SAFETY: moved to the thread that writes, never shared.
unsafe impl Send for Claimed {}

fn map(fd: i32, at: *mut u8, len: usize, offset: usize) -> *mut u8 {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE | fixed);
    // SAFETY: a fresh mapping, or one over this process's own address space.
    let p = unsafe { libc::mmap(at.cast(), len, prot, flags, fd, offset as i64) };
    assert_ne!(p, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    p.cast()
}

fn open(path: &str) -> i32 {
    let path = CString::new(path).unwrap();
    // SAFETY: a NUL-terminated path.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    assert!(fd >= 0, "{path:?}: {}", std::io::Error::last_os_error());
    fd
}

pub fn gettid() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

pub fn getppid() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::getppid() }
}

pub fn kill_me() -> ! {
    // SAFETY: a signal to this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    unreachable!()
}

impl Joined {
    /// Does what every agent does as it is loaded.
    pub fn join() -> Joined {
        let fd = open(&std::env::var("DOORBELL_SESSION").expect("started by the recorder"));
        let j = Joined { base: map(fd, std::ptr::null_mut(), SESSION_BYTES, 0) };
        // SAFETY: a descriptor of this function. The mapping stays.
        unsafe { libc::close(fd) };
        assert!(j.page().check());
        j.page().starts.arrive();
        j
    }

    pub fn page(&self) -> &'static Session {
        // SAFETY: mapped and never unmapped.
        unsafe { &*self.base.cast() }
    }

    pub fn call(&self) {
        self.page().call();
        // SAFETY: a word that stays mapped.
        unsafe { libc::syscall(libc::SYS_futex, self.page().calls.as_ptr(), libc::FUTEX_WAKE, 1) };
    }

    /// Claims a region; `None` if no region was free in time.
    pub fn claim(&self) -> Option<Claim> {
        let begun = Instant::now();
        loop {
            let word = self.page().word.load(Ordering::Acquire);
            // SAFETY: every x86-64 has rdtsc.
            let tsc = unsafe { core::arch::x86_64::_rdtsc() };
            if let Some(c) = self.page().claim(std::process::id() as i32, 0, getppid(), tsc) {
                self.call();
                return Some(c);
            }
            self.call();
            if begun.elapsed() > PATIENCE || self.page().stopped.load(Ordering::Acquire) != 0 {
                self.page().turned_away.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            let t = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            // SAFETY: a word that stays mapped, and a timespec.
            unsafe { libc::syscall(libc::SYS_futex, self.page().word.as_ptr(), libc::FUTEX_WAIT, word, &raw const t) };
        }
    }
}

impl Region {
    /// Attaches as the agent does at the first event that matters.
    pub fn attach() -> Region {
        let joined = Joined::join();
        let claim = joined.claim().expect("a region");
        Region::of(joined, claim)
    }

    pub fn of(joined: Joined, claim: Claim) -> Region {
        let fd = open(&std::env::var("DOORBELL_SESSION").unwrap());
        let begins = joined.page().begins(claim.place).expect("a geometry");
        let base = map(fd, std::ptr::null_mut(), FIXED_BYTES, begins);
        // SAFETY: the region belongs to this process by the claim.
        unsafe { joined.page().begin_region(base.cast()) };
        let r = Region { joined, claim, fd, begins, base };
        let c = r.control();
        assert_eq!((c.magic, c.version), (region::MAGIC, region::VERSION));
        r.say_who_we_are();
        c.pid.store(std::process::id() as i32, Ordering::Release);
        c.children.store(1, Ordering::Relaxed);
        c.state.store(1, Ordering::Release);
        r
    }

    fn say_who_we_are(&self) {
        use std::os::unix::ffi::OsStrExt;
        // SAFETY: in the fixed part, mapped and never unmapped; atomics only.
        let i = unsafe { &*self.base.add(region::IDENTITY_AT).cast::<region::Identity>() };
        let put = |bytes: &[u8], len: &AtomicU32, to: &[AtomicU8]| {
            to.iter().zip(bytes).for_each(|(to, b)| to.store(*b, Ordering::Relaxed));
            len.store(bytes.len().min(to.len()) as u32, Ordering::Relaxed);
        };
        put(std::env::current_exe().unwrap().as_os_str().as_bytes(), &i.exe_len, &i.exe);
        put(&std::fs::read("/proc/self/cmdline").unwrap(), &i.args_len, &i.args);
        let known = |(k, v): (String, String)| region::IN_ENVIRON.contains(&&k[..]).then(|| format!("{k}={v}\0"));
        let environ: String = std::env::vars().filter_map(known).collect();
        put(environ.as_bytes(), &i.environ_len, &i.environ);
    }

    pub fn control(&self) -> &'static Control {
        // SAFETY: mapped and never unmapped.
        unsafe { &*self.base.cast::<Control>() }
    }

    pub fn slots(&self) -> &'static [region::Slot] {
        // SAFETY: inside the fixed part; atomics only.
        unsafe { std::slice::from_raw_parts(self.base.add(region::SLOTS_AT).cast(), region::SLOTS) }
    }

    pub fn table(&self) -> Rings<'static> {
        // SAFETY: mapped and never unmapped.
        unsafe { Rings::new(self.base) }.unwrap()
    }

    /// Claims a small ring for this thread. `None`: all rings, or the memory for them, are taken.
    pub fn claim(&self) -> Option<Claimed> {
        self.claim_of(Size::Small, 0, NO_RING, 0)
    }

    fn claim_of(&self, size: Size, ordinal: u32, from_ring: u32, from_head: u64) -> Option<Claimed> {
        let table = self.table();
        let i = table.claim(self.joined.page(), gettid(), size, |_| true).ok()?;
        let (at, n) = (table.geometry.at(i), table.geometry.bytes(i));
        let at = self.begins + at;
        let base = map(self.fd, std::ptr::null_mut(), PAGE + 2 * n, at);
        // SAFETY: the last part of the address range just mapped.
        map(self.fd, unsafe { base.add(PAGE + n) }, n, at + PAGE);
        // SAFETY: the ring's first page, never unmapped; its lock table is zeroed as a new owner must.
        let head: &'static RingHead = unsafe {
            let locks = &*base.add(region::LOCKS_AT).cast::<region::LockTable>();
            locks.n.store(0, Ordering::Relaxed);
            locks.waits.store(0, Ordering::Relaxed);
            &*base.cast()
        };
        head.tid.store(gettid(), Ordering::Relaxed);
        head.pid.store(std::process::id() as i32, Ordering::Relaxed);
        head.ordinal.store(ordinal, Ordering::Relaxed);
        head.generation.fetch_add(1, Ordering::Relaxed);
        // SAFETY: claimed, mapped twice in a row.
        let (data, writer) = unsafe { (base.add(PAGE), Writer::new(head, base.add(PAGE), n as u64)) };
        let mut c = Claimed { head, data, writer, ring: i, ordinal };
        let body = ThreadBody { tid: gettid(), ordinal, from_ring, pid: std::process::id(), from_head };
        let begun = Instant::now();
        while !c.writer.push(kind::THREAD, 0, 1, &body, &[], &[]) {
            assert!(begun.elapsed() < Duration::from_secs(30), "its last owner's events are never taken");
            std::thread::sleep(Duration::from_millis(1));
        }
        Some(c)
    }

    /// Moves this thread to a large ring, if there is one.
    pub fn grow(&self, small: Claimed) -> Claimed {
        let mut small = small;
        small.writer.publish();
        match self.claim_of(Size::Large, small.ordinal + 1, small.ring as u32, small.writer.head()) {
            Some(large) => {
                self.table().give_back(small.ring);
                large
            }
            None => small,
        }
    }

    /// A thread's last act. Returns the values that [`Region::claim_again`] needs if the thread continues.
    pub fn give_back(&self, mut c: Claimed) -> (u32, u32, u64) {
        c.writer.publish();
        self.table().give_back(c.ring);
        (c.ordinal, c.ring as u32, c.writer.head())
    }

    pub fn claim_again(&self, (ordinal, ring, head): (u32, u32, u64)) -> Claimed {
        loop {
            match self.claim_of(Size::Small, ordinal + 1, ring, head) {
                Some(c) => return c,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
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

    /// An entry whose words are from [`word`]. False if it did not fit.
    pub fn entry(&mut self, seq: u64, words: usize) -> bool {
        self.entry_of(seq, words, |i| word(seq, i))
    }

    pub fn entry_of(&mut self, seq: u64, words: usize, word: impl Fn(usize) -> u32) -> bool {
        let gp = (words as u64) << 42;
        let body = EntryBody { gp, seq, slot: 1, index: 0, words: words as u32, lack: 0 };
        let payload: Vec<u8> = (0..words).flat_map(|i| word(i).to_le_bytes()).collect();
        let fits = self.writer.push(kind::ENTRY, 0, 1, &body, &payload, &[]);
        self.writer.publish();
        fits
    }
}

/// Word `i` of entry `seq`. These words do not pack.
pub fn word(seq: u64, i: usize) -> u32 {
    let mixed = (seq << 20 | i as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
}

/// The arguments that a test gives to a role, after its name.
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

/// The program to record: this test binary in the role `plays_the_program`.
pub fn program(arguments: &[&str]) -> Vec<OsString> {
    role("plays_the_program", arguments)
}

/// The recorder in a separate process, writing to `out`. It exits with the program's status.
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
        locks: recorder::Locks::Off,
        switches: false,
        calls: false,
        python: false,
        gpu_times: false,
        nvtx: false,
        fixes: 0,
        compiler: 0,
        ring_bytes: 1 << 20,
        memory: Some(256 << 20),
        force: false,
        agent_dir: None,
        wait: false,
        no_data: false,
        no_args: false,
        limit: None,
        rotation: None,
        last: None,
        tell: None,
        capture: recorder::Capture::Always,
        // No library: the loader prints that and continues.
        agent: b"none",
        soft: None,
        version: "test",
    }
}

/// The contents of a tape.
#[derive(Default)]
pub struct Tape {
    pub notes: Vec<String>,
    /// Notes by the recorder.
    pub remarks: Vec<String>,
    /// Counter and words of each entry.
    pub entries: Vec<(u64, Vec<u32>, u16)>,
    pub gaps: Vec<GapBody>,
    pub stray: usize,
    pub processes: Vec<Process>,
    pub process_ends: Vec<ProcessEnd>,
    pub unwatched: Vec<Unwatched>,
    /// Index of the process, and thread number, for each note.
    pub writers: Vec<(u32, i32)>,
    pub end: Option<End>,
    pub error: Option<TapeError>,
}

pub fn read(path: &Path) -> Tape {
    let mut t = Tape::default();
    let mut r = Reader::open(path).unwrap();
    loop {
        match r.item() {
            Ok(Some(Item::Events { process, tid, bytes })) => {
                let mut events = tape::event::Events::new(&bytes);
                for e in &mut events {
                    match e.body {
                        tape::event::Body::Note(text) => {
                            t.notes.push(String::from_utf8_lossy(text).into_owned());
                            t.writers.push((process, tid));
                        }
                        tape::event::Body::Thread(b) => assert_eq!(b.tid, tid),
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
            Ok(Some(Item::Process(p))) => t.processes.push(*p),
            Ok(Some(Item::ProcessEnd(e))) => t.process_ends.push(*e),
            Ok(Some(Item::Unwatched(u))) => t.unwatched.push(*u),
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
