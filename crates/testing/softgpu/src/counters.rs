//! What the GPU consumed, in counters that can survive the process.
//!
//! With `DOORBELL_SOFTGPU_COUNTERS=path` the struct is in that file, mapped shared: after a `kill -9` of the program a test opens it and compares.
//! [`ChannelCounters::progress`] is consistent at every instant: entries, dwords and hash belong together.

use std::fs::OpenOptions;
use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// First eight bytes of the file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SOFTGPU2");
/// Channels that have separate counters, in the order of their creation.
pub const CHANNELS: usize = 256;
/// Start value of [`hash`].
pub const HASH_SEED: u64 = 0xcbf2_9ce4_8422_2325;

/// The running hash of consumed pushbuffer words (FNV-1a over 32-bit words, then a rotation).
pub fn hash(mut state: u64, words: &[u32]) -> u64 {
    for &word in words {
        state = (state ^ u64::from(word)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }
    state
}

#[repr(C)]
#[derive(Debug)]
pub struct Counters {
    pub magic: AtomicU64,
    /// Stores of a token at +0x90 of a doorbell page, known token or not.
    pub doorbells: AtomicU64,
    /// Doorbells whose token belongs to no live channel.
    pub unknown_tokens: AtomicU64,
    /// Doorbells that found GP_PUT unchanged since the last one.
    pub empty_doorbells: AtomicU64,
    /// GPFIFO entries consumed.
    pub entries: AtomicU64,
    /// Pushbuffer words consumed.
    pub dwords: AtomicU64,
    /// Copy-engine copies (fills not included).
    pub copies: AtomicU64,
    pub copy_bytes: AtomicU64,
    /// Inline-to-memory transfers.
    pub inline_copies: AtomicU64,
    pub inline_bytes: AtomicU64,
    /// Copy-engine fills with a remap constant.
    pub fills: AtomicU64,
    /// QMDs started.
    pub launches: AtomicU64,
    /// Stand-in kernels run.
    pub kernels: AtomicU64,
    /// Semaphore releases and reductions, of all engines.
    pub releases: AtomicU64,
    /// Semaphore acquires that succeeded.
    pub acquires: AtomicU64,
    /// Channels killed.
    pub faults: AtomicU64,
    /// Channels ever created.
    pub channels_created: AtomicU64,
    pub channels: [ChannelCounters; CHANNELS],
}

#[repr(C)]
#[derive(Debug)]
pub struct ChannelCounters {
    /// 0 never used, then a [`state`].
    pub state: AtomicU32,
    pub token: AtomicU32,
    pub doorbells: AtomicU64,
    /// The last GP_PUT that a doorbell announced.
    pub rung_put: AtomicU32,
    /// The channel's error code (31, 32, 13), or 0.
    pub fault: AtomicU32,
    slots: [ProgressSlot; 2],
}

#[repr(C)]
#[derive(Debug)]
struct ProgressSlot {
    entries: AtomicU64,
    dwords: AtomicU64,
    hash: AtomicU64,
}

/// The progress of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// GPFIFO entries consumed, control entries included.
    pub entries: u64,
    /// Pushbuffer words of these entries.
    pub dwords: u64,
    /// [`hash`] of these words, from [`HASH_SEED`].
    pub hash: u64,
}

/// Values of [`ChannelCounters::state`].
pub mod state {
    pub const LIVE: u32 = 1;
    pub const FAULTED: u32 = 2;
    pub const FREED: u32 = 3;
}

impl ChannelCounters {
    /// The latest complete record. The two slots alternate, and the one with fewer entries is the one being rewritten.
    pub fn progress(&self) -> Progress {
        let read = |slot: &ProgressSlot| Progress {
            entries: slot.entries.load(Ordering::Acquire),
            dwords: slot.dwords.load(Ordering::Acquire),
            hash: slot.hash.load(Ordering::Acquire),
        };
        let (even, odd) = (read(&self.slots[0]), read(&self.slots[1]));
        match () {
            () if even.entries == 0 && odd.entries == 0 => Progress { entries: 0, dwords: 0, hash: HASH_SEED },
            () if odd.entries > even.entries => odd,
            () => even,
        }
    }

    pub(crate) fn set_progress(&self, progress: Progress) {
        let slot = &self.slots[(progress.entries & 1) as usize];
        slot.dwords.store(progress.dwords, Ordering::Relaxed);
        slot.hash.store(progress.hash, Ordering::Relaxed);
        // ORDERING: entries last: a slot counts only once its other words are in place.
        slot.entries.store(progress.entries, Ordering::Release);
    }
}

impl Counters {
    /// Counters that are private to this process.
    pub fn private() -> &'static Counters {
        // SAFETY: every field is an atomic integer, for which zero is a value.
        let counters: &'static Counters = Box::leak(Box::new(unsafe { std::mem::zeroed() }));
        counters.magic.store(MAGIC, Ordering::Relaxed);
        counters
    }

    /// The counters in a file, which is created or grown as needed and stays mapped.
    pub fn shared(path: &Path) -> io::Result<&'static Counters> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.len() < size_of::<Counters>() as u64 {
            file.set_len(size_of::<Counters>() as u64)?;
        }
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new shared mapping of an open file, at an address of the kernel's choice.
        let at = unsafe { crate::sys::mmap(0, size_of::<Counters>(), prot, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping is as long as the struct, page-aligned, never unmapped, and atomics may be changed by other processes.
        let counters: &'static Counters = unsafe { &*at.cast() };
        counters.magic.store(MAGIC, Ordering::Release);
        Ok(counters)
    }

    /// The counters of a channel, by its place in the order of creation.
    pub fn channel(&self, index: usize) -> Option<&ChannelCounters> {
        self.channels.get(index)
    }

    /// Channels that were ever used and have counters.
    pub fn used(&self) -> impl Iterator<Item = &ChannelCounters> {
        self.channels.iter().filter(|channel| channel.state.load(Ordering::Acquire) != 0)
    }
}

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
