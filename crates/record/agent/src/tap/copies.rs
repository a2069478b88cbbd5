//! Times of copies and fills: the GPU gets a copy of the segment ([`super::segments`]) in which each transfer of the copy engine stores its begin and its end.

use super::{segments, stamps};
use crate::process::sys;
use crate::record;
use pushbuf::copy_times::{self, MORE};
use pushbuf::gpfifo::Raw;
use tape::region::Control;
use tape::stamp::{CopiedBody, kind, payload};

/// Maximum words of such a segment. CUDA 13's have some 20.
const SHORT: usize = 512;

/// If a segment moves data with the copy engine: the GPFIFO entry of a copy that has its times stored. `entry`: the
/// channel's slot, and the entry's number.
#[inline(never)]
pub fn timed(
    length: usize,
    word: impl Fn(usize) -> u32,
    gp: Raw,
    (slot, entry): (u32, u64),
    c: &Control,
) -> Option<Raw> {
    if length > SHORT {
        return None;
    }
    let transfers = copy_times::transfers(length, &word).filter(|n| *n > 0)?;
    segments::copy(gp, length + MORE * transfers as usize, 2 * u64::from(transfers), c, |to, number| {
        let mut next = number;
        let mut one = || {
            next += 1;
            (stamps::slot(next - 1), payload(next - 1))
        };
        copy_times::write(length, &word, || [one(), one()], |w| to.put(w));
        record::event(kind::COPIED, 0, sys::tsc(), &CopiedBody { entry, number, slot, transfers }, &[], &[]);
    })
}
