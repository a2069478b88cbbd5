//! Checks which words of a launch are payloads.

use crate::validate::Invalid;
use pushbuf::encode::offset;
use pushbuf::encode::subchannel::{COMPUTE, COPY};
use pushbuf::header::{Header, Kind};

/// Checks that each of these words is a payload of an acquire, a release or inline data, so that the validator's verdict holds for any number in it. Also
/// that the first acquire waits for the previous launch, and that no number is outside this launch's own.
pub fn check_counts(words: &[u32], counts: &[(usize, u32)], adds: u32) -> Result<(), Invalid> {
    let invalid = |at, why, detail| Err(Invalid { at, why, detail });
    if adds == 0 {
        return invalid(0, "a launch that adds nothing to the tracker", 0);
    }
    if counts.first().is_none_or(|(_, more)| *more != 0) {
        return invalid(0, "a launch that does not wait for the one before", 0);
    }
    check_payloads(words, counts, adds)
}

/// Checks that each of these words is a payload, and that no number is outside the launch's own.
pub fn check_payloads(words: &[u32], counts: &[(usize, u32)], adds: u32) -> Result<(), Invalid> {
    for &(word, more) in counts {
        // SEM_PAYLOAD_LO, the copy engine's SET_SEMAPHORE_PAYLOAD, LOAD_INLINE_DATA.
        let payload =
            matches!(method_of(words, word), Some((_, 0x64) | (COPY, 0x248) | (COMPUTE, offset::INLINE_LOAD_DATA)));
        if !payload || more > adds {
            return Err(Invalid { at: word, why: "a count that is no payload of this launch", detail: more.into() });
        }
    }
    Ok(())
}

/// Checks that these blocks of words are inline data with room for `bytes`.
pub fn blocks_are_data(words: &[u32], blocks: &[(usize, usize)], bytes: u64) -> Result<(), Invalid> {
    let mut room = 0;
    for &(first, count) in blocks {
        let data = |word| method_of(words, word) == Some((COMPUTE, offset::INLINE_LOAD_DATA));
        // Within one header: its first word and its last.
        let last = first.checked_add(count).and_then(|end| end.checked_sub(1)).unwrap_or(first);
        if count == 0 || !data(first) || header_of(words, last) != header_of(words, first) {
            return Err(Invalid { at: first, why: "a source that is no inline data", detail: count as u64 });
        }
        room += 4 * count as u64;
    }
    if room != bytes.next_multiple_of(4) {
        return Err(Invalid { at: 0, why: "a source that does not fill its words", detail: bytes });
    }
    Ok(())
}

/// The subchannel and the method that a word is data for.
fn method_of(words: &[u32], wanted: usize) -> Option<(u8, u16)> {
    let header = header_of(words, wanted)?;
    let Header::Methods { kind, subch, address, .. } = Header::parse(*words.get(header)?) else { return None };
    let nth = wanted - header - 1;
    let step = match kind {
        Kind::Inc => nth,
        Kind::OneInc => nth.min(1),
        _ => 0,
    };
    Some((subch, address.wrapping_add(4 * step as u16)))
}

/// The header that a word is data for.
fn header_of(words: &[u32], wanted: usize) -> Option<usize> {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let count = match Header::parse(*word) {
            Header::Methods { count, .. } => usize::from(count),
            _ => 0,
        };
        if (at + 1..at + 1 + count).contains(&wanted) {
            return Some(at);
        }
        at += 1 + count;
    }
    None
}
