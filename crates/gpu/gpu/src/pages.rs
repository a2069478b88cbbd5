//! Many pieces, scattered over two regions: the words of their copies, and their check.
//!
//! A piece is six words: its two addresses, and a launch in a header. Its length is set when it changes: mostly pieces are pages of one length. Such words are checked here, in one pass, for less than the validator's general walk takes.

use crate::validate::Invalid;
use pushbuf::encode::subchannel::COPY;
use pushbuf::encode::{launch_dma, offset};
use pushbuf::header::{Header, Kind};

/// Words of a page with its own length.
pub(crate) const MOST: usize = 8;

const ADDRESSES: u32 =
    Header::Methods { kind: Kind::Inc, subch: COPY, address: offset::COPY_OFFSET_IN_UPPER, count: 4 }.encode();
const LENGTH: u32 =
    Header::Methods { kind: Kind::Inc, subch: COPY, address: offset::COPY_LINE_LENGTH_IN, count: 1 }.encode();

const fn launch(transfer: u32) -> u32 {
    let value = (transfer | launch_dma::PITCH) as u16;
    Header::Immediate { subch: COPY, address: offset::COPY_LAUNCH_DMA, value }.encode()
}

/// The first copy of a submission waits for all before it, the others overlap.
const WAITS: u32 = launch(launch_dma::NON_PIPELINED);
const OVERLAPS: u32 = launch(launch_dma::PIPELINED);

/// One piece: bytes from the start of each region.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spot {
    pub to: u64,
    pub from: u64,
    pub bytes: u64,
}

/// The maximum bytes of one launch, so also of neighbours that are joined.
pub const LONGEST: u64 = 1 << 30;
/// Pieces that are put at a time.
pub const CHUNK: usize = 64;

/// Writes one page's copy; returns the number of words. `sets`: also its length.
#[inline]
pub(crate) fn write(words: &mut [u32; MOST], (to, from): (u64, u64), bytes: u32, sets: bool, waits: bool) -> usize {
    let launch = if waits { WAITS } else { OVERLAPS };
    let page = [ADDRESSES, (from >> 32) as u32, from as u32, (to >> 32) as u32, to as u32];
    if sets {
        words[..5].copy_from_slice(&page);
        words[5..8].copy_from_slice(&[LENGTH, bytes, launch]);
        return 8;
    }
    words[..5].copy_from_slice(&page);
    words[5] = launch;
    6
}

/// Addresses from the first to the last byte.
pub(crate) type Span = (u64, u64);

/// Accepts words of this form whose addresses are within the spans, and no others.
pub(crate) fn check(words: &[u32], to: Span, from: Span) -> Result<(), Invalid> {
    let mut bytes = None;
    let mut at = 0;
    let refuse = |at, why, detail: u64| Err(Invalid { at, why, detail });
    while at < words.len() {
        let Some(&[header, from_hi, from_lo, to_hi, to_lo, next]) = words[at..].first_chunk::<6>() else {
            return refuse(at, "a page that ends early", words[at].into());
        };
        if header != ADDRESSES {
            return refuse(at, "no page's header", header.into());
        }
        let mut launch = next;
        at += 6;
        if launch == LENGTH {
            let Some(&[length, after]) = words[at..].first_chunk::<2>() else {
                return refuse(at, "a length that ends early", launch.into());
            };
            (bytes, launch) = (Some(u64::from(length)), after);
            at += 2;
        }
        let Some(bytes) = bytes.filter(|bytes| (1..=LONGEST).contains(bytes)) else {
            return refuse(at - 1, "a page's length", bytes.unwrap_or(0));
        };
        if launch != OVERLAPS && launch != WAITS {
            return refuse(at - 1, "no page's launch", launch.into());
        }
        for (va, (first, last)) in
            [(u64::from(from_hi) << 32 | u64::from(from_lo), from), (u64::from(to_hi) << 32 | u64::from(to_lo), to)]
        {
            if va < first || va > last || last - va < bytes - 1 {
                return refuse(at - 1, "a page outside", va);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::HOPPER;
    use crate::validate::{self, Ranges, Rules};
    use proptest::prelude::*;

    const TO: Span = (0x2_0080_0000, 0x2_0080_ffff);
    const FROM: Span = (0x7_fff0_0000, 0x7_fff0_ffff);

    struct Both;

    impl Ranges for Both {
        fn contains(&self, va: u64, length: u64) -> bool {
            [TO, FROM].iter().any(|&(first, last)| va >= first && va <= last && length <= last - va + 1)
        }
    }

    fn words(spots: &[(u64, u64, u32)]) -> Vec<u32> {
        let (mut all, mut length) = (Vec::new(), 0);
        for (n, &(to, from, bytes)) in spots.iter().enumerate() {
            let mut room = [0; MOST];
            let count = write(&mut room, (TO.0 + to, FROM.0 + from), bytes, bytes != length, n == 0);
            all.extend(&room[..count]);
            length = bytes;
        }
        all
    }

    fn general(words: &[u32]) -> Result<(), Invalid> {
        let rules = Rules { architecture: &HOPPER, graphics: false, copies: false, launches: &[], space: &Both };
        validate::check(words, &rules)
    }

    proptest! {
        /// What is written passes both; a word changed at random is refused, or is a list that the general walk accepts, too.
        #[test]
        fn it_accepts_nothing_that_the_general_walk_refuses(
            spots in prop::collection::vec((0u64..0xf000, 0u64..0xf000, 1u32..0x1000), 1..40),
            at in 0usize..400, word in any::<u32>(), bit in 0u32..32, whole in any::<bool>(), end in 0usize..400,
        ) {
            let mut words = words(&spots);
            prop_assert_eq!(check(&words, TO, FROM), Ok(()));
            prop_assert_eq!(general(&words), Ok(()));
            let at = at % words.len();
            words[at] = if whole { word } else { words[at] ^ 1 << bit };
            words.truncate(1 + end % words.len());
            if check(&words, TO, FROM).is_ok() {
                prop_assert_eq!(general(&words), Ok(()));
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let why = |words: &[u32]| check(words, TO, FROM).unwrap_err().why;
        let good = words(&[(0, 0, 16), (64, 64, 16)]);
        assert_eq!(check(&[], TO, FROM), Ok(()));
        assert_eq!(why(&good[..13]), "a page that ends early");
        let with = |at: usize, word: u32| {
            let mut words = good.clone();
            words[at] = word;
            words
        };
        assert_eq!(why(&with(8, 0)), "no page's header");
        assert_eq!(why(&with(13, 0)), "no page's launch");
        assert_eq!(why(&with(6, 0)), "a page's length");
        assert_eq!(why(&with(6, 0x1_0001)), "a page outside");
        assert_eq!(why(&with(10, 0)), "a page outside");
        assert_eq!(why(&words(&[(0xfff1, 0, 16)])), "a page outside");
        assert_eq!(why(&words(&[(0, 0xfff1, 16)])), "a page outside");
        assert_eq!(check(&words(&[(0xfff0, 0xfff0, 16)]), TO, FROM), Ok(()));
    }
}
