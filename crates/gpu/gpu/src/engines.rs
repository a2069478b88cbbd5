//! A device's copy engines: which exist, what each can do, and the physical engines that it uses.

use crate::device::Device;
use rm::abi::control::{CE_ALL_CAPS, CE_PCE_MASK, CeAllCaps, CePceMask, STATIC_BAR1_INFO, StaticBar1Info, ce_caps};
use rm::abi::{Plain, Shape};
use rm::class::engine;
use rm::driver::{self, RmError};
use std::fmt;

/// The capabilities of a copy engine: bits of [`ce_caps`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct CopyCaps(pub u16);

impl CopyCaps {
    /// True if all of `bits` are set.
    pub fn has(self, bits: u16) -> bool {
        self.0 & bits == bits
    }

    /// Names of the set bits, as in the driver's headers; bits without a name are in `unnamed`.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        ce_caps::NAMES.into_iter().filter(move |(bit, _)| self.has(*bit)).map(|(_, name)| name)
    }

    /// Bits that have no name in any header known here.
    pub fn unnamed(self) -> u16 {
        ce_caps::NAMES.iter().fold(self.0, |rest, (bit, _)| rest & !bit)
    }
}

impl fmt::Display for CopyCaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for name in self.names() {
            write!(f, "{between}{name}")?;
            between = " | ";
        }
        match self.unnamed() {
            0 if between.is_empty() => f.write_str("none"),
            0 => Ok(()),
            rest => write!(f, "{between}{rest:#06x}"),
        }
    }
}

impl fmt::Debug for CopyCaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CopyCaps({self})")
    }
}

/// A copy engine that this client may use.
#[derive(Debug)]
pub struct CopyEngine {
    /// n of `ceN`: the logical copy engine, [`crate::Engine::Copy`].
    pub number: u32,
    pub caps: CopyCaps,
    /// Mask of the physical engines that it uses, counted within their shim (one shim up to Hopper). The error is the driver's,
    /// if it does not report them.
    pub physical: Result<u32, RmError>,
}

impl CopyEngine {
    /// It runs on graphics' runlist, in step with kernels and graphics.
    pub fn is_graphics(&self) -> bool {
        self.caps.has(ce_caps::GRCE)
    }

    /// It runs independently of kernels.
    pub fn is_asynchronous(&self) -> bool {
        !self.is_graphics()
    }

    /// True if both use a common physical engine; `None` if the driver does not report them.
    pub fn shares_with(&self, other: &CopyEngine) -> Option<bool> {
        match (&self.physical, &other.physical) {
            (Ok(ours), Ok(theirs)) => Some(ours & theirs != 0),
            _ => None,
        }
    }
}

/// The asynchronous engines, the best for doorbell's copies first.
///
/// The engine with the lowest number is last. The kernel driver clears memory with it, so allocations and frees of any program
/// use it (`ceutilsGetFirstAsyncCe` in ce_utils.c of NVIDIA's open kernel modules). Channels of one runlist wait for each
/// other's time slices, 1.024 ms each (`kfifoChannelGroupGetDefaultTimeslice_GV100`): while a thread allocated device memory,
/// half of the copies of 4 KiB took 1.06 ms on that engine of an H200.
pub fn asynchronous(engines: &[CopyEngine]) -> Vec<&CopyEngine> {
    let mut all: Vec<&CopyEngine> = engines.iter().filter(|engine| engine.is_asynchronous()).collect();
    all.sort_by_key(|engine| engine.number);
    if !all.is_empty() {
        all.rotate_left(1);
    }
    all
}

impl Device {
    /// The existing copy engines, by number, from NV2080_CTRL_CMD_CE_GET_ALL_CAPS and NV2080_CTRL_CMD_CE_GET_CE_PCE_MASK, which
    /// the driver answers for any client.
    ///
    /// # Errors
    /// The control and its status, if the driver does not list the engines.
    pub fn engines(&self) -> Result<Vec<CopyEngine>, RmError> {
        let mut all = CeAllCaps::default();
        self.control(CE_ALL_CAPS, &self.abi.branch().layouts.ce_all_caps, &mut all)?;
        Ok(present(&all)
            .map(|(number, caps)| CopyEngine { number, caps, physical: self.physical_engines(number) })
            .collect())
    }

    fn physical_engines(&self, number: u32) -> Result<u32, RmError> {
        let engine_type = engine::copy(number).ok_or(RmError::Answer {
            operation: "NV2080_CTRL_CMD_CE_GET_ALL_CAPS",
            what: "a copy engine beyond those that NV2080_ENGINE_TYPE numbers",
        })?;
        let mut params = CePceMask { engine_type, mask: 0 };
        self.control(CE_PCE_MASK, &Shape::whole(), &mut params)?;
        Ok(params.mask)
    }

    /// True if BAR1 maps all GPU memory in physical order. Drivers without this control have no such mode.
    pub(crate) fn static_bar1(&self) -> Result<bool, RmError> {
        let shape = &self.abi.branch().layouts.static_bar1;
        if shape.size() == 0 {
            return Ok(false);
        }
        let mut params = StaticBar1Info::default();
        self.control(STATIC_BAR1_INFO, shape, &mut params)?;
        Ok(params.enabled != 0)
    }

    /// A control of the subdevice whose parameters have no pointers: the commands of this file.
    fn control<T: Plain>(&self, command: u32, shape: &Shape<T>, params: &mut T) -> Result<(), RmError> {
        // SAFETY: the parameters have no pointers.
        unsafe { driver::control_shaped(&*self.driver, self.ctl, self.client, self.subdevice, command, shape, params) }
    }
}

/// Number and capabilities of each engine that is marked present.
fn present(all: &CeAllCaps) -> impl Iterator<Item = (u32, CopyCaps)> {
    let present = all.present;
    let caps = all.caps.iter().map(|bytes| CopyCaps(u16::from_le_bytes(*bytes)));
    (0u32..).zip(caps).filter(move |(number, _)| present >> number & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_engine_that_the_kernel_driver_uses_comes_last() {
        let engine = |number, caps| CopyEngine { number, caps: CopyCaps(caps), physical: Ok(1 << number) };
        let all = [0, 1, 2, 3, 4].map(|n| engine(n, if n < 2 { ce_caps::GRCE } else { 0 }));
        let numbers = |engines: &[CopyEngine]| asynchronous(engines).iter().map(|e| e.number).collect::<Vec<_>>();
        assert_eq!(numbers(&all), [3, 4, 2]);
        assert_eq!(numbers(&all[..3]), [2]);
        assert!(numbers(&all[..2]).is_empty() && numbers(&[]).is_empty());
    }

    #[test]
    fn capabilities_are_named_as_in_the_headers() {
        assert_eq!(CopyCaps(0).to_string(), "none");
        assert_eq!(CopyCaps(0x0223).to_string(), "GRCE | SHARED | SYSMEM | SUPPORTS_PIPELINED_BL");
        assert_eq!(CopyCaps(0x9001).to_string(), "GRCE | 0x9000");
    }

    proptest! {
        #[test]
        fn any_answer_gives_the_engines_that_it_marks(bytes in proptest::collection::vec(any::<u8>(), 136)) {
            let all = CeAllCaps::read(&bytes).unwrap();
            let engines: Vec<_> = present(&all).collect();
            prop_assert_eq!(engines.len(), all.present.count_ones() as usize);
            for (number, caps) in engines {
                prop_assert_eq!(all.present >> number & 1, 1);
                prop_assert_eq!(caps.0.to_le_bytes(), [bytes[number as usize * 2], bytes[number as usize * 2 + 1]]);
                let named = ce_caps::NAMES.iter().filter(|(bit, _)| caps.has(*bit)).fold(0, |all, (bit, _)| all | bit);
                prop_assert_eq!(named | caps.unnamed(), caps.0);
                prop_assert_eq!(caps.to_string().is_empty(), false);
            }
        }
    }
}
