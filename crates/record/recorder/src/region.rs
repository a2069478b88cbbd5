//! A region as the recorder holds it: a piece of the slab. Only the parts in use are mapped.

use crate::memory::{self, Mapping};
use crate::place::{Place, SharedFile};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use tape::region::{self, CALL_AT, CallRow, Control, FIXED_BYTES, Identity, LOCKS_AT, LockTable, PAGE, RingHead};
use tape::region::{SLOTS, Slot};
use tape::ring::Reader;
use tape::rings::{Geometry, RINGS, Rings, SMALL};
use tape::session::{SESSION_BYTES, Session};

/// The agent's settings, which are the same for all regions of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// [`tape::region::tap`]
    pub tap: u32,
    /// [`tape::region::on_full`]
    pub on_full: u32,
    /// [`tape::region::contents`]
    pub contents: u32,
    /// [`tape::region::capture`]
    pub capture: u32,
    /// [`Session::range`] and [`Session::range_domain`]
    pub range: (u64, u64),
    /// [`tape::fix::Fixes::wanted`]
    pub fixes: u32,
    /// [`tape::fix::Fixes::compiler`]
    pub compiler: u32,
    pub geometry: Geometry,
}

/// Bytes of a large ring that are made ready ahead of its thread: as many as it may write while the recorder sleeps.
const READY: usize = 2 << 20;
const READY_PIECE: usize = 128 << 10;

/// The memory file of a session: its page and tables, then all regions one after the other. It is sparse: a region takes memory
/// as it is used.
pub struct Slab {
    shared: SharedFile,
    geometry: Geometry,
    /// [`Session::reserve`]
    pub reserve: bool,
}

impl Slab {
    /// Room for `regions`, or for `least` if there is too little; [`Slab::grow`] makes more.
    pub fn new(place: &Place, geometry: Geometry, regions: u32, least: u32) -> io::Result<Slab> {
        let shared = place.file(c"doorbell-region", &[], SESSION_BYTES, 0o666)?;
        let slab = Slab { shared, geometry, reserve: place.is_limited() };
        slab.reserve(0, SESSION_BYTES)?;
        slab.grow(regions).or_else(|_| slab.grow(least))?;
        Ok(slab)
    }

    /// The session's page and tables, mapped.
    pub fn session(&self) -> io::Result<Mapping> {
        Mapping::new(&self.shared.file, 0, SESSION_BYTES)
    }

    pub fn grow(&self, regions: u32) -> io::Result<()> {
        memory::make_longer(&self.shared.file, self.begins(regions)?)
    }

    /// The path at which another process opens the slab while it exists.
    pub fn path(&self) -> &str {
        &self.shared.path
    }

    pub fn begins(&self, place: u32) -> io::Result<usize> {
        tape::session::begins(self.geometry, place).ok_or_else(|| io::Error::from_raw_os_error(libc::EFBIG))
    }

    /// Makes sure that the file system has room for this part, if it may not.
    fn reserve(&self, at: usize, len: usize) -> io::Result<()> {
        if self.reserve { memory::make_resident(&self.shared.file, at, len) } else { Ok(()) }
    }

    /// Gives the memory of a region back. A process that still has it mapped finds zeros there.
    pub fn give_back(&self, place: u32) {
        if let Ok(at) = self.begins(place) {
            memory::give_back(&self.shared.file, at, self.geometry.region_bytes());
        }
    }
}

pub struct Region {
    slab: Arc<Slab>,
    /// The region's place in the slab, and the offset where it begins.
    pub place: u32,
    begins: usize,
    fixed: Mapping,
    /// Rings that were ever in use, mapped: small and large ones by their number.
    small: Vec<Ring>,
    large: Vec<Ring>,
    /// Small rings made resident ahead of use.
    ready: usize,
}

/// A ring, as the recorder sees it.
pub struct Ring {
    pub reader: Reader,
    at: *mut u8,
    mapping: Mapping,
    /// Bytes of its events that are made ready; all of them, if that is left to the thread.
    ready: usize,
    /// The thread that wrote the events that are taken next.
    pub tid: i32,
    /// A note on the tape reports that the ring's head is invalid.
    pub head_noted: bool,
    /// Bytes that were taken and are no events.
    pub strange: u64,
    /// The place of a THREAD event whose thread's older events cannot be had. It does not wait for them.
    pub settled: Option<u64>,
}

// SAFETY: as for Mapping, which the pointers lead to.
unsafe impl Send for Ring {}

impl Ring {
    fn new(file: &File, at: usize, bytes: usize) -> io::Result<Ring> {
        let mapping = Mapping::of_ring(file, at, PAGE, bytes)?;
        let at = mapping.at();
        // SAFETY: mapped as the reader requires, as long as the ring lives. It is the only reader.
        let reader = unsafe { Reader::new(at.cast::<RingHead>(), at.add(PAGE), bytes as u64) };
        Ok(Ring { reader, at, mapping, ready: 0, tid: 0, head_noted: false, strange: 0, settled: None })
    }

    pub fn head(&self) -> &RingHead {
        self.reader.shared()
    }

    /// During the first pass over a large ring, this allocates and clears the next pages before the thread writes to them. That
    /// costs more than all other work of the thread for its events.
    fn make_ready(&mut self, bytes: usize) {
        // (The program may overwrite the head. The ring's size bounds it.)
        let head = usize::try_from(self.head().head.load(Ordering::Relaxed)).unwrap_or(bytes);
        while self.ready < bytes.min(head.saturating_add(READY)) {
            let piece = READY_PIECE.min(bytes - self.ready);
            // If it is refused (before Linux 5.14), the thread's own page faults allocate.
            self.ready = if self.mapping.make_present(PAGE + self.ready, piece) { self.ready + piece } else { bytes };
        }
    }

    /// The locks that its thread holds and waits for.
    pub fn locks(&self) -> &LockTable {
        // SAFETY: in the ring's first page, which is mapped as long as the ring lives; atomics only.
        unsafe { &*self.at.add(LOCKS_AT).cast() }
    }

    /// The CUDA call that its thread is in.
    pub fn call(&self) -> &CallRow {
        // SAFETY: as above.
        unsafe { &*self.at.add(CALL_AT).cast() }
    }
}

impl Region {
    /// The region at this place. Only its fixed part is mapped.
    pub fn new(slab: &Arc<Slab>, place: u32) -> io::Result<Region> {
        let begins = slab.begins(place)?;
        slab.reserve(begins, FIXED_BYTES)?;
        let fixed = Mapping::new(&slab.shared.file, begins, FIXED_BYTES)?;
        Ok(Region { slab: slab.clone(), place, begins, fixed, small: Vec::new(), large: Vec::new(), ready: 0 })
    }

    /// Brings its first pages and its first small ring into memory, ahead of use.
    pub fn prepare(&mut self, session: &Session) -> io::Result<()> {
        memory::make_resident(&self.slab.shared.file, self.begins, region::SLOTS_AT)?;
        // SAFETY: at least a page, which no agent reads before it has written the same there.
        unsafe { session.begin_region(self.fixed.at().cast()) };
        self.keep_ahead(session, 1);
        Ok(())
    }

    pub fn control(&self) -> &Control {
        // SAFETY: mapped by `new`; it holds zeros or what was written there.
        unsafe { &*self.fixed.at().cast::<Control>() }
    }

    fn identity(&self) -> &Identity {
        // SAFETY: inside the fixed part; atomics only.
        unsafe { &*self.fixed.at().add(region::IDENTITY_AT).cast() }
    }

    /// The process's own report of itself: path, arguments and environment, in /proc's form.
    pub fn said(&self) -> [Vec<u8>; 3] {
        let i = self.identity();
        let bytes = |len: &AtomicU32, of: &[AtomicU8]| {
            let n = len.load(Ordering::Relaxed) as usize;
            of.iter().take(n).map(|b| b.load(Ordering::Relaxed)).collect()
        };
        [bytes(&i.exe_len, &i.exe), bytes(&i.args_len, &i.args), bytes(&i.environ_len, &i.environ)]
    }

    pub fn slots(&self) -> &[Slot] {
        // SAFETY: inside the fixed part; atomics only.
        unsafe { std::slice::from_raw_parts(self.fixed.at().add(region::SLOTS_AT).cast(), SLOTS) }
    }

    /// The table of rings. Sizes are the requested ones, whatever the program writes over them.
    pub fn table(&self) -> Rings<'_> {
        // SAFETY: inside the fixed part, mapped as long as the region lives; atomics only.
        let entries = unsafe { std::slice::from_raw_parts(self.fixed.at().add(tape::region::TABLE_AT).cast(), RINGS) };
        Rings { entries, control: self.control(), geometry: self.slab.geometry }
    }

    /// The word at a byte offset of the region (a shadow USERD's GP_PUT); `None` outside.
    pub fn word(&self, at: u64) -> Option<u32> {
        let mut b = [0; 4];
        let inside = at.is_multiple_of(4) && at.checked_add(4)? <= self.slab.geometry.region_bytes() as u64;
        (inside && self.slab.shared.file.read_exact_at(&mut b, self.begins as u64 + at).is_ok())
            .then(|| u32::from_ne_bytes(b))
    }

    /// The memory to which the GPU writes when kernels end.
    pub fn stamps(&self) -> io::Result<Mapping> {
        self.slab.reserve(self.begins + region::STAMPS_AT, region::STAMPS_BYTES)?;
        Mapping::new(&self.slab.shared.file, self.begins + region::STAMPS_AT, region::STAMPS_BYTES)
    }

    /// Maps the rings that have come into use.
    ///
    /// # Errors
    /// A ring cannot be mapped; those before it are.
    pub fn map_new_rings(&mut self) -> io::Result<()> {
        for i in self.table().used() {
            let (list, k) = if i < SMALL { (&mut self.small, i) } else { (&mut self.large, i - SMALL) };
            if k >= list.len() {
                let g = self.slab.geometry;
                list.push(Ring::new(&self.slab.shared.file, self.begins + g.at(i), g.bytes(i))?);
            }
        }
        Ok(())
    }

    /// Brings the next pages of large rings into memory.
    pub fn make_ready(&mut self) {
        let bytes = self.slab.geometry.large;
        self.large.iter_mut().for_each(|ring| ring.make_ready(bytes));
    }

    /// Numbers of the rings that are mapped.
    pub fn mapped(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.small.len()).chain(SMALL..SMALL + self.large.len())
    }

    pub fn ring(&self, i: usize) -> Option<&Ring> {
        if i < SMALL { self.small.get(i) } else { self.large.get(i - SMALL) }
    }

    pub fn ring_mut(&mut self, i: usize) -> Option<&mut Ring> {
        if i < SMALL { self.small.get_mut(i) } else { self.large.get_mut(i - SMALL) }
    }

    /// Brings `n` small rings into memory beyond the owned ones. A failure only costs the program page faults.
    pub fn keep_ahead(&mut self, session: &Session, n: usize) {
        let t = self.table();
        // (Computed from the owned rings, not from the program's number of them, because rings take memory.)
        let owned = (0..self.small.len()).rev().find(|i| t.owner(*i).is_some());
        let until = (owned.map_or(0, |i| i + 1) + n).min(SMALL);
        while self.ready < until {
            let i = self.ready;
            let (g, begins) = (self.slab.geometry, self.begins);
            let reserve = |_| memory::make_resident(&self.slab.shared.file, begins + g.at(i), PAGE + g.small).is_ok();
            if !self.table().back(session, i, reserve) {
                break;
            }
            if session.reserve == 0 {
                reserve(i);
            }
            self.ready += 1;
        }
    }

    /// The session's memory that is given back with this region.
    pub fn memory(&self) -> u64 {
        self.table().memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared_session::SharedSession;
    use std::os::unix::fs::MetadataExt;
    use tape::rings::Size;

    /// The thread finds its pages present. The recorder is ahead of it, by no more than it has to be, and only in the
    /// first pass.
    #[test]
    fn a_large_rings_pages_are_there_before_its_thread_comes() {
        let geometry = Geometry { small: 256 << 10, large: 8 << 20 };
        let settings =
            Settings { tap: 0, on_full: 0, contents: 0, capture: 0, range: (0, 0), fixes: 0, compiler: 0, geometry };
        let session = SharedSession::new(&Place::memory(), settings, 1 << 30).unwrap();
        let mut region = session.region(0).unwrap();
        let i = region.table().claim(session.page(), 1, Size::Large, |_| true).unwrap();
        region.map_new_rings().unwrap();
        let bytes = |r: &Region| r.slab.shared.file.metadata().unwrap().blocks() as usize * 512;
        let before = bytes(&region);
        let mut steps = Vec::new();
        for head in [0, 100, 1 << 20, 7 << 20, 9 << 20, u64::MAX] {
            region.ring(i).unwrap().head().head.store(head, Ordering::Relaxed);
            region.make_ready();
            steps.push((bytes(&region) - before) >> 10);
        }
        // (The ring's first page was already present.)
        let (ready, piece) = (READY >> 10, READY_PIECE >> 10);
        assert_eq!(steps, [ready, ready + piece, ready + 1024, 8 << 10, 8 << 10, 8 << 10]);
    }
}
