//! QEMU's edu device as a card, in a QEMU that this process starts: it shows that things work, not how fast.
//!
//! The card has 4 KiB of memory. What stands for the rest of its own memory lies in the machine's RAM: every byte of a transfer goes by the card's
//! DMA from there to the card, and by its DMA from the card to where it is wanted.

use crate::engine::{Direction, Engine};
use crate::on_bus::OnBus;
use copy::Error;
use edu::{Edu, End};
use pcie::qemu::Machine;
use pcie::{Function, Memory};
use std::fs::File;
use std::os::fd::FromRawFd;
use std::sync::Arc;

/// The processor stands, so the clock goes on to the next timer at once: the 100 ms of each piece are not waited for. Without the machine's own timers,
/// whose ticks it would stop at on the way, that is after 2 to 4 looks for two pieces, not 25 to 400.
const CLOCK: [&str; 4] = ["-icount", "shift=0,sleep=off", "-machine", "hpet=off,pit=off"];
/// All that the machine has.
const RAM: u64 = 2 << 30;

/// An emulated card, and the file that its machine shows as another card's memory: a GPU in software that takes its video memory from
/// there is reached by the card, at bus addresses from `bus` on.
pub struct Emulated {
    pub card: Arc<OnBus<EduCard>>,
    pub video: File,
    pub bus: u64,
}

/// How large its memories are. What nobody touches costs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes that stand for the card's own memory.
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
    /// Starts QEMU; it ends with the card. `machine` is the kind: `q35` or `pc`.
    ///
    /// # Errors
    /// [`copy::Unavailable`] where QEMU is not installed, and what it says.
    pub fn start(machine: &str, sizes: Sizes) -> Result<Emulated, Error> {
        if !installed() {
            let program = pcie::qemu::PROGRAM;
            let hint = format!("the emulated card needs {program}, which is not installed (Debian: qemu-system-x86)");
            return Err(copy::Unavailable::new(hint).into());
        }
        let video = memory_file(sizes.video)?;
        let builder =
            Machine::builder().machine(machine).ram(RAM).peer_memory(video.try_clone().map_err(system)?).args(CLOCK);
        let machine = builder.device("edu,dma_mask=0xffffffffffffffff").start()?;
        let bus = machine.peer().0.bus;
        let edu = Edu::new(machine.function(0)?, u64::MAX).map_err(of)?;
        let own = edu.function().allocate(sizes.own)?;
        let card = OnBus::new(EduCard { edu, own }, machine);
        Ok(Emulated { card: Arc::new(card), video, bus })
    }
}

fn system(cause: std::io::Error) -> Error {
    Error::System { what: "a memory file for the GPU's memory".into(), cause }
}

fn memory_file(bytes: u64) -> Result<File, Error> {
    // SAFETY: a name that ends in NUL, and a flag.
    let fd = unsafe { libc::memfd_create(c"video".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(system(std::io::Error::last_os_error()));
    }
    // SAFETY: a new descriptor that nobody else has.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(bytes).map_err(system)?;
    Ok(file)
}

fn installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(pcie::qemu::PROGRAM).is_file())
}

/// What the driver says, as `copy` has it.
fn of(error: edu::Error) -> Error {
    match error {
        edu::Error::Pcie(error) => error.into(),
        edu::Error::Idle => Error::Idle,
        edu::Error::Late { bytes, after, .. } => Error::Late { bytes, after },
        other => Error::card(other),
    }
}

/// The card with what stands for its memory.
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
        let (own, other) = (End::Memory(self.own.clone(), own), End::Memory(memory.clone(), at));
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
