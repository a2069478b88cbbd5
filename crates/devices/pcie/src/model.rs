//! Functions implemented by a Rust object: devices that misbehave on purpose, and devices that QEMU lacks.
//!
//! A model's DMA uses a [`ModelBus`], which has a list of all allocated memory. A DMA to any other address is wild: it moves no data, and the bus
//! records it for the test. Bus addresses are never reused, so a DMA to freed memory is always wild.

use crate::address::Address;
use crate::bar::{Bar, Registers};
use crate::error::Error;
use crate::function::{Function, Identity};
use crate::mapped::Mapped;
use crate::memory::{Memory, Pages, Peer, Place, Run};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

const PAGE: u64 = 4096;
/// Where host memory begins on the bus: above 4 GiB, so that an address that lost its upper half is wild.
const HOST: u64 = 0x11_0000_0000;
/// Where BARs begin.
const PEERS: u64 = 0x40_0000_0000;

/// A device. Accesses arrive one at a time, aligned and within its BARs.
pub trait Model: Send {
    /// Configuration space at power-on, 256 or 4096 bytes; see [`header`].
    fn config(&self) -> Vec<u8>;

    /// Size of each memory BAR in bytes; 0 means no BAR.
    fn bars(&self) -> [u64; 6];

    /// Reads a register of `bytes` (4 or 8).
    fn load(&mut self, bus: &ModelBus, bar: u8, offset: u64, bytes: usize) -> u64;

    fn store(&mut self, bus: &ModelBus, bar: u8, offset: u64, bytes: usize, value: u64);

    /// Resets the function. False: it has no reset.
    fn reset(&mut self) -> bool {
        false
    }
}

/// 256 bytes of configuration space without capabilities; `class` as in [`Identity`].
pub fn header(vendor: u16, device: u16, class: u32) -> Vec<u8> {
    let mut bytes = vec![0; 256];
    bytes[0..2].copy_from_slice(&vendor.to_le_bytes());
    bytes[2..4].copy_from_slice(&device.to_le_bytes());
    bytes[9..12].copy_from_slice(&class.to_le_bytes()[..3]);
    bytes
}

/// A device's access to an address that is not allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("wild DMA: a device {} {length} bytes at {at:#x}, where no memory is allocated (any more)", if *.write { "writes" } else { "reads" })]
pub struct Wild {
    pub at: u64,
    pub length: u64,
    pub write: bool,
}

/// The memory that devices can access. Clones are the same bus.
#[derive(Clone)]
pub struct ModelBus(Arc<Shared>);

struct Shared {
    pages: Pages,
    state: Mutex<State>,
}

struct State {
    next_host: u64,
    next_peer: u64,
    /// By bus address: length, and the CPU's address.
    ranges: BTreeMap<u64, (u64, Backing)>,
    wild: Vec<Wild>,
}

#[derive(Clone, Copy)]
struct Backing(NonNull<u8>);

// SAFETY: points to memory that stays mapped as long as the range is listed; accesses hold the bus's lock.
unsafe impl Send for Backing {}

impl Default for ModelBus {
    fn default() -> ModelBus {
        ModelBus::new(Pages::Together)
    }
}

impl ModelBus {
    pub fn new(pages: Pages) -> ModelBus {
        // Each bus has its own addresses, so those of another bus are wild here.
        static BUSES: AtomicU64 = AtomicU64::new(0);
        let base = (BUSES.fetch_add(1, Ordering::Relaxed) % 4096) << 40;
        let state =
            State { next_host: base + HOST, next_peer: base + PEERS, ranges: BTreeMap::new(), wild: Vec::new() };
        ModelBus(Arc::new(Shared { pages, state: Mutex::new(state) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        poison::ignore(self.0.state.lock())
    }

    /// A device's read from the bus.
    ///
    /// # Errors
    /// [`Wild`]; the bus records it, too.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Wild> {
        let mut state = self.state();
        let from = state.find(Wild { at, length: into.len() as u64, write: false })?;
        // SAFETY: `find` checked the bounds; the memory stays as long as `state` is locked.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// A device's write to the bus. The last byte is written last.
    ///
    /// # Errors
    /// As [`ModelBus::read`]; no byte is written then.
    pub fn write(&self, at: u64, from: &[u8]) -> Result<(), Wild> {
        let mut state = self.state();
        let to = state.find(Wild { at, length: from.len() as u64, write: true })?;
        let Some((last, before)) = from.split_last() else { return Ok(()) };
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(before.as_ptr(), to, before.len()) };
        // ORDERING: a driver that sees the last byte (a completion's phase) sees those before it.
        std::sync::atomic::fence(Ordering::Release);
        // SAFETY: as in `read`.
        unsafe { to.add(before.len()).write_volatile(*last) };
        Ok(())
    }

    /// All wild accesses so far.
    pub fn wild(&self) -> Vec<Wild> {
        self.state().wild.clone()
    }

    /// Memory that simulates GPU memory, and its mapping in this process.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn peer(&self, bytes: u64) -> Result<(Peer, NonNull<u8>), Error> {
        self.peer_in(Mapped::zeroed(bytes)?, bytes)
    }

    /// The same memory as a file's, from its begin on.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn peer_of(&self, file: &OwnedFd, bytes: u64) -> Result<(Peer, NonNull<u8>), Error> {
        self.peer_in(Mapped::of(file, bytes)?, bytes)
    }

    fn peer_in(&self, mapped: Mapped, bytes: u64) -> Result<(Peer, NonNull<u8>), Error> {
        let at = mapped.at;
        let mut state = self.state();
        let bus = state.next_peer.next_multiple_of(bytes.next_power_of_two());
        state.next_peer = bus + bytes;
        state.ranges.insert(bus, (bytes, Backing(at)));
        drop(state);
        let keep = Held { bus: self.clone(), ranges: vec![bus], _mapped: mapped };
        Ok((Peer { what: "a model's memory".into(), device: None, bus, length: bytes, keep: Arc::new(keep) }, at))
    }

    fn allocate(&self, bytes: u64) -> Result<Memory, Error> {
        let length = bytes.max(1).next_multiple_of(PAGE);
        let mapped = Mapped::zeroed(length)?;
        let at = mapped.at;
        let step = match self.0.pages {
            Pages::Together => length,
            Pages::Scattered => PAGE,
        };
        let mut state = self.state();
        let mut runs = Vec::new();
        let count = length / step;
        for i in 0..count {
            // Descending addresses, with an unallocated page after each run: an access past its end is wild.
            let bus = state.next_host + (count - 1 - i) * (step + PAGE);
            // SAFETY: within the mapping.
            let from = unsafe { NonNull::new_unchecked(at.as_ptr().add((i * step) as usize)) };
            state.ranges.insert(bus, (step, Backing(from)));
            runs.push(Run { offset: i * step, bus, length: step });
        }
        state.next_host += count * (step + PAGE);
        drop(state);
        let keep = Held { bus: self.clone(), ranges: runs.iter().map(|run| run.bus).collect(), _mapped: mapped };
        // SAFETY: `keep` keeps the mapping and its ranges on the bus.
        Ok(unsafe { Memory::new(Place::Host, runs, Some(at), Arc::new(keep)) })
    }

    fn reach(&self, address: Address, peer: &Peer) -> Result<Memory, Error> {
        let state = self.state();
        let found = state.ranges.range(..=peer.bus).next_back();
        let within = |(start, (length, _)): &(&u64, &(u64, Backing))| {
            peer.length > 0 && peer.bus - **start < *length && peer.length <= length - (peer.bus - **start)
        };
        let Some((start, (_, backing))) = found.filter(within) else {
            return Err(Error::Unreachable {
                address,
                what: peer.what.clone(),
                why: format!("nothing of this bus is at {:#x}", peer.bus),
                hint: "a model reaches the peers of its own ModelBus".into(),
            });
        };
        // SAFETY: within the range, as was just checked.
        let cpu = unsafe { NonNull::new_unchecked(backing.0.as_ptr().add((peer.bus - start) as usize)) };
        let run = Run { offset: 0, bus: peer.bus, length: peer.length };
        // SAFETY: the peer's `keep` keeps the range and its mapping.
        Ok(unsafe { Memory::new(Place::Peer, vec![run], Some(cpu), Arc::clone(&peer.keep)) })
    }
}

impl State {
    /// The CPU's address for a device's access. Records wild accesses.
    fn find(&mut self, access: Wild) -> Result<*mut u8, Wild> {
        let found = self.ranges.range(..=access.at).next_back();
        let place = found.and_then(|(start, (length, backing))| {
            let within = access.at - start;
            // SAFETY: within the range, which is mapped as long as it is listed.
            (within < *length && access.length <= length - within)
                .then(|| unsafe { backing.0.as_ptr().add(within as usize) })
        });
        place.ok_or_else(|| {
            self.wild.push(access);
            access
        })
    }
}

/// Allocated ranges, removed from the bus on drop.
struct Held {
    bus: ModelBus,
    ranges: Vec<u64>,
    _mapped: Mapped,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.bus.state();
        for range in &self.ranges {
            state.ranges.remove(range);
        }
    }
}

/// The test's handle to a model while a driver has its function.
pub struct Plugged<M>(Arc<Device<M>>);

impl<M> Clone for Plugged<M> {
    fn clone(&self) -> Plugged<M> {
        Plugged(Arc::clone(&self.0))
    }
}

struct Device<M> {
    model: Mutex<M>,
    bus: ModelBus,
    config: Mutex<Vec<u8>>,
    bars: [u64; 6],
    gone: AtomicBool,
    address: Address,
}

/// Plugs a model into a bus. Returns the function for its driver, and the test's handle.
///
/// # Panics
/// Where its configuration space has neither 256 nor 4096 bytes.
pub fn plug<M: Model + 'static>(model: M, bus: &ModelBus) -> (Box<dyn Function>, Plugged<M>) {
    let config = model.config();
    assert!(config.len() == 256 || config.len() == 4096, "{} bytes of configuration space", config.len());
    let address = Address { domain: 0xffff, bus: 0, device: 0, function: 0 };
    let bars = model.bars();
    let (model, config, gone) = (Mutex::new(model), Mutex::new(config), AtomicBool::new(false));
    let device = Arc::new(Device { model, bus: bus.clone(), config, bars, gone, address });
    (Box::new(Played(Arc::clone(&device))), Plugged(device))
}

impl<M: Model> Plugged<M> {
    /// Runs `look` on the model.
    pub fn with<T>(&self, look: impl FnOnce(&mut M) -> T) -> T {
        look(&mut self.0.model())
    }

    /// Removes the device by surprise: it reads as ones, and the model is not called any more.
    pub fn pull(&self) {
        self.0.gone.store(true, Ordering::Relaxed);
    }
}

impl<M> Device<M> {
    fn model(&self) -> MutexGuard<'_, M> {
        poison::ignore(self.model.lock())
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}

struct Played<M>(Arc<Device<M>>);

impl<M> Played<M> {
    /// Configuration space, and the range within it.
    fn config(&self, offset: u16, bytes: usize) -> Result<(MutexGuard<'_, Vec<u8>>, std::ops::Range<usize>), Error> {
        let config = poison::ignore(self.0.config.lock());
        let range = usize::from(offset)..usize::from(offset) + bytes;
        if range.end > config.len() {
            let (at, end, length) = (range.start as u64, range.end as u64, config.len() as u64);
            return Err(Error::OutOfBounds { what: "configuration space", at, end, length });
        }
        Ok((config, range))
    }
}

impl<M: Model + 'static> Function for Played<M> {
    fn identity(&self) -> Identity {
        let config = poison::ignore(self.0.config.lock());
        let word = |at: usize| u16::from_le_bytes([config[at], config[at + 1]]);
        let class = u32::from_le_bytes([config[9], config[10], config[11], 0]);
        Identity { address: self.0.address, vendor: word(0), device: word(2), class, revision: config[8] }
    }

    fn is_functional(&self) -> bool {
        true
    }

    fn read_config(&self, offset: u16, into: &mut [u8]) -> Result<(), Error> {
        let (config, range) = self.config(offset, into.len())?;
        into.copy_from_slice(&config[range]);
        if self.0.is_gone() {
            into.fill(0xff);
        }
        Ok(())
    }

    /// Every byte is writable. Models do not see the writes.
    fn write_config(&self, offset: u16, from: &[u8]) -> Result<(), Error> {
        let (mut config, range) = self.config(offset, from.len())?;
        config[range].copy_from_slice(from);
        Ok(())
    }

    fn bar(&self, index: u8) -> Result<Bar, Error> {
        let length = self.0.bars.get(usize::from(index)).copied().unwrap_or(0);
        if length == 0 {
            return Err(Error::NoBar { address: self.0.address, index, why: "the model has none".into() });
        }
        let registers = Behind { device: Arc::clone(&self.0), index, length };
        Ok(Bar::elsewhere(Arc::new(registers), length, u64::from(index) << 32))
    }

    fn allocate(&self, bytes: u64) -> Result<Memory, Error> {
        self.0.bus.allocate(bytes)
    }

    fn reach(&self, peer: &Peer) -> Result<Memory, Error> {
        self.0.bus.reach(self.0.address, peer)
    }

    fn reset(&self) -> Result<(), Error> {
        if self.0.is_gone() {
            return Err(Error::Gone { address: self.0.address });
        }
        if self.0.model().reset() {
            return Ok(());
        }
        let (why, hint) = ("the model has no reset".into(), "reset it by its own registers".into());
        Err(Error::Refused { address: self.0.address, why, hint })
    }
}

struct Behind<M> {
    device: Arc<Device<M>>,
    index: u8,
    length: u64,
}

impl<M: Model> Behind<M> {
    fn load(&self, offset: u64, bytes: usize) -> u64 {
        self.check(offset, bytes);
        if self.device.is_gone() {
            return u64::MAX;
        }
        self.device.model().load(&self.device.bus, self.index, offset, bytes)
    }

    fn store(&self, offset: u64, bytes: usize, value: u64) {
        self.check(offset, bytes);
        if !self.device.is_gone() {
            self.device.model().store(&self.device.bus, self.index, offset, bytes, value);
        }
    }

    fn check(&self, offset: u64, bytes: usize) {
        let bytes = bytes as u64;
        assert!(offset.is_multiple_of(bytes) && offset < self.length && self.length - offset >= bytes, "{offset:#x}");
    }
}

impl<M: Model> Registers for Behind<M> {
    fn load32(&self, offset: u64) -> u32 {
        self.load(offset, 4) as u32
    }

    fn store32(&self, offset: u64, value: u32) {
        self.store(offset, 4, u64::from(value));
    }

    fn load64(&self, offset: u64) -> u64 {
        self.load(offset, 8)
    }

    fn store64(&self, offset: u64, value: u64) {
        self.store(offset, 8, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies: source at 0, destination at 8, a store of the length at 16 starts it.
    #[derive(Default)]
    struct Copier {
        registers: [u64; 2],
        copied: u64,
    }

    impl Model for Copier {
        fn config(&self) -> Vec<u8> {
            header(0x1234, 0x5678, 0x12_00_00)
        }

        fn bars(&self) -> [u64; 6] {
            [4096, 0, 0, 0, 0, 0]
        }

        fn load(&mut self, _: &ModelBus, _: u8, offset: u64, _: usize) -> u64 {
            if offset == 16 { self.copied } else { self.registers[offset as usize / 8] }
        }

        fn store(&mut self, bus: &ModelBus, _: u8, offset: u64, _: usize, value: u64) {
            if offset < 16 {
                self.registers[offset as usize / 8] = value;
                return;
            }
            let mut bytes = vec![0; value as usize];
            if bus.read(self.registers[0], &mut bytes).and_then(|()| bus.write(self.registers[1], &bytes)).is_ok() {
                self.copied += value;
            }
        }
    }

    fn copy(bar: &Bar, from: u64, to: u64, bytes: u64) -> u64 {
        bar.store64(0, from);
        bar.store64(8, to);
        bar.store64(16, bytes);
        bar.load64(16)
    }

    #[test]
    fn a_model_moves_data_where_it_may() {
        let bus = ModelBus::new(Pages::Scattered);
        let (function, plugged) = plug(Copier::default(), &bus);
        assert_eq!(function.identity().class, 0x12_00_00);
        let (bar, memory) = (function.bar(0).unwrap(), function.allocate(3 * PAGE).unwrap());
        assert!(matches!(function.bar(1), Err(Error::NoBar { .. })));
        assert_eq!(memory.runs().len(), 3);
        let (peer, at) = bus.peer(1 << 20).unwrap();
        let target = function.reach(&Peer { bus: peer.bus + 4096, length: 8192, ..peer.clone() }).unwrap();
        memory.store(PAGE - 2, &[1, 2, 3, 4]).unwrap();
        assert_eq!(copy(&bar, memory.bus(PAGE).unwrap().0, target.bus(6).unwrap().0, 2), 2);
        // SAFETY: within the peer's megabyte.
        assert_eq!(unsafe { at.as_ptr().add(4096 + 6).cast::<[u8; 2]>().read() }, [3, 4]);
        assert_eq!(bus.wild(), []);

        // Past the end of a page, past the peer's end, unallocated, wrapping around: no byte is copied, and each is recorded.
        let last = memory.bus(PAGE - 1).unwrap().0;
        for (from, to, bytes) in [(last, peer.bus, 2), (peer.bus, peer.bus + (1 << 20) - 1, 2), (0, 0, 4)] {
            assert_eq!(copy(&bar, from, to, bytes), 2, "{from:#x}");
        }
        copy(&bar, u64::MAX, 0, 8);
        assert_eq!(bus.wild().len(), 4);
        assert_eq!(bus.wild()[0], Wild { at: last, length: 2, write: false });
        assert!(bus.wild()[1].write && bus.wild()[1].to_string().contains("writes 2 bytes at"));

        let elsewhere = ModelBus::default().peer(4096).unwrap().0;
        assert!(matches!(function.reach(&Peer { length: 8192, ..elsewhere }), Err(Error::Unreachable { .. })));
        assert_eq!(plugged.with(|model| model.copied), 2);
        plugged.pull();
        assert!(!function.is_present());
        assert_eq!(bar.load32(0), u32::MAX);
    }

    #[test]
    fn memory_that_was_freed_is_wild_for_ever() {
        let bus = ModelBus::default();
        let (function, _plugged) = plug(Copier::default(), &bus);
        let (bar, memory) = (function.bar(0).unwrap(), function.allocate(100).unwrap());
        let at = memory.bus(0).unwrap().0;
        let clone = memory.clone();
        drop(memory);
        // A clone keeps the memory allocated.
        assert_eq!(copy(&bar, at, at + 2048, 2048), 2048);
        drop(clone);
        let other = function.allocate(100).unwrap();
        assert_ne!(other.bus(0).unwrap().0, at);
        assert_eq!(copy(&bar, at, other.bus(0).unwrap().0, 8), 2048);
        assert_eq!(bus.wild(), [Wild { at, length: 8, write: false }]);
        // A target keeps the peer's memory, too.
        let (peer, _) = bus.peer(4096).unwrap();
        let target = function.reach(&peer).unwrap();
        drop(peer);
        assert_eq!(copy(&bar, target.bus(0).unwrap().0, other.bus(0).unwrap().0, 4096), 2048 + 4096);
        drop(target);
        assert_eq!(bus.wild().len(), 1);
    }
}
