//! Semaphores: the methods' words, the condition of an acquire, and the memory contents after a release.
//!
//! Rules as in GA100 `dev_pbdma`, NV_UDMA_SEM_EXECUTE. In memory a semaphore is a payload of 4 or 8 bytes, or 16 bytes: payload and nanoseconds.

use crate::header;

/// Offset of the payload in a 16-byte semaphore.
pub const PAYLOAD: usize = 0;
/// Offset of the 64-bit nanosecond timestamp in a 16-byte semaphore.
pub const TIMESTAMP: usize = 8;
/// Bytes of a semaphore with timestamp, and its alignment.
pub const SIZE: usize = 16;

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

    /// The value that the operation leaves in memory. `None` for what the host refuses (64-bit INC and DEC, signed 64-bit ADD, signed INC and DEC,
    /// floating point, reserved).
    pub fn apply(self, memory: u64, payload: u64, wide: bool, signed: bool) -> Option<u64> {
        let keep = if wide { u64::MAX } else { u64::from(u32::MAX) };
        let (m, p) = (memory & keep, payload & keep);
        let extend = |v: u64| if wide { v as i64 } else { i64::from(v as u32 as i32) };
        let less = if signed { extend(m) < extend(p) } else { m < p };
        let value = match self {
            Reduction::Min => {
                if less {
                    m
                } else {
                    p
                }
            }
            Reduction::Max => {
                if less {
                    p
                } else {
                    m
                }
            }
            Reduction::Xor => m ^ p,
            Reduction::And => m & p,
            Reduction::Or => m | p,
            Reduction::Add if wide && signed => return None,
            Reduction::Add => m.wrapping_add(p),
            Reduction::Inc | Reduction::Dec if wide || signed => return None,
            Reduction::Inc if m >= p => 0,
            Reduction::Inc => m + 1,
            Reduction::Dec if m == 0 || m > p => p,
            Reduction::Dec => m - 1,
            Reduction::FloatAdd | Reduction::FloatMin | Reduction::FloatMax | Reduction::Reserved(_) => return None,
        };
        Some(value & keep)
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

    /// Whether an acquire succeeds on this value of memory; `None` if this is no acquire.
    pub fn satisfied(self, memory: u64, payload: u64, wide: bool) -> Option<bool> {
        let keep = if wide { u64::MAX } else { u64::from(u32::MAX) };
        let (m, p) = (memory & keep, payload & keep);
        Some(match self {
            Operation::Acquire => m == p,
            Operation::AcquireStrictGeq => m >= p,
            Operation::AcquireCircGeq if wide => m.wrapping_sub(p) as i64 >= 0,
            Operation::AcquireCircGeq => (m as u32).wrapping_sub(p as u32) as i32 >= 0,
            Operation::AcquireAnd => m & p != 0,
            Operation::AcquireNor => !(m | p) & keep != 0,
            Operation::Release | Operation::Reduction { .. } | Operation::Reserved(_) => return None,
        })
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

/// What a release leaves in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamped {
    pub payload: u64,
    /// The GPU's clock in nanoseconds.
    pub timestamp: u64,
}

impl Stamped {
    pub fn from_bytes(bytes: &[u8; SIZE]) -> Stamped {
        let word = u128::from_le_bytes(*bytes);
        Stamped { payload: word as u64, timestamp: (word >> 64) as u64 }
    }

    /// A 32-bit payload has zeros in bytes 4 to 7.
    pub fn to_bytes(self) -> [u8; SIZE] {
        (u128::from(self.payload) | u128::from(self.timestamp) << 64).to_le_bytes()
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

    #[test]
    fn acquires_compare_as_in_the_manual() {
        use Operation::*;
        assert_eq!(Acquire.satisfied(0x1_0000_0005, 5, false), Some(true));
        assert_eq!(Acquire.satisfied(0x1_0000_0005, 5, true), Some(false));
        assert_eq!(AcquireStrictGeq.satisfied(4, 5, false), Some(false));
        assert_eq!(AcquireStrictGeq.satisfied(0xffff_fffe, 2, false), Some(true));
        assert_eq!(AcquireCircGeq.satisfied(0xffff_fffe, 2, false), Some(false));
        assert_eq!(AcquireCircGeq.satisfied(2, 0xffff_fffe, false), Some(true));
        assert_eq!(AcquireCircGeq.satisfied(2, u64::MAX - 1, true), Some(true));
        assert_eq!(AcquireAnd.satisfied(6, 1, false), Some(false));
        assert_eq!(AcquireAnd.satisfied(6, 2, false), Some(true));
        assert_eq!(AcquireNor.satisfied(0xffff_0000, 0x0000_ffff, false), Some(false));
        assert_eq!(AcquireNor.satisfied(0xffff_0000, 0x0000_ffff, true), Some(true));
        assert_eq!(Release.satisfied(0, 0, false), None);
    }

    #[test]
    fn reductions_compute_as_in_the_manual() {
        use Reduction::*;
        assert_eq!(Min.apply(0xffff_ffff, 1, false, true), Some(0xffff_ffff));
        assert_eq!(Min.apply(0xffff_ffff, 1, false, false), Some(1));
        assert_eq!(Max.apply(3, 7, true, false), Some(7));
        assert_eq!(Add.apply(0xffff_ffff, 2, false, false), Some(1));
        assert_eq!(Add.apply(1, 2, true, true), None);
        assert_eq!(Inc.apply(5, 5, false, false), Some(0));
        assert_eq!(Inc.apply(4, 5, false, false), Some(5));
        assert_eq!(Dec.apply(0, 5, false, false), Some(5));
        assert_eq!(Dec.apply(9, 5, false, false), Some(5));
        assert_eq!(Dec.apply(3, 5, false, false), Some(2));
        assert_eq!(Inc.apply(4, 5, true, false), None);
        assert_eq!((Xor.apply(6, 3, false, false), And.apply(6, 3, false, false)), (Some(5), Some(2)));
        assert_eq!(Or.apply(6, 3, false, false), Some(7));
    }

    #[test]
    fn sixteen_bytes_in_memory() {
        let stamped = Stamped { payload: 0x1122_3344, timestamp: 0x0102_0304_0506_0708 };
        let bytes = stamped.to_bytes();
        assert_eq!(bytes[PAYLOAD..PAYLOAD + 8], [0x44, 0x33, 0x22, 0x11, 0, 0, 0, 0]);
        assert_eq!(bytes[TIMESTAMP], 8);
        assert_eq!(Stamped::from_bytes(&bytes), stamped);
    }

    proptest! {
        #[test]
        fn encode_is_the_inverse_of_parse(word: u32) {
            prop_assert_eq!(Execute::parse(word).encode(), word);
        }
    }
}
