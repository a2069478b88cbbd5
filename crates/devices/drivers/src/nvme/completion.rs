//! Completion entries (Base 1.4, section 4.6), and checks of their fields.

use crate::nvme::status::Status;
use std::fmt;

/// A completion entry: 4 dwords as they lay in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Completion(pub [u32; 4]);

impl Completion {
    /// The command's result: dword 0.
    pub fn result(self) -> u32 {
        self.0[0]
    }

    /// The position up to which the controller has fetched submission entries.
    pub fn submission_head(self) -> u16 {
        self.0[2] as u16
    }

    pub fn submission_queue(self) -> u16 {
        (self.0[2] >> 16) as u16
    }

    pub fn id(self) -> u16 {
        self.0[3] as u16
    }

    pub fn phase(self) -> bool {
        self.0[3] >> 16 & 1 != 0
    }

    pub fn status(self) -> Status {
        Status::from_bits((self.0[3] >> 17) as u16)
    }
}

/// The bytes as dwords, first to last.
impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.0;
        write!(f, "{a:08x} {b:08x} {c:08x} {d:08x}")
    }
}

/// An impossible field of a completion entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lie {
    #[error("it names submission queue {0}, which does not complete here")]
    Queue(u16),
    #[error("it names command {0:#06x}, which no slot has")]
    UnknownCommand(u16),
    #[error("it names command {0:#06x}, which is not in flight (completed before, or never sent)")]
    NotInFlight(u16),
    #[error("its submission head is {0}, which is beyond the queue or its tail")]
    Head(u16),
    #[error("it completes command {0:#06x} before its entry was fetched")]
    NotFetched(u16),
    #[error("it changed while it was read")]
    Changed,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_entry_is_taken_apart() {
        let entry = Completion([7, 0, 3 << 16 | 0x21, 0x8101 << 16 | 0x42]);
        assert_eq!((entry.result(), entry.submission_queue(), entry.submission_head()), (7, 3, 0x21));
        assert_eq!((entry.id(), entry.phase(), entry.status().bits()), (0x42, true, 0x4080));
        assert_eq!(format!("{entry:?}"), "00000007 00000000 00030021 81010042");
    }

    proptest! {
        #[test]
        fn any_entry_is_read(words: [u32; 4]) {
            let entry = Completion(words);
            let text = format!("{entry:?} {} {}", entry.status(), entry.status().hint());
            prop_assert!(!text.is_empty());
        }
    }
}
