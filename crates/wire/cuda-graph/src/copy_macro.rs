//! Small copies by a macro of the engine: CUDA brings a few words from pinned host memory by an inline write whose data its macro 1 reads.
//!
//! The macro has three arguments. On an H200 (driver 580.159.04, CUDA 13.0) they look like the upper and the lower half of the source's address and
//! a count of words. The macro's code belongs to the driver, so doorbell does not take that for granted. It derives the order from copies whose
//! source and length are known ([`CopyMacro::derive`]), and only if exactly one reading explains all of them.

use crate::fill_macro::CountIn;
use pushbuf::encode::launch_dma;
use pushbuf::ops::{Copy, Layout, Space, Transfer};

/// The driver's macro, of those that it loads.
pub(crate) const INDEX: u32 = 1;

/// How to read the macro's arguments: the position of each, and the unit of the count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CopyMacro {
    pub high: usize,
    pub low: usize,
    pub count: usize,
    pub counts: CountIn,
}

/// A call of the macro as found in the words: an inline write of so many bytes, with three arguments in place of its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CopyCall {
    pub address: u64,
    pub bytes: u32,
    pub arguments: [u32; 3],
}

impl CopyMacro {
    /// All readings that are considered.
    pub fn all() -> impl Iterator<Item = CopyMacro> {
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        orders.into_iter().flat_map(|[high, low, count]| {
            let counts = [CountIn::Words, CountIn::WordsLessOne, CountIn::Bytes];
            counts.into_iter().map(move |counts| CopyMacro { high, low, count, counts })
        })
    }

    /// Derives the reading from copies by CUDA, each with the source address that CUDA was given. `None` unless exactly one reading explains at
    /// least two lengths and two sources.
    pub fn derive(copies: &[(CopyCall, u64)]) -> Option<CopyMacro> {
        let (first, source) = copies.first()?;
        let differ =
            copies.iter().any(|(call, _)| call.bytes != first.bytes) && copies.iter().any(|(_, of)| of != source);
        let mut all =
            CopyMacro::all().filter(|of| copies.iter().all(|(call, source)| of.source(call) == Some(*source)));
        let only = all.next().filter(|_| differ)?;
        all.next().is_none().then_some(only)
    }

    /// The source address of a call, if its count fits its bytes. (Whole words only: how the macro rounds other lengths is unknown.)
    pub fn source(self, call: &CopyCall) -> Option<u64> {
        let of = |at: usize| call.arguments.get(at).copied();
        let count = of(self.count)?;
        let right = match self.counts {
            CountIn::Words => count.checked_mul(4) == Some(call.bytes),
            CountIn::WordsLessOne => count.checked_add(1).and_then(|words| words.checked_mul(4)) == Some(call.bytes),
            CountIn::Bytes => count == call.bytes,
        };
        let source = u64::from(of(self.high)?) << 32 | u64::from(of(self.low)?);
        (right && call.bytes > 0 && call.bytes.is_multiple_of(4)).then_some(source)
    }

    /// The same by the copy engine.
    pub(crate) fn copy(self, call: &CopyCall) -> Option<Copy> {
        Some(Copy {
            src: self.source(call)?,
            dst: call.address,
            line_length: call.bytes,
            line_count: 1,
            src_pitch: 0,
            dst_pitch: 0,
            multi_line: false,
            transfer: Transfer::NonPipelined,
            src_layout: Layout::Pitch,
            dst_layout: Layout::Pitch,
            src_space: Space::Virtual,
            dst_space: Space::Virtual,
            remap: None,
            scrub: false,
            flush: false,
            semaphore: None,
            launch: launch_dma::NON_PIPELINED | launch_dma::PITCH,
        })
    }
}
