//! The buffers of a session. A thread that has a lane finds them without a lock.

use crate::error::Error;
use crate::handle::BUFFER;
use crate::lane::Lane;
use gpu::points::Point;
use gpu::{Bar1Map, Memory, Region};
use rm::graph::Place;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

const CHUNK: usize = 256;
const CHUNKS: usize = 256;
/// Maximum number of buffers at a time.
const MOST: usize = CHUNK * CHUNKS;

/// Keeps a buffer's memory alive, so that copies may name it.
#[derive(Debug)]
pub(crate) enum Kept {
    Ours(Arc<Memory>),
    Cudas(machine::Pinned),
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub region: Region,
    /// Its address for the GPU, and for the CPU if the CPU sees it: see [`Entry::seen_at`].
    pub pointer: u64,
    pub place: Place,
    /// The mapping that the CPU stores to and loads from, if some copy uses it; otherwise the reason why there is none.
    pub map: Result<Bar1Map, String>,
    // Dropped after the region, which names it.
    pub kept: Kept,
}

impl Entry {
    /// CUDA's memory, pinned, of this GPU or of one to which it has peer access. `mapped`: also for stores and loads of the CPU. The thread must have a current context.
    pub fn of_cuda(machine: &machine::Machine, pointer: u64, length: u64, mapped: bool) -> Result<Entry, Error> {
        let pinned = machine::pin(machine, pointer, length)?;
        // The driver calls do not describe memory that was allocated before they were watched.
        let known = machine.context().map_err(|why| Error::Unavailable(why.reason))?.pointer(pointer)?;
        let place = match known.map(|known| known.memory) {
            Some(cuda::MemoryType::Device) => Place::Video,
            Some(cuda::MemoryType::Host) => Place::Host,
            _ => pinned.pin().place(),
        };
        let map = map(mapped, place, length, || Bar1Map::of_pin(pinned.pin(), 0, length));
        Ok(Entry { region: pinned.region().clone(), pointer, place, map, kept: Kept::Cudas(pinned) })
    }

    /// The session's own memory.
    pub fn of_memory(memory: Arc<Memory>, place: Place, bytes: u64, mapped: bool) -> Result<Entry, Error> {
        let (region, pointer) = (memory.region().part(0, bytes)?, memory.va());
        let map = map(mapped, place, bytes, || Bar1Map::of(&memory, 0, bytes));
        Ok(Entry { region, pointer, place, map, kept: Kept::Ours(memory) })
    }
}

/// Maximum number of bytes that are mapped for the CPU: the kernel writes a page-table entry for each 4 KiB.
const MOST_MAPPED: u64 = 256 << 20;

fn map(
    wanted: bool,
    place: Place,
    length: u64,
    make: impl FnOnce() -> Result<Bar1Map, gpu::Error>,
) -> Result<Bar1Map, String> {
    match place {
        Place::Video if !wanted => Err("the buffer is not mapped: the profile names neither stores nor loads".into()),
        Place::Video if length > MOST_MAPPED => {
            Err("buffers of more than 256 MiB are not mapped: pin the part that is copied by itself".into())
        }
        Place::Video => make().map_err(|error| format!("the buffer is not mapped through BAR1: {error}")),
        _ => Err("it is not the GPU's memory".into()),
    }
}

impl Entry {
    /// The address at which the CPU sees it: host memory, and all of the session's own memory.
    pub fn seen_at(&self) -> Option<u64> {
        let seen = matches!(self.kept, Kept::Ours(_)) || self.place == Place::Host;
        seen.then_some(self.pointer)
    }

    /// Ends all naming of the memory, whatever else keeps it, and waits for pending work. See [`gpu::Pin::end`] and [`gpu::Memory::end`].
    pub fn end(&self) {
        match &self.kept {
            Kept::Ours(memory) => memory.end(),
            Kept::Cudas(pinned) => pinned.pin().end(),
        }
    }

    /// Maps a part of GPU memory for the CPU.
    pub fn map_part(&self, at: u64, length: u64) -> Result<Bar1Map, Error> {
        Ok(match &self.kept {
            Kept::Ours(memory) => Bar1Map::of(memory, at, length),
            Kept::Cudas(pinned) => Bar1Map::of_pin(pinned.pin(), at, length),
        }?)
    }
}

/// The number of the next use of a place, of all sessions: odd.
static USES: AtomicU32 = AtomicU32::new(1);

struct Slot {
    /// Odd while the entry is there. Never the same in two uses, also of places in other sessions.
    used: AtomicU32,
    /// 1: GPU memory, of this GPU or another one.
    video: AtomicU8,
    entry: UnsafeCell<Option<Entry>>,
}

// SAFETY: the entry is written while `used` is even and no claim that saw it odd lasts (`remove`); it is read only under a claim.
unsafe impl Sync for Slot {}

pub(crate) struct Buffers {
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    free: Mutex<Free>,
}

struct Free {
    places: Vec<u32>,
    /// Number of places ever used.
    top: u32,
}

impl Buffers {
    pub const fn new() -> Buffers {
        Buffers { chunks: [const { OnceLock::new() }; CHUNKS], free: Mutex::new(Free { places: Vec::new(), top: 0 }) }
    }

    #[inline]
    fn slot(&self, place: u32) -> Option<&Slot> {
        self.chunks.get(place as usize / CHUNK)?.get()?.get(place as usize % CHUNK)
    }

    /// Returns its place, and how often the place was used.
    pub fn add(&self, entry: Entry) -> Result<(u32, u32), Error> {
        let mut free = poison::ignore(self.free.lock());
        let place = match free.places.pop() {
            Some(place) => place,
            None if free.top as usize == MOST => return Err(Error::Limit(MOST)),
            None => {
                free.top += 1;
                free.top - 1
            }
        };
        let make = || {
            let one = || Slot { used: AtomicU32::new(0), video: AtomicU8::new(0), entry: UnsafeCell::new(None) };
            (0..CHUNK).map(|_| one()).collect()
        };
        let slot = &self.chunks[place as usize / CHUNK].get_or_init(make)[place as usize % CHUNK];
        slot.video.store((entry.place == Place::Video).into(), Ordering::Relaxed);
        // SAFETY: the place is free: `used` is even, and every claim that saw it odd has ended.
        unsafe { *slot.entry.get() = Some(entry) };
        let used = USES.fetch_add(2, Ordering::Relaxed);
        slot.used.store(used, Ordering::SeqCst);
        Ok((place, used))
    }

    /// Returns the entry, if it is there.
    ///
    /// # Safety
    /// The caller has a claim on a lane for as long as it uses the entry.
    #[inline]
    pub unsafe fn find(&self, (place, used): (u32, u32)) -> Result<&Entry, Error> {
        let slot = self.slot(place).ok_or_else(|| BUFFER.wrong())?;
        // ORDERING: after the claim: either `remove` waits for that claim, or this load sees the number that `remove` has changed.
        if used & 1 == 0 || slot.used.load(Ordering::SeqCst) != used {
            return Err(BUFFER.wrong());
        }
        // SAFETY: the entry stays until the caller's claim has ended.
        unsafe { &*slot.entry.get() }.as_ref().ok_or_else(|| BUFFER.wrong())
    }

    /// Whether it is in GPU memory: a hint for the choice of a lane.
    #[inline]
    pub fn is_video(&self, place: u32) -> bool {
        self.slot(place).is_some_and(|slot| slot.video.load(Ordering::Relaxed) == 1)
    }

    /// Removes an entry when no thread can find it any more.
    pub fn remove(&self, (place, used): (u32, u32), lanes: &[Lane]) -> Result<Entry, Error> {
        let slot = self.slot(place).ok_or_else(|| BUFFER.wrong())?;
        let gone = slot.used.compare_exchange(used, used.wrapping_add(1), Ordering::SeqCst, Ordering::Relaxed);
        if used & 1 == 0 || gone.is_err() {
            return Err(BUFFER.wrong());
        }
        Point::AfterGone.reached();
        lanes.iter().for_each(Lane::grace);
        // SAFETY: `used` is even, and each lane has been released since: no thread looks at the entry.
        let entry = unsafe { (*slot.entry.get()).take() };
        poison::ignore(self.free.lock()).places.push(place);
        entry.ok_or_else(|| BUFFER.wrong())
    }

    /// Removes all entries. No lane has a channel any more.
    pub fn clear(&self, lanes: &[Lane]) {
        let top = poison::ignore(self.free.lock()).top;
        for place in 0..top {
            let used = self.slot(place).map_or(0, |slot| slot.used.load(Ordering::SeqCst));
            if used & 1 == 1 {
                // (No lane has a channel to wait for.)
                drop(self.remove((place, used), lanes));
            }
        }
    }
}
