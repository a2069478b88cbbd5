//! Which sites can be rewritten into a jump to a stub, and the bytes that do it.
//!
//! Nothing but the store itself and bytes that are never executed may change. [`Shape::Long`]: the store is long enough to hold a jump.
//! [`Shape::Padding`]: after the store come an unconditional transfer and the unreachable padding that aligns the next block. The store becomes a
//! short jump into the padding, and the padding becomes the long jump.
//!
//! ```text
//! 00: 89 08                       mov  %ecx,(%rax)      eb 05             jmp 07
//! 02: e9 xx xx xx xx              jmp  away             e9 xx xx xx xx    jmp away      <- resume
//! 07: 66 0f 1f 84 00 00 00 00 00  nop                   e9 xx xx xx xx .. jmp stub
//! 10: next block
//! ```

mod stub;

pub use stub::{STUB_MAX, stub};

use crate::decode::{Kind, decode};

const SHORT_JUMP: u8 = 2;
const NEAR_JUMP: u8 = 5;
/// How far past the store the transfer is looked for.
const WINDOW: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Store, transfer, alignment padding of at least 5 bytes.
    Padding,
    /// A store of at least 5 bytes.
    Long,
}

/// How one store site is rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub kind: Shape,
    /// Address of the store.
    pub store_at: u64,
    pub store_len: u8,
    /// Where the padding starts ([`Shape::Padding`]).
    pub pad_at: Option<u64>,
    /// The instruction after the store: where the stub returns to.
    pub resume: u64,
}

/// At most 15 bytes to be written at one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    pub at: u64,
    bytes: [u8; 15],
    len: u8,
}

impl Patch {
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&[])
    }

    fn jump(at: u64, to: u64) -> Option<Patch> {
        let distance = distance(at.wrapping_add(u64::from(NEAR_JUMP)), to)?;
        let mut bytes = [0; 15];
        bytes[0] = 0xe9;
        bytes[1..5].copy_from_slice(&distance.to_le_bytes());
        Some(Patch { at, bytes, len: NEAR_JUMP })
    }
}

/// `to - from`, if it fits into a rel32.
fn distance(from: u64, to: u64) -> Option<i32> {
    i32::try_from(to.wrapping_sub(from) as i64).ok()
}

impl Plan {
    /// The bytes for the padding: the jump to the stub. Write it first; it is not reachable until the store is replaced. `None` for
    /// [`Shape::Long`], or where the stub is too far away.
    pub fn padding_patch(&self, stub: u64) -> Option<Patch> {
        Patch::jump(self.pad_at?, stub)
    }

    /// What replaces the store. Other threads may be executing it: replace its first byte last, or put a breakpoint there in the meantime. `None`
    /// where the stub is too far away.
    pub fn store_patch(&self, stub: u64) -> Option<Patch> {
        let mut patch = match self.kind {
            Shape::Long => Patch::jump(self.store_at, stub)?,
            Shape::Padding => {
                let after = self.store_at.wrapping_add(u64::from(SHORT_JUMP));
                let distance = i8::try_from(self.pad_at?.wrapping_sub(after) as i64).ok()?;
                let mut bytes = [0; 15];
                bytes[..2].copy_from_slice(&[0xeb, distance as u8]);
                Patch { at: self.store_at, bytes, len: SHORT_JUMP }
            }
        };
        // One-byte nops after the jump keep a disassembler in step; they are never executed.
        let used = usize::from(patch.len);
        patch.bytes.get_mut(used..usize::from(self.store_len))?.fill(0x90);
        patch.len = self.store_len;
        Some(patch)
    }
}

/// The plan for the store that starts at `code_after[0]`, address `ip`; `None` where its shape is not proven.
pub fn plan(code_after: &[u8], ip: u64) -> Option<Plan> {
    let access = decode(code_after)?;
    if access.kind != Kind::Store {
        return None;
    }
    let resume = ip.checked_add(u64::from(access.length))?;
    let mut plan = Plan { kind: Shape::Long, store_at: ip, store_len: access.length, pad_at: None, resume };
    if access.length < NEAR_JUMP {
        plan.kind = Shape::Padding;
        plan.pad_at = Some(padding(code_after, ip, usize::from(access.length))?);
    }
    Some(plan)
}

/// Address of the padding after the transfer that follows the store; `at` is the offset after the store.
fn padding(code: &[u8], ip: u64, mut at: usize) -> Option<u64> {
    while (at as u64) < WINDOW {
        let rest = code.get(at..)?;
        if let Some(length) = transfer(rest) {
            at += length;
            return alignment(code.get(at..)?, ip.checked_add(at as u64)?);
        }
        at += straight(rest)?;
    }
    None
}

/// Length of an unconditional transfer that does not come back: `jmp rel32`, `jmp rel8`, `ret`.
fn transfer(code: &[u8]) -> Option<usize> {
    let length = match code {
        [0xe9, ..] => 5,
        [0xeb, ..] => 2,
        [0xc3, ..] => 1,
        [0xf3, 0xc3, ..] => 2,
        _ => return None,
    };
    (code.len() >= length).then_some(length)
}

/// Length of an instruction of those that end a function: `pop`, `add rsp`, `leave`, `xor reg,reg`, `vzeroupper`.
fn straight(code: &[u8]) -> Option<usize> {
    let length = match code {
        [0x58..=0x5f, ..] => 1,
        [0x41, 0x58..=0x5f, ..] => 2,
        [0xc9, ..] => 1,
        [0x48, 0x83, 0xc4, ..] => 4,
        [0x48, 0x81, 0xc4, ..] => 7,
        [0x31 | 0x33, 0xc0..=0xff, ..] => 2,
        [0xc5, 0xf8, 0x77, ..] => 3,
        _ => return None,
    };
    (code.len() >= length).then_some(length)
}

/// `at`, if the bytes there are only padding up to the next 16-byte boundary: nops or breakpoints that start off a boundary and end exactly on it,
/// with room for a jump. Compilers emit such bytes after a transfer only to align the following block, and put no label into them.
fn alignment(code: &[u8], at: u64) -> Option<u64> {
    let room = (at.wrapping_neg() & 15) as usize;
    if room < usize::from(NEAR_JUMP) {
        return None;
    }
    let pad = code.get(..room)?;
    if pad.iter().all(|byte| *byte == 0xcc) {
        return Some(at);
    }
    let mut rest = pad;
    while !rest.is_empty() {
        rest = rest.get(nop(rest)?..)?;
    }
    Some(at)
}

/// Length of the canonical nop at the start of `code`: 90, or 0F 1F /0 on rax with any number of 66 and one 2E before it.
fn nop(code: &[u8]) -> Option<usize> {
    let prefixes = code.iter().take_while(|byte| matches!(byte, 0x66 | 0x2e)).count();
    let rest = code.get(prefixes..)?;
    let length = match rest {
        [0x90, ..] => 1,
        [0x0f, 0x1f, 0x00, ..] => 3,
        [0x0f, 0x1f, 0x40, 0, ..] => 4,
        [0x0f, 0x1f, 0x44, 0, 0, ..] => 5,
        [0x0f, 0x1f, 0x80, 0, 0, 0, 0, ..] => 7,
        [0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, ..] => 8,
        _ => return None,
    };
    Some(prefixes + length)
}
