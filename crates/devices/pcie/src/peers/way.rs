//! The route of requests from one function to another.

use crate::address::Address;
use crate::function::Identity;
use crate::list::Listed;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Within the switch (or device) below this bridge.
    Switch { at: Address },
    /// From one port of the root complex to another.
    RootComplex,
    /// From one root complex to another: another socket, or another part of the same one.
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

/// Number of bridges above both, from the root on.
pub(super) fn common(from: &Listed, to: &Listed) -> usize {
    if from.host_bridge != to.host_bridge {
        return 0;
    }
    from.above.iter().zip(&to.above).take_while(|(a, b)| a == b).count()
}

/// Intel root complexes that forward between their ports, by the device id of the root bus's first function, and whether they also forward to each other.
/// These are the ones that Linux trusts (`pci_p2pdma_whitelist`, kernel 6.12).
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

/// Facts about the machine's root complexes.
pub(super) struct RootComplexes {
    /// AMD Zen or later: all forward.
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

    /// Whether requests are known to be forwarded. Switches always do. `bridges` are the functions 00.0 of the two root buses.
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
