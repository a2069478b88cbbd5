//! QEMU's devices of the harness: their addresses, and edu's registers (QEMU's docs/specs/edu.txt).

use pcie::{Address, Bar, Function, Memory};
use std::error::Error;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub const EDU: (u16, u16) = (0x1234, 0x11e8);
pub const IVSHMEM: (u16, u16) = (0x1af4, 0x1110);
pub const NVME: (u16, u16) = (0x1b36, 0x0010);
pub const E1000E: (u16, u16) = (0x8086, 0x10d3);

/// The functions with these ids, in the order of their addresses.
pub fn find(ids: (u16, u16)) -> Result<Vec<Address>, Box<dyn Error>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/bus/pci/devices")? {
        let entry = entry?;
        let id = |name| -> Option<u16> {
            let text = fs::read_to_string(entry.path().join(name)).ok()?;
            u16::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
        };
        if (id("vendor"), id("device")) == (Some(ids.0), Some(ids.1)) {
            found.push(entry.file_name().to_string_lossy().parse()?);
        }
    }
    found.sort();
    Ok(found)
}

pub fn one(ids: (u16, u16)) -> Result<Address, Box<dyn Error>> {
    find(ids)?.first().copied().ok_or_else(|| format!("no function {:04x}:{:04x}", ids.0, ids.1).into())
}

/// Powers a function's slot off, which takes it out at once (slot control, PCI Express 7.5.3.10), or on again.
pub fn power(slot: Address, on: bool) -> Result<(), Box<dyn Error>> {
    const SLOT_CONTROL: u64 = 0x18;
    /// The indicator and the power.
    const OFF: u16 = 3 << 8 | 1 << 10;
    const ON: u16 = 1 << 8;
    let config = File::options().read(true).write(true).open(format!("/sys/bus/pci/devices/{slot}/config"))?;
    let byte = |at: u64| -> Result<u64, std::io::Error> {
        let mut byte = [0];
        config.read_exact_at(&mut byte, at)?;
        Ok(byte[0].into())
    };
    let mut express = byte(0x34)?;
    while byte(express)? != 0x10 {
        express = byte(express + 1)?;
        if express == 0 {
            return Err(format!("{slot} is no port of PCI Express").into());
        }
    }
    let mut control = [0; 2];
    config.read_exact_at(&mut control, express + SLOT_CONTROL)?;
    let control = u16::from_le_bytes(control) & !OFF | if on { ON } else { OFF };
    Ok(config.write_all_at(&control.to_le_bytes(), express + SLOT_CONTROL)?)
}

/// The port above a function; `None` if the function is on the machine's root bus.
pub fn slot(at: Address) -> Option<Address> {
    let path = fs::canonicalize(format!("/sys/bus/pci/devices/{at}")).ok()?;
    path.parent()?.file_name()?.to_str()?.parse().ok()
}

/// edu's identification register: 0xRRrr00ed.
const IDENTIFICATION: u64 = 0x00;
/// A stored value is read back inverted.
const LIVENESS: u64 = 0x04;
const SOURCE: u64 = 0x80;
const DESTINATION: u64 = 0x88;
const COUNT: u64 = 0x90;
const COMMAND: u64 = 0x98;
const START: u64 = 1;
const TO_MEMORY: u64 = 2;
/// The place of its 4 KiB buffer.
const BUFFER: u64 = 0x40000;

pub struct Edu<'a> {
    bar: pcie::Bar,
    _function: &'a dyn Function,
}

impl<'a> Edu<'a> {
    pub fn new(function: &'a dyn Function) -> Result<Edu<'a>, Box<dyn Error>> {
        let bar = function.bar(0)?;
        bar.holds(0, 0xa0)?;
        function.master()?;
        Ok(Edu { bar, _function: function })
    }

    pub fn identification(&self) -> u32 {
        self.bar.load32(IDENTIFICATION)
    }

    pub fn inverted(&self, value: u32) -> u32 {
        self.bar.store32(LIVENESS, value);
        self.bar.load32(LIVENESS)
    }

    /// From memory into edu's buffer.
    pub fn fetch(&self, memory: &Memory, offset: u64, bytes: u64) -> Result<(), Box<dyn Error>> {
        self.dma(memory.bus(offset)?.0, BUFFER, bytes, 0)
    }

    /// From edu's buffer into memory.
    pub fn deliver(&self, memory: &Memory, offset: u64, bytes: u64) -> Result<(), Box<dyn Error>> {
        self.dma(BUFFER, memory.bus(offset)?.0, bytes, TO_MEMORY)
    }

    pub fn dma(&self, source: u64, destination: u64, bytes: u64, direction: u64) -> Result<(), Box<dyn Error>> {
        // ORDERING: stores to a BAR arrive in their order, so edu has the addresses when it gets the command.
        self.bar.store64(SOURCE, source);
        self.bar.store64(DESTINATION, destination);
        self.bar.store64(COUNT, bytes);
        self.bar.store64(COMMAND, START | direction);
        let started = Instant::now();
        while self.bar.load64(COMMAND) & START != 0 {
            if started.elapsed() > Duration::from_secs(60) {
                return Err("edu's DMA has not ended after 60 s".into());
            }
            sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// Bytes that no memory has by chance.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut all = vec![0; bytes];
    fastrand::Rng::with_seed(seed).fill(&mut all);
    all
}

/// Loads bytes of memory that the CPU reaches.
pub fn contents(memory: &Memory, offset: u64, bytes: usize) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut into = vec![0; bytes];
    memory.load(offset, &mut into)?;
    Ok(into)
}

/// Loads bytes of a BAR.
pub fn bar_contents(bar: &Bar, offset: u64, bytes: u64) -> Vec<u8> {
    (0..bytes / 4).flat_map(|word| bar.load32(offset + 4 * word).to_le_bytes()).collect()
}
