//! What a decoded access does to a set of registers.

use crate::decode::{Access, Extend, Operand};

/// The registers of an interrupted thread, numbered as in [`Operand`].
pub trait Registers {
    /// Only the low four bits of `index` count.
    fn gpr(&self, index: u8) -> u64;
    fn set_gpr(&mut self, index: u8, value: u64);
    /// Address of the instruction that faulted.
    fn rip(&self) -> u64;
    fn set_rip(&mut self, rip: u64);
    /// `None`: this register cannot be reached.
    fn xmm(&self, index: u8) -> Option<u128>;
    fn set_xmm(&mut self, index: u8, value: u128) -> Option<()>;
}

/// Registers held in a plain struct.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub gpr: [u64; 16],
    pub rip: u64,
    pub xmm: [u128; 16],
}

impl Registers for State {
    fn gpr(&self, index: u8) -> u64 {
        self.gpr[usize::from(index & 15)]
    }

    fn set_gpr(&mut self, index: u8, value: u64) {
        self.gpr[usize::from(index & 15)] = value;
    }

    fn rip(&self) -> u64 {
        self.rip
    }

    fn set_rip(&mut self, rip: u64) {
        self.rip = rip;
    }

    fn xmm(&self, index: u8) -> Option<u128> {
        Some(self.xmm[usize::from(index & 15)])
    }

    fn set_xmm(&mut self, index: u8, value: u128) -> Option<()> {
        self.xmm[usize::from(index & 15)] = value;
        Some(())
    }
}

/// The address that `access` touches.
pub fn effective_address(access: &Access, registers: &impl Registers) -> u64 {
    let memory = &access.memory;
    let start = if memory.rip_relative {
        registers.rip().wrapping_add(u64::from(access.length))
    } else {
        memory.base.map_or(0, |base| registers.gpr(base))
    };
    let index = memory.index.map_or(0, |index| registers.gpr(index).wrapping_mul(u64::from(memory.scale)));
    start.wrapping_add(index).wrapping_add(memory.disp as u64)
}

/// The low `width` bytes of `value`.
fn low(value: u128, width: u8) -> u128 {
    match u32::from(width) * 8 {
        bits @ 0..128 => value & ((1 << bits) - 1),
        _ => value,
    }
}

/// The value that a store of at most 8 bytes writes, upper bits zero. `None` for a 16-byte store or a SIMD register that
/// cannot be reached.
pub fn store_value(access: &Access, registers: &impl Registers) -> Option<u64> {
    if access.width > 8 {
        return None;
    }
    store_value_wide(access, registers).map(|value| value as u64)
}

/// As [`store_value`], for every width.
pub fn store_value_wide(access: &Access, registers: &impl Registers) -> Option<u128> {
    let value = match access.operand {
        Operand::Reg { index, high8: false } => u128::from(registers.gpr(index)),
        Operand::Reg { index, high8: true } => u128::from(registers.gpr(index) >> 8),
        Operand::Imm(value) => value as i128 as u128,
        Operand::Xmm(index) => registers.xmm(index)?,
    };
    Some(low(value, access.width))
}

/// Puts `value`, of which the low `access.width` bytes count, where the load would have put it: 32-bit registers clear their upper half, 8- and
/// 16-bit ones keep the rest. `None`, and nothing changes, if the destination cannot be reached.
pub fn load_into(access: &Access, registers: &mut impl Registers, value: u128) -> Option<()> {
    let value = low(value, access.width);
    match access.operand {
        Operand::Imm(_) => None,
        Operand::Xmm(index) => registers.set_xmm(index, value),
        Operand::Reg { index, high8: true } => {
            let old = registers.gpr(index);
            registers.set_gpr(index, old & !0xff00 | (value as u64 & 0xff) << 8);
            Some(())
        }
        Operand::Reg { index, high8: false } => {
            let value = value as u64;
            let (value, width) = match access.extend {
                Extend::None => (value, access.width),
                Extend::Zero(into) => (value, into),
                Extend::Sign(into) => (sign_extended(value, access.width), into),
            };
            let old = registers.gpr(index);
            let new = match width {
                1 => old & !0xff | value & 0xff,
                2 => old & !0xffff | value & 0xffff,
                4 => value & 0xffff_ffff,
                _ => value,
            };
            registers.set_gpr(index, new);
            Some(())
        }
    }
}

fn sign_extended(value: u64, width: u8) -> u64 {
    match width {
        1 => value as i8 as u64,
        2 => value as i16 as u64,
        4 => value as i32 as u64,
        _ => value,
    }
}

/// Steps past the instruction.
pub fn advance(access: &Access, registers: &mut impl Registers) {
    registers.set_rip(registers.rip().wrapping_add(u64::from(access.length)));
}
