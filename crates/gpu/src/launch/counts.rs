//! Which words of a launch are payloads.

use crate::engine::COMPUTE;
use crate::validate::Invalid;
use pushbuf::encode::offset;
use pushbuf::header::{Header, Kind};

/// That each of these words is a payload, of an acquire or a release or inline data: whatever number stands there, the validator's verdict holds. That the
/// first acquire waits for the launch before, and no number lies outside the launch's own.
pub fn check_counts(words: &[u32], counts: &[(usize, u32)], adds: u32) -> Result<(), Invalid> {
    let invalid = |at, why, detail| Err(Invalid { at, why, detail });
    if adds == 0 {
        return invalid(0, "a launch that adds nothing to the tracker", 0);
    }
    if counts.first().is_none_or(|(_, more)| *more != 0) {
        return invalid(0, "a launch that does not wait for the one before", 0);
    }
    for &(word, more) in counts {
        // SEM_PAYLOAD_LO, the copy engine's SET_SEMAPHORE_PAYLOAD, LOAD_INLINE_DATA.
        let payload =
            matches!(method_of(words, word), Some((_, 0x64) | (4, 0x248) | (COMPUTE, offset::INLINE_LOAD_DATA)));
        if !payload || more > adds {
            return invalid(word, "a count that is no payload of this launch", more.into());
        }
    }
    Ok(())
}

/// The subchannel and the method that a word is data of.
fn method_of(words: &[u32], wanted: usize) -> Option<(u8, u16)> {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let Header::Methods { kind, subch, address, count } = Header::parse(*word) else {
            at += 1;
            continue;
        };
        let (first, end) = (at + 1, at + 1 + usize::from(count));
        if (first..end).contains(&wanted) {
            let step = match kind {
                Kind::Inc => wanted - first,
                Kind::OneInc => (wanted - first).min(1),
                _ => 0,
            };
            return Some((subch, address.wrapping_add(4 * step as u16)));
        }
        at = end;
    }
    None
}
