//! Payloads packed by zstd, one frame each: a chunk can be read without those before it, and damage costs one chunk.

use crate::event::Head;
use std::cell::RefCell;

/// Level 1 packs events to a sixth (a program's start) or a fifteenth (many launches), at some 600 MB/s. Level 3 packs no smaller; level 6 gains 15 % at a
/// quarter of the speed (seen on recordings of an H200).
const LEVEL: i32 = 1;
/// Payloads below this stay as they are.
const SMALL: usize = 256;

/// Packs payloads. Its memory is used again.
pub struct Packer {
    /// None where zstd got no memory: payloads are not packed then.
    zstd: Option<zstd::bulk::Compressor<'static>>,
    packed: Vec<u8>,
}

impl Default for Packer {
    fn default() -> Packer {
        Packer { zstd: zstd::bulk::Compressor::new(LEVEL).ok(), packed: Vec::new() }
    }
}

impl Packer {
    /// `None` if packing does not make it smaller.
    pub fn pack(&mut self, payload: &[u8]) -> Option<&[u8]> {
        if payload.len() < SMALL {
            return None;
        }
        self.packed.resize(payload.len() - 1, 0);
        // (What does not fit is an error.)
        let n = self.zstd.as_mut()?.compress_to_buffer(payload, &mut self.packed).ok()?;
        self.packed.get(..n)
    }
}

/// Events of a chunk above which they are compared with its size.
const FEW_EVENTS: usize = 4096;
/// Events of a recorder take more than half a byte each: their times differ.
const MOST_FOR_A_BYTE: usize = 2;

/// True for events that no recorder has written: so many for the packed size that a small file would take all memory.
pub fn is_too_full(packed: usize, events: &[u8]) -> bool {
    let most = FEW_EVENTS + MOST_FOR_A_BYTE * packed;
    let mut at = 0;
    // (The size is looked at first: each event has a head.)
    events.len() / size_of::<Head>() > most
        && (0..=most).all(|_| {
            let len = events.get(at + 4..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes) as usize;
            at += len;
            len >= size_of::<Head>() && at <= events.len()
        })
}

thread_local! {
    /// (A tenth of the time that reading takes went into new ones.)
    static UNPACKER: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// `bytes`: size of the payload when it is unpacked, from the chunk's head.
pub fn unpack(packed: &[u8], bytes: usize, into: &mut Vec<u8>) -> Result<(), &'static str> {
    const WRONG: &str = "chunk cannot be unpacked";
    into.clear();
    into.reserve_exact(bytes);
    UNPACKER.with_borrow_mut(|unpacker| {
        if unpacker.is_none() {
            *unpacker = zstd::bulk::Decompressor::new().ok();
        }
        let read = unpacker.as_mut().ok_or(WRONG)?.decompress_to_buffer(packed, into);
        read.ok().filter(|n| *n == bytes && into.len() == bytes).map(|_| ()).ok_or(WRONG)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::bytes_of;

    /// As many events of 64 bytes, whose times differ by `step` of their number.
    fn events(n: u64, step: impl Fn(u64) -> u64) -> Vec<u8> {
        let head = |i| Head { kind: 60, flags: 0, len: 64, tsc: step(i) };
        (0..n).flat_map(|i| [bytes_of(&head(i)), &[0; 48]].concat()).collect()
    }

    #[test]
    fn a_small_chunk_has_no_millions_of_events() {
        let packed = |events: &[u8]| Packer::default().pack(events).map_or(0, <[u8]>::len);
        let same = events(200_000, |_| 7);
        assert!(packed(&same) < 4096 && is_too_full(packed(&same), &same));
        // Times of a real recording differ.
        let real = events(200_000, |i| i * 3000 + (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56));
        assert!(!is_too_full(packed(&real), &real));
        assert!(!is_too_full(100, &events(FEW_EVENTS as u64, |_| 7)));
        // Large events of zeros, and bytes that are no event.
        assert!(!is_too_full(100, &vec![0; 16 << 20]) && !is_too_full(100, &vec![0x20; 1 << 20]));
    }
}
