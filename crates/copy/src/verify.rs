//! Whether the bytes that arrived are those that were sent.

use crate::error::Error;
use crate::route::Route;
use std::fmt;
use std::time::Duration;

/// Where what arrived differs from what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Offset of the first byte that differs.
    pub first: u64,
    /// How many bytes differ.
    pub count: u64,
    /// The first one, as it was sent.
    pub expected: u8,
    /// The first one, as it arrived.
    pub found: u8,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { first, count, expected, found } = self;
        let verb = if *count == 1 { "byte is" } else { "bytes are" };
        write!(f, "{count} {verb} wrong, the first at offset {first}: {found:#04x} instead of {expected:#04x}")
    }
}

/// `None` where both are the same. Of two lengths, only the shorter one is compared.
pub fn difference(expected: &[u8], found: &[u8]) -> Option<Difference> {
    let len = expected.len().min(found.len());
    let (expected, found) = (&expected[..len], &found[..len]);
    if expected == found {
        return None;
    }
    let mut wrong = (0..len).filter(|&n| expected[n] != found[n]);
    let first = wrong.next()?;
    Some(Difference {
        first: first as u64,
        count: 1 + wrong.count() as u64,
        expected: expected[first],
        found: found[first],
    })
}

/// Fills with random bytes: SplitMix64 (Steele, Lea, Flood 2014), the same for the same seed.
pub fn random(into: &mut [u8], seed: u64) {
    let mut state = seed;
    for word in into.chunks_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word.copy_from_slice(&(x ^ x >> 31).to_le_bytes()[..word.len()]);
    }
}

/// Bytes behind the destination that have to stay as they are.
const GUARD: u64 = 64;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Moves `bytes` random bytes once and compares what arrives, and that up to 64 bytes behind it stay as they were: an
/// offset from `bytes` on says that too much was written.
///
/// # Errors
/// What the route says. A difference is no error, but the answer.
pub fn verify(route: &mut dyn Route, bytes: u64, seed: u64) -> Result<Option<Difference>, Error> {
    let guarded = bytes.saturating_add(GUARD).min(route.capacity()).max(bytes);
    if bytes > route.capacity() {
        return Err(Error::Capacity { bytes, capacity: route.capacity() });
    }
    let (len, all) = (bytes as usize, guarded as usize);
    let (mut sent, mut arrived) = (vec![0; all], vec![0; all]);
    route.read_back(&mut arrived)?;
    random(&mut sent, seed);
    // A byte that is at the destination by chance already would hide that it did not come, or that it should not have.
    for (to, there) in sent.iter_mut().zip(&arrived) {
        if to == there {
            *to = !*to;
        }
    }
    route.fill(&sent)?;
    sent[len..].copy_from_slice(&arrived[len..]);
    let mut transfer = route.prepare(bytes)?;
    transfer.submit()?;
    transfer.wait(TIMEOUT)?;
    drop(transfer);
    route.read_back(&mut arrived)?;
    Ok(difference(&sent, &arrived))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_say_first_and_count() {
        assert_eq!(difference(b"same", b"same"), None);
        assert_eq!(difference(b"same and more", b"same"), None);
        let found = difference(b"abcdef", b"abXdeY").unwrap();
        assert_eq!(found, Difference { first: 2, count: 2, expected: b'c', found: b'X' });
        assert_eq!(found.to_string(), "2 bytes are wrong, the first at offset 2: 0x58 instead of 0x63");
    }

    #[test]
    fn any_length_is_random_and_repeats() {
        for len in [0, 1, 7, 8, 9, 4095] {
            let (mut a, mut b) = (vec![0; len], vec![0; len]);
            random(&mut a, 3);
            random(&mut b, 3);
            assert_eq!(a, b);
            random(&mut b, 4);
            assert!(len == 0 || a != b, "{len}");
        }
        let mut long = vec![0; 1 << 16];
        random(&mut long, 1);
        // Every byte value comes about 256 times.
        let mut counts = [0u32; 256];
        long.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        assert!(counts.iter().all(|count| (150..400).contains(count)), "{counts:?}");
    }
}
