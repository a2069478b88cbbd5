//! Calls that are alike: of one function, and for copies of one direction and size.

use tape::call::{self, CallBody, flag};

/// Function, direction and size of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallKind {
    /// Its number on tapes.
    pub function: u16,
    /// As in [`flag::DIRECTION`].
    direction: u8,
    /// One more than the index in [`SIZES`]; 0 for calls that move no bytes.
    size: u8,
}

/// Classes of sizes.
const SIZES: [(u64, &str); 5] = [
    (4 << 10, "to 4 KiB"),
    (64 << 10, "to 64 KiB"),
    (1 << 20, "to 1 MiB"),
    (16 << 20, "to 16 MiB"),
    (u64::MAX, "above 16 MiB"),
];
const DIRECTIONS: [&str; 5] = ["host to host", "host to device", "device to host", "device to device", "by address"];

impl CallKind {
    pub fn of(function: u16, c: &CallBody) -> CallKind {
        let moves = call::function(function)
            .is_some_and(|f| matches!(f.class, call::Class::Copy | call::Class::CopyAsync | call::Class::Memset));
        let class = SIZES.iter().position(|(most, _)| c.size <= *most).unwrap_or(0) as u8;
        let direction = ((c.flags & flag::DIRECTION) >> flag::DIRECTION_SHIFT) as u8;
        CallKind { function, direction, size: if moves { class + 1 } else { 0 } }
    }

    /// A copy's direction, if the caller passed it.
    pub fn direction(self) -> Option<&'static str> {
        usize::from(self.direction).checked_sub(1).and_then(|d| DIRECTIONS.get(d)).copied()
    }

    /// For copies and memsets: `to 4 KiB`, ...
    pub fn size(self) -> Option<&'static str> {
        usize::from(self.size).checked_sub(1).and_then(|s| SIZES.get(s)).map(|(_, name)| *name)
    }
}
