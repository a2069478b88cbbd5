//! Has the copy engine store when its copies and fills began and ended, in a copy of a segment (classes 0xC3B5 to 0xCAB5).
//!
//! CUDA 13 moves data by a LAUNCH_DMA without a semaphore, then releases its semaphore by a second LAUNCH_DMA, with SET_SEMAPHORE methods between
//! them (seen on an H200). So the first one's semaphore is free. Before it, doorbell adds a LAUNCH_DMA that moves no data and releases a semaphore:
//! the begin time.

use crate::encode::{launch_dma, offset};
use crate::header::{Header, Kind};

/// The subchannel that the host gives to copy engines.
const COPY: u8 = 4;
const SET_SEMAPHORE_A: u16 = offset::COPY_SET_SEMAPHORE_A;
const SET_SEMAPHORE_PAYLOAD: u16 = SET_SEMAPHORE_A + 8;
const LAUNCH_DMA: u16 = offset::COPY_LAUNCH_DMA;
/// DATA_TRANSFER_TYPE, SEMAPHORE_TYPE, and what changes a release: SEMAPHORE_REDUCTION, _SIGN and _ENABLE, FLUSH_TYPE, SEMAPHORE_PAYLOAD_SIZE.
const TRANSFER: u32 = 3;
const RELEASES: u32 = 3 << 3;
const CHANGED: u32 = 0x3f << 14 | launch_dma::FLUSH_LOCAL | 1 << 27;
/// Words that come with each transfer: two times SET_SEMAPHORE, and a LAUNCH_DMA.
pub const MORE: usize = 10;

/// One item of a walk over a segment.
enum Piece {
    /// A word that stays as it is.
    Word(u32),
    /// A LAUNCH_DMA that moves data: header and value.
    Transfer(u32),
}

/// How many transfers a segment of `length` words starts, if each can store its times. `None` if one cannot: its semaphore is the program's, or a later
/// release, in this segment or the next, needs what the program has set before it.
pub fn transfers(length: usize, word: impl Fn(usize) -> u32) -> Option<u32> {
    let mut n = 0;
    walk(length, word, |piece| n += u32::from(matches!(piece, Piece::Transfer(_))))?;
    Some(n)
}

/// Writes the segment with the times of its transfers: `times` returns where the next transfer stores its begin and its end, as addresses and
/// payloads. Call it for a segment with [`transfers`].
pub fn write(
    length: usize,
    word: impl Fn(usize) -> u32,
    mut times: impl FnMut() -> [(u64, u32); 2],
    mut put: impl FnMut(u32),
) {
    walk(length, word, |piece| match piece {
        Piece::Word(word) => put(word),
        Piece::Transfer(launch) => {
            let [begin, end] = times();
            set_semaphore(begin, &mut put);
            put_launch(launch_dma::RELEASE_TIMED, &mut put);
            set_semaphore(end, &mut put);
            // (With a flush, so that all observers see the copied data when the end time is stored.)
            put_launch(launch | launch_dma::FLUSH | launch_dma::RELEASE_TIMED, &mut put);
        }
    });
}

fn set_semaphore((address, payload): (u64, u32), put: &mut impl FnMut(u32)) {
    put(Header::Methods { kind: Kind::Inc, subch: COPY, address: SET_SEMAPHORE_A, count: 3 }.encode());
    [(address >> 32) as u32, address as u32, payload].into_iter().for_each(put);
}

fn put_launch(launch: u32, put: &mut impl FnMut(u32)) {
    put(Header::Methods { kind: Kind::Inc, subch: COPY, address: LAUNCH_DMA, count: 1 }.encode());
    put(launch);
}

/// SET_SEMAPHORE_A, _B and _PAYLOAD, a bit each.
const ALL: u8 = 0b111;

fn walk(length: usize, word: impl Fn(usize) -> u32, mut found: impl FnMut(Piece)) -> Option<()> {
    // Which of them the program has set since the last transfer; all of them before the first.
    let mut set = ALL;
    let mut i = 0;
    while i < length {
        let header = Header::parse(word(i));
        let (kind, subch, address, count) = match header {
            Header::Nop => (Kind::Inc, 0, 0, 0),
            Header::Methods { kind, subch, address, count } => (kind, subch, address, usize::from(count)),
            // (CUDA writes these values as separate data words.)
            Header::Immediate {
                subch: COPY, address: LAUNCH_DMA | SET_SEMAPHORE_A..=SET_SEMAPHORE_PAYLOAD, ..
            } => return None,
            Header::Immediate { .. } => (Kind::Immediate, 0, 0, 0),
            _ => return None,
        };
        if count > length - i - 1 {
            return None;
        }
        let of_copies = subch == COPY && count > 0;
        if of_copies && address == LAUNCH_DMA && count == 1 {
            let launch = word(i + 1);
            let releases = launch & RELEASES != 0;
            if launch & TRANSFER == 0 {
                if releases && set != ALL {
                    return None;
                }
            } else if releases || launch & CHANGED != 0 {
                return None;
            } else {
                found(Piece::Transfer(launch));
                set = 0;
                i += 2;
                continue;
            }
        } else if of_copies {
            let last = usize::from(address) + 4 * (count - 1);
            let is_plain = matches!(kind, Kind::Inc | Kind::OldInc);
            let touches = |from: u16, to: u16| usize::from(address) <= usize::from(to) && last >= usize::from(from);
            if touches(LAUNCH_DMA, LAUNCH_DMA) || (touches(SET_SEMAPHORE_A, SET_SEMAPHORE_PAYLOAD) && !is_plain) {
                return None;
            }
            for bit in 0..3u16 {
                let method = SET_SEMAPHORE_A + 4 * bit;
                set |= u8::from(touches(method, method)) << bit;
            }
        }
        (i..=i + count).for_each(|k| found(Piece::Word(word(k))));
        i += 1 + count;
    }
    (set == ALL).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::Words;
    use proptest::prelude::*;

    const NON_PIPELINED: u32 = launch_dma::NON_PIPELINED | launch_dma::PITCH;
    const FLUSHED: u32 = launch_dma::FLUSH | launch_dma::RELEASE_TIMED;

    fn words(f: impl FnOnce(&mut Words<'_>)) -> Vec<u32> {
        let mut room = [0; 256];
        let mut out = Words::new(&mut room);
        f(&mut out);
        out.as_slice().to_vec()
    }

    fn tracker(w: &mut Words<'_>) {
        w.inc(COPY, SET_SEMAPHORE_A, &[2, 0x460_ff30, 0xa8]).unwrap();
        w.inc(COPY, LAUNCH_DMA, &[FLUSHED]).unwrap();
    }

    /// As CUDA writes it: a wait, a copy, and the release of the channel's tracker.
    fn as_cuda() -> Vec<u32> {
        words(|w| {
            w.inc(COPY, 0x5c, &[0x118_dea5, 2, 0x26, 0, 0x1103]).unwrap();
            w.copy(COPY, 0x7fcd_2e00_0000, 0x7fcd_2200_0000, 4096, NON_PIPELINED).unwrap();
            tracker(w);
        })
    }

    fn counted(words: &[u32]) -> Option<u32> {
        transfers(words.len(), |i| words[i])
    }

    fn stamped(words: &[u32]) -> Vec<u32> {
        let (mut out, mut next) = (Vec::new(), 0);
        let times = || {
            next += 2;
            [(0xa0_0000_0000 + 16 * next, next as u32), (0xa0_0000_0010 + 16 * next, next as u32 + 1)]
        };
        write(words.len(), |i| words[i], times, |w| out.push(w));
        out
    }

    #[test]
    fn each_transfer_stores_its_begin_and_its_end() {
        let before = as_cuda();
        assert_eq!(counted(&before), Some(1));
        let after = stamped(&before);
        assert_eq!(after.len(), before.len() + MORE);
        let expected = words(|w| {
            w.inc(COPY, 0x5c, &[0x118_dea5, 2, 0x26, 0, 0x1103]).unwrap();
            w.inc(COPY, offset::COPY_OFFSET_IN_UPPER, &[0x7fcd, 0x2e00_0000, 0x7fcd, 0x2200_0000]).unwrap();
            w.inc(COPY, offset::COPY_LINE_LENGTH_IN, &[4096]).unwrap();
            w.inc(COPY, SET_SEMAPHORE_A, &[0xa0, 32, 2]).unwrap();
            w.inc(COPY, LAUNCH_DMA, &[launch_dma::RELEASE_TIMED]).unwrap();
            w.inc(COPY, SET_SEMAPHORE_A, &[0xa0, 48, 3]).unwrap();
            w.inc(COPY, LAUNCH_DMA, &[NON_PIPELINED | launch_dma::FLUSH | launch_dma::RELEASE_TIMED]).unwrap();
            tracker(w);
        });
        assert_eq!(after, expected);
    }

    #[test]
    fn a_segment_whose_releases_would_change_is_left_alone() {
        let copy = |w: &mut Words<'_>, launch| w.copy(COPY, 1 << 32, 2 << 32, 64, launch).unwrap();
        // Its own semaphore.
        assert_eq!(
            counted(&words(|w| {
                copy(w, NON_PIPELINED | launch_dma::RELEASE);
                tracker(w)
            })),
            None
        );
        // What a later segment releases may have been set by this one, before the copy.
        assert_eq!(
            counted(&words(|w| {
                tracker(w);
                copy(w, NON_PIPELINED)
            })),
            None
        );
        // A release of a semaphore that was set before the copy; then one of which only half was set after it.
        assert_eq!(
            counted(&words(|w| {
                copy(w, NON_PIPELINED);
                w.inc(COPY, LAUNCH_DMA, &[FLUSHED]).unwrap()
            })),
            None
        );
        let half = words(|w| {
            copy(w, NON_PIPELINED);
            w.inc(COPY, SET_SEMAPHORE_A + 4, &[0x100, 7]).unwrap();
            w.inc(COPY, LAUNCH_DMA, &[FLUSHED]).unwrap();
        });
        assert_eq!(counted(&half), None);
        // Without a transfer, no time can be stored.
        assert_eq!(counted(&words(tracker)), Some(0));
        // Several, and a flush between them.
        let two = words(|w| {
            copy(w, NON_PIPELINED);
            w.inc(COPY, LAUNCH_DMA, &[launch_dma::FLUSH]).unwrap();
            copy(w, launch_dma::PIPELINED | launch_dma::PITCH);
            tracker(w);
        });
        assert_eq!(counted(&two), Some(2));
        assert_eq!(stamped(&two).len(), two.len() + 2 * MORE);
        // Cut in the middle of a method's data.
        let whole = as_cuda();
        assert!((1..whole.len() - 2).all(|n| counted(&whole[..n]).is_none_or(|n| n == 0)));
    }

    proptest! {
        /// Whatever the words are: no panic, and `write` gives back all of them, with ten more for each transfer.
        #[test]
        fn words_of_all_kinds(words in prop::collection::vec(prop_oneof![any::<u32>(), prop::sample::select(as_cuda())], 0..60)) {
            if let Some(n) = counted(&words) {
                prop_assert_eq!(stamped(&words).len(), words.len() + MORE * n as usize);
            }
        }
    }
}
