//! One channel: its registers, and the word that it writes back.

use crate::xdma::error::Error;
use crate::xdma::registers::{channel as reg, control, identifier, part, sgdma, status, target, write_back};
use crate::xdma::{Direction, STOP};
use pcie::{Bar, Memory};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Instant;

/// Required multiples of addresses and lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alignments {
    pub address: u64,
    pub length: u64,
}

impl Alignments {
    pub(crate) fn check(self, source: u64, destination: u64, bytes: u64) -> Result<(), Error> {
        let each = [
            ("the source's address", source, self.address),
            ("the destination's address", destination, self.address),
            ("the length", bytes, self.length),
        ];
        for (what, value, multiple) in each {
            if !value.is_multiple_of(multiple) {
                return Err(Error::Unaligned { what, value, multiple });
            }
        }
        Ok(())
    }
}

pub(crate) struct Channel {
    bar: Bar,
    registers: u64,
    descriptors: u64,
    direction: Direction,
    version: u32,
    alignments: Alignments,
    write_back: Memory,
    /// Offset in it.
    at: u64,
}

impl Channel {
    /// Channel 0 of a direction, at rest. It writes back at `at` of a memory.
    pub(crate) fn new(bar: &Bar, direction: Direction, write_back: Memory, at: u64) -> Result<Channel, Error> {
        let (registers, descriptors) = match direction {
            Direction::H2c => (part(target::H2C, 0), part(target::H2C_SGDMA, 0)),
            Direction::C2h => (part(target::C2H, 0), part(target::C2H_SGDMA, 0)),
        };
        let word = bar.load32(registers + reg::IDENTIFIER);
        let no = |why: &str| Error::NoChannel { direction, why: format!("{why} (identifier {word:#010x})") };
        if identifier::subsystem(word) != identifier::SUBSYSTEM || identifier::target(word) != registers >> 12 {
            return Err(no("there is none"));
        }
        if identifier::is_stream(word) {
            return Err(no("it is an AXI4-Stream"));
        }
        if identifier::channel(word) != 0 {
            return Err(no("its identifier is that of another channel"));
        }
        let word = bar.load32(registers + reg::ALIGNMENTS);
        // Bits 23:16: of addresses; bits 15:8: of lengths. 0 and 1 mean no requirement.
        let alignments =
            Alignments { address: u64::from(word >> 16 & 0xff).max(1), length: u64::from(word >> 8 & 0xff).max(1) };
        let version = identifier::version(bar.load32(registers + reg::IDENTIFIER));
        let bar = bar.clone();
        let channel = Channel { bar, registers, descriptors, direction, version, alignments, write_back, at };
        channel.set_up(&channel.bar)?;
        Ok(channel)
    }

    /// Stops it, and sets the write-back address.
    pub(crate) fn set_up(&self, bar: &Bar) -> Result<(), Error> {
        let begun = Instant::now();
        self.rest();
        while self.status() & status::BUSY != 0 {
            if begun.elapsed() > STOP {
                return Err(Error::Stuck { direction: self.direction, status: self.status() });
            }
            std::hint::spin_loop();
        }
        let (bus, _) = self.write_back.bus(self.at)?;
        bar.store32(self.registers + reg::WRITE_BACK_LOW, bus as u32);
        bar.store32(self.registers + reg::WRITE_BACK_HIGH, (bus >> 32) as u32);
        Ok(())
    }

    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    pub(crate) fn alignments(&self) -> Alignments {
        self.alignments
    }

    /// The word in host memory.
    fn word(&self) -> Option<&AtomicU32> {
        let at = self.write_back.as_ptr()?;
        // SAFETY: aligned, and within the memory (`new` has looked its address up), which lives as long as the channel; the card writes it in one
        // piece.
        Some(unsafe { &*at.as_ptr().add(self.at as usize).cast() })
    }

    /// Starts a list of which `adjacent` descriptors follow the first one. The channel is at rest.
    pub(crate) fn start(&self, first: u64, adjacent: u32) {
        self.bar.store32(self.registers + reg::STATUS, status::CLEARED);
        if let Some(word) = self.word() {
            word.store(0, Ordering::Relaxed);
        }
        self.bar.store32(self.descriptors + sgdma::FIRST_LOW, first as u32);
        self.bar.store32(self.descriptors + sgdma::FIRST_HIGH, (first >> 32) as u32);
        self.bar.store32(self.descriptors + sgdma::ADJACENT, adjacent);
        // ORDERING: list, bytes and word are in memory before the card is started. The store to the BAR is the last one, and on x86 it is not
        // reordered before earlier stores.
        fence(Ordering::Release);
        self.bar.store32(self.registers + reg::CONTROL, control::RUN | control::POLL_WRITE_BACK);
    }

    /// Lets it finish the current descriptor, and then stop.
    pub(crate) fn rest(&self) {
        self.bar.store32(self.registers + reg::CONTROL, 0);
    }

    /// The number of finished descriptors that the card wrote into host memory, and whether other bits are set: an error, or bits that the guide
    /// reserves.
    #[inline]
    pub(crate) fn written_back(&self) -> (u32, bool) {
        // ORDERING: what a C2H transfer wrote was written before the count.
        let word = self.word().map_or(0, |word| word.load(Ordering::Acquire));
        (word & write_back::COUNT, word & !write_back::COUNT != 0)
    }

    pub(crate) fn status(&self) -> u32 {
        self.bar.load32(self.registers + reg::STATUS)
    }

    /// How many descriptors are done, by its register.
    pub(crate) fn completed(&self) -> u32 {
        self.bar.load32(self.registers + reg::COMPLETED)
    }

    pub(crate) fn keep_for_ever(&self) {
        std::mem::forget(self.write_back.clone());
    }
}
