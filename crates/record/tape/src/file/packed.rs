//! Payloads packed by zstd, one frame each: a chunk can be read without those before it, and damage costs one chunk.

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
