//! One function of the machine, as drivers see it.

use super::Inner;
use super::bus::{ConfigAccess, Placed};
use super::wire::Wire;
use crate::address::Address;
use crate::bar::{Bar, Registers};
use crate::error::Error;
use crate::function::{Function, Identity};
use crate::memory::{Memory, Peer, Place, Run};
use std::collections::btree_map::Entry;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) struct Emulated {
    machine: Arc<Inner>,
    config: ConfigAccess,
    identity: Identity,
    bars: Vec<Placed>,
    gone: Arc<AtomicBool>,
}

impl Emulated {
    pub fn open(machine: Arc<Inner>, address: Address) -> Result<Emulated, Error> {
        let refused = |why: &str, hint: &str| Error::Refused { address, why: why.into(), hint: hint.into() };
        let config = machine.config();
        if config.read(address, 0, 2)? == 0xffff {
            return Err(Error::Gone { address });
        }
        let gone = Arc::new(AtomicBool::new(false));
        match poison::ignore(machine.opened.lock()).entry(address) {
            Entry::Vacant(place) => place.insert(Arc::clone(&gone)),
            Entry::Occupied(other) if other.get().load(Ordering::Relaxed) => {
                return Err(refused("a function that was removed still has its address", "drop that function first"));
            }
            Entry::Occupied(_) => {
                return Err(refused("it is open already", "one driver at a time: drop the other function first"));
            }
        };
        let whole = || {
            let id = config.read(address, 0, 4)?;
            let class = config.class(address)?;
            let identity = Identity {
                address,
                vendor: id as u16,
                device: (id >> 16) as u16,
                class: class >> 8,
                revision: class as u8,
            };
            Ok((identity, poison::ignore(machine.bus.lock()).open(address)?))
        };
        match whole() {
            Ok((identity, bars)) => Ok(Emulated { machine, config, identity, bars, gone }),
            Err(e) => {
                poison::ignore(machine.opened.lock()).remove(&address);
                Err(e)
            }
        }
    }

    fn within(&self, offset: u16, bytes: usize) -> Result<(), Error> {
        let (at, length) = (u64::from(offset), 4096);
        let end = at + bytes as u64;
        if end > length {
            return Err(Error::OutOfBounds { what: "configuration space", at, end, length });
        }
        Ok(())
    }

    /// Function-level reset if the function has one, else a D3hot transition, else a reset of the bus by the port above.
    fn reset_somehow(&self) -> Result<(), Error> {
        let (address, config) = (self.identity.address, &self.config);
        if let Some(at) = self.capability(0x10)? {
            let has_it = config.read(address, at + 4, 4)? & 1 << 28 != 0;
            if has_it {
                let control = config.read(address, at + 8, 2)?;
                return config.write(address, at + 8, 2, control | 1 << 15);
            }
        }
        if let Some(at) = self.capability(0x01)? {
            let control = config.read(address, at + 4, 2)?;
            let keeps_its_state = control & 1 << 3 != 0;
            if !keeps_its_state {
                config.write(address, at + 4, 2, control & !3 | 3)?;
                return config.write(address, at + 4, 2, control & !3);
            }
        }
        let bridge = poison::ignore(self.machine.bus.lock()).bridge_of(address.bus)?.filter(|_| address.bus != 0);
        let Some(bridge) = bridge else {
            return Err(Error::Refused {
                address,
                why: "it has no reset, and no port above it that could reset it".into(),
                hint: "put it below a pcie-root-port, or reset it by its own registers".into(),
            });
        };
        let control = config.read(bridge, 0x3e, 2)?;
        config.write(bridge, 0x3e, 2, control | 1 << 6)?;
        config.write(bridge, 0x3e, 2, control & !(1 << 6))
    }
}

impl Function for Emulated {
    fn identity(&self) -> Identity {
        self.identity
    }

    fn is_functional(&self) -> bool {
        true
    }

    fn read_config(&self, offset: u16, into: &mut [u8]) -> Result<(), Error> {
        self.within(offset, into.len())?;
        if self.gone.load(Ordering::Relaxed) {
            into.fill(0xff);
            return Ok(());
        }
        let mut at = offset;
        let mut rest = into;
        while !rest.is_empty() {
            let bytes = access(at, rest.len());
            let value = self.config.read(self.identity.address, at, bytes as u8)?;
            let (now, later) = rest.split_at_mut(bytes);
            now.copy_from_slice(&value.to_le_bytes()[..bytes]);
            (at, rest) = (at + bytes as u16, later);
        }
        Ok(())
    }

    fn write_config(&self, offset: u16, from: &[u8]) -> Result<(), Error> {
        self.within(offset, from.len())?;
        if self.gone.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut at = offset;
        let mut rest = from;
        while !rest.is_empty() {
            let bytes = access(at, rest.len());
            let (now, later) = rest.split_at(bytes);
            let mut value = [0; 4];
            value[..bytes].copy_from_slice(now);
            self.config.write(self.identity.address, at, bytes as u8, u32::from_le_bytes(value))?;
            (at, rest) = (at + bytes as u16, later);
        }
        Ok(())
    }

    fn bar(&self, index: u8) -> Result<Bar, Error> {
        let found = self.bars.iter().find(|bar| bar.layout.index == index).ok_or_else(|| Error::NoBar {
            address: self.identity.address,
            index,
            why: "it has no memory there".into(),
        })?;
        let (wire, gone) = (Arc::clone(&self.machine.wire), Arc::clone(&self.gone));
        let registers = BarRegisters { wire, gone, bus: found.bus, length: found.layout.length };
        Ok(Bar::elsewhere(Arc::new(registers), found.layout.length, found.bus))
    }

    fn allocate(&self, bytes: u64) -> Result<Memory, Error> {
        self.machine.ram.allocate(bytes)
    }

    fn reach(&self, peer: &Peer) -> Result<Memory, Error> {
        let unreachable = |why: String| Error::Unreachable {
            address: self.identity.address,
            what: peer.what.clone(),
            why,
            hint: "emulated devices reach the memory of their own machine and its peer's BAR".into(),
        };
        let Some(memory) = &self.machine.peer else {
            return Err(unreachable("its machine has no peer".into()));
        };
        let offset = peer
            .bus
            .checked_sub(memory.bus)
            .filter(|offset| *offset < memory.length && peer.length > 0 && peer.length <= memory.length - *offset);
        let Some(offset) = offset else {
            let (at, end) = (memory.bus, memory.bus + memory.length);
            return Err(unreachable(format!("{:#x} is not within the peer's BAR, {at:#x} to {end:#x}", peer.bus)));
        };
        // SAFETY: within the mapping, which is as long as the BAR.
        let cpu = unsafe { NonNull::new_unchecked(memory.mapped.at.as_ptr().add(offset as usize)) };
        let run = Run { offset: 0, bus: peer.bus, length: peer.length };
        let keep = (Arc::clone(memory), Arc::clone(&peer.keep));
        // SAFETY: the BAR has its address as long as the machine lives; the mapping is kept.
        Ok(unsafe { Memory::new(Place::Peer, vec![run], Some(cpu), Arc::new(keep)) })
    }

    fn gone(&self) -> Error {
        let address = self.identity.address;
        match self.machine.wire.failure() {
            Some(why) => Error::Ended { address, why: why.into() },
            None => Error::Gone { address },
        }
    }

    fn reset(&self) -> Result<(), Error> {
        if self.gone.load(Ordering::Relaxed) {
            return Err(Error::Gone { address: self.identity.address });
        }
        let command = self.config.command(self.identity.address)?;
        self.reset_somehow()?;
        // No delay as on hardware (PCI Express 6.6.2): QEMU has finished the reset when it answers.
        poison::ignore(self.machine.bus.lock()).restore(self.identity.address)?;
        // As the kernel does it: the earlier configuration is restored.
        self.config.enable(self.identity.address, command)
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        if !self.gone.load(Ordering::Relaxed) {
            // QEMU may have ended.
            let _ = self.config.quiet(self.identity.address);
        }
        poison::ignore(self.machine.opened.lock()).remove(&self.identity.address);
    }
}

/// The widest aligned access.
fn access(at: u16, left: usize) -> usize {
    [4, 2, 1].into_iter().find(|bytes| usize::from(at).is_multiple_of(*bytes) && *bytes <= left).unwrap_or(1)
}

/// A BAR accessed through QEMU. After a failure, or once the device is gone, loads return ones and stores have no effect.
struct BarRegisters {
    wire: Arc<Wire>,
    gone: Arc<AtomicBool>,
    bus: u64,
    length: u64,
}

impl BarRegisters {
    /// Bus address of a register; none once the device was removed.
    fn place(&self, offset: u64, bytes: u64) -> Option<u64> {
        assert!(offset.is_multiple_of(bytes) && offset < self.length && self.length - offset >= bytes, "{offset:#x}");
        (!self.gone.load(Ordering::Relaxed)).then(|| self.bus + offset)
    }
}

impl Registers for BarRegisters {
    fn load32(&self, offset: u64) -> u32 {
        let value = self.place(offset, 4).and_then(|at| self.wire.number(format_args!("readl {at:#x}")).ok());
        value.map_or(u32::MAX, |value| value as u32)
    }

    fn store32(&self, offset: u64, value: u32) {
        if let Some(at) = self.place(offset, 4) {
            // The wire keeps the error, and the driver finds the device gone.
            let _ = self.wire.command(format_args!("writel {at:#x} {value:#x}"));
        }
    }

    fn load64(&self, offset: u64) -> u64 {
        let at = self.place(offset, 8);
        at.and_then(|at| self.wire.number(format_args!("readq {at:#x}")).ok()).unwrap_or(u64::MAX)
    }

    fn store64(&self, offset: u64, value: u64) {
        if let Some(at) = self.place(offset, 8) {
            let _ = self.wire.command(format_args!("writeq {at:#x} {value:#x}"));
        }
    }
}
