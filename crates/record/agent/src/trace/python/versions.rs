//! The offsets of the CPython fields that are read, by version.
//!
//! The numbers are from the headers of each version (`Include/cpython` and `Include/internal`, x86-64, release builds
//! with the global lock); `fixtures/offsets.c` prints them. A minor version keeps them over its releases, as its
//! extensions' binary interface requires. [`super::check`] checks them before any is used.

/// No such field in this version.
pub const NONE: u16 = u16::MAX;

/// How a frame stores its current instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// A 32-bit number, times this many bytes.
    Number(u32),
    /// Its address.
    Pointer,
}

/// Offsets of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    pub minor: u8,
    /// `PyThreadState`: `frame` (3.9, 3.10), `cframe` (3.11, 3.12), `current_frame` (from 3.13 on).
    pub top: u16,
    /// `_PyCFrame.current_frame`
    pub current: u16,
    pub thread_id: u16,
    /// `PyFrameObject` (3.9, 3.10), `_PyInterpreterFrame`: `f_code` or `f_executable`, `f_back` or `previous`, `f_lasti`,
    /// `prev_instr` or `instr_ptr`, `owner`.
    pub code: u16,
    pub back: u16,
    pub instruction: u16,
    pub at: At,
    pub owner: u16,
    /// `PyCodeObject`
    pub file: u16,
    /// `co_qualname`, or `co_name` if there is none.
    pub name: u16,
    pub first_line: u16,
    /// `co_linetable`, or `co_lnotab`.
    pub lines: u16,
    /// `co_version`: a different number for each code object ever made.
    pub version: u16,
    /// `co_code_adaptive`, the first instruction.
    pub start: u16,
    /// `_co_firsttraceable`
    pub first_traceable: u16,
    /// Sizes of `PyASCIIObject` and `PyCompactUnicodeObject`; a string's text follows them.
    pub ascii: u16,
    pub compact: u16,
}

/// `PyObject.ob_type`, `PyVarObject.ob_size`, `PyBytesObject.ob_sval`, `PyASCIIObject.length` and `.state`: in all versions.
pub const TYPE: usize = 8;
pub const SIZE: usize = 16;
pub const BYTES: usize = 32;
pub const LENGTH: usize = 16;
pub const STATE: usize = 32;

/// `_frameowner`
pub const OWNED_BY_GENERATOR: u8 = 1;
/// From this one on a frame is not of Python code: it is on the C stack, or (3.14) the interpreter's own.
pub const OWNED_BY_C: u8 = 3;

/// Bits of a frame's reference to its code that are not of the address (`_PyStackRef`, 3.14). Objects are aligned to 8 bytes.
pub const TAG: usize = 3;

const V39: Offsets = Offsets {
    minor: 9,
    top: 24,
    current: NONE,
    thread_id: 176,
    code: 32,
    back: 24,
    instruction: 104,
    at: At::Number(1),
    owner: NONE,
    file: 104,
    name: 112,
    first_line: 40,
    lines: 120,
    version: NONE,
    start: NONE,
    first_traceable: NONE,
    ascii: 48,
    compact: 72,
};

const V310: Offsets = Offsets { minor: 10, instruction: 96, at: At::Number(2), ..V39 };

const V311: Offsets = Offsets {
    minor: 11,
    top: 56,
    current: 8,
    thread_id: 152,
    code: 32,
    back: 48,
    instruction: 56,
    at: At::Pointer,
    owner: 69,
    file: 112,
    name: 128,
    first_line: 72,
    lines: 136,
    version: NONE,
    start: 184,
    first_traceable: 168,
    ascii: 48,
    compact: 72,
};

const V312: Offsets = Offsets {
    minor: 12,
    top: 56,
    current: 0,
    thread_id: 136,
    code: 0,
    back: 8,
    instruction: 56,
    at: At::Pointer,
    owner: 70,
    file: 112,
    name: 128,
    first_line: 68,
    lines: 136,
    version: 92,
    start: 192,
    first_traceable: 176,
    ascii: 40,
    compact: 56,
};

const V313: Offsets =
    Offsets { minor: 13, top: 72, current: NONE, thread_id: 152, start: 200, first_traceable: 184, ..V312 };

const V314: Offsets = Offsets { minor: 14, owner: 74, start: 208, first_traceable: 192, ..V313 };

pub static VERSIONS: [Offsets; 6] = [V39, V310, V311, V312, V313, V314];

/// The offsets of 3.`minor`.
pub fn of(minor: u32) -> Option<&'static Offsets> {
    VERSIONS.iter().find(|v| u32::from(v.minor) == minor)
}
