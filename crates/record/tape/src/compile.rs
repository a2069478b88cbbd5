//! Requests to doorbell's compiler (`run --fix=code`), a process that loads code before the program does, so that CUDA's cache has it.
//!
//! A request is a [`Request`], its options and the code; the answer is an [`Answer`]. They go through a socket with a name of [`name`].

use crate::event::Plain;

/// Bytes of a socket's name.
pub const NAME: usize = 20;
/// The most code that is sent, and the most options.
pub const MOST: usize = 256 << 20;
pub const OPTIONS: usize = 32;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The GPU's, as cuDeviceGetUuid has it.
    pub uuid: [u8; 16],
    /// How many [`Setting`]s follow.
    pub options: u64,
    /// Bytes of code that follow them: a text without its NUL, or a fat binary.
    pub bytes: u64,
}

/// A `CUjit_option` and its value.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    pub option: u32,
    pub pad: u32,
    pub value: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The `CUresult` of the load.
    pub result: i32,
    /// [`state`]
    pub state: u32,
    /// Nanoseconds that the load took, and a second one.
    pub first_ns: u64,
    pub again_ns: u64,
}

pub mod state {
    /// CUDA's cache has the code now.
    pub const CACHED: u32 = 0;
    /// CUDA could not be started there.
    pub const NO_CUDA: u32 = 1;
    /// A second load took as long: there is no cache, or it does not take this code.
    pub const NO_CACHE: u32 = 2;
}

// SAFETY: integers without padding; all bit patterns are values.
unsafe impl Plain for Request {}
// SAFETY: as above.
unsafe impl Plain for Setting {}
// SAFETY: as above.
unsafe impl Plain for Answer {}

/// The name of the socket with this number, among the names without files (unix(7), abstract).
pub fn name(number: u32) -> [u8; NAME] {
    let mut name = *b"doorbell-code-000000";
    let digits = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut left = number as usize;
    for place in name.iter_mut().rev().take(6) {
        *place = digits.get(left % digits.len()).copied().unwrap_or(b'0');
        left /= digits.len();
    }
    name
}

/// Whether CUDA compiles options of this kind into code, or returns times and logs by them, which changes no code. Others have pointers.
pub fn option(option: u32) -> Kind {
    match option {
        // WALL_TIME, INFO_LOG_BUFFER and its size, ERROR_LOG_BUFFER and its size
        2..=6 => Kind::Output,
        // GLOBAL_SYMBOL_NAMES, GLOBAL_SYMBOL_ADDRESSES, GLOBAL_SYMBOL_COUNT; REFERENCED_.. and their counts
        17..=19 | 26..=29 => Kind::Pointer,
        0..=33 => Kind::Value,
        _ => Kind::Pointer,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Value,
    Output,
    Pointer,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_have_names_of_one_length() {
        assert_eq!(
            (&name(0), &name(35), &name(36)),
            (b"doorbell-code-000000", b"doorbell-code-00000z", b"doorbell-code-000010")
        );
        assert_ne!(name(u32::MAX), name(u32::MAX - 1));
    }
}
