//! Xilinx's DMA for PCI Express (the XDMA IP of an FPGA's design, product guide PG195). The card's channels move bytes between its own memory and
//! the bus by lists of descriptors. doorbell uses one channel for each direction, in poll mode: the card writes the number of finished descriptors
//! into host memory, and the driver polls it.
//!
//! The invariant: every bus address in a descriptor was looked up in a [`pcie::Memory`] that lives until the channel has stopped. If it does not
//! stop, that memory never gets another owner, and no transfer is started until the card was reset.
//!
//! Written from the product guide, compared with two public drivers (see `registers`) and tested only against [`model`]: it has not driven a card
//! yet.

mod channel;
mod error;
mod list;
pub mod model;
mod registers;

pub use error::Error;

use channel::Channel;
use list::{List, Piece};
use pcie::{Bar, Function, Memory};
use registers::{descriptor, identifier, part, target};
use std::fmt;
use std::time::{Duration, Instant};

/// The direction of a channel, with the guide's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Host to card.
    H2c,
    C2h,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::H2c => "H2C",
            Direction::C2h => "C2H",
        })
    }
}

/// Bytes of the list of descriptors: room for 8,192, which is 32 MiB of single pages.
const LIST: u64 = 256 << 10;
/// How long a channel may take to stop.
const STOP: Duration = Duration::from_millis(200);
/// Number of polls of memory before one read of the registers, which is a round trip.
const LOOKS: u32 = 256;

/// The card.
pub struct Xdma {
    function: Box<dyn Function>,
    bar: Bar,
    channels: [Channel; 2],
    list: List,
    /// The card's own memory: begin and bytes.
    own: (u64, u64),
    pieces: Vec<Piece>,
    transfer: Option<Transfer>,
    stuck: Option<Direction>,
}

struct Transfer {
    direction: Direction,
    descriptors: u32,
    bytes: u64,
    /// Kept for the card until it is done.
    memory: Option<Memory>,
    looks: u32,
    done: bool,
}

impl Xdma {
    /// Takes over the function. `own`: the begin of the card's memory on its AXI bus, and its size in bytes. Only the FPGA design defines them; no
    /// register holds them.
    ///
    /// # Errors
    /// [`Error::NotXdma`], [`Error::NoChannel`], [`Error::Stuck`] for a channel that runs and does not stop, and errors of the bus.
    pub fn new(function: Box<dyn Function>, own: (u64, u64)) -> Result<Xdma, Error> {
        let bar = find_bar(&*function)?;
        let write_back = function.allocate(4096)?;
        let list = List::new(function.allocate(LIST)?, largest_read(&*function)?);
        let channel = |direction, at| Channel::new(&bar, direction, write_back.clone(), at);
        let channels = [channel(Direction::H2c, 0)?, channel(Direction::C2h, 64)?];
        // Only after both are at rest: a channel that was left running would continue with lists in memory that has other owners.
        function.master()?;
        let room = list.room() as usize;
        let pieces = Vec::with_capacity(room);
        Ok(Xdma { function, bar, channels, list, own, pieces, transfer: None, stuck: None })
    }

    /// The function, for example to allocate memory that it can reach.
    pub fn function(&self) -> &dyn Function {
        &*self.function
    }

    /// The card's own memory: begin and bytes.
    pub fn own(&self) -> (u64, u64) {
        self.own
    }

    /// The version in the channels' identifiers.
    pub fn version(&self) -> u32 {
        self.channels[0].version()
    }

    fn gone(&self) -> Error {
        self.function.gone().into()
    }

    fn channel(&self, direction: Direction) -> &Channel {
        &self.channels[usize::from(direction == Direction::C2h)]
    }

    /// Starts to move `bytes` between the card's address `own` and `at` of a memory. `poll` and `wait` are for the last transfer that was started.
    /// Allocates no memory.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Card`] and [`pcie::Error::OutOfBounds`] for bytes outside of an end, [`Error::Unaligned`],
    /// [`Error::TooScattered`]; no transfer was started then.
    pub fn start(&mut self, direction: Direction, own: u64, memory: &Memory, at: u64, bytes: u64) -> Result<(), Error> {
        if self.transfer.as_ref().is_some_and(|transfer| !transfer.done) {
            return Err(Error::Busy);
        }
        if let Some(direction) = self.stuck {
            return Err(Error::Stuck { direction, status: self.channel(direction).status() });
        }
        self.transfer = None;
        self.cut(direction, own, memory, at, bytes)?;
        let (first, adjacent) = self.list.write(&self.pieces)?;
        let descriptors = self.pieces.len() as u32;
        self.transfer =
            Some(Transfer { direction, descriptors, bytes, memory: Some(memory.clone()), looks: 0, done: false });
        self.channel(direction).start(first, adjacent);
        Ok(())
    }

    /// Cuts a transfer into pieces of one descriptor each.
    fn cut(&mut self, direction: Direction, own: u64, memory: &Memory, at: u64, bytes: u64) -> Result<(), Error> {
        if bytes == 0 {
            return Err(Error::Empty);
        }
        let (begin, length) = self.own;
        let within = own.checked_sub(begin).and_then(|offset| offset.checked_add(bytes));
        if within.is_none_or(|end| end > length) {
            return Err(Error::Card { at: own, bytes, begin, length });
        }
        memory.holds(at, bytes)?;
        let alignments = self.channel(direction).alignments();
        // Whole pages, so that the next piece has the alignment of the first; or the card's required multiple, if that is more.
        let unit = alignments.length.max(4096);
        let most = ((1 << descriptor::LENGTH_BITS) - 1) / unit * unit;
        let room = self.list.room();
        self.pieces.clear();
        let mut done = 0;
        while done < bytes {
            let (bus, rest) = memory.bus(at + done)?;
            let length = rest.min(bytes - done).min(most);
            let (source, destination) = match direction {
                Direction::H2c => (bus, own + done),
                Direction::C2h => (own + done, bus),
            };
            alignments.check(source, destination, length)?;
            if self.pieces.len() as u64 == room {
                let pieces = room + (bytes - done).div_ceil(rest.max(1));
                return Err(Error::TooScattered { pieces, bytes, room });
            }
            self.pieces.push(Piece { source, destination, bytes: length as u32 });
            done += length;
        }
        Ok(())
    }

    /// Polls once: reads the word that the card writes into host memory, and returns true if the last transfer is done. Now and then it also reads
    /// the registers, which show a channel that has stopped.
    ///
    /// # Errors
    /// [`Error::Idle`], [`Error::Stopped`] if the card found an error, [`pcie::Error::Gone`].
    pub fn poll(&mut self) -> Result<bool, Error> {
        let Some(transfer) = &mut self.transfer else { return Err(Error::Idle) };
        if transfer.done {
            return Ok(true);
        }
        let (direction, descriptors) = (transfer.direction, transfer.descriptors);
        transfer.looks = transfer.looks.wrapping_add(1);
        let look_at_registers = transfer.looks.is_multiple_of(LOOKS);
        let channel = self.channel(direction);
        let (done, more) = channel.written_back();
        if done == descriptors && !more {
            return self.end(direction);
        }
        if !more && !look_at_registers {
            return Ok(false);
        }
        let status = channel.status();
        if status == u32::MAX && !self.function.is_present() {
            return Err(self.gone());
        }
        if status & registers::status::ERRORS == 0 && status & registers::status::BUSY != 0 {
            return Ok(false);
        }
        // It has stopped, so its last write-back is done.
        let done = channel.completed();
        if status & registers::status::ERRORS == 0 && done == descriptors {
            return self.end(direction);
        }
        let names = registers::status::names(status, direction == Direction::H2c);
        self.halt(direction)?;
        Err(Error::Stopped { direction, done, descriptors, status, names })
    }

    /// All descriptors are done.
    fn end(&mut self, direction: Direction) -> Result<bool, Error> {
        // Run must be 0 before it can be set again.
        self.channel(direction).rest();
        if let Some(transfer) = &mut self.transfer {
            transfer.done = true;
            transfer.memory = None;
        }
        Ok(true)
    }

    /// Stops a channel, and frees its memory when it has stopped.
    fn halt(&mut self, direction: Direction) -> Result<(), Error> {
        let begun = Instant::now();
        let channel = self.channel(direction);
        channel.rest();
        loop {
            let status = channel.status();
            if status == u32::MAX && !self.function.is_present() {
                self.transfer = None;
                return Err(self.gone());
            }
            if status & registers::status::BUSY == 0 {
                self.transfer = None;
                return Ok(());
            }
            if begun.elapsed() > STOP {
                self.stuck = Some(direction);
                return Err(Error::Stuck { direction, status });
            }
            std::hint::spin_loop();
        }
    }

    /// Polls until the last transfer is done.
    ///
    /// # Errors
    /// As [`Xdma::poll`], and [`Error::Late`]: the transfer then continues, and its memory is kept; [`Xdma::abandon`] stops it.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        let begun = Instant::now();
        while !self.poll()? {
            let after = begun.elapsed();
            if after > timeout {
                let Some(transfer) = &self.transfer else { return Err(Error::Idle) };
                let channel = self.channel(transfer.direction);
                let is_busy = channel.status() & registers::status::BUSY != 0;
                let state = if is_busy { "busy" } else { "not busy" };
                let (done, descriptors, bytes) = (channel.completed(), transfer.descriptors, transfer.bytes);
                return Err(Error::Late { done, descriptors, bytes, after, state });
            }
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// [`Xdma::start`] and [`Xdma::wait`].
    ///
    /// # Errors
    /// As both.
    pub fn copy(
        &mut self,
        direction: Direction,
        own: u64,
        memory: &Memory,
        at: u64,
        bytes: u64,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.start(direction, own, memory, at, bytes)?;
        self.wait(timeout)
    }

    /// Stops the current transfer.
    ///
    /// # Errors
    /// [`Error::Stuck`] if the channel does not stop: its memory is kept until [`Xdma::reset`].
    pub fn abandon(&mut self) -> Result<(), Error> {
        match &self.transfer {
            Some(transfer) if !transfer.done => self.halt(transfer.direction),
            _ => Ok(()),
        }
    }

    /// The function's own reset: its channels stop, and are as after power-on.
    ///
    /// # Errors
    /// [`pcie::Error::Refused`] where it has none, and as [`Xdma::new`].
    pub fn reset(&mut self) -> Result<(), Error> {
        self.function.reset()?;
        self.transfer = None;
        self.stuck = None;
        self.channels.iter().try_for_each(|channel| channel.set_up(&self.bar))?;
        Ok(self.function.master()?)
    }
}

impl Drop for Xdma {
    fn drop(&mut self) {
        // A card that was taken away masters no bus.
        let stopped = match self.abandon() {
            Ok(()) => self.stuck.is_none(),
            Err(Error::Pcie(error)) => error.is_gone() && self.stuck.is_none(),
            Err(_) => false,
        };
        if !stopped {
            // The card may still write, so this memory never gets another owner.
            self.function.is_stuck();
            if let Some(transfer) = self.transfer.take() {
                std::mem::forget(transfer.memory);
            }
            self.channels.iter().for_each(Channel::keep_for_ever);
            self.list.keep_for_ever();
        }
    }
}

/// Maximum bytes of one read request of the function (Device Control of the PCI Express capability, PCI Express Base 7.5.3.4); none if it has no
/// such capability.
fn largest_read(function: &dyn Function) -> Result<Option<u64>, pcie::Error> {
    const EXPRESS: u8 = 0x10;
    const DEVICE_CONTROL: u16 = 8;
    let Some(at) = function.capability(EXPRESS)? else { return Ok(None) };
    let mut upper = [0];
    function.read_config(at + DEVICE_CONTROL + 1, &mut upper)?;
    Ok(Some(128 << (upper[0] >> 4 & 7)))
}

/// The BAR of the DMA's registers, by its identifiers.
fn find_bar(function: &dyn Function) -> Result<Bar, Error> {
    let is =
        |word: u32, target| identifier::subsystem(word) == identifier::SUBSYSTEM && identifier::target(word) == target;
    for index in 0..6 {
        let Ok(bar) = function.bar(index) else { continue };
        if bar.holds(0, target::END).is_ok()
            && is(bar.load32(part(target::IRQ, 0)), target::IRQ)
            && is(bar.load32(part(target::CONFIG, 0)), target::CONFIG)
        {
            return Ok(bar);
        }
    }
    let address = function.identity().address;
    Err(if function.is_present() { Error::NotXdma { address } } else { function.gone().into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdma::model::Card;
    use pcie::model::{ModelBus, plug};

    /// A descriptor's length has 28 bits; the piece after a cut has the alignment of the first byte.
    #[test]
    fn a_long_transfer_is_cut_at_whole_pages_below_256_mib() {
        let bus = ModelBus::default();
        let own = 1 << 40;
        let mut xdma = Xdma::new(plug(Card::new(0, 4096), &bus).0, (0, own)).unwrap();
        let bytes = (600 << 20) + 8;
        let memory = xdma.function().allocate(bytes).unwrap();
        xdma.cut(Direction::H2c, 0, &memory, 0, bytes).unwrap();
        let lengths: Vec<u64> = xdma.pieces.iter().map(|piece| piece.bytes.into()).collect();
        let most = (1 << 28) - 4096;
        assert_eq!(lengths, [most, most, bytes - 2 * most]);
    }
}
