//! The one instruction that notifies the GPU.
//!
//! Three sites, each in a separate function, in the shapes that a tap meets. libcuda's: `mov %ecx,(%rax)`, two bytes,
//! then `jmp rel32` and a nine-byte nop up to the next 16-byte boundary (580.159.04). A store with a 32-bit
//! displacement, long enough to be replaced alone. An exchange, which no tap supports.

use std::arch::naked_asm;

/// Which store instruction rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Site {
    /// `mov %ecx,(%rax)`, as in libcuda.
    #[default]
    Libcuda,
    /// `mov %esi,0x90(%rdi)` with a 32-bit displacement, six bytes.
    Displacement,
    /// `xchg %esi,0x90(%rdi)`: a load and a store in one. For tests of an instruction that a tap does not support.
    Exchange,
    /// A function of the caller at this address, `extern "sysv64" fn(address: *mut u8, token: u32)`, which stores the
    /// token there. For tests of the registers after a tap.
    At(usize),
}

/// Byte offset of the doorbell in a usermode page (class 0xC361 and later +0x90).
pub const DOORBELL: usize = 0x90;

/// Rings: stores `token` at +0x90 of the usermode page.
///
/// # Safety
/// `page` is a mapped usermode page.
#[inline]
pub unsafe fn ring(site: Site, page: *mut u8, token: u32) {
    // SAFETY: the caller's contract.
    unsafe {
        match site {
            Site::Libcuda => store_libcuda(page.add(DOORBELL), token),
            other => ring_by(other, page, token),
        }
    }
}

/// Rings with any site. Cold, so that it does not slow the usual one.
///
/// # Safety
/// As [`ring`].
#[cold]
unsafe fn ring_by(site: Site, page: *mut u8, token: u32) {
    // SAFETY: the caller's contract.
    unsafe {
        match site {
            Site::Libcuda => store_libcuda(page.add(DOORBELL), token),
            Site::Displacement => store_displacement(page, token),
            Site::Exchange => exchange(page, token),
            Site::At(store) => {
                let store: unsafe extern "sysv64" fn(*mut u8, u32) = std::mem::transmute(store);
                store(page.add(DOORBELL), token);
            }
        }
    }
}

/// Stores `token` (esi) at `address` (rdi).
#[unsafe(naked)]
unsafe extern "sysv64" fn store_libcuda(address: *mut u8, token: u32) {
    naked_asm!(
        "mov rax, rdi",
        "mov ecx, esi",
        ".p2align 4",
        // The store, seven bytes with the jump, and the padding to the boundary.
        "mov dword ptr [rax], ecx",
        ".byte 0xe9",
        ".long 2f - . - 4",
        ".byte 0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00",
        "2:",
        "ret",
    )
}

/// Stores `token` (esi) at +0x90 of `page` (rdi).
#[unsafe(naked)]
unsafe extern "sysv64" fn store_displacement(page: *mut u8, token: u32) {
    naked_asm!(
        ".p2align 4",
        // mov dword ptr [rdi + 0x90], esi with a disp32
        ".byte 0x89, 0xb7, 0x90, 0x00, 0x00, 0x00",
        "ret",
    )
}

/// Exchanges `token` (esi) with the value at +0x90 of `page` (rdi).
#[unsafe(naked)]
unsafe extern "sysv64" fn exchange(page: *mut u8, token: u32) {
    naked_asm!("xchg dword ptr [rdi + 0x90], esi", "ret")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_site_stores_the_token_at_0x90() {
        for site in [Site::Libcuda, Site::Displacement, Site::Exchange] {
            let mut page = [0u8; 0x100];
            // SAFETY: 0x90 + 4 bytes are within the array.
            unsafe { ring(site, page.as_mut_ptr(), 0x0003_0016) };
            assert_eq!(&page[0x90..0x94], &[0x16, 0, 3, 0]);
            assert!(page[..0x90].iter().chain(&page[0x94..]).all(|&b| b == 0));
        }
    }

    #[test]
    fn the_first_site_has_libcudas_shape() {
        // SAFETY: 64 bytes of this program's code.
        let code = unsafe { std::slice::from_raw_parts(store_libcuda as *const u8, 64) };
        let at = code.windows(3).position(|w| w == [0x89, 0x08, 0xe9]).expect("the store and the jump");
        assert_eq!((store_libcuda as *const () as usize + at) % 16, 0);
        assert_eq!(&code[at + 7..at + 16], &[0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]);
        let jump = i32::from_le_bytes(code[at + 3..at + 7].try_into().unwrap());
        assert_eq!(code[at + 7 + jump as usize], 0xc3, "the jump leads to the ret");
    }
}
