//! A PCI function as a driver sees it.

use crate::address::Address;
use crate::bar::Bar;
use crate::error::Error;
use crate::identity::{COMMAND, MASTER, MEMORY};
use crate::memory::{Memory, Peer};

/// Which device it is: the head of its configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub address: Address,
    pub vendor: u16,
    pub device: u16,
    /// Base class, subclass and programming interface: `0x01_08_02` is NVMe.
    pub class: u32,
    pub revision: u8,
}

/// One PCI function, opened to be driven. Its registers answer; its DMA is off until [`Function::master`], because they may still name memory that
/// has another owner by now. What it was before (memory decoding, a kernel driver) is restored on drop, and its DMA is off again.
pub trait Function: Send {
    fn identity(&self) -> Identity;

    /// It is emulated: that it works means something, how long it takes does not.
    fn is_functional(&self) -> bool;

    /// Configuration space, from `offset` on. A function that is gone reads as ones.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::System`].
    fn read_config(&self, offset: u16, into: &mut [u8]) -> Result<(), Error>;

    /// # Errors
    /// As [`Function::read_config`].
    fn write_config(&self, offset: u16, from: &[u8]) -> Result<(), Error>;

    /// BAR 0 to 5, whole.
    ///
    /// # Errors
    /// [`Error::NoBar`].
    fn bar(&self, index: u8) -> Result<Bar, Error>;

    /// Host memory that the CPU and the function reach, zeroed, from a page's begin on. Of huge pages where there are some.
    ///
    /// # Errors
    /// [`Error::System`], [`Error::Unreachable`].
    fn allocate(&self, bytes: u64) -> Result<Memory, Error>;

    /// Another device's memory, as the function reaches it.
    ///
    /// # Errors
    /// [`Error::Unreachable`], with what stands between the two.
    fn reach(&self, peer: &Peer) -> Result<Memory, Error>;

    /// Lets the function master the bus: its DMA works from here on. For a driver that has stopped whatever the function was at.
    ///
    /// # Errors
    /// As [`Function::write_config`].
    fn master(&self) -> Result<(), Error> {
        const NEEDED: u16 = MEMORY | MASTER;
        let mut command = [0; 2];
        self.read_config(COMMAND, &mut command)?;
        let now = u16::from_le_bytes(command);
        if now & NEEDED != NEEDED {
            self.write_config(COMMAND, &(now | NEEDED).to_le_bytes())?;
        }
        Ok(())
    }

    /// The function's own reset (FLR, or what the bus has). Its registers are as after power-on then.
    ///
    /// # Errors
    /// [`Error::Refused`] where it has none.
    fn reset(&self) -> Result<(), Error>;

    /// Said before it is dropped: its driver could not stop it, so it may still write to memory that it was given. That stays until this process has
    /// ended, and longer, until whoever puts things back then has stopped the function.
    fn is_stuck(&self) {}

    /// The error of a function that is no longer there.
    fn gone(&self) -> Error {
        Error::Gone { address: self.identity().address }
    }

    /// False when it was pulled out.
    fn is_present(&self) -> bool {
        let mut vendor = [0; 2];
        self.read_config(0, &mut vendor).is_ok() && vendor != [0xff; 2]
    }
}
