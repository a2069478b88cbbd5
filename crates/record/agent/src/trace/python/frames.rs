//! Reads the frames of the calling thread.
//!
//! The thread is in a call to C, so its frames do not change and their code objects are alive, whether it holds the
//! global lock or not. The exception is an interpreter that is finalized while threads are in calls: it frees their
//! states. Every load is one of [`loads`], so freed memory reads as 0 and ends the walk. Only an object of the right type
//! counts as a code object.

use super::loads::{byte, half, word};
use super::versions::{At, BYTES, LENGTH, NONE, OWNED_BY_C, OWNED_BY_GENERATOR, Offsets, SIZE, STATE, TAG, TYPE};
use core::mem::MaybeUninit;
use tape::python::DEPTH;

/// Maximum number of frames that are examined, including those that are not Python's.
const LOOKED: usize = 4 * DEPTH;

/// A frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Its code object.
    pub code: usize,
    /// Offset of its instruction, bytes.
    pub at: u32,
    /// Identifies the code object: a later one at the same address has another key.
    pub key: u64,
}

/// The frames of a thread, the innermost first.
pub struct Stack {
    frames: [MaybeUninit<Frame>; DEPTH],
    n: usize,
    pub deeper: bool,
    pub hash: u64,
}

impl Stack {
    pub fn frames(&self) -> &[Frame] {
        let frames = self.frames.get(..self.n).unwrap_or_default();
        // SAFETY: the first `n` were written.
        unsafe { core::slice::from_raw_parts(frames.as_ptr().cast(), frames.len()) }
    }
}

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const OTHER: u64 = 0xd6e8_feb8_6659_fd93;

/// Both halves of the product, so that each bit of either number counts.
#[inline(always)]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ SEED) * u128::from(b ^ OTHER);
    product as u64 ^ (product >> 64) as u64
}

/// The frames of the thread with this `PyThreadState`. `code_type`: the address of `PyCode_Type`.
#[inline(always)]
pub fn walk(o: &Offsets, state: usize, code_type: usize) -> Stack {
    let mut stack = Stack { frames: [const { MaybeUninit::uninit() }; DEPTH], n: 0, deeper: false, hash: 0 };
    let mut frame = word(state + usize::from(o.top));
    if o.current != NONE && frame != 0 {
        frame = word(frame + usize::from(o.current));
    }
    // The last frame's file, and the hash of its name: most neighbours are in the same file.
    let mut known = (0, 0);
    for _ in 0..LOOKED {
        if frame == 0 {
            return stack;
        }
        if let Some(found) = look(o, frame, code_type, &mut known) {
            let Some(to) = stack.frames.get_mut(stack.n) else { break };
            to.write(found);
            stack.n += 1;
            stack.hash = mix(stack.hash, found.key ^ u64::from(found.at));
        }
        frame = word(frame + usize::from(o.back));
    }
    stack.deeper = true;
    stack.hash = mix(stack.hash, 1);
    stack
}

/// A frame; `None` if it is not of Python code, or has not begun.
#[inline(always)]
fn look(o: &Offsets, frame: usize, code_type: usize, known: &mut (usize, u64)) -> Option<Frame> {
    let owner = if o.owner == NONE { 0 } else { byte(frame + usize::from(o.owner)) };
    if owner >= OWNED_BY_C {
        return None;
    }
    let code = word(frame + usize::from(o.code)) & !TAG;
    if code == 0 || word(code + TYPE) != code_type {
        return None;
    }
    let at = match o.at {
        At::Number(bytes) => {
            let number = half(frame + usize::from(o.instruction)) as i32;
            u32::try_from(number).ok()?.wrapping_mul(bytes)
        }
        At::Pointer => {
            let at = word(frame + usize::from(o.instruction)).wrapping_sub(code + usize::from(o.start));
            let at = u32::try_from(at).ok()?;
            // (As in sys._getframe: earlier instructions set up the frame.)
            let first = half(code + usize::from(o.first_traceable)).wrapping_mul(2);
            if owner != OWNED_BY_GENERATOR && at < first {
                return None;
            }
            at
        }
    };
    Some(Frame { code, at, key: key(o, code, known) })
}

/// A hash that identifies a code object.
#[inline(always)]
fn key(o: &Offsets, code: usize, known: &mut (usize, u64)) -> u64 {
    let (file, name) = (word(code + usize::from(o.file)), word(code + usize::from(o.name)));
    let first_line = u64::from(half(code + usize::from(o.first_line)));
    let version = if o.version == NONE { 0 } else { u64::from(half(code + usize::from(o.version))) };
    let h = mix(code as u64, first_line | version << 32) ^ mix(file as u64, name as u64);
    if version != 0 {
        return h;
    }
    // Freed memory is reused for the next object of its kind, and the same holds for its names. So their contents count.
    let lines = word(code + usize::from(o.lines));
    if known.0 != file {
        let text = Text::of(o, file);
        *known = (file, ends(text.at, text.bytes));
    }
    let name = Text::of(o, name);
    let texts = mix(known.1, ends(name.at, name.bytes));
    mix(h, texts ^ ends(lines + BYTES, word(lines + SIZE)).rotate_left(32))
}

/// A hash of this memory: its number of bytes, and the 16 at each end.
#[inline(always)]
fn ends(at: usize, bytes: usize) -> u64 {
    let end = at.wrapping_add(bytes);
    let word = |at: usize| word(at) as u64;
    let [a, b, c, d] = match bytes {
        16.. => [word(at), word(at.wrapping_add(8)), word(end.wrapping_sub(16)), word(end.wrapping_sub(8))],
        8.. => [word(at), word(end.wrapping_sub(8)), 0, 0],
        4.. => [half(at).into(), half(end.wrapping_sub(4)).into(), 0, 0],
        1.. => [byte(at).into(), byte(at.wrapping_add(bytes / 2)).into(), byte(end.wrapping_sub(1)).into(), 0],
        0 => [0; 4],
    };
    mix(a, b) ^ mix(c ^ bytes as u64, d).rotate_left(1)
}

/// The place of a string's text.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    pub at: usize,
    pub bytes: usize,
    /// Bytes per unit: 1, 2 or 4.
    pub unit: u8,
}

impl Text {
    #[inline(always)]
    pub fn of(o: &Offsets, string: usize) -> Text {
        // interned: 2 bits, kind: 3, compact: 1, ascii: 1
        let state = half(string + STATE);
        let unit = (state >> 2 & 7) as u8;
        let compact = string + usize::from(o.compact);
        let at = match (state >> 5 & 1, state >> 6 & 1) {
            (1, 1) => string + usize::from(o.ascii),
            (1, _) => compact,
            _ => word(compact),
        };
        let bytes = word(string + LENGTH).saturating_mul(usize::from(unit));
        if matches!(unit, 1 | 2 | 4) && bytes < 1 << 30 {
            Text { at, bytes, unit }
        } else {
            Text { at, bytes: 0, unit: 1 }
        }
    }
}

/// Copies memory at an address, as much as fits.
pub fn copy(at: usize, bytes: usize, to: &mut [u8]) -> usize {
    let n = bytes.min(to.len());
    for (i, to) in to.iter_mut().take(n).enumerate() {
        *to = byte(at.wrapping_add(i));
    }
    n
}
