//! Doorbell pages and the effect of a store to one.
//!
//! Everything here runs inside signal handlers of any thread: fixed tables of atomics, no allocation, no lock.
//!
//! A ring takes a snapshot: the channel may run up to the GP_PUT that USERD held at that moment, no further. A GP_PUT that is written and never
//! rung is never seen.

use crate::counters::{ChannelCounters, Counters, add};
use crate::sys;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Length of a usermode mapping (class 0xC361 and later).
pub const USERMODE_SIZE: u64 = 0x10000;
/// NOTIFY_CHANNEL_PENDING, the doorbell (class 0xC361 +0x90).
pub const DOORBELL: u64 = 0x90;
/// TIME_0 and TIME_1 (class 0xC361 +0x80, +0x84).
pub const TIME_0: u64 = 0x80;
/// USERD: GP_GET +0x88, GP_PUT +0x8C (class 0xC86F control area).
pub const USERD_GP_GET: u64 = 0x88;
pub const USERD_GP_PUT: u64 = 0x8c;
/// USERD: REFERENCE +0x48.
pub const USERD_REFERENCE: u64 = 0x48;
/// Bytes of a USERD area.
pub const USERD_SIZE: u64 = 512;

/// Channels that can live at the same time.
pub const SLOTS: usize = 1024;
/// Set in a slot's token word while a channel owns it: token 0 is a valid token.
const OWNED: u64 = 1 << 32;

/// A living channel as a doorbell sees it.
#[derive(Debug, Default)]
pub struct Slot {
    /// `OWNED | token`, or 0.
    token: AtomicU64,
    /// Rings that are reading `put` right now: a thread that frees the USERD waits for them.
    readers: AtomicU32,
    put: AtomicPtr<u32>,
    counters: AtomicPtr<ChannelCounters>,
    /// High half: a count of rings; low half: GP_PUT at the last one.
    rung: AtomicU64,
}

impl Slot {
    /// GP_PUT of the last ring.
    pub fn rung(&self) -> u32 {
        self.rung.load(Ordering::Acquire) as u32
    }
}

/// Wakes the GPU: the channels' slots and an event count to sleep on.
#[derive(Debug)]
pub struct Bell {
    slots: Box<[Slot]>,
    events: AtomicU32,
    asleep: AtomicU32,
    counters: &'static Counters,
    /// Counts down to the ring that is not seen (0: none).
    lose: AtomicU32,
}

impl Bell {
    pub fn new(counters: &'static Counters) -> Bell {
        Bell {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            events: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
            counters,
            lose: AtomicU32::new(0),
        }
    }

    /// The n-th ring from now on is not seen (0: all are).
    pub fn lose(&self, nth: u32) {
        self.lose.store(nth, Ordering::SeqCst);
    }

    /// A free channel number.
    pub fn free_slot(&self) -> Option<usize> {
        self.slots.iter().position(|slot| slot.token.load(Ordering::Acquire) == 0)
    }

    pub fn slot(&self, index: usize) -> &Slot {
        &self.slots[index]
    }

    /// Gives a slot to a channel. `put` must stay readable until [`Bell::release`].
    pub fn claim(&self, index: usize, token: u32, put: &AtomicU32, counters: Option<&'static ChannelCounters>) {
        let slot = &self.slots[index];
        slot.rung.store(0, Ordering::Relaxed);
        slot.put.store(ptr::from_ref(put).cast_mut().cast(), Ordering::Relaxed);
        slot.counters.store(counters.map_or(ptr::null_mut(), |c| ptr::from_ref(c).cast_mut()), Ordering::Relaxed);
        // ORDERING: the token last: who sees it sees the rest.
        slot.token.store(OWNED | u64::from(token), Ordering::Release);
    }

    /// Takes the slot back; when this returns, no ring reads the channel's USERD any more.
    pub fn release(&self, index: usize) {
        let slot = &self.slots[index];
        slot.token.store(0, Ordering::SeqCst);
        while slot.readers.load(Ordering::SeqCst) != 0 {
            std::hint::spin_loop();
        }
    }

    /// A token was stored to the doorbell. Async-signal-safe.
    pub fn ring(&self, token: u32) {
        if self.lose.load(Ordering::SeqCst) != 0 && self.lose.fetch_sub(1, Ordering::SeqCst) == 1 {
            return;
        }
        add(&self.counters.doorbells, 1);
        let wanted = OWNED | u64::from(token);
        // The channel number is the slot.
        let Some(slot) = self.slots.get((token & 0xffff) as usize) else {
            add(&self.counters.unknown_tokens, 1);
            return;
        };
        slot.readers.fetch_add(1, Ordering::SeqCst);
        // Read only now, because a channel that is freed waits for the rings in `readers`.
        if slot.token.load(Ordering::SeqCst) == wanted {
            self.snapshot(slot);
        } else {
            add(&self.counters.unknown_tokens, 1);
        }
        slot.readers.fetch_sub(1, Ordering::SeqCst);
        self.wake();
    }

    /// Two threads may ring one channel: the winner has read GP_PUT after the other had published, so it cannot go back.
    fn snapshot(&self, slot: &Slot) {
        let put = slot.put.load(Ordering::Relaxed).cast::<AtomicU32>();
        let mut old = slot.rung.load(Ordering::Acquire);
        let put = loop {
            // SAFETY: the slot is owned and this thread is counted in `readers`, so the USERD memory is mapped.
            let put = unsafe { (*put).load(Ordering::Acquire) };
            let new = (old >> 32).wrapping_add(1) << 32 | u64::from(put);
            match slot.rung.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break put,
                Err(now) => old = now,
            }
        };
        if put == old as u32 {
            add(&self.counters.empty_doorbells, 1);
        }
        // SAFETY: null, or counters that live for the process.
        if let Some(counters) = unsafe { slot.counters.load(Ordering::Relaxed).as_ref() } {
            add(&counters.doorbells, 1);
            counters.rung_put.store(put, Ordering::Relaxed);
        }
    }

    /// Something happened that the GPU should handle. Async-signal-safe.
    pub fn wake(&self) {
        self.events.fetch_add(1, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) != 0 {
            sys::futex_wake(&self.events);
        }
    }

    pub fn events(&self) -> u32 {
        self.events.load(Ordering::SeqCst)
    }

    /// Sleeps for at most this long, unless something happened since `seen`.
    pub fn sleep(&self, seen: u32, nanoseconds: u64) {
        self.asleep.store(1, Ordering::SeqCst);
        if self.events() == seen {
            sys::futex_wait(&self.events, seen, nanoseconds);
        }
        self.asleep.store(0, Ordering::SeqCst);
    }
}

/// 16 bytes of a usermode page at `offset`: the clock at +0x80, zero elsewhere. Async-signal-safe.
pub fn register_bytes(offset: u64) -> u128 {
    let mut window = [0u8; 32];
    let base = offset & !15;
    if base == TIME_0 & !15 {
        window[(TIME_0 & 15) as usize..][..8].copy_from_slice(&sys::gpu_clock().to_le_bytes());
    }
    let mut bytes = [0u8; 16];
    bytes.copy_from_slice(&window[(offset & 15) as usize..][..16]);
    u128::from_le_bytes(bytes)
}

const PAGE: usize = 0x1000;
/// 64 mappings of 16 pages.
const PAGES: usize = 1024;

/// One page of a trapped usermode mapping in the program's address space.
struct Page {
    /// Page address, or 0. A page whose entry is being written holds 1.
    address: AtomicUsize,
    /// Offset in the usermode object.
    offset: AtomicUsize,
    /// The protection that the program believes in.
    prot: AtomicI32,
    bell: AtomicPtr<Bell>,
}

static TABLE: [Page; PAGES] = [const {
    Page {
        address: AtomicUsize::new(0),
        offset: AtomicUsize::new(0),
        prot: AtomicI32::new(0),
        bell: AtomicPtr::new(ptr::null_mut()),
    }
}; PAGES];
/// Entries below this index have been used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// A doorbell page as it was found.
#[derive(Clone, Copy)]
pub struct Found {
    pub offset: u64,
    pub prot: i32,
    pub bell: &'static Bell,
}

fn used() -> &'static [Page] {
    &TABLE[..USED.load(Ordering::Acquire)]
}

fn page_at(address: usize) -> Option<&'static Page> {
    let address = address & !(PAGE - 1);
    if address == 0 {
        return None;
    }
    used().iter().find(|page| page.address.load(Ordering::Acquire) == address)
}

/// The doorbell page that holds `address`. Async-signal-safe.
pub fn find(address: u64) -> Option<Found> {
    let page = page_at(address as usize)?;
    // SAFETY: pages are registered with bells that live for the process.
    let bell = unsafe { page.bell.load(Ordering::Acquire).as_ref()? };
    let offset = page.offset.load(Ordering::Acquire) as u64 + (address & (PAGE as u64 - 1));
    Some(Found { offset, prot: page.prot.load(Ordering::Acquire), bell })
}

/// True if the range touches a doorbell page.
pub fn touches(address: usize, len: usize) -> bool {
    used().iter().any(|page| {
        let at = page.address.load(Ordering::Acquire);
        at > 1 && at >= (address & !(PAGE - 1)) && at < address.saturating_add(len)
    })
}

/// Enters a new mapping of a usermode object. `false`: the table is full.
pub fn register(address: usize, len: usize, prot: i32, bell: &'static Bell) -> bool {
    (0..len / PAGE).all(|i| enter(address + i * PAGE, i * PAGE, prot, bell))
}

fn enter(address: usize, offset: usize, prot: i32, bell: &'static Bell) -> bool {
    for (i, page) in TABLE.iter().enumerate() {
        if page.address.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            continue;
        }
        page.offset.store(offset, Ordering::Relaxed);
        page.prot.store(prot, Ordering::Relaxed);
        page.bell.store(ptr::from_ref(bell).cast_mut(), Ordering::Relaxed);
        // ORDERING: the address last: who finds it finds the rest.
        page.address.store(address, Ordering::Release);
        USED.fetch_max(i + 1, Ordering::AcqRel);
        return true;
    }
    false
}

/// Removes the pages of a range that is no longer mapped, or no longer to a doorbell.
pub fn forget(address: usize, len: usize) {
    for page in used() {
        let at = page.address.load(Ordering::Acquire);
        if at > 1 && at >= (address & !(PAGE - 1)) && at < address.saturating_add(len) {
            page.address.store(0, Ordering::Release);
        }
    }
}

/// Calls that are changing the program's mappings of doorbell pages right now.
static CHANGING: AtomicU32 = AtomicU32::new(0);

/// While this lives, the table may be older than the kernel's mappings, and [`find_settled`] waits for it.
#[derive(Debug)]
pub struct Changing(());

impl Changing {
    /// `None` if the process has no doorbell page.
    pub fn begin() -> Option<Changing> {
        if USED.load(Ordering::Acquire) == 0 {
            return None;
        }
        CHANGING.fetch_add(1, Ordering::SeqCst);
        Some(Changing(()))
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        CHANGING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// As [`find`], but also right while another thread moves the page. Bounded: the change may be the interrupted thread's own. Async-signal-safe.
pub fn find_settled(address: u64) -> Option<Found> {
    for _ in 0..10_000_000 {
        let changing = CHANGING.load(Ordering::SeqCst) != 0;
        if let Some(found) = find(address) {
            return Some(found);
        }
        if !changing {
            break;
        }
        std::hint::spin_loop();
    }
    find(address)
}

/// A range was mapped a second time (`mremap` with an old length of 0).
pub fn doubled(old: usize, len: usize, new: usize) {
    for page in used() {
        let at = page.address.load(Ordering::Acquire);
        if at > 1 && at >= old && at < old + len {
            // SAFETY: pages are registered with bells that live for the process.
            let Some(bell) = (unsafe { page.bell.load(Ordering::Acquire).as_ref() }) else { continue };
            enter(at - old + new, page.offset.load(Ordering::Acquire), page.prot.load(Ordering::Acquire), bell);
        }
    }
}

/// The program moved a range (`mremap`): its pages are found at the new place.
pub fn moved(old: usize, len: usize, new: usize) {
    for page in used() {
        let at = page.address.load(Ordering::Acquire);
        if at > 1 && at >= old && at < old + len {
            page.address.store(at - old + new, Ordering::Release);
        }
    }
}

/// Sets the protection that the program gave to a doorbell page. `false`: no doorbell page.
pub fn set_prot(address: usize, prot: i32) -> bool {
    page_at(address).map(|page| page.prot.store(prot, Ordering::Release)).is_some()
}
