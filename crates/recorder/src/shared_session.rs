//! The session as the recorder holds it: the shared page, and the regions that it offers.

use crate::memory::{self, Mapping};
use crate::region::{Region, Settings};
use std::fs::File;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tape::session::{MAGIC, SESSION_BYTES, Session, VERSION};

/// Regions that are ready before the program starts, and regions kept ready once it runs: a launcher starts as many processes
/// as there are GPUs at a time, and each waits [`tape::session::PATIENCE_MS`] at most. Each takes about 280 KiB.
const FIRST: usize = 2;
const READY: usize = 8;

pub struct SharedSession {
    file: File,
    mapping: Mapping,
    settings: Settings,
}

impl SharedSession {
    /// `memory`: bytes for all rings.
    pub fn new(settings: Settings, memory: u64) -> io::Result<SharedSession> {
        let file = memory::memfd(c"doorbell-session", &[], SESSION_BYTES)?;
        let mapping = Mapping::new(&file, 0, SESSION_BYTES)?;
        // SAFETY: zeroed memory of that size, ours alone so far.
        unsafe {
            let s = mapping.at().cast::<Session>();
            (&raw mut (*s).magic).write(MAGIC);
            (&raw mut (*s).version).write(VERSION);
            (&raw mut (*s).region_version).write(tape::region::VERSION);
            (&raw mut (*s).recorder).write(std::process::id() as i32);
            (&raw mut (*s).tap).write(settings.tap);
            (&raw mut (*s).on_full).write(settings.on_full);
            (&raw mut (*s).locks).write(settings.locks);
        }
        let s = SharedSession { file, mapping, settings };
        s.page().give_memory(memory);
        Ok(s)
    }

    /// Path by which another process opens the session while we live.
    pub fn path(&self) -> String {
        memory::path_of(&self.file)
    }

    pub fn page(&self) -> &Session {
        // SAFETY: mapped and initialised by `new`; atomics, and numbers that nobody writes to any more.
        unsafe { &*self.mapping.at().cast::<Session>() }
    }

    /// The first regions. `offered`: those that are ready, by their entry.
    pub fn prepare(&self, offered: &mut Vec<(usize, Region)>) -> io::Result<()> {
        self.have_ready(offered, FIRST)
    }

    /// Makes regions until enough are ready.
    pub fn keep_ready(&self, offered: &mut Vec<(usize, Region)>) -> io::Result<()> {
        self.have_ready(offered, READY)
    }

    fn have_ready(&self, offered: &mut Vec<(usize, Region)>, n: usize) -> io::Result<()> {
        if self.page().stopped.load(Ordering::Relaxed) != 0 {
            return Ok(());
        }
        let mut new = false;
        while offered.len() < n {
            let region = Region::new(&self.settings, self.page())?;
            // All entries in use: as many processes as there can be.
            let Some(entry) = self.page().offer(region.fd()) else { break };
            offered.push((entry, region));
            new = true;
        }
        if new {
            self.wake();
        }
        Ok(())
    }

    /// No more regions are given; who waits for one goes on.
    pub fn stop(&self) {
        let page = self.page();
        page.stopped.store(1, Ordering::Release);
        page.word.fetch_add(1, Ordering::AcqRel);
        self.wake();
    }

    fn wake(&self) {
        futex(&self.page().word, libc::FUTEX_WAKE, i32::MAX as u32, None);
    }

    /// Sleeps until an agent calls, at most so long. `seen`: [`Session::calls`] as it was when there was nothing to do.
    pub fn sleep(&self, seen: u32, at_most: Duration) {
        futex(&self.page().calls, libc::FUTEX_WAIT, seen, Some(at_most));
    }
}

/// A futex in shared memory.
fn futex(word: &AtomicU32, op: i32, value: u32, at_most: Option<Duration>) {
    let t = at_most.map(|d| libc::timespec { tv_sec: d.as_secs() as i64, tv_nsec: d.subsec_nanos().into() });
    let t = t.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: a word that stays mapped, and a timespec or null.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, value, t, ptr::null::<u32>(), 0) };
}
