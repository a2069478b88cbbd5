//! A card in software, on `pcie::model`: XDMA's registers, descriptors and poll mode as the product guide describes them, independent of the
//! driver's code. It refuses actions that the guide forbids: if the guide defines a status for them, it stops with that status; otherwise it
//! records a violation and moves no more data.
//!
//! It shows that the driver follows the guide; it does not show the speed of a card.

use crate::xdma::Direction;
use crate::xdma::registers::{
    channel as reg, control, descriptor as of, identifier, part, sgdma, status, target, write_back,
};
use pcie::model::{Model, ModelBus, header};

/// BAR 0 belongs to the FPGA design, BAR 1 to the DMA.
const DMA_BAR: u8 = 1;
const BAR_BYTES: u64 = 64 << 10;
const VERSION: u32 = 0x06;

/// How the card misbehaves, or is delayed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// It does not start its commands.
    pub stalled: bool,
    /// It stays busy forever after its first command.
    pub stuck: bool,
    /// Errors appear only in the status register.
    pub silent: bool,
    /// The read of the n-th descriptor, from 0, is completed with an error.
    pub descriptor_error: Option<u32>,
    /// It writes this back instead of the count.
    pub lie: Option<u32>,
    /// The function has no reset.
    pub no_reset: bool,
    /// Its channels are AXI4-Streams.
    pub stream: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Side {
    control: u32,
    status: u32,
    completed: u32,
    write_back: u64,
    first: u64,
    adjacent: u32,
    /// Started by the driver, but not begun.
    pending: bool,
}

/// The card.
pub struct Card {
    /// The memory on its AXI bus from `begin` on.
    pub memory: Vec<u8>,
    pub begin: u64,
    pub faults: Faults,
    /// Actions of the driver that the guide forbids.
    pub violations: Vec<String>,
    /// Required multiple of addresses and lengths, in its register (1: no requirement).
    pub alignment: u8,
    /// Descriptors that it has read.
    pub fetched: u64,
    sides: [Side; 2],
}

/// A descriptor, read.
struct Descriptor {
    flags: u32,
    next_adjacent: u32,
    length: u64,
    source: u64,
    destination: u64,
    next: u64,
}

/// Why a list ended.
enum End {
    Stopped,
    Error(u32),
    Violation(String),
}

impl Card {
    /// With so many bytes of memory from `begin` on.
    pub fn new(begin: u64, bytes: u64) -> Card {
        Card {
            memory: vec![0; bytes as usize],
            begin,
            faults: Faults::default(),
            violations: Vec::new(),
            alignment: 1,
            fetched: 0,
            sides: [Side::default(); 2],
        }
    }

    /// Lets a stalled card continue.
    pub fn go_on(&mut self, bus: &ModelBus) {
        self.faults.stalled = false;
        self.work(bus);
    }

    fn work(&mut self, bus: &ModelBus) {
        for (index, direction) in [Direction::H2c, Direction::C2h].into_iter().enumerate() {
            if !self.sides[index].pending || self.faults.stalled || self.faults.stuck {
                continue;
            }
            self.sides[index].pending = false;
            let end = self.list(bus, direction);
            let side = &mut self.sides[index];
            side.status &= !status::BUSY;
            match end {
                End::Stopped => side.status |= status::DESCRIPTOR_STOPPED,
                End::Error(bits) => {
                    side.status |= bits;
                    if !self.faults.silent {
                        write_word(bus, side, self.faults.lie);
                    }
                }
                End::Violation(what) => self.violations.push(format!("{direction}: {what}")),
            }
        }
    }

    /// Follows a list to its end.
    fn list(&mut self, bus: &ModelBus, direction: Direction) -> End {
        let index = usize::from(direction == Direction::C2h);
        let (mut at, mut adjacent) = (self.sides[index].first, self.sides[index].adjacent);
        loop {
            let last = at + u64::from(adjacent) * of::BYTES;
            if !at.is_multiple_of(of::BYTES) {
                return End::Violation(format!("a descriptor at {at:#x}, not on 32 bytes"));
            }
            if at / of::BORDER != last / of::BORDER {
                return End::Violation(format!("{} adjacent descriptors at {at:#x} cross 4 KiB", adjacent + 1));
            }
            if u64::from(adjacent + 1) * of::BYTES > LARGEST_READ {
                return End::Violation(format!(
                    "{} adjacent descriptors at {at:#x} are more than one read",
                    adjacent + 1
                ));
            }
            for left in (0..=adjacent).rev() {
                let found = match self.fetch(bus, at) {
                    Ok(found) => found,
                    Err(end) => return end,
                };
                if left > 0 && found.flags & of::STOP != 0 {
                    return End::Violation("Stop on a descriptor that is not the last of its block".into());
                }
                if left > 0 && (found.next != at + of::BYTES || found.next_adjacent != left - 1) {
                    let (next, told) = (found.next, found.next_adjacent);
                    return End::Violation(format!(
                        "wrong adjacency: {left} follow {at:#x} without a gap, and it says that {told} follow {next:#x}"
                    ));
                }
                if let Err(bits) = self.transfer(bus, direction, &found) {
                    return End::Error(bits);
                }
                let side = &mut self.sides[index];
                side.completed += 1;
                if found.flags & of::COMPLETED != 0 {
                    side.status |= status::DESCRIPTOR_COMPLETED;
                    write_word(bus, side, self.faults.lie);
                }
                if found.flags & of::STOP != 0 {
                    return End::Stopped;
                }
                (at, adjacent) = (found.next, if left == 0 { found.next_adjacent } else { adjacent });
                if at == 0 {
                    return End::Violation("a list without Stop".into());
                }
            }
        }
    }

    fn fetch(&mut self, bus: &ModelBus, at: u64) -> Result<Descriptor, End> {
        let n = self.fetched;
        self.fetched += 1;
        if self.faults.descriptor_error.is_some_and(|wrong| u64::from(wrong) == n) {
            return Err(End::Error(1 << 20));
        }
        let mut bytes = [0; of::BYTES as usize];
        bus.read(at, &mut bytes).map_err(|_| End::Error(1 << 19))?;
        let mut words = [0u32; 8];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        if words[0] >> 16 != of::MAGIC {
            return Err(End::Error(status::MAGIC_STOPPED));
        }
        // Reserved: bits 15:14, and of Control all but Stop, Completed and EOP.
        if words[0] & 0xc0ec != 0 || words[1] >> of::LENGTH_BITS != 0 {
            return Err(End::Violation(format!("reserved bits in {:#010x} {:#010x}", words[0], words[1])));
        }
        let wide = |low: usize| u64::from(words[low]) | u64::from(words[low + 1]) << 32;
        let length = u64::from(words[1]);
        if length == 0 {
            return Err(End::Error(status::INVALID_LENGTH));
        }
        Ok(Descriptor {
            flags: words[0] & 0xff,
            next_adjacent: words[0] >> 8 & 0x3f,
            length,
            source: wide(2),
            destination: wide(4),
            next: wide(6),
        })
    }

    /// Moves the bytes of one descriptor; returns the error bits if it cannot.
    fn transfer(&mut self, bus: &ModelBus, direction: Direction, found: &Descriptor) -> Result<(), u32> {
        let Descriptor { source, destination, length, .. } = *found;
        let multiple = u64::from(self.alignment).max(1);
        if !(source | destination).is_multiple_of(multiple) || !length.is_multiple_of(multiple) {
            return Err(status::ALIGN_MISMATCH);
        }
        match direction {
            Direction::H2c => {
                let into = self.range(destination, length).ok_or(1u32 << 14)?;
                bus.read(source, &mut self.memory[into]).map_err(|_| 1 << 9)
            }
            Direction::C2h => {
                let from = self.range(source, length).ok_or(1u32 << 9)?;
                // A write to a wild address is lost: no device answers it. The bus records it for the test.
                let _ = bus.write(destination, &self.memory[from]);
                Ok(())
            }
        }
    }

    fn range(&self, at: u64, length: u64) -> Option<std::ops::Range<usize>> {
        let begin = at.checked_sub(self.begin)?;
        let end = begin.checked_add(length).filter(|end| *end <= self.memory.len() as u64)?;
        Some(begin as usize..end as usize)
    }

    fn load_channel(&mut self, index: usize, offset: u64) -> u32 {
        let direction = [target::H2C, target::C2H][index];
        let side = &mut self.sides[index];
        let alignments = u32::from(self.alignment) << 16 | u32::from(self.alignment) << 8 | 64;
        match offset {
            reg::IDENTIFIER => identifier_of(direction) | u32::from(self.faults.stream) << 15,
            reg::CONTROL => side.control,
            reg::STATUS => side.status,
            // Cleared by reading it.
            0x44 => {
                let was = side.status;
                side.status &= status::BUSY;
                was
            }
            reg::COMPLETED => side.completed,
            reg::ALIGNMENTS => alignments,
            reg::WRITE_BACK_LOW => side.write_back as u32,
            reg::WRITE_BACK_HIGH => (side.write_back >> 32) as u32,
            _ => 0,
        }
    }

    fn store_channel(&mut self, bus: &ModelBus, index: usize, offset: u64, value: u32) {
        let stuck = self.faults.stuck;
        let side = &mut self.sides[index];
        let was = side.control;
        match offset {
            reg::CONTROL => side.control = value,
            // Writing ones sets, and clears.
            0x08 => side.control |= value,
            0x0c => side.control &= !value,
            reg::STATUS => side.status &= !(value & status::CLEARED),
            reg::WRITE_BACK_LOW => side.write_back = side.write_back & !0xffff_ffff | u64::from(value),
            reg::WRITE_BACK_HIGH => side.write_back = side.write_back & 0xffff_ffff | u64::from(value) << 32,
            _ => self.violations.push(format!("a store of {value:#x} to the channel's register {offset:#x}")),
        }
        let side = &mut self.sides[index];
        match (was & control::RUN != 0, side.control & control::RUN != 0) {
            (false, true) => {
                if side.control & control::POLL_WRITE_BACK != 0
                    && (side.write_back == 0 || !side.write_back.is_multiple_of(4))
                {
                    self.violations.push(format!("poll mode with a write-back address of {:#x}", side.write_back));
                }
                side.completed = 0;
                side.status |= status::BUSY;
                side.pending = true;
                if self.faults.stalled && self.faults.lie.is_some() {
                    write_word(bus, side, self.faults.lie);
                }
                self.work(bus);
            }
            (true, false) if side.pending && !stuck => {
                side.pending = false;
                side.status &= !status::BUSY;
            }
            _ => {}
        }
    }

    fn store_descriptors(&mut self, index: usize, offset: u64, value: u32) {
        let side = &mut self.sides[index];
        if side.control & control::RUN != 0 {
            self.violations.push(format!("a store to descriptor register {offset:#x} while the channel runs"));
            return;
        }
        match offset {
            sgdma::FIRST_LOW => side.first = side.first & !0xffff_ffff | u64::from(value),
            sgdma::FIRST_HIGH => side.first = side.first & 0xffff_ffff | u64::from(value) << 32,
            sgdma::ADJACENT if value > of::MOST_ADJACENT as u32 => {
                self.violations.push(format!("{value} adjacent descriptors: six bits"));
            }
            sgdma::ADJACENT => side.adjacent = value,
            _ => self.violations.push(format!("a store of {value:#x} to descriptor register {offset:#x}")),
        }
    }
}

const fn identifier_of(target: u64) -> u32 {
    identifier::SUBSYSTEM << 20 | (target as u32) << 16 | VERSION
}

fn write_word(bus: &ModelBus, side: &Side, lie: Option<u32>) {
    if side.control & control::POLL_WRITE_BACK == 0 {
        return;
    }
    let error = if side.status & status::ERRORS != 0 { write_back::ERROR } else { 0 };
    let word = lie.unwrap_or(side.completed & write_back::COUNT | error);
    let _ = bus.write(side.write_back, &word.to_le_bytes());
}

/// Maximum bytes of one read request.
const LARGEST_READ: u64 = 512;

impl Model for Card {
    fn config(&self) -> Vec<u8> {
        // 10ee is Xilinx; the FPGA design chooses the device id and the class.
        let mut config = header(0x10ee, 0x7024, 0x07_00_00);
        // A list of capabilities with a single one, PCI Express; reads of 512 bytes (Device Control, bits 14:12).
        (config[0x06], config[0x34], config[0x40], config[0x49]) = (1 << 4, 0x40, 0x10, 2 << 4);
        config
    }

    fn bars(&self) -> [u64; 6] {
        [BAR_BYTES, BAR_BYTES, 0, 0, 0, 0]
    }

    fn load(&mut self, bus: &ModelBus, bar: u8, offset: u64, bytes: usize) -> u64 {
        self.work(bus);
        if bar != DMA_BAR || bytes != 4 {
            return 0;
        }
        let (at, within, is_first) = (offset >> 12, offset & 0xff, offset >> 8 & 0xf == 0);
        let word = match at {
            target::H2C | target::C2H if is_first => self.load_channel(usize::from(at == target::C2H), within),
            target::IRQ | target::CONFIG if offset == part(at, 0) => identifier_of(at),
            target::H2C_SGDMA | target::C2H_SGDMA if offset == part(at, 0) => identifier_of(at),
            _ => 0,
        };
        word.into()
    }

    fn store(&mut self, bus: &ModelBus, bar: u8, offset: u64, bytes: usize, value: u64) {
        if bar != DMA_BAR || bytes != 4 || offset >> 8 & 0xf != 0 {
            self.violations.push(format!("a store of {bytes} bytes to {offset:#x} of BAR {bar}"));
            return;
        }
        let (at, within, value) = (offset >> 12, offset & 0xff, value as u32);
        match at {
            target::H2C => self.store_channel(bus, 0, within, value),
            target::C2H => self.store_channel(bus, 1, within, value),
            target::H2C_SGDMA => self.store_descriptors(0, within, value),
            target::C2H_SGDMA => self.store_descriptors(1, within, value),
            _ => self.violations.push(format!("a store of {value:#x} to {offset:#x}")),
        }
    }

    fn reset(&mut self) -> bool {
        if !self.faults.no_reset {
            self.sides = [Side::default(); 2];
            self.faults.stuck = false;
        }
        !self.faults.no_reset
    }
}
