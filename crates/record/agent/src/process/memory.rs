//! memcpy and similar functions, for this library alone: calls made by the compiler are bound to these, not to libc's.
//!
//! libc's functions use registers that are not saved. A rewritten doorbell site calls the tap in the middle of one of the
//! program's functions, and its stub keeps only xmm0 to xmm15. These use xmm0 to xmm8. They are also not calls into
//! another library, where a tap by the program might wait.
//!
//! The names are hidden, so no program finds them.

use core::arch::global_asm;

macro_rules! functions {
    ($copy:literal, $move:literal, $set:literal, $compare:literal, $differ:literal) => {
        global_asm!(
            ".pushsection .text.doorbell_memory, \"ax\", @progbits",
            concat!(".globl ", $copy, ", ", $move, ", ", $set, ", ", $compare, ", ", $differ),
            concat!(".hidden ", $copy, ", ", $move, ", ", $set, ", ", $compare, ", ", $differ),
            concat!(".type ", $copy, ", @function"),
            concat!(".type ", $move, ", @function"),
            concat!(".type ", $set, ", @function"),
            concat!(".type ", $compare, ", @function"),
            concat!(".type ", $differ, ", @function"),
            // rdi: to, rsi: from, rdx: bytes. They may overlap.
            ".p2align 4",
            concat!($copy, ":"),
            concat!($move, ":"),
            "mov rax, rdi",
            "cmp rdx, 16",
            "jb 20f",
            "cmp rdx, 64",
            "ja 30f",
            "movups xmm0, [rsi]",
            "movups xmm1, [rsi + rdx - 16]",
            "cmp rdx, 32",
            "jbe 10f",
            "movups xmm2, [rsi + 16]",
            "movups xmm3, [rsi + rdx - 32]",
            "movups [rdi + 16], xmm2",
            "movups [rdi + rdx - 32], xmm3",
            "10:",
            "movups [rdi], xmm0",
            "movups [rdi + rdx - 16], xmm1",
            "ret",
            // Below 16 bytes: two halves that overlap.
            "20:",
            "cmp edx, 8",
            "jb 21f",
            "mov rcx, [rsi]",
            "mov r8, [rsi + rdx - 8]",
            "mov [rdi], rcx",
            "mov [rdi + rdx - 8], r8",
            "ret",
            "21:",
            "cmp edx, 4",
            "jb 22f",
            "mov ecx, [rsi]",
            "mov r8d, [rsi + rdx - 4]",
            "mov [rdi], ecx",
            "mov [rdi + rdx - 4], r8d",
            "ret",
            "22:",
            "test edx, edx",
            "jz 23f",
            "mov r10, rdx",
            "shr r10, 1",
            "movzx ecx, byte ptr [rsi]",
            "movzx r8d, byte ptr [rsi + r10]",
            "movzx r9d, byte ptr [rsi + rdx - 1]",
            "mov [rdi], cl",
            "mov [rdi + r10], r8b",
            "mov [rdi + rdx - 1], r9b",
            "23:",
            "ret",
            // Above 64: blocks of 64. The last block is read before anything is written, and written last.
            "30:",
            "mov rcx, rdi",
            "sub rcx, rsi",
            "cmp rcx, rdx",
            "jb 40f",
            "movups xmm4, [rsi + rdx - 64]",
            "movups xmm5, [rsi + rdx - 48]",
            "movups xmm6, [rsi + rdx - 32]",
            "movups xmm7, [rsi + rdx - 16]",
            "lea r8, [rdi + rdx - 64]",
            "cmp rdx, 512",
            "jae 33f",
            ".p2align 4",
            "31:",
            "movups xmm0, [rsi]",
            "movups xmm1, [rsi + 16]",
            "movups xmm2, [rsi + 32]",
            "movups xmm3, [rsi + 48]",
            "movups [rdi], xmm0",
            "movups [rdi + 16], xmm1",
            "movups [rdi + 32], xmm2",
            "movups [rdi + 48], xmm3",
            "add rsi, 64",
            "add rdi, 64",
            "cmp rdi, r8",
            "jb 31b",
            "32:",
            "movups [r8], xmm4",
            "movups [r8 + 16], xmm5",
            "movups [r8 + 32], xmm6",
            "movups [r8 + 48], xmm7",
            "ret",
            // Many bytes: no store crosses a cache line. The first block is read before anything is written, too.
            "33:",
            "movups xmm8, [rsi]",
            "mov ecx, edi",
            "neg ecx",
            "and ecx, 15",
            "add rsi, rcx",
            "add rdi, rcx",
            ".p2align 4",
            "34:",
            "movups xmm0, [rsi]",
            "movups xmm1, [rsi + 16]",
            "movups xmm2, [rsi + 32]",
            "movups xmm3, [rsi + 48]",
            "movaps [rdi], xmm0",
            "movaps [rdi + 16], xmm1",
            "movaps [rdi + 32], xmm2",
            "movaps [rdi + 48], xmm3",
            "add rsi, 64",
            "add rdi, 64",
            "cmp rdi, r8",
            "jb 34b",
            "movups [rax], xmm8",
            "jmp 32b",
            // `to` is inside `from`: copies from the end, the first block last.
            "40:",
            "movups xmm4, [rsi]",
            "movups xmm5, [rsi + 16]",
            "movups xmm6, [rsi + 32]",
            "movups xmm7, [rsi + 48]",
            "add rsi, rdx",
            "lea rcx, [rdi + rdx]",
            "lea r8, [rdi + 64]",
            ".p2align 4",
            "41:",
            "movups xmm0, [rsi - 16]",
            "movups xmm1, [rsi - 32]",
            "movups xmm2, [rsi - 48]",
            "movups xmm3, [rsi - 64]",
            "movups [rcx - 16], xmm0",
            "movups [rcx - 32], xmm1",
            "movups [rcx - 48], xmm2",
            "movups [rcx - 64], xmm3",
            "sub rsi, 64",
            "sub rcx, 64",
            "cmp rcx, r8",
            "ja 41b",
            "movups [rdi], xmm4",
            "movups [rdi + 16], xmm5",
            "movups [rdi + 32], xmm6",
            "movups [rdi + 48], xmm7",
            "ret",
            concat!(".size ", $copy, ", . - ", $copy),
            concat!(".size ", $move, ", . - ", $move),
            // rdi: to, sil: the byte, rdx: bytes
            ".p2align 4",
            concat!($set, ":"),
            "mov r8, rdi",
            "movzx eax, sil",
            "mov rcx, rdx",
            "rep stosb",
            "mov rax, r8",
            "ret",
            concat!(".size ", $set, ", . - ", $set),
            // rdi, rsi: two, rdx: bytes
            ".p2align 4",
            concat!($compare, ":"),
            concat!($differ, ":"),
            "xor eax, eax",
            "xor r8d, r8d",
            "60:",
            "cmp r8, rdx",
            "jae 61f",
            "movzx eax, byte ptr [rdi + r8]",
            "movzx ecx, byte ptr [rsi + r8]",
            "inc r8",
            "sub eax, ecx",
            "jz 60b",
            "61:",
            "ret",
            concat!(".size ", $compare, ", . - ", $compare),
            concat!(".size ", $differ, ", . - ", $differ),
            ".popsection",
        );
    };
}

#[cfg(not(test))]
functions!("memcpy", "memmove", "memset", "memcmp", "bcmp");
#[cfg(test)]
functions!("doorbell_copy", "doorbell_move", "doorbell_set", "doorbell_compare", "doorbell_differ");

#[cfg(test)]
mod tests {
    unsafe extern "C" {
        fn doorbell_copy(to: *mut u8, from: *const u8, n: usize) -> *mut u8;
        fn doorbell_set(to: *mut u8, with: i32, n: usize) -> *mut u8;
        fn doorbell_compare(a: *const u8, b: *const u8, n: usize) -> i32;
    }

    fn pattern() -> Vec<u8> {
        (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    #[test]
    fn every_length_is_copied_and_nothing_beside_it() {
        for n in (0..400).chain(500..660).chain([1500, 2001]) {
            for (from, to) in [(3, 2050), (16, 2050), (2050, 7), (1, 2064), (2049, 16)] {
                let mut memory = pattern();
                let mut expected = memory.clone();
                expected.copy_within(from..from + n, to);
                // SAFETY: both are in the buffer.
                unsafe {
                    let at = memory.as_mut_ptr();
                    assert_eq!(doorbell_copy(at.add(to), at.add(from), n), at.add(to));
                }
                assert_eq!(memory, expected, "{n} bytes from {from} to {to}");
            }
        }
    }

    #[test]
    fn what_overlaps_is_moved_either_way() {
        for n in (0..400usize).chain(500..660) {
            for away in [0usize, 1, 7, 15, 16, 17, 63, 64, 65, 130] {
                for up in [false, true] {
                    let (from, to) = if up { (200, 200 + away) } else { (200 + away, 200) };
                    let mut memory = pattern();
                    let mut expected = memory.clone();
                    expected.copy_within(from..from + n, to);
                    // SAFETY: both are in the buffer.
                    unsafe { doorbell_copy(memory.as_mut_ptr().add(to), memory.as_ptr().add(from), n) };
                    assert_eq!(memory, expected, "{n} bytes from {from} to {to}");
                }
            }
        }
    }

    #[test]
    fn bytes_are_set_and_compared() {
        let mut memory = pattern();
        let mut expected = memory.clone();
        expected[5..205].fill(0xab);
        // SAFETY: within the buffer.
        unsafe { doorbell_set(memory.as_mut_ptr().add(5), 0x1ab, 200) };
        assert_eq!(memory, expected);
        for (a, b) in
            [("", ""), ("abc", "abc"), ("abc", "abd"), ("\u{7f}", "a"), ("a", "\u{ff}"), ("abcdefgh1", "abcdefgh0")]
        {
            let n = a.len().min(b.len());
            // SAFETY: as long as both.
            let order = unsafe { doorbell_compare(a.as_ptr(), b.as_ptr(), n) };
            assert_eq!(order.cmp(&0), a.as_bytes()[..n].cmp(&b.as_bytes()[..n]), "{a:?} {b:?}");
        }
    }
}
