//! Which way requests take from one function to another.

use crate::address::Address;
use crate::function::Identity;
use crate::list::Listed;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// They turn round below this bridge, within a switch or a device.
    Switch { at: Address },
    /// They go over the root complex, from one of its ports to another.
    RootComplex,
    /// They go from one root complex to another: another socket, or another part of the same.
    RootComplexes,
}

impl Way {
    pub fn of(from: &Listed, to: &Listed) -> Way {
        match common(from, to).checked_sub(1) {
            Some(last) => Way::Switch { at: from.above[last] },
            None if from.host_bridge == to.host_bridge => Way::RootComplex,
            None => Way::RootComplexes,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Switch { at } => write!(f, "within the switch below {at}"),
            Way::RootComplex => write!(f, "over the root complex"),
            Way::RootComplexes => write!(f, "from one root complex to another"),
        }
    }
}

/// How many bridges the two have in common, from the root on.
pub(super) fn common(from: &Listed, to: &Listed) -> usize {
    if from.host_bridge != to.host_bridge {
        return 0;
    }
    from.above.iter().zip(&to.above).take_while(|(a, b)| a == b).count()
}

/// Intel's root complexes that are known to forward between their ports, by the device of their bus's function 00.0, and whether they
/// also forward to each other: those that Linux trusts (its list is `pci_p2pdma_whitelist`, kernel 6.12).
const INTEL: [(u16, bool); 10] = [
    (0x3c00, false),
    (0x3c01, false),
    (0x2f00, false),
    (0x2f01, false),
    (0x2020, true),
    (0x2030, true),
    (0x2031, true),
    (0x2032, true),
    (0x2033, true),
    (0x09a2, true),
];

/// What is known of a machine's root complexes.
pub(super) struct RootComplexes {
    /// AMD's since Zen, all of them.
    pub zen: bool,
}

impl RootComplexes {
    /// From /proc/cpuinfo.
    pub fn of(processor: &str) -> RootComplexes {
        let field = |name: &str| {
            let line = processor.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
            Some(line.split_once(':')?.1.trim())
        };
        let family = field("cpu family").and_then(|family| family.parse().ok()).unwrap_or(0u32);
        RootComplexes { zen: matches!(field("vendor_id"), Some("AuthenticAMD" | "HygonGenuine")) && family >= 0x17 }
    }

    /// A switch forwards between its ports. A root complex does so if it is known to; `bridges` are the functions 00.0 of the two root buses.
    pub fn forward(&self, way: Way, bridges: [Option<Identity>; 2]) -> bool {
        let intel = |bridge: &Option<Identity>| {
            let bridge = bridge.filter(|bridge| bridge.vendor == 0x8086)?;
            INTEL.iter().find(|(device, _)| *device == bridge.device).map(|(_, others)| *others)
        };
        match way {
            Way::Switch { .. } => true,
            Way::RootComplex => self.zen || intel(&bridges[0]).is_some(),
            Way::RootComplexes => self.zen || bridges.iter().all(|bridge| intel(bridge) == Some(true)),
        }
    }
}
