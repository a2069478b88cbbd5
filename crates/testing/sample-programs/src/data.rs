//! Random data from a seed, checksums, and differences.

use fastrand::Rng;
use std::fmt;

pub(crate) fn bytes(random: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}

pub(crate) fn words(random: &mut Rng, len: usize) -> Vec<u32> {
    (0..len).map(|_| random.u32(..)).collect()
}

pub(crate) fn to_bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// FNV-1a on eight bytes at a time, with the length at the end of each block: 64 bits that change with any block, with the order of blocks and with
/// their borders. It shows that two runs agree; it gives no protection against intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checksum(u64);

impl Checksum {
    pub(crate) const NEW: Checksum = Checksum(0xcbf2_9ce4_8422_2325);

    fn word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        // The multiplication moves bits up only.
        self.0 ^= self.0 >> 32;
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last));
        self.word(bytes.len() as u64);
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }
}

/// Where two equally long blocks differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Offset of the first byte that differs.
    pub first: usize,
    pub expected: u8,
    pub got: u8,
    /// How many bytes differ.
    pub count: usize,
    pub len: usize,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { first, expected, got, count, len } = self;
        write!(
            f,
            "{count} of {len} bytes are wrong, the first at offset {first}: {got:#04x} instead of {expected:#04x}"
        )
    }
}

/// `None` if both are equal. A missing tail counts as wrong.
pub(crate) fn difference(expected: &[u8], got: &[u8]) -> Option<Difference> {
    if expected == got {
        return None;
    }
    let len = expected.len().max(got.len());
    let at = |bytes: &[u8], n: usize| bytes.get(n).copied();
    let mut wrong = (0..len).filter(|n| at(expected, *n) != at(got, *n));
    let first = wrong.next()?;
    Some(Difference {
        first,
        expected: at(expected, first).unwrap_or(0),
        got: at(got, first).unwrap_or(0),
        count: 1 + wrong.count(),
        len,
    })
}

/// Compares a result with the expected one.
pub(crate) fn check(what: impl FnOnce() -> String, expected: &[u8], got: &[u8]) -> crate::Result<()> {
    match difference(expected, got) {
        None => Ok(()),
        Some(difference) => Err(crate::Error::Wrong { what: what(), difference }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_see_bits_order_borders_and_lengths() {
        let sum = |blocks: &[&[u8]]| {
            let mut sum = Checksum::NEW;
            blocks.iter().for_each(|block| sum.add(block));
            sum.value()
        };
        let block: Vec<u8> = bytes(&mut Rng::with_seed(5), 1000);
        let base = sum(&[&block]);
        for bit in 0..8000 {
            let mut other = block.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(sum(&[&other]), base, "bit {bit}");
        }
        assert_ne!(sum(&[b"ab", b"c"]), sum(&[b"a", b"bc"]));
        assert_ne!(sum(&[b"ab", b"c"]), sum(&[b"c", b"ab"]));
        assert_ne!(sum(&[b"ab"]), sum(&[b"ab\0"]));
        assert_ne!(sum(&[&[0; 8]]), sum(&[&[0; 16]]));
    }

    #[test]
    fn differences_say_first_and_count() {
        assert_eq!(difference(b"same", b"same"), None);
        let found = difference(b"abcdef", b"abXdeY").unwrap();
        assert_eq!((found.first, found.count, found.expected, found.got), (2, 2, b'c', b'X'));
        assert_eq!(difference(b"abc", b"ab").unwrap().count, 1);
        let error = check(|| "copy".into(), b"abc", b"abd").unwrap_err().to_string();
        assert_eq!(error, "copy: 1 of 3 bytes are wrong, the first at offset 2: 0x64 instead of 0x63");
    }
}
