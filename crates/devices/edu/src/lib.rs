//! QEMU's edu device (1234:11e8), a card whose one DMA engine masters the bus: the stand-in for an FPGA.
//!
//! It has a buffer of 4 KiB, and moves bytes between that buffer and the bus, one piece at a time. [`Edu`] moves any number of bytes in
//! such pieces: from memory to the card, from the card to memory, or from memory to memory through the card. Nothing is said by interrupts:
//! who drives it polls.
//!
//! The invariant: every address that the card is told was looked up in a [`pcie::Memory`] that lives at least as long as the transfer, and
//! lies below the card's address mask, because the card cuts what does not and would write elsewhere.

mod error;
mod registers;
mod transfer;

pub use error::Error;
pub use registers::{CAPACITY, DEVICE, VENDOR};
pub use transfer::End;

use pcie::{Bar, Function};
use registers as reg;
use std::time::{Duration, Instant};
use transfer::Transfer;

/// The mask that the card has unless QEMU was told another one (`dma_mask=`): 28 bits.
pub const MASK: u64 = (1 << 28) - 1;

/// Between two looks. The card is a thread of QEMU's, which works when nobody asks: on two busy cores two pieces took 25 to 400 looks without this (2 to 16 ms),
/// and 2 with it (1 ms).
const NAP: Duration = Duration::from_micros(20);

/// How long [`Edu`] waits at its end for a transfer that is still under way.
const PATIENCE: Duration = Duration::from_secs(1);

/// The card.
pub struct Edu {
    function: Box<dyn Function>,
    bar: Bar,
    mask: u64,
    transfer: Option<Transfer>,
    /// How many pieces it was told.
    pieces: u64,
}

impl Edu {
    /// Takes over the function, with the card's address mask (`dma_mask` of QEMU's device, [`MASK`] where that was not given; no register
    /// tells it).
    ///
    /// # Errors
    /// [`Error::NotEdu`], [`Error::Halves`], [`Error::Deaf`], and what the bus says.
    pub fn new(function: Box<dyn Function>, mask: u64) -> Result<Edu, Error> {
        let found = function.identity();
        if (found.vendor, found.device) != (VENDOR, DEVICE) {
            return Err(Error::NotEdu { address: found.address, vendor: found.vendor, device: found.device });
        }
        let bar = function.bar(0)?;
        bar.holds(0, reg::END)?;
        let edu = Edu { function, bar, mask, transfer: None, pieces: 0 };
        edu.probe()?;
        edu.function.master()?;
        Ok(edu)
    }

    /// That it answers, and that a store of 64 bits arrives as one.
    fn probe(&self) -> Result<(), Error> {
        const QUESTION: u32 = 0x5a5a_0ff0;
        self.bar.store32(reg::LIVENESS, QUESTION);
        let answer = self.bar.load32(reg::LIVENESS);
        if answer != !QUESTION {
            return Err(match answer {
                u32::MAX => self.gone(),
                _ => Error::Deaf { answer },
            });
        }
        if self.bar.load64(reg::COMMAND) & reg::RUN != 0 {
            return Err(Error::Busy);
        }
        const WIDE: u64 = 0x1234_5678_9abc_def0;
        self.bar.store64(reg::SOURCE, WIDE);
        let kept = self.bar.load64(reg::SOURCE);
        if kept != WIDE {
            return Err(Error::Halves { kept });
        }
        Ok(())
    }

    fn gone(&self) -> Error {
        self.function.gone().into()
    }

    /// For memory that it may reach.
    pub fn function(&self) -> &dyn Function {
        &*self.function
    }

    /// Bits that a bus address may have for it.
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// How many pieces it was told to move, since it was opened.
    pub fn pieces(&self) -> u64 {
        self.pieces
    }

    /// Starts to move `bytes` from one end to the other. What is polled or waited for is the last transfer that was started.
    ///
    /// # Errors
    /// [`Error::Busy`] while another one is under way, [`Error::Card`] and [`pcie::Error::OutOfBounds`] for bytes that an end does not have,
    /// [`Error::Mask`] for memory that the card cannot address, [`Error::Ways`] for two ends on the card. Nothing was started then.
    pub fn start(&mut self, from: End, to: End, bytes: u64) -> Result<(), Error> {
        if self.transfer.as_ref().is_some_and(|transfer| !transfer.is_done()) {
            return Err(Error::Busy);
        }
        self.transfer = None;
        let mut transfer = Transfer::new(from, to, bytes, self.mask)?;
        if let Some(piece) = transfer.next()? {
            self.tell(&piece);
        }
        self.transfer = Some(transfer);
        Ok(())
    }

    /// Tells the card one piece.
    fn tell(&mut self, piece: &transfer::Piece) {
        let (source, destination, direction) = match piece.way {
            transfer::Way::In => (piece.bus, reg::BUFFER + piece.card, 0),
            transfer::Way::Out => (reg::BUFFER + piece.card, piece.bus, reg::FROM_CARD),
        };
        // ORDERING: the command is the last store, and stores to a BAR arrive in their order. The memory's bytes were stored before this
        // by the caller; on x86 a store to uncached memory goes out behind them.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
        self.bar.store64(reg::SOURCE, source);
        self.bar.store64(reg::DESTINATION, destination);
        self.bar.store64(reg::COUNT, piece.bytes);
        self.bar.store64(reg::COMMAND, reg::RUN | direction);
        self.pieces += 1;
    }

    /// Looks once: true when the last transfer is done. Between two pieces it tells the next one.
    ///
    /// # Errors
    /// [`Error::Idle`] where none was started, [`pcie::Error::Gone`] where the card was taken away.
    pub fn poll(&mut self) -> Result<bool, Error> {
        let Some(transfer) = &mut self.transfer else { return Err(Error::Idle) };
        if transfer.is_done() {
            return Ok(true);
        }
        let command = self.bar.load32(reg::COMMAND);
        if command == u32::MAX && !self.function.is_present() {
            return Err(self.gone());
        }
        if u64::from(command) & reg::RUN != 0 {
            std::thread::sleep(NAP);
            return Ok(false);
        }
        // ORDERING: what is read of the memory from here on is not older than the end of the piece.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        match transfer.next()? {
            Some(piece) => {
                self.tell(&piece);
                Ok(false)
            }
            None => Ok(true),
        }
    }

    /// Polls until the last transfer is done.
    ///
    /// # Errors
    /// As [`Edu::poll`], and [`Error::Late`]: it goes on, and its memory is kept for it.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        let begun = Instant::now();
        while !self.poll()? {
            let after = begun.elapsed();
            if after > timeout {
                let (done, bytes) = self.transfer.as_ref().map_or((0, 0), Transfer::progress);
                return Err(Error::Late { done, bytes, after });
            }
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// [`Edu::start`] and [`Edu::wait`].
    ///
    /// # Errors
    /// As both.
    pub fn copy(&mut self, from: End, to: End, bytes: u64, timeout: Duration) -> Result<(), Error> {
        self.start(from, to, bytes)?;
        self.wait(timeout)
    }

    /// Gives up what is under way, if the card can be stopped: it tells no further piece and waits for the one that it told.
    ///
    /// # Errors
    /// [`Error::Late`] where that one does not end: its memory is kept.
    pub fn abandon(&mut self, timeout: Duration) -> Result<(), Error> {
        if let Some(transfer) = &mut self.transfer {
            transfer.cut();
            self.wait(timeout)?;
            self.transfer = None;
        }
        Ok(())
    }
}

impl Drop for Edu {
    fn drop(&mut self) {
        match self.abandon(PATIENCE) {
            Ok(()) => {}
            // It masters no bus any more.
            Err(Error::Pcie(error)) if error.is_gone() => {}
            // The card may still write: what it may write to is never given to anybody else.
            Err(_) => {
                self.function.is_stuck();
                std::mem::forget(self.transfer.take());
            }
        }
    }
}
