//! The semaphores that a QMD releases when its kernel has run.

use super::channel::Channel;
use super::semaphore::{self, Reduction, Shape};
use super::{Fault, Runlists};
use crate::counters::add;

/// The bit offsets of one release semaphore in a QMD.
#[derive(Debug)]
pub struct Release {
    enable: usize,
    size: usize,
    /// RELEASE_REDUCTION_ENABLE. (Version 3 is only used without.)
    reduction: Option<usize>,
    payload64: usize,
    address: usize,
    upper_bits: usize,
    payload: usize,
}

/// QMDV03_00: RELEASEn_ENABLE, _STRUCTURE_SIZE, _PAYLOAD64B, _ADDRESS_LOWER, _PAYLOAD_LOWER.
pub const V03: [Release; 3] = [
    Release { enable: 823, size: 830, reduction: None, payload64: 829, address: 768, upper_bits: 8, payload: 832 },
    Release { enable: 951, size: 958, reduction: None, payload64: 957, address: 896, upper_bits: 8, payload: 960 },
    Release { enable: 1719, size: 1726, reduction: None, payload64: 1725, address: 1664, upper_bits: 8, payload: 1728 },
];

/// QMDV04_00: RELEASE_ENABLE(i), RELEASE_STRUCTURE_SIZE(i), RELEASE_PAYLOAD64B(i), RELEASE_SEMAPHOREi_ADDR, _PAYLOAD.
pub const V04: [Release; 3] = [v04(0), v04(1), v04(2)];

const fn v04(i: usize) -> Release {
    let enable = 320 + 16 * i;
    let (address, payload) = (640 + 128 * i, 704 + 128 * i);
    Release {
        enable,
        size: enable + 1,
        reduction: Some(enable + 4),
        payload64: enable + 12,
        address,
        upper_bits: 25,
        payload,
    }
}

/// Releases all semaphores of a QMD, the first one last: a program waits for that one, and may end at once. This GPU ends with it, in the
/// middle of a kernel's end, which a real GPU does not.
pub(super) fn run(words: &[u32], releases: &[Release], channel: &Channel, gpu: &Runlists) -> Result<(), Fault> {
    for at in releases.iter().rev().filter(|at| bits(words, at.enable, 1) != 0) {
        if !gpu.plot.releases_of_qmd() {
            continue;
        }
        let va = bits(words, at.address, 32) | bits(words, at.address + 32, at.upper_bits) << 32;
        let payload = bits(words, at.payload, 32) | bits(words, at.payload + 32, 32) << 32;
        let size = bits(words, at.size, 2);
        let shape = shape(size as u32, bits(words, at.payload64, 1) != 0)
            .ok_or(Fault::engine("QMD release structure size", size))?;
        match at.reduction.filter(|reduction| bits(words, *reduction, 1) != 0) {
            // REDUCTION_OP follows ENABLE, then FORMAT.
            Some(reduction) => {
                let op = bits(words, reduction + 1, 3);
                let op = Reduction::of_engine(op as u32).ok_or(Fault::engine("QMD REDUCTION_OP", op))?;
                let signed = bits(words, reduction + 4, 2) == 1;
                semaphore::reduce(gpu, &channel.space, va, payload, shape, op, signed)?;
            }
            None => semaphore::release(gpu, &channel.space, va, payload, shape)?,
        }
        add(&gpu.counters.releases, 1);
    }
    Ok(())
}

/// SEMAPHORE_FOUR_WORDS 0, ONE_WORD 1, TWO_WORDS 2.
pub(super) fn shape(size: u32, payload64: bool) -> Option<Shape> {
    match size {
        0 => Some(Shape::FourWords { payload64 }),
        1 => Some(Shape::OneWord),
        2 => Some(Shape::TwoWords),
        _ => None,
    }
}

/// A field within one word.
fn bits(words: &[u32], at: usize, count: usize) -> u64 {
    let word = words.get(at / 32).copied().unwrap_or(0);
    u64::from(word >> (at % 32)) & (u64::MAX >> (64 - count))
}
