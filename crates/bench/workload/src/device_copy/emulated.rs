//! QEMU's edu device as a card, in a QEMU that this process starts: for tests that copies work, not for their speed.
//!
//! The card has 4 KiB of memory. The rest of its emulated memory is in the machine's RAM. The card's DMA moves every byte of a transfer from there to
//! the card, and then from the card to its destination.

use crate::Error;
use crate::device_copy::engine::{Direction, Engine};
use crate::device_copy::on_bus::OnBus;
use drivers::edu::{self, Edu};
use pcie::qemu::Machine;
use pcie::{Function, Memory};
use std::fs::File;
use std::sync::Arc;

/// The processor is halted, so the clock advances to the next timer immediately, without the 100 ms of each piece. The machine's own timers are off,
/// because the clock would stop at each of their ticks. So two pieces take 2 to 4 polls, not 25 to 400.
const CLOCK: [&str; 4] = ["-icount", "shift=0,sleep=off", "-machine", "hpet=off,pit=off"];
/// All of the machine's memory.
const RAM: u64 = 2 << 30;

/// An emulated card, and the file that its machine shows as another card's memory. The card reaches a software GPU that takes its GPU memory from this
/// file, at bus addresses from `bus` on.
pub struct Emulated {
    pub card: Arc<OnBus<EduCard>>,
    pub video: File,
    pub bus: u64,
}

/// Sizes of its memories. Untouched pages take no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of the card's emulated memory.
    pub own: u64,
    /// Bytes of the GPU's memory, a power of two.
    pub video: u64,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { own: 1 << 30, video: 1 << 30 }
    }
}

impl Emulated {
    /// Starts QEMU, which ends with the card.
    ///
    /// # Errors
    /// [`crate::Unavailable`] if QEMU is not installed, and errors of QEMU.
    pub fn start(sizes: Sizes) -> Result<Emulated, Error> {
        if !pcie::qemu::is_installed() {
            let program = pcie::qemu::PROGRAM;
            let hint = format!("the emulated card needs {program}, which is not installed (Debian: qemu-system-x86)");
            return Err(crate::Unavailable::new(hint).into());
        }
        let video = File::from(pcie::memory_file(c"video", sizes.video)?);
        let builder = Machine::builder()
            .ram(RAM)
            .peer_memory(video.try_clone().map_err(|e| pcie::Error::system("the GPU's memory", e))?)
            .args(CLOCK);
        let machine = builder.device("edu,dma_mask=0xffffffffffffffff").start()?;
        let bus = machine.peer().0.bus;
        let edu = Edu::new(machine.function(0)?, u64::MAX).map_err(of)?;
        let own = edu.function().allocate(sizes.own)?;
        let card = OnBus::new(EduCard { edu, own }, machine);
        Ok(Emulated { card: Arc::new(card), video, bus })
    }
}

/// The driver's error, as one of `workload`.
fn of(error: edu::Error) -> Error {
    match error {
        edu::Error::Pcie(error) => error.into(),
        edu::Error::Idle => Error::Idle,
        edu::Error::Late { bytes, after, .. } => Error::Late { bytes, after },
        other => Error::card(other),
    }
}

/// The card, and the RAM that emulates its memory.
pub struct EduCard {
    edu: Edu,
    own: Memory,
}

impl Engine for EduCard {
    fn about(&self) -> String {
        let address = self.edu.function().identity().address;
        format!("QEMU's edu at {address} is the device, emulated: nothing of its speed is shown")
    }

    fn function(&self) -> &dyn Function {
        self.edu.function()
    }

    fn own(&self) -> (u64, u64) {
        (0, self.own.length())
    }

    fn start(&mut self, direction: Direction, own: u64, memory: &Memory, at: u64, bytes: u64) -> Result<(), Error> {
        let (own, other) = ((self.own.clone(), own), (memory.clone(), at));
        let (from, to) = match direction {
            Direction::ToCard => (other, own),
            Direction::FromCard => (own, other),
        };
        self.edu.start(from, to, bytes).map_err(of)
    }

    fn poll(&mut self) -> Result<bool, Error> {
        self.edu.poll().map_err(of)
    }

    fn read_own(&mut self, own: u64, into: &mut [u8]) -> Result<(), Error> {
        Ok(self.own.load(own, into)?)
    }

    fn write_own(&mut self, own: u64, from: &[u8]) -> Result<(), Error> {
        Ok(self.own.store(own, from)?)
    }
}
