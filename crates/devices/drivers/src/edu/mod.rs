//! QEMU's edu device (1234:11e8), a card with one DMA engine that masters the bus. Tests use it in place of an FPGA.
//!
//! It has a buffer of 4 KiB, and moves bytes between that buffer and the bus, one piece at a time. [`Edu`] moves any number of bytes in such
//! pieces from memory to memory, through the card. Interrupts are not used: the driver polls.
//!
//! The invariant: every address that the card gets was looked up in a [`pcie::Memory`] that lives at least as long as the transfer. It is also
//! within the card's address mask, because the card drops higher bits and would access another address.

mod error;
mod registers;
mod transfer;

pub use error::Error;
pub use registers::{DEVICE, VENDOR};
pub use transfer::End;

use pcie::{Bar, Function};
use registers as reg;
use std::time::{Duration, Instant};
use transfer::Transfer;

/// The card's default mask (QEMU option `dma_mask=`): 28 bits.
pub const MASK: u64 = (1 << 28) - 1;

/// Pause between two polls. The card is a thread of QEMU, which works even if the driver does not poll: on two busy cores two pieces took 25 to 400
/// polls without this pause (2 to 16 ms), and 2 polls with it (1 ms).
const NAP: Duration = Duration::from_micros(20);

/// How long [`Edu`] waits on drop for a transfer that is still in progress.
const PATIENCE: Duration = Duration::from_secs(1);

/// The card.
pub struct Edu {
    function: Box<dyn Function>,
    bar: Bar,
    mask: u64,
    transfer: Option<Transfer>,
    /// Number of pieces started.
    pieces: u64,
}

impl Edu {
    /// Takes over the function, with the card's address mask (`dma_mask` of QEMU's device, or [`MASK`] if the option was not given; no register
    /// holds it).
    ///
    /// # Errors
    /// [`Error::NotEdu`], [`Error::Halves`], [`Error::Deaf`], and errors of the bus.
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

    /// Checks that the card answers, and that a 64-bit store arrives as one access.
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

    /// The function, for example to allocate memory that it can reach.
    pub fn function(&self) -> &dyn Function {
        &*self.function
    }

    /// The bits that its bus addresses may have.
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// Number of pieces started since it was opened.
    pub fn pieces(&self) -> u64 {
        self.pieces
    }

    /// Starts to move `bytes` from one end to the other. `poll` and `wait` are for the last transfer that was started.
    ///
    /// # Errors
    /// [`Error::Busy`] while another transfer is in progress, [`pcie::Error::OutOfBounds`] for bytes outside of an end, [`Error::Mask`] for memory
    /// that the card cannot address. In all these cases no transfer was started.
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

    /// Starts one piece.
    fn tell(&mut self, piece: &transfer::Piece) {
        let (source, destination, direction) = match piece.way {
            transfer::Way::In => (piece.bus, reg::BUFFER, 0),
            transfer::Way::Out => (reg::BUFFER, piece.bus, reg::FROM_CARD),
        };
        // ORDERING: the command is the last store, and stores to a BAR arrive in their order. The caller stored the memory's bytes before this; on
        // x86 a store to uncached memory is not reordered before earlier stores.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
        self.bar.store64(reg::SOURCE, source);
        self.bar.store64(reg::DESTINATION, destination);
        self.bar.store64(reg::COUNT, piece.bytes);
        self.bar.store64(reg::COMMAND, reg::RUN | direction);
        self.pieces += 1;
    }

    /// Polls once: returns true if the last transfer is done. Between two pieces it starts the next one.
    ///
    /// # Errors
    /// [`Error::Idle`] if no transfer was started, [`pcie::Error::Gone`] if the card was removed.
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
        // ORDERING: later reads of the memory see everything that the piece wrote.
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
    /// As [`Edu::poll`], and [`Error::Late`]: then the transfer continues, and its memory is kept.
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

    /// Gives up the current transfer, if the card can be stopped: starts no further piece, and waits for the current one.
    ///
    /// # Errors
    /// [`Error::Late`] if the current piece does not end: its memory is kept.
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
            // It no longer masters a bus.
            Err(Error::Pcie(error)) if error.is_gone() => {}
            // The card may still write, so this memory never gets another owner.
            Err(_) => {
                self.function.is_stuck();
                std::mem::forget(self.transfer.take());
            }
        }
    }
}
