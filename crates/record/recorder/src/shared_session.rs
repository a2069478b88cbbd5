//! The session as the recorder holds it: the shared page, and the regions that it offers.

use crate::memory::Mapping;
use crate::place::Place;
use crate::region::{Region, Settings, Slab};
use std::io;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tape::region::capture;
use tape::session::{MAGIC, REGIONS, Session, VERSION, paused};

/// The first entries, whose regions are kept in memory ahead of use: agents take the first ready region. Each takes about
/// 280 KiB. Other regions cost their process some page faults.
const READY: usize = 8;
/// Minimum number of regions if a limit of file sizes keeps the slab short.
const LEAST: u32 = 2;

pub struct SharedSession {
    mapping: Mapping,
    slab: Arc<Slab>,
    /// Places of the slab that were given out.
    places: AtomicU32,
    /// The place that each entry offers. (The program may write over the table that it sees.)
    offered: Vec<AtomicU32>,
}

impl SharedSession {
    /// `memory`: bytes for all rings.
    pub fn new(place: &Place, settings: Settings, memory: u64) -> io::Result<SharedSession> {
        let slab = Arc::new(Slab::new(place, settings.geometry, REGIONS as u32, LEAST)?);
        let mapping = slab.session()?;
        // SAFETY: zeroed memory of that size, not yet shared.
        unsafe {
            let s = mapping.at().cast::<Session>();
            (&raw mut (*s).magic).write(MAGIC);
            (&raw mut (*s).version).write(VERSION);
            (&raw mut (*s).region_version).write(tape::region::VERSION);
            (&raw mut (*s).recorder).write(std::process::id() as i32);
            (&raw mut (*s).tap).write(settings.tap);
            (&raw mut (*s).on_full).write(settings.on_full);
            (&raw mut (*s).contents).write(settings.contents);
            (&raw mut (*s).capture).write(settings.capture);
            (&raw mut (*s).range).write(settings.range.0);
            (&raw mut (*s).range_domain).write(settings.range.1);
            (&raw mut (*s).fixes.wanted).write(settings.fixes);
            (&raw mut (*s).fixes.compiler).write(settings.compiler);
            (&raw mut (*s).reserve).write(u32::from(slab.reserve));
            let paused = match settings.capture {
                capture::ALWAYS => paused::NO,
                capture::SIGNAL | capture::ATTACH => paused::BY_RECORDER,
                _ => paused::AT_FIRST,
            };
            (*s).paused.store(paused, Ordering::Relaxed);
            (&raw mut (*s).small_bytes).write(settings.geometry.small as u32);
            (&raw mut (*s).ring_bytes).write(settings.geometry.large as u32);
        }
        let offered = (0..REGIONS).map(|_| AtomicU32::new(0)).collect();
        let s = SharedSession { mapping, slab, places: AtomicU32::new(0), offered };
        s.page().give_memory(memory);
        Ok(s)
    }

    /// The path at which another process opens the session while it exists.
    pub fn path(&self) -> &str {
        self.slab.path()
    }

    pub fn page(&self) -> &Session {
        // SAFETY: mapped and initialised by `new`; atomics, and numbers that no process writes any more.
        unsafe { &*self.mapping.at().cast::<Session>() }
    }

    /// The region of an entry as it is. Its first pages are in memory if it is one that is kept ready.
    pub fn region(&self, entry: usize) -> io::Result<Region> {
        let place = self.offered.get(entry).map_or(0, |place| place.load(Ordering::Relaxed));
        Region::new(&self.slab, place)
    }

    /// Where the region of an entry begins in the file.
    pub fn begins(&self, entry: usize) -> Option<usize> {
        self.slab.begins(self.offered.get(entry)?.load(Ordering::Relaxed)).ok()
    }

    /// Offers a region in every entry. The first ones are in memory and are returned, as many as there is memory for.
    pub fn prepare(&self) -> Vec<Option<Region>> {
        let mut ready: Vec<Option<Region>> = Vec::new();
        for entry in 0..REGIONS {
            if !self.offer(entry) {
                break;
            }
            if entry < READY {
                ready.push(self.region(entry).ok());
            }
        }
        for region in ready.iter_mut().flatten() {
            // (A failure costs only page faults, or it is noted when a process finds no region.)
            let _ = region.prepare(self.page());
        }
        ready
    }

    /// A region was given back, and another is offered in its entry. Its first pages are in memory if the entry is one
    /// of the ready ones.
    pub fn offer_again(&self, entry: usize, old: Region, ready: &mut [Option<Region>]) {
        self.page().give_memory(old.memory());
        self.slab.give_back(old.place);
        drop(old);
        self.page().free(entry);
        if self.page().stopped.load(Ordering::Relaxed) != 0 || !self.offer(entry) {
            return;
        }
        if let Some(to) = ready.get_mut(entry) {
            *to = self.region(entry).ok();
            if let Some(region) = to {
                // (A failure costs only page faults.)
                let _ = region.prepare(self.page());
            }
        }
        self.wake();
    }

    /// False if there is no room for more.
    fn offer(&self, entry: usize) -> bool {
        let place = self.places.load(Ordering::Relaxed);
        let fits = (place as usize) < REGIONS || self.slab.grow(place + 1).is_ok();
        if fits {
            self.places.store(place + 1, Ordering::Relaxed);
            if let Some(offered) = self.offered.get(entry) {
                offered.store(place, Ordering::Relaxed);
            }
            self.page().offer(entry, place);
        }
        fits
    }

    /// No more regions are given. Processes that wait for one continue.
    pub fn stop(&self) {
        let page = self.page();
        page.stopped.store(1, Ordering::Release);
        page.word.fetch_add(1, Ordering::AcqRel);
        self.wake();
    }

    fn wake(&self) {
        futex(&self.page().word, libc::FUTEX_WAKE, i32::MAX as u32, None);
    }

    /// Sleeps until an agent calls, or for `at_most`. `seen`: [`Session::calls`] as it was when there was no work.
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
