//! Semaphores: the methods' words.
//!
//! Rules as in GA100 `dev_pbdma`, NV_UDMA_SEM_EXECUTE. In memory a semaphore is a payload of 4 or 8 bytes, or 16 bytes: payload and nanoseconds.

use crate::header;

/// Byte offsets of the host's semaphore methods (class 0xC36F and later).
pub mod method {
    pub const SEMAPHORE_A: u16 = 0x10;
    pub const SEMAPHORE_B: u16 = 0x14;
    pub const SEMAPHORE_C: u16 = 0x18;
    pub const SEMAPHORE_D: u16 = 0x1c;
    pub const SEM_ADDR_LO: u16 = 0x5c;
    pub const SEM_ADDR_HI: u16 = 0x60;
    pub const SEM_PAYLOAD_LO: u16 = 0x64;
    pub const SEM_PAYLOAD_HI: u16 = 0x68;
    pub const SEM_EXECUTE: u16 = 0x6c;
}

/// An atomic operation on the semaphore in memory, whatever the engine calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduction {
    Min,
    Max,
    Xor,
    And,
    Or,
    Add,
    /// Up by one, to 0 above the payload.
    Inc,
    /// Down by one, to the payload from 0 or from above it.
    Dec,
    FloatAdd,
    FloatMin,
    FloatMax,
    Reserved(u8),
}

impl Reduction {
    /// REDUCTION of SEM_EXECUTE, SEMAPHORED and the copy engine's SEMAPHORE_REDUCTION.
    pub const fn host(code: u32) -> Reduction {
        match code {
            0 => Reduction::Min,
            1 => Reduction::Max,
            2 => Reduction::Xor,
            3 => Reduction::And,
            4 => Reduction::Or,
            5 => Reduction::Add,
            6 => Reduction::Inc,
            7 => Reduction::Dec,
            10 => Reduction::FloatAdd,
            11 => Reduction::FloatMin,
            12 => Reduction::FloatMax,
            other => Reduction::Reserved(other as u8),
        }
    }

    pub const fn host_code(self) -> u32 {
        match self {
            Reduction::Min => 0,
            Reduction::Max => 1,
            Reduction::Xor => 2,
            Reduction::And => 3,
            Reduction::Or => 4,
            Reduction::Add => 5,
            Reduction::Inc => 6,
            Reduction::Dec => 7,
            Reduction::FloatAdd => 10,
            Reduction::FloatMin => 11,
            Reduction::FloatMax => 12,
            Reduction::Reserved(code) => code as u32,
        }
    }

    /// REDUCTION_OP of compute and inline-to-memory classes and of the QMD, which number the same operations otherwise.
    pub const fn graphics(code: u32) -> Reduction {
        match code {
            0 => Reduction::Add,
            1 => Reduction::Min,
            2 => Reduction::Max,
            3 => Reduction::Inc,
            4 => Reduction::Dec,
            5 => Reduction::And,
            6 => Reduction::Or,
            7 => Reduction::Xor,
            other => Reduction::Reserved(other as u8),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Wait until memory equals the payload.
    Acquire,
    /// Write the payload.
    Release,
    /// Wait until memory is at least the payload, unsigned.
    AcquireStrictGeq,
    /// Wait until memory minus payload is not negative, as a signed number.
    AcquireCircGeq,
    /// Wait until memory AND payload is not 0.
    AcquireAnd,
    /// Wait until NOT (memory OR payload) is not 0.
    AcquireNor,
    /// Change memory atomically.
    Reduction {
        op: Reduction,
        signed: bool,
    },
    Reserved(u8),
}

impl Operation {
    pub const fn is_acquire(self) -> bool {
        matches!(
            self,
            Operation::Acquire
                | Operation::AcquireStrictGeq
                | Operation::AcquireCircGeq
                | Operation::AcquireAnd
                | Operation::AcquireNor
        )
    }
}

/// The word of SEM_EXECUTE (host class +0x6C).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Execute {
    pub operation: Operation,
    /// Let another channel group run while an acquire waits.
    pub switch_tsg: bool,
    /// Wait until the engine is idle before the release.
    pub wfi: bool,
    /// 64-bit payload.
    pub wide: bool,
    /// Write 16 bytes: payload and time.
    pub timestamp: bool,
    /// All bits without a meaning for this operation, in their places.
    pub rest: u32,
}

const OPERATION: u32 = 7;
const SWITCH_TSG: u32 = 1 << 12;
const WFI: u32 = 1 << 20;
const WIDE: u32 = 1 << 24;
const RELEASE_TIMESTAMP: u32 = 1 << 25;
const REDUCTION: u32 = 0xf << 27;
const UNSIGNED: u32 = 1 << 31;

/// True if a segment waits for a semaphore of the host (SEM_EXECUTE).
pub fn acquires(length: usize, word: impl Fn(usize) -> u32) -> bool {
    header::writes(length, word, method::SEM_EXECUTE, |value| Execute::parse(value).operation.is_acquire())
}

impl Execute {
    /// A plain release: 32-bit payload, no timestamp, no wait.
    pub const RELEASE: Execute = Execute {
        operation: Operation::Release,
        switch_tsg: false,
        wfi: false,
        wide: false,
        timestamp: false,
        rest: 0,
    };

    /// A wait until a word that counts up, and may wrap, has come to a 32-bit payload. No other channel group runs during the wait.
    pub const WAIT: Execute = Execute { operation: Operation::AcquireCircGeq, ..Execute::RELEASE };

    /// As [`Execute::WAIT`], but other channel groups may run during the wait (ACQUIRE_SWITCH_TSG).
    pub const WAIT_AND_SWITCH: Execute = Execute { switch_tsg: true, ..Execute::WAIT };

    /// `parse` and `encode` are inverse for every word.
    pub const fn parse(word: u32) -> Execute {
        let mut meaning = OPERATION | SWITCH_TSG | WFI | WIDE | RELEASE_TIMESTAMP;
        let operation = match word & OPERATION {
            0 => Operation::Acquire,
            1 => Operation::Release,
            2 => Operation::AcquireStrictGeq,
            3 => Operation::AcquireCircGeq,
            4 => Operation::AcquireAnd,
            5 => Operation::AcquireNor,
            6 => {
                meaning |= REDUCTION | UNSIGNED;
                Operation::Reduction { op: Reduction::host((word & REDUCTION) >> 27), signed: word & UNSIGNED == 0 }
            }
            other => Operation::Reserved(other as u8),
        };
        Execute {
            operation,
            switch_tsg: word & SWITCH_TSG != 0,
            wfi: word & WFI != 0,
            wide: word & WIDE != 0,
            timestamp: word & RELEASE_TIMESTAMP != 0,
            rest: word & !meaning,
        }
    }

    pub const fn encode(&self) -> u32 {
        let operation = match self.operation {
            Operation::Acquire => 0,
            Operation::Release => 1,
            Operation::AcquireStrictGeq => 2,
            Operation::AcquireCircGeq => 3,
            Operation::AcquireAnd => 4,
            Operation::AcquireNor => 5,
            Operation::Reduction { op, signed } => {
                6 | (op.host_code() << 27 & REDUCTION) | if signed { 0 } else { UNSIGNED }
            }
            Operation::Reserved(code) => code as u32 & OPERATION,
        };
        operation
            | if self.switch_tsg { SWITCH_TSG } else { 0 }
            | if self.wfi { WFI } else { 0 }
            | if self.wide { WIDE } else { 0 }
            | if self.timestamp { RELEASE_TIMESTAMP } else { 0 }
            | self.rest
    }

    /// The alignment in bytes that the host requires of the address; it faults otherwise.
    pub const fn alignment(&self) -> u64 {
        if self.timestamp && !self.operation.is_acquire() {
            16
        } else if self.wide {
            8
        } else {
            4
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_timed_release_of_an_event_record() {
        let execute = Execute { wfi: true, wide: true, timestamp: true, ..Execute::RELEASE };
        assert_eq!(execute.encode(), 0x0310_0001);
        assert_eq!(execute.alignment(), 16);
        assert_eq!(Execute::parse(0x0310_0001), execute);
    }

    proptest! {
        #[test]
        fn encode_is_the_inverse_of_parse(word: u32) {
            prop_assert_eq!(Execute::parse(word).encode(), word);
        }
    }
}
