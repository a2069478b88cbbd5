//! A PCI function from a driver's view.

use crate::address::Address;
use crate::bar::Bar;
use crate::error::Error;
use crate::identity::{COMMAND, MASTER, MEMORY};
use crate::memory::{Memory, Peer};
use environment::config_space::Config;

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

/// One PCI function, opened by a driver. Its registers are usable. Its DMA is off until [`Function::master`], because its registers may still hold
/// addresses of memory that has another owner by now. On drop the earlier state (memory decoding, a kernel driver) is restored, and its DMA is off
/// again.
pub trait Function: Send {
    fn identity(&self) -> Identity;

    /// It is emulated: it shows that a driver works, but its times have no meaning.
    fn is_functional(&self) -> bool;

    /// Configuration space, from `offset` on. A function that is gone reads as ones.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::System`].
    fn read_config(&self, offset: u16, into: &mut [u8]) -> Result<(), Error>;

    /// # Errors
    /// As [`Function::read_config`].
    fn write_config(&self, offset: u16, from: &[u8]) -> Result<(), Error>;

    /// The place of a capability in configuration space; none if it has no such capability.
    ///
    /// # Errors
    /// As [`Function::read_config`].
    fn capability(&self, wanted: u8) -> Result<Option<u16>, Error> {
        let mut bytes = [0; 256];
        self.read_config(0, &mut bytes)?;
        Ok(Config::of(&bytes).capability(wanted).ok().map(|at| at as u16))
    }

    /// BAR 0 to 5, whole.
    ///
    /// # Errors
    /// [`Error::NoBar`].
    fn bar(&self, index: u8) -> Result<Bar, Error>;

    /// Host memory that the CPU and the function reach, zeroed, from a page's begin on. It uses huge pages if there are some.
    ///
    /// # Errors
    /// [`Error::System`], [`Error::Unreachable`].
    fn allocate(&self, bytes: u64) -> Result<Memory, Error>;

    /// Another device's memory, as the function reaches it.
    ///
    /// # Errors
    /// [`Error::Unreachable`], with the obstacle between the two.
    fn reach(&self, peer: &Peer) -> Result<Memory, Error>;

    /// Lets the function master the bus: its DMA works from here on. Only for a driver that has stopped all earlier activity of the function.
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

    /// The function's own reset (FLR, or another reset that the bus supports). Its registers are then as after power-on.
    ///
    /// # Errors
    /// [`Error::Refused`] where it has none.
    fn reset(&self) -> Result<(), Error>;

    /// Call this before drop if the driver could not stop the function: it may still write to its memory. That memory then stays until this process
    /// has ended, and until the restorer has stopped the function.
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
