//! Semaphores: how each engine writes one, and the arithmetic of reductions.

use super::{Fault, Runlists};
use crate::space::AddressSpace;
use crate::sys;

/// The layout of the value that is written at the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// 4 bytes.
    OneWord,
    /// 8 bytes.
    TwoWords,
    /// Payload (4 bytes, upper half zero, or 8) and at +8 the time in nanoseconds.
    FourWords { payload64: bool },
}

impl Shape {
    fn payload64(self) -> bool {
        matches!(self, Shape::TwoWords | Shape::FourWords { payload64: true })
    }

    fn alignment(self) -> u64 {
        match self {
            Shape::OneWord => 4,
            Shape::TwoWords => 8,
            Shape::FourWords { .. } => 16,
        }
    }
}

/// Writes a semaphore. The time is written first, so a reader that sees the payload also sees the time.
pub fn release(gpu: &Runlists, space: &AddressSpace, va: u64, payload: u64, shape: Shape) -> Result<(), Fault> {
    if !va.is_multiple_of(shape.alignment()) {
        return Err(Fault::pbdma("semaphore address not aligned", va));
    }
    if !gpu.plot.releases() {
        return Ok(());
    }
    if let Shape::FourWords { .. } = shape {
        space.write_u64(va + 8, gpu.plot.timestamp(sys::gpu_clock()))?;
    }
    match shape {
        Shape::OneWord => space.write_u32(va, payload as u32),
        Shape::FourWords { payload64: false } => {
            space.write_u32(va + 4, 0)?;
            space.write_u32(va, payload as u32)
        }
        Shape::TwoWords | Shape::FourWords { payload64: true } => space.write_u64(va, payload),
    }
}

/// Reads, combines, writes back.
pub fn reduce(
    gpu: &Runlists,
    space: &AddressSpace,
    va: u64,
    payload: u64,
    shape: Shape,
    op: Reduction,
    signed: bool,
) -> Result<(), Fault> {
    if !va.is_multiple_of(shape.alignment()) {
        return Err(Fault::pbdma("semaphore address not aligned", va));
    }
    if !gpu.plot.releases() {
        return Ok(());
    }
    let old = if shape.payload64() { space.read_u64(va)? } else { space.read_u32(va)?.into() };
    let bits = if shape.payload64() { 64 } else { 32 };
    if let Shape::FourWords { .. } = shape {
        space.write_u64(va + 8, gpu.plot.timestamp(sys::gpu_clock()))?;
    }
    let new = op.apply(old, payload, signed, bits);
    if shape.payload64() { space.write_u64(va, new) } else { space.write_u32(va, new as u32) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    Min,
    Max,
    Xor,
    And,
    Or,
    Add,
    Inc,
    Dec,
}

impl Reduction {
    /// Numbering of the host (SEM_EXECUTE REDUCTION) and of the copy engine (SEMAPHORE_REDUCTION).
    pub fn of_host(op: u32) -> Option<Reduction> {
        use Reduction::{Add, And, Dec, Inc, Max, Min, Or, Xor};
        [Min, Max, Xor, And, Or, Add, Inc, Dec].get(op as usize).copied()
    }

    /// Numbering of compute and inline-to-memory (REDUCTION_OP).
    pub fn of_engine(op: u32) -> Option<Reduction> {
        use Reduction::{Add, And, Dec, Inc, Max, Min, Or, Xor};
        [Add, Min, Max, Inc, Dec, And, Or, Xor].get(op as usize).copied()
    }

    /// INC wraps to 0 above the payload, DEC wraps to the payload below 0 (GA100 `dev_pbdma`).
    pub fn apply(self, old: u64, payload: u64, signed: bool, bits: u32) -> u64 {
        let mask = u64::MAX >> (64 - bits);
        let (old, payload) = (old & mask, payload & mask);
        let extend = |v: u64| (v << (64 - bits)) as i64 >> (64 - bits);
        let less = if signed { extend(old) < extend(payload) } else { old < payload };
        let new = match self {
            Reduction::Min => {
                if less {
                    old
                } else {
                    payload
                }
            }
            Reduction::Max => {
                if less {
                    payload
                } else {
                    old
                }
            }
            Reduction::Xor => old ^ payload,
            Reduction::And => old & payload,
            Reduction::Or => old | payload,
            Reduction::Add => old.wrapping_add(payload),
            Reduction::Inc => {
                if old >= payload {
                    0
                } else {
                    old + 1
                }
            }
            Reduction::Dec => {
                if old == 0 || old > payload {
                    payload
                } else {
                    old - 1
                }
            }
        };
        new & mask
    }
}
