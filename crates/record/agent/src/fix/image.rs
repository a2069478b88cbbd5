//! The hash of code that a program passes to CUDA. It finds the same code again in another run.
//!
//! The kernel copies the code piece by piece, so a length that is wrong ends the look and not the program.

use crate::process::restrictions::{may, need};
use crate::process::sys;

/// `fatBinaryCtl`: magic, version, the address of the data.
pub const CONTROL: u32 = 0x4662_43b1;
/// The data: magic, version, bytes of the header (at 6), bytes after it (at 8).
pub const DATA: u32 = 0xba55_ed50;
const ELF: u32 = u32::from_le_bytes(*b"\x7fELF");

const PIECE: usize = 4096;
/// In larger code the pieces that are read have equal distances. So hashing takes 0.3 ms (in a virtual machine, half of the 0.57 that were measured with twice as many), and little is read from disk.
const PIECES: usize = 128;

/// The hash of a fat binary, a cubin or a text. `None` for other bytes, and for memory that cannot be read.
pub fn hash(image: usize) -> Option<u64> {
    if image == 0 || !may(need::PEEK) {
        return None;
    }
    let code = Code { pid: sys::getpid(), at: image };
    match code.word(0)? {
        CONTROL => Code { at: code.long(8)?, ..code }.hash(),
        _ => code.hash(),
    }
}

struct Code {
    pid: i32,
    at: usize,
}

impl Code {
    fn read<'a>(&self, from: usize, to: &'a mut [u8]) -> Option<&'a [u8]> {
        let n = sys::peek(self.pid, self.at.checked_add(from)?, to);
        (n == to.len()).then_some(to)
    }

    fn half(&self, at: usize) -> Option<usize> {
        Some(usize::from(u16::from_le_bytes(self.read(at, &mut [0; 2])?.try_into().ok()?)))
    }

    fn word(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.read(at, &mut [0; 4])?.try_into().ok()?))
    }

    fn long(&self, at: usize) -> Option<usize> {
        usize::try_from(u64::from_le_bytes(self.read(at, &mut [0; 8])?.try_into().ok()?)).ok()
    }

    /// Its length in bytes, a text's without its NUL. (Of a long text the first part.)
    fn length(&self) -> Option<usize> {
        match self.word(0)? {
            DATA => self.half(6)?.checked_add(self.long(8)?),
            // The program headers and the section headers, of which one is last.
            ELF => {
                let table =
                    |at, each, count| self.half(each)?.checked_mul(self.half(count)?)?.checked_add(self.long(at)?);
                Some(table(0x20, 0x36, 0x38)?.max(table(0x28, 0x3a, 0x3c)?))
            }
            first if first.to_le_bytes().iter().all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace()) => {
                let (mut piece, mut length) = ([0; PIECE], 0);
                while length < PIECE * PIECES {
                    // (A text may end at the end of what is mapped.)
                    let to_next = PIECE - self.at.wrapping_add(length) % PIECE;
                    let text = self.read(length, piece.get_mut(..to_next)?)?;
                    if let Some(end) = text.iter().position(|b| *b == 0) {
                        return Some(length + end);
                    }
                    length += to_next;
                }
                Some(length)
            }
            _ => None,
        }
    }

    fn hash(&self) -> Option<u64> {
        let length = self.length()?;
        let mut hash = length as u64;
        let mut add = |word: u64| {
            hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 32;
        };
        let mut piece = [0; PIECE];
        let n = length.div_ceil(PIECE);
        for i in 0..n.min(PIECES) {
            let from = if n <= PIECES { i * PIECE } else { (length - PIECE) / (PIECES - 1) * i };
            let bytes = self.read(from, piece.get_mut(..(length - from).min(PIECE))?)?;
            let (words, rest) = bytes.as_chunks();
            words.iter().for_each(|word| add(u64::from_le_bytes(*word)));
            rest.iter().for_each(|byte| add(u64::from(*byte)));
        }
        // (0: no hash.)
        Some(hash.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Option<u64> {
        hash(bytes.as_ptr() as usize)
    }

    fn fat_binary(bytes: usize, differs_at: Option<usize>) -> Vec<u8> {
        let mut data = vec![7; 16 + bytes];
        data[..4].copy_from_slice(&DATA.to_le_bytes());
        data[6..8].copy_from_slice(&16u16.to_le_bytes());
        data[8..16].copy_from_slice(&(bytes as u64).to_le_bytes());
        if let Some(at) = differs_at {
            data[16 + at] = 8;
        }
        data
    }

    #[test]
    fn the_same_code_has_the_same_hash_and_other_code_another() {
        for bytes in [1, 4095, 100_000, (512 << 10) - 16] {
            let first = of(&fat_binary(bytes, None));
            assert!(first.is_some() && first == of(&fat_binary(bytes, None)));
            for at in [0, bytes / 2, bytes - 1] {
                assert_ne!(of(&fat_binary(bytes, Some(at))), first, "{bytes} {at}");
            }
        }
        // Large code is not read as a whole: its length and its first bytes are in the hash.
        let large = of(&fat_binary(64 << 20, None));
        assert!(large.is_some() && large != of(&fat_binary((64 << 20) + 8, None)));
        assert_ne!(large, of(&fat_binary(64 << 20, Some(0))));
        let data = fat_binary(5000, None);
        let mut control = [0u64; 3];
        control[0] = u64::from(CONTROL) | 1 << 32;
        control[1] = data.as_ptr() as u64;
        assert_eq!(hash(control.as_ptr() as usize), of(&data));
        let text = |rest: &str| of(format!(".version 8.0\n{rest}\0").as_bytes());
        assert!(text("a").is_some() && text("a") == text("a") && text("a") != text("b"));
    }

    #[test]
    fn what_is_no_code_has_none() {
        let mut elf = [0u8; 64];
        elf[..4].copy_from_slice(b"\x7fELF");
        assert!(of(&elf).is_some());
        elf[0x28..0x30].fill(0xff);
        assert_eq!(of(&elf), None, "a length that is more than all memory");
        elf[0x2e..0x30].fill(0);
        assert_eq!(of(&elf), None, "a length that is not mapped");
        let mut control = [0u8; 24];
        control[..4].copy_from_slice(&CONTROL.to_le_bytes());
        assert_eq!((of(&control), of(&[1; 16]), hash(0), hash(8)), (None, None, None, None));
    }
}
