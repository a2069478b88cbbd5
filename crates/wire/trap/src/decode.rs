//! The decoder: every `mov` between memory and a register or constant, and the plain SIMD moves.
//!
//! Source: Intel SDM volume 2, chapter 2 for prefixes, ModRM and SIB; "MOV", "MOVZX", "MOVSX", "MOVNTI" and the SSE moves for the opcodes.
//! Read-modify-write instructions, VEX and EVEX, string instructions, `lock`, 32-bit addresses and the fs and gs segments are refused.

/// The longest x86 instruction, in bytes.
pub const MAX_INSTRUCTION: usize = 15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Store,
    Load,
}

/// The side of the move that is not memory. Registers are numbered as the CPU encodes them: rax 0, rcx 1, rdx 2, rbx 3,
/// rsp 4, rbp 5, rsi 6, rdi 7, then r8 to r15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// `high8`: ah, ch, dh or bh of register 0 to 3.
    Reg {
        index: u8,
        high8: bool,
    },
    /// Sign-extended to 32 bits; a 64-bit store extends it further.
    Imm(i32),
    Xmm(u8),
}

/// What a load does with the bits above those that it read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extend {
    /// A store, or a load as wide as its register. A 32-bit register still clears its upper half.
    None,
    /// `movzx` into a register of this many bytes; for `Xmm`, the rest of the register becomes zero.
    Zero(u8),
    /// `movsx`, `movsxd` into a register of this many bytes.
    Sign(u8),
}

/// A memory operand: `base + index * scale + disp`, or `next instruction + disp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mem {
    pub base: Option<u8>,
    pub index: Option<u8>,
    /// 1, 2, 4 or 8.
    pub scale: u8,
    /// 64 bits wide only for the absolute forms A0 to A3.
    pub disp: i64,
    pub rip_relative: bool,
}

/// One instruction that moves `width` bytes between memory and `operand`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Bytes of the instruction, 2 to 15.
    pub length: u8,
    pub kind: Kind,
    /// Bytes of memory touched: 1, 2, 4, 8 or 16.
    pub width: u8,
    pub operand: Operand,
    pub extend: Extend,
    pub memory: Mem,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    None,
    F2,
    F3,
}

struct Prefixes {
    operand16: bool,
    repeat: Repeat,
    rex: u8,
}

impl Prefixes {
    fn w(&self) -> bool {
        self.rex & 8 != 0
    }

    /// Bytes of an operand that is not a byte: REX.W wins over 66.
    fn width(&self) -> u8 {
        match (self.w(), self.operand16) {
            (true, _) => 8,
            (false, true) => 2,
            (false, false) => 4,
        }
    }

    /// A byte register: without any REX, 4 to 7 are ah, ch, dh, bh.
    fn byte_register(&self, index: u8) -> Operand {
        if self.rex == 0 && (4..8).contains(&index) {
            Operand::Reg { index: index - 4, high8: true }
        } else {
            Operand::Reg { index, high8: false }
        }
    }
}

struct Bytes<'a> {
    code: &'a [u8],
    at: usize,
}

impl Bytes<'_> {
    fn u8(&mut self) -> Option<u8> {
        let byte = *self.code.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.code.get(self.at..)?.first_chunk::<N>()?;
        self.at += N;
        Some(*bytes)
    }

    fn i8(&mut self) -> Option<i32> {
        Some(i32::from(self.u8()? as i8))
    }

    fn i16(&mut self) -> Option<i32> {
        Some(i32::from(i16::from_le_bytes(self.array()?)))
    }

    fn i32(&mut self) -> Option<i32> {
        Some(i32::from_le_bytes(self.array()?))
    }
}

struct ModRm {
    /// With REX.R.
    reg: u8,
    memory: Mem,
}

/// ModRM, SIB and displacement; `None` for a register operand.
fn mod_rm(bytes: &mut Bytes<'_>, rex: u8) -> Option<ModRm> {
    let byte = bytes.u8()?;
    let (mode, reg, rm) = (byte >> 6, (byte >> 3) & 7 | (rex & 4) << 1, byte & 7);
    if mode == 3 {
        return None;
    }
    let mut memory = Mem { base: None, index: None, scale: 1, disp: 0, rip_relative: false };
    let mut disp32 = mode == 2;
    if rm == 4 {
        let sib = bytes.u8()?;
        let index = (sib >> 3) & 7 | (rex & 2) << 2;
        if index != 4 {
            memory.index = Some(index);
            memory.scale = 1 << (sib >> 6);
        }
        if sib & 7 == 5 && mode == 0 {
            disp32 = true;
        } else {
            memory.base = Some(sib & 7 | (rex & 1) << 3);
        }
    } else if rm == 5 && mode == 0 {
        memory.rip_relative = true;
        disp32 = true;
    } else {
        memory.base = Some(rm | (rex & 1) << 3);
    }
    if disp32 {
        memory.disp = i64::from(bytes.i32()?);
    } else if mode == 1 {
        memory.disp = i64::from(bytes.i8()?);
    }
    Some(ModRm { reg, memory })
}

/// Reads the prefixes and returns the opcode byte that ends them. fs, gs, `lock` and 32-bit addresses are refused; the other segment prefixes have
/// no effect in 64-bit mode.
fn prefixes(bytes: &mut Bytes<'_>) -> Option<(Prefixes, u8)> {
    let mut found = Prefixes { operand16: false, repeat: Repeat::None, rex: 0 };
    loop {
        let byte = bytes.u8()?;
        // A REX counts only directly before the opcode.
        if matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x66 | 0xf2 | 0xf3) {
            found.rex = 0;
        }
        match byte {
            0x26 | 0x2e | 0x36 | 0x3e => {}
            0x40..=0x4f => found.rex = byte,
            0x64 | 0x65 | 0x67 | 0xf0 => return None,
            0x66 => found.operand16 = true,
            0xf2 if found.repeat == Repeat::None => found.repeat = Repeat::F2,
            0xf3 if found.repeat == Repeat::None => found.repeat = Repeat::F3,
            0xf2 | 0xf3 => return None,
            opcode => return Some((found, opcode)),
        }
    }
}

/// The load or store at the start of `code`, or `None` where it is another instruction, is cut off, or is not known.
pub fn decode(code: &[u8]) -> Option<Access> {
    let mut bytes = Bytes { code: code.get(..MAX_INSTRUCTION).unwrap_or(code), at: 0 };
    let (prefix, opcode) = prefixes(&mut bytes)?;
    if opcode == 0x0f {
        return two_bytes(&mut bytes, &prefix);
    }
    // F2 and F3 are transaction hints here; doorbell stores do not use them.
    if prefix.repeat != Repeat::None {
        return None;
    }
    if let 0xa0..=0xa3 = opcode {
        return absolute(&mut bytes, &prefix, opcode);
    }
    let (kind, width) = match opcode {
        0x88 | 0xc6 => (Kind::Store, 1),
        0x89 | 0xc7 => (Kind::Store, prefix.width()),
        0x8a => (Kind::Load, 1),
        0x8b => (Kind::Load, prefix.width()),
        // Without REX.W its meaning differs between makers; no compiler emits that.
        0x63 if prefix.w() => (Kind::Load, 4),
        _ => return None,
    };
    let modrm = mod_rm(&mut bytes, prefix.rex)?;
    let operand = match opcode {
        0xc6 | 0xc7 if modrm.reg & 7 != 0 => return None,
        0xc6 => Operand::Imm(bytes.i8()?),
        0xc7 if width == 2 => Operand::Imm(bytes.i16()?),
        0xc7 => Operand::Imm(bytes.i32()?),
        0x88 | 0x8a => prefix.byte_register(modrm.reg),
        _ => Operand::Reg { index: modrm.reg, high8: false },
    };
    let extend = if opcode == 0x63 { Extend::Sign(8) } else { Extend::None };
    Some(Access { length: bytes.at as u8, kind, width, operand, extend, memory: modrm.memory })
}

/// A0 to A3: al or (r/e)ax and a 64-bit absolute address.
fn absolute(bytes: &mut Bytes<'_>, prefix: &Prefixes, opcode: u8) -> Option<Access> {
    let disp = i64::from_le_bytes(bytes.array()?);
    Some(Access {
        length: bytes.at as u8,
        kind: if opcode < 0xa2 { Kind::Load } else { Kind::Store },
        width: if opcode & 1 == 0 { 1 } else { prefix.width() },
        operand: Operand::Reg { index: 0, high8: false },
        extend: Extend::None,
        memory: Mem { base: None, index: None, scale: 1, disp, rip_relative: false },
    })
}

/// Opcodes after 0F: extending loads, `movnti` and the SIMD moves.
fn two_bytes(bytes: &mut Bytes<'_>, prefix: &Prefixes) -> Option<Access> {
    let opcode = bytes.u8()?;
    let plain = prefix.repeat == Repeat::None;
    if let 0xb6 | 0xb7 | 0xbe | 0xbf = opcode {
        if !plain {
            return None;
        }
        let into = prefix.width();
        let extend = if opcode < 0xb8 { Extend::Zero(into) } else { Extend::Sign(into) };
        let modrm = mod_rm(bytes, prefix.rex)?;
        return Some(Access {
            length: bytes.at as u8,
            kind: Kind::Load,
            width: if opcode & 1 == 0 { 1 } else { 2 },
            operand: Operand::Reg { index: modrm.reg, high8: false },
            extend,
            memory: modrm.memory,
        });
    }
    if opcode == 0xc3 {
        if !plain || prefix.operand16 {
            return None;
        }
        let modrm = mod_rm(bytes, prefix.rex)?;
        return Some(Access {
            length: bytes.at as u8,
            kind: Kind::Store,
            width: if prefix.w() { 8 } else { 4 },
            operand: Operand::Reg { index: modrm.reg, high8: false },
            extend: Extend::None,
            memory: modrm.memory,
        });
    }
    let (kind, width) = simd(bytes, prefix, opcode)?;
    let modrm = mod_rm(bytes, prefix.rex)?;
    let extend = if kind == Kind::Load && width < 16 { Extend::Zero(16) } else { Extend::None };
    Some(Access { length: bytes.at as u8, kind, width, operand: Operand::Xmm(modrm.reg), extend, memory: modrm.memory })
}

/// Direction and width of an SSE move of whole registers or their low part. A mandatory prefix selects one of four meanings; two such prefixes
/// together are refused.
fn simd(bytes: &mut Bytes<'_>, prefix: &Prefixes, opcode: u8) -> Option<(Kind, u8)> {
    use Kind::{Load, Store};
    use Repeat::{F2, F3};
    let word = if prefix.w() { 8 } else { 4 };
    Some(match (opcode, prefix.repeat, prefix.operand16) {
        (0x10, Repeat::None, _) => (Load, 16),
        (0x11, Repeat::None, _) => (Store, 16),
        (0x10, F3, false) => (Load, 4),
        (0x11, F3, false) => (Store, 4),
        (0x10, F2, false) => (Load, 8),
        (0x11, F2, false) => (Store, 8),
        (0x13, Repeat::None, _) => (Store, 8),
        (0x28, Repeat::None, _) => (Load, 16),
        (0x29 | 0x2b, Repeat::None, _) => (Store, 16),
        (0x38, Repeat::None, true) if bytes.u8()? == 0x2a => (Load, 16),
        (0x6e, Repeat::None, true) => (Load, word),
        (0x7e, Repeat::None, true) => (Store, word),
        (0x7e, F3, false) => (Load, 8),
        (0x6f, Repeat::None, true) | (0x6f, F3, false) => (Load, 16),
        (0x7f, Repeat::None, true) | (0x7f, F3, false) => (Store, 16),
        (0xd6, Repeat::None, true) => (Store, 8),
        (0xe7, Repeat::None, true) => (Store, 16),
        _ => return None,
    })
}
