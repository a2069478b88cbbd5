//! The machine's PCI buses: access to configuration space, bus numbers and BAR addresses. There is no firmware, so this module assigns them.

use super::wire::Wire;
use crate::address::Address;
use crate::bars::{self, Layout};
use crate::error::Error;
use environment::config_space::Config;
use std::collections::BTreeMap;
use std::sync::Arc;

/// BARs below 4 GiB: above RAM (2 GiB at most) and q35's configuration space, below the interrupt controllers.
const LOW: (u64, u64) = (0xc000_0000, 0xfe00_0000);
/// Large 64-bit BARs: above 4 GiB, as on a server.
const HIGH: (u64, u64) = (0x20_0000_0000, 0x80_0000_0000);
/// 64-bit BARs from this size on go above 4 GiB.
const LARGE: u64 = 64 << 20;
/// Sizes of bridge windows by depth, with room for hot plug: a root port, a switch's upstream port, its downstream ports, anything deeper.
const WINDOWS: [u64; 4] = [32 << 20, 16 << 20, 2 << 20, 1 << 20];

/// q35's configuration space in memory, and its host bridge's register for that address (PCIEXBAR), as port 0xcf8 selects it.
const ECAM: u64 = 0xb000_0000;
const PCIEXBAR: u32 = 0x8000_0060;

const COMMAND: u16 = 0x04;
const CLASS: u16 = 0x08;
const HEADER_TYPE: u16 = 0x0e;
const BUSES: u16 = 0x18;
const MEMORY_WINDOW: u16 = 0x20;
const PREFETCHABLE_WINDOW: u16 = 0x24;
const BRIDGE: u8 = 1;
/// Memory decoding and bus mastering.
const DECODE: u16 = 1 << 1;
const MASTER: u16 = 1 << 2;

#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub layout: Layout,
    pub bus: u64,
}

/// A range of addresses, allocated upwards.
#[derive(Clone, Copy, Debug)]
struct Space {
    next: u64,
    end: u64,
}

impl Space {
    fn take(&mut self, length: u64) -> Option<u64> {
        let at = self.next.checked_next_multiple_of(length)?;
        let end = at.checked_add(length).filter(|end| *end <= self.end)?;
        self.next = end;
        Some(at)
    }
}

pub(super) struct Bus {
    wire: Arc<Wire>,
    low: Space,
    high: Space,
    /// By secondary bus number.
    windows: BTreeMap<u8, Space>,
    next_bus: u8,
    placed: BTreeMap<Address, Vec<Placed>>,
}

impl Bus {
    /// Numbers the buses and assigns every BAR.
    pub fn assign(wire: Arc<Wire>) -> Result<Bus, Error> {
        let space = |(next, end)| Space { next, end };
        let mut bus = Bus {
            wire,
            low: space(LOW),
            high: space(HIGH),
            windows: BTreeMap::new(),
            next_bus: 1,
            placed: BTreeMap::new(),
        };
        for (register, value) in [(PCIEXBAR + 4, (ECAM >> 32) as u32), (PCIEXBAR, ECAM as u32 | 1)] {
            bus.wire.command(format_args!("outl 0xcf8 {register:#x}"))?;
            bus.wire.command(format_args!("outl 0xcfc {value:#x}"))?;
        }
        bus.scan(0, 0)?;
        Ok(bus)
    }

    pub fn config(&self) -> ConfigAccess {
        ConfigAccess { wire: Arc::clone(&self.wire) }
    }

    fn present(&self, number: u8) -> Result<Vec<Address>, Error> {
        let mut found = Vec::new();
        let config = self.config();
        for device in 0..32 {
            for function in 0..8 {
                let address = Address { domain: 0, bus: number, device, function };
                let there = config.read(address, 0, 2)? != 0xffff;
                if there {
                    found.push(address);
                }
                let several = there && config.read(address, HEADER_TYPE, 1)? & 0x80 != 0;
                if function == 0 && !several {
                    break;
                }
            }
        }
        Ok(found)
    }

    fn scan(&mut self, number: u8, depth: usize) -> Result<(), Error> {
        for address in self.present(number)? {
            if self.config().read(address, HEADER_TYPE, 1)? as u8 & 0x7f == BRIDGE {
                self.bridge(address, depth)?;
            } else {
                self.place(address)?;
            }
        }
        Ok(())
    }

    fn bridge(&mut self, address: Address, depth: usize) -> Result<(), Error> {
        let config = self.config();
        let (number, parent) = (self.next_bus, address.bus);
        self.next_bus = number.checked_add(1).ok_or_else(|| Error::Qemu("more than 255 buses".into()))?;
        config.write(address, BUSES, 4, 0xff << 16 | u32::from(number) << 8 | u32::from(parent))?;
        let from = self.windows.get_mut(&parent).unwrap_or(&mut self.low);
        let length = WINDOWS[depth.min(WINDOWS.len() - 1)];
        let at = from.take(length).ok_or_else(|| Error::Qemu(format!("no addresses left for the bridge {address}")))?;
        self.windows.insert(number, Space { next: at, end: at + length });
        config.write(address, MEMORY_WINDOW, 4, (at + length - 1) as u32 & 0xfff0_0000 | (at >> 16) as u32 & 0xfff0)?;
        // Base above limit: disabled.
        config.write(address, PREFETCHABLE_WINDOW, 4, 0x0000_fff0)?;
        self.scan(number, depth + 1)?;
        let last = self.next_bus - 1;
        config.write(address, BUSES, 4, u32::from(last) << 16 | u32::from(number) << 8 | u32::from(parent))?;
        config.enable(address, DECODE | MASTER)
    }

    /// Assigns the function's memory BARs. I/O port BARs stay unassigned.
    fn place(&mut self, address: Address) -> Result<(), Error> {
        let config = self.config();
        let layouts = config.layouts(address)?;
        let mut placed = Vec::new();
        for layout in layouts.into_iter().filter(|layout| !layout.ports) {
            let space = match self.windows.get_mut(&address.bus) {
                Some(window) => window,
                None if layout.wide && layout.length >= LARGE => &mut self.high,
                None => &mut self.low,
            };
            let length = layout.length.max(4096);
            let Some(bus) = space.take(length) else {
                return Err(Error::Qemu(format!(
                    "no addresses left for BAR {} of {address}, {length} bytes; behind a bridge there are few",
                    layout.index
                )));
            };
            placed.push(Placed { layout, bus });
        }
        self.placed.insert(address, placed);
        self.restore(address)
    }

    /// Writes the assigned addresses (after a reset: again) and enables memory decoding.
    pub fn restore(&self, address: Address) -> Result<(), Error> {
        let config = self.config();
        for bar in self.placed.get(&address).into_iter().flatten() {
            let register = bars::FIRST + 4 * u16::from(bar.layout.index);
            config.write(address, register, 4, bar.bus as u32)?;
            if bar.layout.wide {
                config.write(address, register + 4, 4, (bar.bus >> 32) as u32)?;
            }
        }
        config.enable(address, DECODE)
    }

    /// The function's BARs. Assigns them if the function was plugged in after the start.
    pub fn open(&mut self, address: Address) -> Result<Vec<Placed>, Error> {
        let first = bars::FIRST;
        let known = self.placed.get(&address).cloned();
        let stands = match &known {
            // Another device may sit in the slot now. Its BARs hold no addresses yet.
            Some(bars) => {
                let reads = |bar: &Placed| self.config().read(address, first + 4 * u16::from(bar.layout.index), 4);
                bars.iter().map(reads).zip(bars).all(|(now, bar)| now.is_ok_and(|now| now & !0xf == bar.bus as u32))
            }
            None => false,
        };
        if !stands {
            self.place(address)?;
        } else {
            self.config().enable(address, DECODE)?;
        }
        Ok(self.placed.get(&address).cloned().unwrap_or_default())
    }

    pub fn placed(&self, address: Address) -> &[Placed] {
        self.placed.get(&address).map_or(&[], Vec::as_slice)
    }

    /// Powers a slot off, which removes its device at once (slot control, PCI Express 7.5.3.10).
    pub fn cut_power(&self, port: Address) -> Result<(), Error> {
        const INDICATOR_OFF: u32 = 3 << 8;
        const POWER_OFF: u32 = 1 << 10;
        let config = self.config();
        let at = capability(&config, port, 0x10)?;
        let at = at.ok_or_else(|| {
            Error::Qemu(format!("{port} is no port of PCI Express: a device cannot be removed from it"))
        })?;
        let control = config.read(port, at + 0x18, 2)?;
        config.write(port, at + 0x18, 2, control & !(INDICATOR_OFF | POWER_OFF) | INDICATOR_OFF | POWER_OFF)
    }

    /// Powers the slot on again, for the next device.
    pub fn give_power(&self, port: Address) -> Result<(), Error> {
        const INDICATOR: u32 = 3 << 8;
        const ON: u32 = 1 << 8;
        let config = self.config();
        let Some(at) = capability(&config, port, 0x10)? else { return Ok(()) };
        let control = config.read(port, at + 0x18, 2)?;
        config.write(port, at + 0x18, 2, control & !(INDICATOR | 1 << 10) | ON)
    }

    /// The bridge whose secondary bus this is.
    pub fn bridge_of(&self, number: u8) -> Result<Option<Address>, Error> {
        let config = self.config();
        for parent in std::iter::once(0).chain(self.windows.keys().copied()) {
            for address in self.present(parent)? {
                let is_bridge = config.read(address, HEADER_TYPE, 1)? as u8 & 0x7f == BRIDGE;
                if is_bridge && config.read(address, BUSES + 1, 1)? as u8 == number {
                    return Ok(Some(address));
                }
            }
        }
        Ok(None)
    }
}

/// Reads and writes configuration space.
#[derive(Clone)]
pub(super) struct ConfigAccess {
    wire: Arc<Wire>,
}

impl ConfigAccess {
    /// 1, 2 or 4 bytes at an aligned offset.
    pub fn read(&self, address: Address, offset: u16, bytes: u8) -> Result<u32, Error> {
        let letter = letter(bytes);
        Ok(self.wire.number(format_args!("read{letter} {:#x}", ecam(address, offset)))? as u32)
    }

    pub fn write(&self, address: Address, offset: u16, bytes: u8, value: u32) -> Result<(), Error> {
        let letter = letter(bytes);
        self.wire.command(format_args!("write{letter} {:#x} {value:#x}", ecam(address, offset)))
    }

    pub fn command(&self, address: Address) -> Result<u16, Error> {
        Ok(self.read(address, COMMAND, 2)? as u16)
    }

    pub fn enable(&self, address: Address, bits: u16) -> Result<(), Error> {
        let command = self.read(address, COMMAND, 2)?;
        self.write(address, COMMAND, 2, command | u32::from(bits))
    }

    /// Disables bus mastering.
    pub fn quiet(&self, address: Address) -> Result<(), Error> {
        let command = self.read(address, COMMAND, 2)?;
        self.write(address, COMMAND, 2, command & !u32::from(MASTER))
    }

    /// Class, subclass, interface and revision.
    pub fn class(&self, address: Address) -> Result<u32, Error> {
        self.read(address, CLASS, 4)
    }

    /// Sizes the BARs. Leaves memory decoding disabled.
    fn layouts(&self, address: Address) -> Result<Vec<Layout>, Error> {
        let command = self.read(address, COMMAND, 2)?;
        self.write(address, COMMAND, 2, command & !u32::from(DECODE | 1))?;
        let (mut before, mut ones) = ([0; 6], [0; 6]);
        for index in 0..6 {
            let register = bars::FIRST + 4 * index as u16;
            before[index] = self.read(address, register, 4)?;
            self.write(address, register, 4, u32::MAX)?;
            ones[index] = self.read(address, register, 4)?;
            self.write(address, register, 4, before[index])?;
        }
        Ok(bars::layouts(&before, &ones))
    }
}

/// Offset of a function's capability.
fn capability(access: &ConfigAccess, address: Address, wanted: u8) -> Result<Option<u16>, Error> {
    let mut bytes = Vec::with_capacity(256);
    for at in (0..256).step_by(4) {
        bytes.extend(access.read(address, at, 4)?.to_le_bytes());
    }
    Ok(Config::of(&bytes).capability(wanted).ok().map(|at| at as u16))
}

fn letter(bytes: u8) -> char {
    match bytes {
        1 => 'b',
        2 => 'w',
        _ => 'l',
    }
}

fn ecam(address: Address, offset: u16) -> u64 {
    let function = u64::from(address.bus) << 20 | u64::from(address.device) << 15 | u64::from(address.function) << 12;
    ECAM + function + u64::from(offset)
}
