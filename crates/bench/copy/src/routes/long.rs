//! Messages of 9 to 56 bytes as a kernel reads and answers them: [`gpu::message`] has the line.

use gpu::message::{WORDS, factor};

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
    use gpu::message::{LONGEST, NUMBER, line};

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
        assert_eq!(found.to_le_bytes(), line[NUMBER + 4..]);
    }
}
