//! A message of up to 56 bytes as one line: the bytes, then the number, then a sum over both.
//!
//! The line is one write on the bus, but the kernel needs four loads of 16 bytes to read it. There is no guarantee that all four
//! see the same write. So the kernel computes the sum again. If it differs, some loads were too early, and the kernel reads
//! again. The sum has 32 bits, so one torn read in about four billion passes. That is detected too: the kernel answers with the
//! whole line, and the CPU compares all of it with the sent line.
//!
//! Numbers in each 16 bytes would need no sum, but leave 48 bytes, or 56 that are not contiguous in the mailbox.

use crate::stores::LINE;

/// Bytes of the longest message.
pub const LONGEST: usize = 56;
/// Offset of the number.
pub const NUMBER: usize = LONGEST;
/// Offset of the sum.
const SUM: usize = 60;
/// Words in the sum: the message and the number.
pub const WORDS: usize = SUM / 4;

/// What a word counts in the sum. Odd, so that a change of one word always changes the sum. All factors differ, so that swapped words almost always change it.
pub const fn factor(word: usize) -> u32 {
    0x9e37_79b1u32.wrapping_mul(2 * word as u32 + 1)
}

/// The sum of a message's words and its number.
fn sum(line: &[u8; LINE]) -> u32 {
    let words = line.chunks_exact(4).take(WORDS).enumerate();
    words.fold(0, |sum, (n, word)| {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        sum.wrapping_add(word.wrapping_mul(factor(n)))
    })
}

/// The line for at most [`LONGEST`] bytes: the bytes, zeros up to that length, the number, and the sum.
///
/// # Panics
/// With more than [`LONGEST`] bytes.
#[inline]
pub fn line(from: &[u8], number: u32) -> [u8; LINE] {
    let mut line = [0; LINE];
    line[..from.len()].copy_from_slice(from);
    line[NUMBER..SUM].copy_from_slice(&number.to_le_bytes());
    let sum = sum(&line);
    line[SUM..].copy_from_slice(&sum.to_le_bytes());
    line
}

/// Number and bytes of a line; `None` where the sum does not match, because the line is a mix of two.
#[inline]
pub fn of_line(line: &[u8; LINE]) -> Option<(u32, [u8; LONGEST])> {
    let word = |at: usize| u32::from_le_bytes([line[at], line[at + 1], line[at + 2], line[at + 3]]);
    let mut bytes = [0; LONGEST];
    bytes.copy_from_slice(&line[..LONGEST]);
    (word(SUM) == sum(line)).then_some((word(NUMBER), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_torn_line_has_another_sum() {
        // Typical sequences of messages: a counter, a float, the same bytes again.
        let messages =
            [[0u8; LONGEST], [1; LONGEST], std::array::from_fn(|n| n as u8), std::array::from_fn(|n| 200 - n as u8)];
        for (n, before) in messages.iter().enumerate() {
            for (m, after) in messages.iter().enumerate() {
                let (old, new) = (line(before, 4 * n as u32 + 1), line(after, 4 * n as u32 + 2));
                for pieces in 1..15u32 {
                    let mut torn = old;
                    for piece in (0..4).filter(|piece| pieces >> piece & 1 == 1) {
                        torn[16 * piece..][..16].copy_from_slice(&new[16 * piece..][..16]);
                    }
                    let found = u32::from_le_bytes(torn[SUM..].try_into().unwrap());
                    let is_whole = torn == old || torn == new;
                    assert_eq!(sum(&torn) == found, is_whole, "messages {n} and {m}, pieces {pieces:#b}");
                    assert_eq!(of_line(&torn).is_some(), is_whole);
                }
            }
        }
    }
}
