//! The stub that a rewritten site jumps to: it calls the tap with the value and the address of the store, then returns to the instruction after the
//! store with all registers restored.
//!
//! Kept: all general registers, xmm0 to xmm15, the arithmetic flags, the red zone, the stack. Not kept, so the tap must not change them: the upper
//! halves of ymm and zmm, mask registers, x87, MXCSR, the direction flag. The stub saves flags with `lahf` and `seto`, because `popf` alone costs
//! as much as the rest of the stub.

use super::distance;
use crate::decode::{Access, Kind, Operand};

/// Room that is enough for every stub, in bytes.
pub const STUB_MAX: usize = 512;

const RSP: u8 = 4;
/// Registers that the tap may clobber, and rbp, which holds the stack pointer during the call. Pushed in this order after rax and flags.
const SAVED: [u8; 9] = [1, 2, 6, 7, 8, 9, 10, 11, 5];
const XMM_BYTES: i32 = 16 * 16;

struct Code<'a> {
    out: &'a mut [u8],
    len: usize,
    full: bool,
}

impl Code<'_> {
    fn put(&mut self, bytes: &[u8]) {
        match self.out.get_mut(self.len..self.len + bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.len += bytes.len();
            }
            None => self.full = true,
        }
    }

    fn push(&mut self, register: u8) {
        if register >= 8 {
            self.put(&[0x41]);
        }
        self.put(&[0x50 + (register & 7)]);
    }

    fn pop(&mut self, register: u8) {
        if register >= 8 {
            self.put(&[0x41]);
        }
        self.put(&[0x58 + (register & 7)]);
    }

    /// `movaps` between xmm `n` and `[rsp + 16 n]`; 0x29 stores, 0x28 loads.
    fn movaps(&mut self, opcode: u8, n: u8) {
        if n >= 8 {
            self.put(&[0x44]);
        }
        self.put(&[0x0f, opcode, 0x84 | (n & 7) << 3, 0x24]);
        self.put(&(i32::from(n) * 16).to_le_bytes());
    }

    /// Pushes the stored value, or the register that contains it; `false` if that is impossible.
    fn push_value(&mut self, access: &Access) -> bool {
        match access.operand {
            Operand::Reg { index: RSP, .. } => false,
            Operand::Reg { index, .. } => {
                self.push(index);
                true
            }
            // push imm32, sign-extended to 64 bits.
            Operand::Imm(value) => {
                self.put(&[0x68]);
                self.put(&value.to_le_bytes());
                true
            }
            Operand::Xmm(_) if access.width > 8 => false,
            // lea rsp,[rsp-8]; movq [rsp],xmm
            Operand::Xmm(n) => {
                self.put(&[0x48, 0x8d, 0x64, 0x24, 0xf8, 0x66]);
                if n >= 8 {
                    self.put(&[0x44]);
                }
                self.put(&[0x0f, 0xd6, 0x04 | (n & 7) << 3, 0x24]);
                true
            }
        }
    }

    /// rsi = effective address, from registers that still have their values from the store.
    fn address(&mut self, access: &Access) -> bool {
        let memory = &access.memory;
        if memory.rip_relative || memory.base == Some(RSP) {
            return false;
        }
        if memory.base.is_none() && memory.index.is_none() {
            // mov rsi,imm64
            self.put(&[0x48, 0xbe]);
            self.put(&memory.disp.to_le_bytes());
            return true;
        }
        let Ok(disp) = i32::try_from(memory.disp) else { return false };
        let base = memory.base.unwrap_or(5);
        let index = memory.index.unwrap_or(RSP);
        let rex = 0x48 | (index >> 3 & 1) << 1 | base >> 3 & 1;
        // Without a base: mode 0 and base 5 in the SIB byte; else mode 2.
        let mode = if memory.base.is_none() { 0x00 } else { 0x80 };
        let scale = memory.scale.trailing_zeros() as u8 & 3;
        self.put(&[rex, 0x8d, mode | 6 << 3 | 4, scale << 6 | (index & 7) << 3 | base & 7]);
        self.put(&disp.to_le_bytes());
        true
    }

    /// rdi = the popped value, cut to the width of the store.
    fn pop_value(&mut self, access: &Access) {
        self.pop(7);
        if matches!(access.operand, Operand::Reg { high8: true, .. }) {
            self.put(&[0xc1, 0xef, 0x08]); // shr edi,8
        }
        match access.width {
            1 => self.put(&[0x40, 0x0f, 0xb6, 0xff]), // movzx edi,dil
            2 => self.put(&[0x0f, 0xb7, 0xff]),       // movzx edi,di
            4 => self.put(&[0x89, 0xff]),             // mov edi,edi
            _ => {}
        }
    }
}

/// Writes the stub for the store `access` to `out`, which will be executed at address `stub_at`, and returns its length.
///
/// `tap` is the address of `extern "C" fn(value: u64, address: u64, width: u64)`; it performs the store itself. `None` for
/// a load, an operand that depends on rsp or rip, a 16-byte store, or too little room ([`STUB_MAX`] is enough).
pub fn stub(access: &Access, out: &mut [u8], stub_at: u64, tap: u64, resume: u64) -> Option<usize> {
    if access.kind != Kind::Store {
        return None;
    }
    let mut code = Code { out, len: 0, full: false };
    code.put(&[0x48, 0x8d, 0x64, 0x24, 0x80]); // lea rsp,[rsp-128]
    code.push(0);
    code.put(&[0x9f, 0x0f, 0x90, 0xc0]); // lahf; seto al
    code.push(0);
    for register in SAVED {
        code.push(register);
    }
    // The original rax, saved above the flags and the other registers.
    code.put(&[0x48, 0x8b, 0x44, 0x24, 8 * (SAVED.len() as u8 + 1)]); // mov rax,[rsp+..]
    if !code.push_value(access) || !code.address(access) {
        return None;
    }
    code.pop_value(access);
    code.put(&[0xba]); // mov edx,width
    code.put(&u32::from(access.width).to_le_bytes());
    code.put(&[0x48, 0x89, 0xe5, 0x48, 0x83, 0xe4, 0xf0, 0x48, 0x81, 0xec]); // mov rbp,rsp; and rsp,-16; sub rsp,256
    code.put(&XMM_BYTES.to_le_bytes());
    for n in 0..16 {
        code.movaps(0x29, n);
    }
    match distance(stub_at.wrapping_add(code.len as u64 + 5), tap) {
        Some(near) => {
            code.put(&[0xe8]);
            code.put(&near.to_le_bytes());
        }
        None => {
            code.put(&[0x48, 0xb8]); // mov rax,imm64; call rax
            code.put(&tap.to_le_bytes());
            code.put(&[0xff, 0xd0]);
        }
    }
    for n in 0..16 {
        code.movaps(0x28, n);
    }
    code.put(&[0x48, 0x89, 0xec]); // mov rsp,rbp
    for register in SAVED.iter().rev() {
        code.pop(*register);
    }
    code.pop(0);
    code.put(&[0x04, 0x7f, 0x9e]); // add al,0x7f (overflows if al was 1); sahf
    code.pop(0);
    code.put(&[0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]); // lea rsp,[rsp+128]
    match distance(stub_at.wrapping_add(code.len as u64 + 5), resume) {
        Some(near) => {
            code.put(&[0xe9]);
            code.put(&near.to_le_bytes());
        }
        None => {
            code.put(&[0xff, 0x25, 0, 0, 0, 0]); // jmp [rip]
            code.put(&resume.to_le_bytes());
        }
    }
    (!code.full).then_some(code.len)
}
