//! An address space: the addresses in use, the memory that pushbuffers may name, and the channels whose transfers may be in
//! flight.
//!
//! Addresses are low and fixed, as in CUDA: GPU memory for rings from 0x2_0060_0000, all other memory above, and all below
//! 2^40, the limit of GPFIFO entries.

use crate::device::Device;
use crate::error::Error;
use crate::lease::Lease;
use crate::memory::{Leftover, Leftovers};
use crate::place::Place;
use crate::tracker::{self, InFlight, Tracker};
use crate::validate::Ranges;
use crate::watched::{CudasGroup, Watched};
use rm::abi::{VaspaceAlloc, uvm, va_flags};
use rm::class;
use rm::driver;
use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

/// The address of the block with CUDA's rings.
pub(crate) const RINGS: u64 = 0x2_0060_0000;
/// In CUDA's address space: far from the addresses that CUDA reserves.
const BESIDE: u64 = 0x80_0000_0000;
const LAST: u64 = 1 << 40;
/// Ranges begin and end on 2 MiB, as the driver's big mappings do.
pub(crate) const GRAIN: u64 = 2 << 20;
pub(crate) const PAGE: u64 = 0x1000;
/// How long the freeing of memory waits for copies in progress.
const DRAIN: Duration = Duration::from_secs(1);
/// Size of a new VA space, as CUDA requests it on Hopper, with 57 address bits (580).
const SPACE_SIZE: u64 = 0x1ff_ffff_ffff_f000;

/// A GPU virtual address space. Memory and channels keep it alive.
#[derive(Debug)]
pub struct AddressSpace {
    pub(crate) device: Arc<Device>,
    pub(crate) handle: u32,
    /// Ranges in use, by first address; the length is a multiple of the grain.
    taken: Mutex<BTreeMap<u64, u64>>,
    /// Identifies it in the process.
    id: u64,
    /// doorbell's memory that a pushbuffer may name: by first address, its exact length and its number.
    mapped: Mutex<BTreeMap<u64, (u64, u64)>>,
    next_memory: AtomicU64,
    /// Each submission calls the witnesses of the pins that it names.
    each_submission: AtomicBool,
    /// Incremented whenever memory is unmapped.
    generation: AtomicU64,
    rings: Mutex<Vec<RingBlock>>,
    trackers: Mutex<Vec<Weak<Tracker>>>,
    leftovers: Leftovers,
    /// In CUDA's address space: CUDA's maps and unmaps there, and its pinned memory.
    pub(crate) watched: Option<&'static Watched>,
    /// CUDA's client and handle for it.
    theirs: Option<(u32, u32)>,
}

/// Where a region's right to be named is recorded: in its address space's list of memories, or in its list of pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    Memory(u64),
    Pin(u64),
}

/// A memory that holds the rings of many channels; it lives as long as any of them.
#[derive(Debug)]
pub(crate) struct RingBlock {
    pub place: Place,
    pub memory: Weak<dyn Any + Send + Sync>,
    pub used: Vec<bool>,
}

impl AddressSpace {
    pub fn new(device: &Arc<Device>) -> Result<Arc<AddressSpace>, Error> {
        let flags = va_flags::IS_EXTERNALLY_OWNED | va_flags::ENABLE_PAGE_FAULTING;
        let mut params = VaspaceAlloc { flags, va_base: PAGE, va_size: SPACE_SIZE, ..Default::default() };
        let shape = &device.abi.branch().layouts.vaspace_alloc;
        let handle = device.alloc_shaped(device.device, class::FERMI_VASPACE_A, shape, &mut params)?;
        let mut register = uvm::RegisterGpuVaspace {
            uuid: device.uuid,
            ctl_fd: device.ctl,
            client: device.client,
            va_space: handle,
            ..Default::default()
        };
        // SAFETY: the struct belongs to this request.
        let registered = unsafe {
            driver::uvm_call(&*device.driver, &device.abi, device.uvm, uvm::REGISTER_GPU_VASPACE, &mut register)
        };
        if let Err(error) = registered {
            device.free(device.device, handle);
            return Err(error.into());
        }
        Ok(AddressSpace::with(device, handle, None))
    }

    /// CUDA's own address space; `handle` names it in the client that `device` uses. `theirs`: CUDA's own client and handle
    /// for it.
    pub(crate) fn beside(
        device: &Arc<Device>,
        handle: u32,
        watched: &'static Watched,
        theirs: (u32, u32),
    ) -> Arc<AddressSpace> {
        AddressSpace::with(device, handle, Some((watched, theirs)))
    }

    fn with(device: &Arc<Device>, handle: u32, beside: Option<(&'static Watched, (u32, u32))>) -> Arc<AddressSpace> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Arc::new(AddressSpace {
            device: device.clone(),
            handle,
            taken: Mutex::default(),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            mapped: Mutex::default(),
            next_memory: AtomicU64::new(0),
            each_submission: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            rings: Mutex::default(),
            trackers: Mutex::default(),
            leftovers: Leftovers::default(),
            watched: beside.map(|(watched, _)| watched),
            theirs: beside.map(|(_, theirs)| theirs),
        })
    }

    /// Whether an address names the same memory in both: they are the same CUDA address space, entered twice.
    pub fn shares_addresses(&self, other: &AddressSpace) -> bool {
        let same_cuda = match (self.watched, other.watched) {
            (Some(one), Some(other)) => std::ptr::eq(one, other),
            _ => false,
        };
        self.id == other.id || same_cuda && self.theirs == other.theirs && self.device.uuid == other.device.uuid
    }

    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// True if a pushbuffer may name the whole range.
    pub fn contains(&self, va: u64, length: u64) -> bool {
        self.is_ours(va, length) || self.is_pinned(va, length)
    }

    fn is_ours(&self, va: u64, length: u64) -> bool {
        let Some(end) = va.checked_add(length) else { return false };
        poison::ignore(self.mapped.lock()).range(..=va).next_back().is_some_and(|(start, (len, _))| end <= start + len)
    }

    fn is_pinned(&self, va: u64, length: u64) -> bool {
        self.watched.is_some_and(|watched| watched.pins.contain(&watched.graph(), self.id, va, length))
    }

    /// True if a region's memory still has the range.
    pub(crate) fn is_granted(&self, grant: Grant, va: u64, length: u64) -> bool {
        let Some(end) = va.checked_add(length) else { return false };
        match grant {
            Grant::Memory(number) => {
                let mapped = poison::ignore(self.mapped.lock());
                let at = mapped.range(..=va).next_back();
                at.is_some_and(|(start, (len, other))| *other == number && end <= start + len)
            }
            Grant::Pin(id) => self.watched.is_some_and(|watched| watched.pins.holds(&watched.graph(), id, va, length)),
        }
    }

    /// Adds a memory that pushbuffers may name. Returns its number.
    pub(crate) fn grant(&self, va: u64, length: u64) -> u64 {
        let number = self.next_memory.fetch_add(1, Ordering::Relaxed);
        poison::ignore(self.mapped.lock()).insert(va, (length, number));
        number
    }

    /// From now on no submission may name that memory.
    pub(crate) fn revoke(&self, va: u64, number: Option<u64>) {
        let mut mapped = poison::ignore(self.mapped.lock());
        if mapped.get(&va).is_some_and(|(_, here)| Some(*here) == number) {
            mapped.remove(&va);
        }
        drop(mapped);
        self.unmapped();
    }

    /// Identifies the pins of one address space among those of the same CUDA.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Calls a pin's witness. The pin ends if the allocation is now another one.
    pub(crate) fn ask(&self, pin: u64) -> Result<(), Error> {
        let Some(watched) = self.watched else { return Ok(()) };
        // Other threads may have held the locks of pins and of CUDA at the fork.
        if self.device().forked() {
            return Err(Error::Forked);
        }
        match watched.pins.witness(pin) {
            Some(witness) if !witness() => {
                watched.pins.remove(pin);
                self.unmapped();
                Err(Error::Reused)
            }
            _ => Ok(()),
        }
    }

    /// For a CUDA that was initialised before it was watched: takes CUDA's word that `length` bytes at `base` are one
    /// allocation (`cuMemGetAddressRange`), which is mapped for this GPU and is not managed memory. For other CUDAs only
    /// observed memory counts. When CUDA frees it, pins end as always. The exception is small blocks that are freed without
    /// a driver call, through functions that were looked up before.
    pub fn believe(&self, base: u64, length: u64) {
        if let Some(watched) = self.watched.filter(|watched| watched.is_late()) {
            watched.believe(base, length, self.device().uuid());
        }
    }

    /// From now on each submission of transfers that are prepared in this address space checks with CUDA whether the memory
    /// is still the allocation that was pinned. That takes 1 us or more each time, and CUDA's locks. Use it to find a free
    /// that has no other sign (see [`crate::Region`]). Transfers that were prepared before do not ask.
    pub fn check_each_submission(&self) {
        self.each_submission.store(true, Ordering::Relaxed);
    }

    pub(crate) fn checks_each_submission(&self) -> bool {
        self.each_submission.load(Ordering::Relaxed)
    }

    /// Whether it still exists, as far as CUDA's calls show.
    pub(crate) fn is_there(&self) -> bool {
        let Some(watched) = self.watched.filter(|_| self.device.borrowed) else { return true };
        let (graph, client) = (watched.graph(), self.device.client);
        let registered = graph.va_spaces().contains(&(client, self.handle, self.device.uuid()));
        registered && graph.object(client, self.handle).is_some()
    }

    /// A number that changes when memory is unmapped: words validated before are stale.
    #[inline]
    pub fn generation(&self) -> u64 {
        // Both only grow, so the sum changes when one does.
        self.generation.load(Ordering::SeqCst) + self.watched.map_or(0, Watched::generation)
    }

    /// CUDA's graphics channel group, for a channel that joins it.
    pub(crate) fn cudas_group(&self) -> Result<CudasGroup, Error> {
        let Some(watched) = self.watched else { return Err(Error::Group("this address space is not CUDA's")) };
        if !self.device.borrowed {
            return Err(Error::Group("enter the address space with Entry::CudasClient"));
        }
        let found = watched.group(self.device.client, self.device.device);
        found.ok_or(Error::Group("no graphics channel of CUDA's was seen"))
    }

    /// From now on a thread that frees memory here waits for this channel's submissions in flight.
    pub(crate) fn track(&self, tracker: &Arc<Tracker>) {
        let mut trackers = poison::ignore(self.trackers.lock());
        trackers.retain(|t| t.strong_count() > 0);
        trackers.push(Arc::downgrade(tracker));
        if let Some(watched) = self.watched {
            watched.track(tracker);
        }
    }

    /// Memory that pushbuffers may have named is about to be freed: from now on no submission may name it.
    pub(crate) fn unmapped(&self) {
        // ORDERING: sequentially consistent with a submission's `submitted` store and its load of the generation. Either the
        // submission sees this and gives up, or `wait` sees the submission.
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    fn trackers(&self) -> Vec<Arc<Tracker>> {
        poison::ignore(self.trackers.lock()).iter().filter_map(Weak::upgrade).collect()
    }

    /// Waits up to a second for submissions that name a memory whose lease is over; false if some of them do not finish.
    pub(crate) fn wait(&self, lease: &Lease) -> bool {
        tracker::wait(&self.trackers(), lease, DRAIN)
    }

    pub(crate) fn is_unused(&self, lease: &Lease) -> bool {
        tracker::is_unused(&self.trackers(), lease)
    }

    /// As [`AddressSpace::wait`], for a pin, whose memory will be freed in any case: channels that take longer are stopped.
    pub(crate) fn wait_or_stop(&self, lease: &Arc<Lease>) {
        tracker::wait_or_stop(&self.trackers(), Some(std::slice::from_ref(lease)), DRAIN);
    }

    /// Keeps memory whose lease is over and that a channel may still access.
    pub(crate) fn leave(&self, memory: Leftover) {
        self.leftovers.leave(memory);
    }

    /// Frees such memory once no channel can access it.
    pub(crate) fn give_back_leftovers(&self) {
        self.leftovers.give_back(self, |lease| self.is_unused(lease));
    }

    /// How far each channel here is, to find the cause of a hang.
    pub fn in_flight(&self) -> Vec<InFlight> {
        if self.device.forked() {
            return Vec::new();
        }
        self.trackers().iter().map(|tracker| tracker.in_flight()).collect()
    }

    pub(crate) fn rings(&self) -> MutexGuard<'_, Vec<RingBlock>> {
        poison::ignore(self.rings.lock())
    }

    /// The first gap above `above` that is long enough.
    pub(crate) fn reserve(&self, length: u64, above: u64) -> Result<u64, Error> {
        let length = length.next_multiple_of(GRAIN);
        let mut taken = poison::ignore(self.taken.lock());
        let mut at = above.max(if self.watched.is_some() { BESIDE } else { RINGS });
        for (&start, &len) in taken.iter() {
            if start >= at + length {
                break;
            }
            at = at.max(start + len);
        }
        if at + length > LAST {
            return Err(Error::NoAddresses { length });
        }
        taken.insert(at, length);
        Ok(at)
    }

    pub(crate) fn unreserve(&self, at: u64) {
        poison::ignore(self.taken.lock()).remove(&at);
    }
}

impl Ranges for AddressSpace {
    fn contains(&self, va: u64, length: u64) -> bool {
        AddressSpace::contains(self, va, length)
    }
}

/// An address space that notes whether pinned memory was looked up.
pub(crate) struct Noting<'a> {
    space: &'a AddressSpace,
    /// A caller has granted the channel's launches, and is responsible for them and for the counters by which they wait for
    /// one another.
    launches: bool,
    pinned: Cell<bool>,
}

impl<'a> Noting<'a> {
    pub fn new(space: &'a AddressSpace, launches: bool) -> Noting<'a> {
        Noting { space, launches, pinned: Cell::new(false) }
    }

    pub fn pinned(&self) -> bool {
        self.pinned.get()
    }
}

impl Ranges for Noting<'_> {
    fn contains(&self, va: u64, length: u64) -> bool {
        if self.space.is_ours(va, length) {
            return true;
        }
        let pinned = self.space.is_pinned(va, length);
        self.pinned.set(self.pinned.get() || pinned);
        pinned
    }

    fn may_hold(&self, va: u64) -> bool {
        self.launches && self.space.is_ours(va, 4)
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        if self.device.forked() {
            return;
        }
        // All channels have ended.
        self.leftovers.give_back(self, |_| true);
        if self.watched.is_some() {
            // Free only the duplicate handle, never CUDA's own.
            if !self.device.borrowed {
                self.device.free(self.device.device, self.handle);
            }
            return;
        }
        let mut call = uvm::UnregisterGpu { uuid: self.device.uuid, status: 0 };
        // SAFETY: the struct belongs to this request. If it fails, closing the UVM file does the rest.
        let _ = unsafe {
            driver::uvm_call(
                &*self.device.driver,
                &self.device.abi,
                self.device.uvm,
                uvm::UNREGISTER_GPU_VASPACE,
                &mut call,
            )
        };
        self.device.free(self.device.device, self.handle);
    }
}
