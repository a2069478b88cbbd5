//! Events of NVTX: ranges and marks that a program sets, as `record --nvtx` and `record --calls` put them on a tape.
//!
//! A text is on the tape once for each thread that finds it missing, as a [`TextBody`] before the first event that names it.
//! Events name it by its number, [`text`], which is the same for the same text in all processes. A domain is named by the number
//! of its name, the default domain by 0.
//!
//! An [`NvtxBody`] has whether ranges were watched. Tapes without ranges do not have these.

/// Layout of the bodies here; in the first event. Changes whenever the meaning of one of them does.
pub const LAYOUT: u32 = 1;

/// Event kinds, in addition to those of [`crate::event::kind`].
pub mod kind {
    /// Whether ranges are watched: [`NvtxBody`](super::NvtxBody).
    pub const NVTX: u16 = 56;
    pub const TEXT: u16 = 57;
    /// A range of a thread begins: [`RangeBody`](super::RangeBody).
    pub const PUSH: u16 = 58;
    /// It ends: [`EndBody`](super::EndBody).
    pub const POP: u16 = 59;
    /// A range of the process begins: [`RangeBody`](super::RangeBody).
    pub const START: u16 = 60;
    /// It ends, in whatever thread: [`EndBody`](super::EndBody).
    pub const END: u16 = 61;
    /// Something happened at one time: [`RangeBody`](super::RangeBody).
    pub const MARK: u16 = 62;
}

/// State of NVTX in a process.
pub mod state {
    /// The agent is ready to be the injection library. No copy of NVTX has asked for one so far.
    pub const READY: u32 = 0;
    /// A copy of NVTX (each library may bring one) calls the agent from here on.
    pub const CONNECTED: u32 = 1;
    /// A copy of NVTX asked, and the program has its own injection library: its ranges are not watched.
    pub const OWN: u32 = 2;
    /// A copy of NVTX has tables that the agent does not know: its ranges are not watched.
    pub const REFUSED: u32 = 3;
}

/// Whether ranges are watched.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NvtxBody {
    /// [`LAYOUT`]
    pub layout: u32,
    /// One of [`state`].
    pub state: u32,
}

/// Maximum number of bytes of a text that are kept.
pub const LONGEST: usize = 256;

/// Flags of a [`TextBody`]'s head.
pub mod text_flags {
    /// It was longer than [`LONGEST`](super::LONGEST).
    pub const CUT: u16 = 1;
}

/// The named thing.
pub mod names {
    /// All that have its number: ranges, marks, domains.
    pub const TEXT: u32 = 0;
    /// The thread with this number.
    pub const THREAD: u32 = 1;
    /// The category with this number, in `domain`.
    pub const CATEGORY: u32 = 2;
}

/// A text, which follows: UTF-8, if the program's was.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextBody {
    /// [`text`], or the number of the thread or category.
    pub id: u64,
    pub domain: u64,
    /// Bytes that follow.
    pub bytes: u32,
    /// One of [`names`].
    pub names: u32,
}

/// Flags of a [`RangeBody`]'s head.
pub mod range_flags {
    /// The kind of [`RangeBody::payload`](super::RangeBody::payload) as NVTX numbers it (see [`payload`](super::payload)); 0: no
    /// payload.
    pub const PAYLOAD: u16 = 7;
    /// It has a colour.
    pub const COLOR: u16 = 8;
    pub const CATEGORY: u16 = 16;
}

/// What a payload is.
pub mod payload {
    pub const U64: u16 = 1;
    pub const I64: u16 = 2;
    pub const F64: u16 = 3;
    pub const U32: u16 = 4;
    pub const I32: u16 = 5;
    pub const F32: u16 = 6;
}

/// A range begins, or a mark.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeBody {
    /// The number of the domain's name, 0 for the default domain.
    pub domain: u64,
    /// The number of its text, 0 for none.
    pub text: u64,
    /// PUSH: ranges of the domain that the thread is in already, [`NO_DEPTH`] where the agent lost count. START: the number that
    /// ends it.
    pub id: u64,
    pub payload: u64,
    /// Alpha, red, green, blue.
    pub color: u32,
    pub category: u32,
}

impl RangeBody {
    /// Its bytes, as words of a little-endian machine.
    #[inline(always)]
    pub const fn words(self) -> [u64; 5] {
        [self.domain, self.text, self.id, self.payload, self.color as u64 | (self.category as u64) << 32]
    }
}

/// A range ends.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndBody {
    pub domain: u64,
    /// As [`RangeBody::id`] of the range; [`NO_DEPTH`] also where the thread is in none.
    pub id: u64,
}

impl EndBody {
    /// Its bytes, as words of a little-endian machine.
    #[inline(always)]
    pub const fn words(self) -> [u64; 2] {
        [self.domain, self.id]
    }
}

/// It is not known how many ranges a thread is in.
pub const NO_DEPTH: u64 = u64::MAX;

/// The number of a text, of which the first [`LONGEST`] bytes count. Never 0 and never [`NO_DEPTH`].
#[inline(always)]
pub fn text(bytes: &[u8]) -> u64 {
    // SAFETY: a slice.
    unsafe { text_at(bytes.as_ptr(), bytes.len().min(LONGEST)) }
}

/// As [`text`], of `len` bytes.
///
/// # Safety
/// So many bytes can be read.
#[inline(always)]
pub unsafe fn text_at(at: *const u8, len: usize) -> u64 {
    /// Digits of pi, as good as any.
    const K: [u64; 3] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0];
    #[inline(always)]
    fn fold(a: u64, b: u64) -> u64 {
        let wide = u128::from(a).wrapping_mul(u128::from(b));
        wide as u64 ^ (wide >> 64) as u64
    }
    let mut h = K[0] ^ len as u64;
    let mut i = 0;
    // SAFETY: the caller's: each read ends at `len`, or before.
    unsafe {
        let word = |i: usize| u64::from_le(at.add(i).cast::<u64>().read_unaligned());
        let half = |i: usize| u64::from(u32::from_le(at.add(i).cast::<u32>().read_unaligned()));
        while i + 8 < len {
            h = fold(h ^ word(i), K[1]).rotate_left(23);
            i += 8;
        }
        // The last bytes; some are read again where that takes fewer reads.
        let last = match len {
            0 => 0,
            1..=3 => u64::from(*at) << 16 | u64::from(*at.add(len / 2)) << 8 | u64::from(*at.add(len - 1)),
            4..=7 => half(0) << 32 | half(len - 4),
            _ => word(len - 8),
        };
        h = fold(h ^ last, K[2]);
    }
    let h = fold(h, K[1]);
    if h == 0 || h == NO_DEPTH { 1 } else { h }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn words_are_the_bodies_bytes() {
        let range = RangeBody { domain: 1, text: 2, id: 3, payload: 4, color: 5, category: 6 };
        assert_eq!(range.words().map(u64::to_le_bytes).concat(), crate::event::bytes_of(&range));
        let end = EndBody { domain: 7, id: 8 };
        assert_eq!(end.words().map(u64::to_le_bytes).concat(), crate::event::bytes_of(&end));
    }

    #[test]
    fn texts_have_numbers_of_their_own() {
        let mut texts: HashSet<Vec<u8>> = (0..=LONGEST).map(|n| vec![b'x'; n]).collect();
        texts.extend((0..20_000u32).map(|i| format!("step {i}").into_bytes()));
        texts.extend((0..=255u8).flat_map(|a| [vec![a], vec![a, 0], vec![0, a], vec![a, a, a, 1]]));
        // One byte of a longer one is another.
        texts.extend((0..40).map(|at| (0..40).map(|i| if i == at { b'!' } else { b'.' }).collect::<Vec<u8>>()));
        let numbers: HashSet<u64> = texts.iter().map(|t| text(t)).collect();
        assert_eq!(numbers.len(), texts.len());
        assert!(!numbers.contains(&0) && !numbers.contains(&NO_DEPTH));
        // Its address does not matter.
        let shifted = b" forward".to_vec();
        assert_eq!(text(&shifted[1..]), text(b"forward"));
    }

    #[test]
    fn of_a_long_text_the_beginning_counts() {
        let (a, b) = (vec![b'x'; LONGEST + 1], vec![b'x'; LONGEST]);
        assert_eq!(text(&a), text(&b));
    }
}
