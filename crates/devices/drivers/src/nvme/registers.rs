//! A controller's registers (Base 1.4, section 3.1).

use std::time::Duration;

pub const CAP: u64 = 0x00;
pub const VS: u64 = 0x08;
/// Interrupt mask set: interrupts are not used here.
pub const INTMS: u64 = 0x0c;
pub const CC: u64 = 0x14;
pub const CSTS: u64 = 0x1c;
pub const AQA: u64 = 0x24;
pub const ASQ: u64 = 0x28;
pub const ACQ: u64 = 0x30;
/// Where the doorbells begin (section 3.1.24).
pub const DOORBELLS: u64 = 0x1000;

/// The result of a load if no device answers.
pub const NOTHING: u32 = u32::MAX;

/// Controller Ready Timeouts.
pub const CRTO: u64 = 0x68;

/// The smallest memory page, and the only size that is used here.
pub const PAGE: u64 = 4096;

/// Controller Capabilities (section 3.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// Entries of the longest I/O queue.
    pub fn queue_entries(self) -> u32 {
        (self.0 as u32 & 0xffff) + 1
    }

    /// The longest time until CSTS.RDY follows CC.EN.
    pub fn ready_limit(self) -> Duration {
        Duration::from_millis(500) * (self.0 >> 24 & 0xff).max(1) as u32
    }

    /// The same for a controller with a register for it (CRMS, bit 59, and CRTO, Base 2.0, section 3.1.4.22): CAP.TO has too few bits then.
    pub fn ready_limit_by(self, crto: u32) -> Duration {
        let by_register = Duration::from_millis(500) * (crto & 0xffff);
        if self.0 >> 59 & 1 == 0 || crto == NOTHING { self.ready_limit() } else { self.ready_limit().max(by_register) }
    }

    /// Bytes from one doorbell to the next.
    pub fn doorbell_stride(self) -> u64 {
        4 << (self.0 >> 32 & 0xf)
    }

    /// The smallest page that it takes, in bytes.
    pub fn smallest_page(self) -> u64 {
        PAGE << (self.0 >> 48 & 0xf)
    }

    /// It has the NVM command set.
    pub fn has_nvm_commands(self) -> bool {
        self.0 >> 37 & 1 != 0
    }

    /// The offset of the doorbell of a submission queue's tail.
    pub fn tail_doorbell(self, queue: u16) -> u64 {
        DOORBELLS + 2 * u64::from(queue) * self.doorbell_stride()
    }

    /// The offset of the doorbell of a completion queue's head.
    pub fn head_doorbell(self, queue: u16) -> u64 {
        DOORBELLS + (2 * u64::from(queue) + 1) * self.doorbell_stride()
    }
}

/// Version (section 3.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32);

impl Version {
    pub const V1_1: Version = Version(0x0001_0100);
    pub const V1_3: Version = Version(0x0001_0300);
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.0 >> 16, self.0 >> 8 & 0xff, self.0 & 0xff)
    }
}

/// Controller Configuration (section 3.1.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration(pub u32);

impl Configuration {
    /// Enabled, NVM commands, pages of 4 KiB, round robin, submission entries of 64 B and completion entries of 16 B.
    pub const ENABLED: Configuration = Configuration(1 | 6 << 16 | 4 << 20);

    pub fn is_enabled(self) -> bool {
        self.0 & 1 != 0
    }

    pub fn disabled(self) -> Configuration {
        Configuration(self.0 & !1)
    }

    /// With a normal shutdown notification.
    pub fn shutting_down(self) -> Configuration {
        Configuration(self.0 & !(3 << 14) | 1 << 14)
    }
}

/// Controller Status (section 3.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State(pub u32);

impl State {
    pub fn is_ready(self) -> bool {
        self.0 & 1 != 0
    }

    /// CFS: it needs a reset to continue.
    pub fn is_fatal(self) -> bool {
        self.0 & 2 != 0
    }

    /// SHST: shutdown processing is complete.
    pub fn is_shut_down(self) -> bool {
        self.0 >> 2 & 3 == 2
    }

    /// No device answers. (All ones are no status: SHST 3h is reserved.)
    pub fn is_nothing(self) -> bool {
        self.0 == NOTHING
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_of_qemu_are_understood() {
        // QEMU 7.2: 2048 entries, contiguous queues, 7.5 s, pages up to 64 KiB.
        let cap = Capabilities(0x0040_0020_0f01_07ff);
        assert_eq!(cap.queue_entries(), 2048);
        assert_eq!(cap.ready_limit(), Duration::from_millis(7500));
        assert_eq!(cap.ready_limit_by(600), Duration::from_millis(7500), "it has no such register");
        assert_eq!(Capabilities(cap.0 | 1 << 59).ready_limit_by(600), Duration::from_secs(300));
        assert_eq!((cap.doorbell_stride(), cap.smallest_page()), (4, 4096));
        assert!(cap.has_nvm_commands());
        assert_eq!((cap.tail_doorbell(0), cap.head_doorbell(0)), (0x1000, 0x1004));
        assert_eq!((cap.tail_doorbell(3), cap.head_doorbell(3)), (0x1018, 0x101c));
        let apart = Capabilities(2 << 32);
        assert_eq!((apart.tail_doorbell(1), apart.head_doorbell(1)), (0x1020, 0x1030));
        assert_eq!(Version(0x0001_0400).to_string(), "1.4.0");
    }

    proptest! {
        #[test]
        fn any_registers_are_read_without_panic(cap: u64, csts: u32, queue: u16) {
            let cap = Capabilities(cap);
            prop_assert!(cap.queue_entries() >= 1 && cap.ready_limit() >= Duration::from_millis(500));
            prop_assert!(cap.head_doorbell(queue) - cap.tail_doorbell(queue) == cap.doorbell_stride());
            prop_assert!(cap.smallest_page() >= PAGE);
            let _ = (State(csts).is_ready(), State(csts).is_shut_down());
        }
    }
}
