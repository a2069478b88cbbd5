//! Whether the memory that a call moved is pageable, inferred from the engine's commands.

use pushbuf::ops::{Op, Purpose, What as Did};
use tape::call::{CallBody, Class, Function};

/// CUDA moves up to this many bytes from pinned memory in its commands (docs/results/act.md): below, pinned and
/// pageable memory look alike.
const INLINE: u64 = 24 << 10;

/// Bytes that one command moved.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    src: Option<u64>,
    dst: u64,
    is_inline: bool,
}

impl Moved {
    /// `None` for a command that moves none of the program's bytes.
    pub fn of(op: &Op) -> Option<Moved> {
        match &op.what {
            Did::Copy(c) => Some(Moved { src: Some(c.src), dst: c.dst, is_inline: false }),
            Did::Inline(i) if i.purpose == Purpose::Data => Some(Moved { src: None, dst: i.dst, is_inline: true }),
            _ => None,
        }
    }
}

/// Whether the bytes were moved through CUDA's own memory, because the program's is not pinned. False if that is not
/// known.
pub fn is_pageable(function: Option<&Function>, c: &CallBody, moved: &[Moved]) -> bool {
    let moves_between_addresses = function
        .is_some_and(|f| matches!(f.class, Class::Copy | Class::CopyAsync) && f.source_at != Function::NOT_SAID);
    if !moves_between_addresses || c.source == 0 || c.size <= INLINE {
        return false;
    }
    let within = |va: u64, begin: u64| va.wrapping_sub(begin) < c.size;
    // The engine uses the program's own addresses where it reaches its memory.
    moved.iter().any(|m| match m.src {
        Some(src) => within(src, c.source) != within(m.dst, c.object),
        None => m.is_inline && within(m.dst, c.object),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tape::call;

    #[test]
    fn memory_is_pageable_where_the_engine_does_not_read_or_write_the_programs_own() {
        let (host, device, size) = (0x7f00_0000_0000, 0x10_0000_0000, 1 << 20);
        let engine = |src, dst| Moved { src: Some(src), dst, is_inline: false };
        let inline = |dst| Moved { src: None, dst, is_inline: true };
        let to_device = CallBody { source: host, object: device, size, ..CallBody::default() };
        let from_device = CallBody { source: device, object: host, size, ..CallBody::default() };
        let staging = 0x7e00_0000_0000;
        let is = |number, c: &CallBody, moved: &[Moved]| is_pageable(call::function(number), c, moved);
        // cuMemcpyHtoDAsync, cudaMemcpyAsync: pinned in two pieces, staged in two pieces.
        for number in [13, 267] {
            let pinned = [engine(host, device), engine(host + 4096, device + 4096)];
            assert!(!is(number, &to_device, &pinned));
            assert!(is(number, &to_device, &[engine(staging, device), engine(staging, device + size / 2)]));
            assert!(is(number, &from_device, &[engine(device, staging)]));
            assert!(!is(number, &from_device, &[engine(device, host)]));
        }
        // In CUDA's commands: more bytes than it moves that way from pinned memory.
        let c = CallBody { size: 64 << 10, ..to_device };
        assert!(is(13, &c, &[inline(device)]));
        assert!(!is(13, &CallBody { size: INLINE, ..c }, &[inline(device)]));
        // No move was seen; an older recording; a copy of rows; a write that is not a copy's.
        assert!(!is(13, &to_device, &[]));
        assert!(!is(13, &CallBody { source: 0, ..to_device }, &[engine(staging, device)]));
        assert!(!is(22, &to_device, &[engine(staging, device)]));
        assert!(!is(13, &to_device, &[inline(device + 2 * size)]));
    }
}
