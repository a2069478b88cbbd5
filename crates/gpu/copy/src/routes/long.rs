//! Messages of 9 to 56 bytes: the line has the bytes, then the number, then a sum over both.
//!
//! The line is one write on the bus, but the kernel needs four loads of 16 bytes to read it. There is no guarantee that all four
//! see the same write. So the kernel computes the sum again. If it differs, some loads were too early, and the kernel reads
//! again. The sum has 32 bits, so one torn read in about four billion passes. That is detected too: the kernel answers with the
//! whole line, and the CPU compares all of it with the sent line.
//!
//! Numbers in each 16 bytes would need no sum, but leave 48 bytes, or 56 that are not contiguous in the mailbox.

use gpu::stores::LINE;

/// Bytes of the longest message.
pub const LONGEST: usize = 56;
/// Offset of the number.
pub(super) const NUMBER: usize = LONGEST;
/// Offset of the sum.
const SUM: usize = 60;
/// Words in the sum: the message and the number.
const WORDS: usize = SUM / 4;

/// Odd, so that a change of one word always changes the sum. All factors differ, so that swapped words almost always change it.
const fn factor(word: usize) -> u32 {
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
pub fn message_in(line: &[u8; LINE]) -> Option<(u32, [u8; LONGEST])> {
    let word = |at: usize| u32::from_le_bytes([line[at], line[at + 1], line[at + 2], line[at + 3]]);
    let mut bytes = [0; LONGEST];
    bytes.copy_from_slice(&line[..LONGEST]);
    (word(SUM) == sum(line)).then_some((word(NUMBER), bytes))
}

/// PTX: the line at [%rd4] to %a0 to %a15, the number to %r2.
pub(super) const LOAD: &str = "ld.relaxed.sys.global.v4.u32 {%a0, %a1, %a2, %a3}, [%rd4];
    ld.relaxed.sys.global.v4.u32 {%a4, %a5, %a6, %a7}, [%rd4+16];
    ld.relaxed.sys.global.v4.u32 {%a8, %a9, %a10, %a11}, [%rd4+32];
    ld.relaxed.sys.global.v4.u32 {%a12, %a13, %a14, %a15}, [%rd4+48];
    mov.u32 %r2, %a14;";

/// PTX: jumps back to the spin loop if the sum does not match. Otherwise each of four lanes, whose number is in %r7, stores its
/// 16 bytes of the line at [%rd5]. Only the number signals the end of the kernel.
pub(super) fn answer() -> String {
    let mut text = "setp.eq.u32 %p2, %r2, 0xffffffff;
    @%p2 bra NAME_STOPPED;
    mov.u32 %r10, 0;
    mov.u32 %r11, 0;
"
    .to_owned();
    // Two chains, which the GPU computes in parallel.
    for word in 0..WORDS {
        let sum = ["%r10", "%r11"][word % 2];
        text += &format!("    mad.lo.u32 {sum}, %a{word}, {:#x}, {sum};\n", factor(word));
    }
    text += "    add.u32 %r10, %r10, %r11;
    setp.ne.u32 %p2, %r10, %a15;
    @%p2 bra NAME_IDLE;
";
    for lane in 1..4 {
        text += &format!("    setp.eq.u32 %p2, %r7, {lane};\n");
        for word in 0..4 {
            text += &format!("    selp.b32 %a{word}, %a{}, %a{word}, %p2;\n", 4 * lane + word);
        }
    }
    text + "    st.relaxed.sys.global.v4.u32 [%rd5], {%a0, %a1, %a2, %a3};"
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
                    assert_eq!(message_in(&torn).is_some(), is_whole);
                }
            }
        }
    }

    #[test]
    fn the_sum_in_the_text_is_that_of_the_line() {
        // The text's own factors, applied to a line.
        let line = line(&[7; LONGEST], 3);
        let mut found = 0u32;
        for (n, step) in answer().lines().filter(|step| step.contains("mad.lo")).enumerate() {
            let by = step.split(", ").nth(2).and_then(|by| by.strip_prefix("0x")).unwrap();
            let word = u32::from_le_bytes(line[4 * n..][..4].try_into().unwrap());
            assert!(step.contains(&format!("%a{n},")), "{step}");
            found = found.wrapping_add(word.wrapping_mul(u32::from_str_radix(by, 16).unwrap()));
        }
        assert_eq!(found.to_le_bytes(), line[SUM..]);
    }
}
