//! Events for Python frames, which `record --python` adds to a tape.
//!
//! A CUDA call ([`crate::call::CallBody::python`]) and a doorbell ([`crate::event::RingBody::python`]) have the number of a
//! stack. The stack is written once ([`StackBody`]), each of its code objects once ([`CodeBody`]), in the ring of the
//! thread that met it first and before its number is used. Other threads may use the number immediately, so their events
//! may precede it in the order of time. A reader therefore collects stacks and code objects first.
//!
//! Numbers count within a process image and are not used again.

/// Event kinds, with those of [`crate::call::kind`].
pub mod kind {
    /// The interpreter was found: [`PythonBody`](super::PythonBody).
    pub const PYTHON: u16 = 52;
    /// [`CodeBody`](super::CodeBody)
    pub const CODE: u16 = 53;
    /// [`StackBody`](super::StackBody)
    pub const STACK: u16 = 54;
}

/// Layout of the bodies here; in the first event.
pub const LAYOUT: u32 = 1;

/// Number of a stack that existed but could not be written.
pub const LOST: u32 = u32::MAX;
/// Numbers from here on are of stacks and code objects for which the agent's tables had no room: each is used once.
pub const UNKEPT: u32 = 1 << 24;

/// Frames of a stack that are kept, the innermost ones.
pub const DEPTH: usize = 48;
/// Bytes that are kept of a file's name, of a function's name and of a line table. If a file name is longer, only its end is kept.
pub const FILE: usize = 1024;
pub const NAME: usize = 512;
pub const LINES: usize = 16 << 10;

/// State of the interpreter. Its version as a text follows.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PythonBody {
    /// [`LAYOUT`]
    pub layout: u32,
    /// One of [`state`].
    pub state: u32,
    /// The 11 of 3.11.
    pub minor: u32,
    /// Bytes of text that follow.
    pub text: u32,
}

/// State of the interpreter.
pub mod state {
    /// None was seen so far. (Never in an event.)
    pub const NONE: u32 = 0;
    /// Frames are read.
    pub const READ: u32 = 1;
    /// An unknown version.
    pub const VERSION: u32 = 2;
    /// A debug build.
    pub const DEBUG: u32 = 3;
    /// Without a global lock.
    pub const FREE_THREADED: u32 = 4;
    /// A structure differs from that version's.
    pub const LAYOUT: u32 = 5;
    /// No handler could be installed for addresses that cannot be read.
    pub const NO_HANDLER: u32 = 6;
    pub const COUNT: usize = 7;

    pub const TEXT: [&str; COUNT] = [
        "no Python was found",
        "frames were read",
        "its version is not one that is known (3.9 to 3.14)",
        "it is a debug build",
        "it is a build without the global interpreter lock",
        "its frames are not where its version has them",
        "the kernel refused a handler for SIGSEGV",
    ];
}

/// A code object: the name of its file follows, that of its function, and from the next multiple of eight on its line table.
///
/// Names are as CPython has them: units of one byte (Latin-1), two or four.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeBody {
    pub number: u32,
    /// `co_firstlineno`
    pub first_line: i32,
    /// Bytes of the file's name, of the function's, and of the line table.
    pub file: u32,
    pub name: u32,
    pub lines: u32,
    /// Bytes of a unit of the file's name, and of the function's.
    pub file_unit: u8,
    pub name_unit: u8,
    /// Which form its line table has: the 11 of 3.11.
    pub minor: u8,
    /// Bits of [`code_flags`].
    pub flags: u8,
}

pub mod code_flags {
    /// The end of its file's name only.
    pub const FILE_CUT: u8 = 1;
    /// The begin of its function's name only.
    pub const NAME_CUT: u8 = 2;
    /// The begin of its line table only.
    pub const LINES_CUT: u8 = 4;
}

/// A stack: so many [`Frame`]s follow, the innermost first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackBody {
    pub number: u32,
    /// Frames that follow.
    pub frames: u32,
}

/// [`StackBody`]'s event head.
pub mod stack_flags {
    /// There are more frames further out.
    pub const DEEPER: u16 = 1;
}

/// A frame.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// [`CodeBody::number`]; [`LOST`] if it could not be written.
    pub code: u32,
    /// Offset of the instruction in its code, bytes.
    pub at: u32,
}

/// A name as text, from its units ([`CodeBody::file_unit`]).
#[cfg(feature = "file")]
pub fn text(bytes: &[u8], unit: u8) -> String {
    let units = bytes.chunks_exact(usize::from(unit.max(1)));
    let wide = |b: &[u8]| b.iter().rev().fold(0u32, |n, b| n << 8 | u32::from(*b));
    // (A lone surrogate represents a byte that was no UTF-8.)
    units.map(|b| char::from_u32(wide(b.get(..4).unwrap_or(b))).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

/// The units of a text and their bytes, as [`text`] reads them.
#[cfg(feature = "file")]
pub fn units(text: &str) -> (Vec<u8>, u8) {
    match text.is_ascii() {
        true => (text.into(), 1),
        false => (text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect(), 4),
    }
}

#[cfg(all(test, feature = "file"))]
mod tests {
    use super::*;

    #[test]
    fn names_are_texts_whatever_their_units() {
        assert_eq!(text(b"caf\xe9", 1), "café");
        assert_eq!(text(&[0x3c, 0x04, 0x00, 0xd8], 2), "м\u{fffd}");
        assert_eq!(text(&[], 4), "");
        assert_eq!(text(b"abc", 0), "abc");
        assert_eq!(text(&[1; 18], 9), "\u{fffd}\u{fffd}");
        for name in ["", "train.py", "café/м/🚪.py"] {
            let (bytes, unit) = units(name);
            assert_eq!(text(&bytes, unit), name);
        }
    }
}
