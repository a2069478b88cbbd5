//! Where each image's chunks are, so that a reader of one process can skip those of the others.
//!
//! An extent is a run of chunks of one image. A run may hold chunks of others where two short runs were joined, so a
//! reader still looks at each head. The payload is little endian. For each image it has its index u32, the number of
//! its extents u32, and the extents (offset u64, bytes u64, number of the first chunk u64). The trailer follows: the
//! offset of this chunk's head u64 and [`TRAILER`]. The chunk is the last in the file, so the trailer is the file's
//! last 16 bytes.

use super::chunk::MAX_CHUNK;
use std::collections::BTreeMap;

pub const TRAILER: &[u8; 8] = b"DRBLINDX";

/// A run of whole chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file of the first chunk's head.
    pub offset: u64,
    pub bytes: u64,
    /// Number of the first chunk.
    pub seq: u64,
}

/// Maximum number of extents of one image: more are joined in pairs.
const EXTENTS: usize = 4096;
/// Maximum number of images in the index; for others a reader scans the file.
const PROCESSES: usize = 1 << 16;

/// Made while chunks are written.
#[derive(Clone, Debug, Default)]
pub struct Index {
    of: BTreeMap<u32, Vec<Extent>>,
}

impl Index {
    pub fn add(&mut self, process: u32, offset: u64, bytes: u64, seq: u64) {
        if self.of.len() >= PROCESSES && !self.of.contains_key(&process) {
            return;
        }
        let extents = self.of.entry(process).or_default();
        match extents.last_mut() {
            Some(last) if last.offset + last.bytes == offset => last.bytes += bytes,
            _ => extents.push(Extent { offset, bytes, seq }),
        }
        if extents.len() > EXTENTS {
            join(extents);
        }
    }

    /// Forgets everything from offset `from` on: it was cut off.
    pub fn cut(&mut self, from: u64) {
        for extents in self.of.values_mut() {
            while let Some(last) = extents.last_mut() {
                if last.offset < from {
                    last.bytes = last.bytes.min(from - last.offset);
                    break;
                }
                extents.pop();
            }
        }
        self.of.retain(|_, e| !e.is_empty());
    }

    /// The payload of the index chunk whose head is at offset `at`; `None` if it would be longer than a chunk.
    pub fn encode(&self, at: u64) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        for (process, extents) in &self.of {
            out.extend(process.to_le_bytes());
            out.extend((extents.len() as u32).to_le_bytes());
            for e in extents {
                for word in [e.offset, e.bytes, e.seq] {
                    out.extend(word.to_le_bytes());
                }
            }
        }
        out.extend(at.to_le_bytes());
        out.extend(TRAILER);
        (out.len() <= MAX_CHUNK).then_some(out)
    }

    /// `None` if the bytes are no index.
    pub fn decode(b: &[u8]) -> Option<Index> {
        let (mut b, trailer) = b.split_at_checked(b.len().checked_sub(16)?)?;
        if trailer.get(8..)? != TRAILER {
            return None;
        }
        let mut index = Index::default();
        while !b.is_empty() {
            let (head, rest) = b.split_at_checked(8)?;
            let process = u32::from_le_bytes(head.get(..4)?.try_into().ok()?);
            let n = u32::from_le_bytes(head.get(4..)?.try_into().ok()?) as usize;
            let (body, rest) = rest.split_at_checked(n.checked_mul(24)?)?;
            let word = |b: &[u8], i: usize| Some(u64::from_le_bytes(b.get(8 * i..8 * i + 8)?.try_into().ok()?));
            let extent = |b| Some(Extent { offset: word(b, 0)?, bytes: word(b, 1)?, seq: word(b, 2)? });
            index.of.insert(process, body.chunks_exact(24).map(extent).collect::<Option<_>>()?);
            b = rest;
        }
        Some(index)
    }

    /// The extents of an image; `None` if the index lacks it.
    pub fn of(&self, process: u32) -> Option<&[Extent]> {
        self.of.get(&process).map(Vec::as_slice)
    }
}

/// Halves the number of extents.
fn join(extents: &mut Vec<Extent>) {
    let joined = extents.chunks(2).map(|pair| match *pair {
        [a, b] => Extent { bytes: b.offset + b.bytes - a.offset, ..a },
        [a] => a,
        _ => unreachable!("chunks of two"),
    });
    *extents = joined.collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every chunk is in an extent of its image, however many were joined. Chunks that were cut off are in none.
        #[test]
        fn no_chunk_is_forgotten(owners in prop::collection::vec((0u32..4, 1u64..9), 0..300), cut in 0usize..300) {
            let mut index = Index::default();
            let mut chunks = Vec::new();
            let mut at = 16;
            for (seq, (process, words)) in owners.into_iter().enumerate() {
                index.add(process, at, 8 * words, seq as u64);
                chunks.push((process, at, 8 * words));
                at += 8 * words;
            }
            if let Some(&(_, from, _)) = chunks.get(cut) {
                index.cut(from);
                chunks.truncate(cut);
                at = from;
            }
            let read = Index::decode(&index.encode(at).unwrap()).unwrap();
            for (process, offset, bytes) in chunks {
                let of = read.of(process).unwrap();
                prop_assert!(of.iter().any(|e| e.offset <= offset && offset + bytes <= e.offset + e.bytes));
                prop_assert!(of.iter().all(|e| e.offset + e.bytes <= at));
            }
        }

        #[test]
        fn garbage_is_no_index(mut bytes in prop::collection::vec(any::<u8>(), 0..200), trailed in any::<bool>()) {
            if trailed {
                bytes.extend([0; 8]);
                bytes.extend(TRAILER);
            }
            let _ = Index::decode(&bytes);
        }
    }

    #[test]
    fn images_that_take_turns_for_ever_do_not_fill_the_memory() {
        let mut index = Index::default();
        for i in 0..100_000u64 {
            index.add((i % 2) as u32, 16 + 48 * i, 48, i);
        }
        for process in 0..2 {
            let of = index.of(process).unwrap();
            assert!(of.len() <= EXTENTS);
            assert_eq!((of[0].offset, of[0].seq), (16 + 48 * u64::from(process), process.into()));
            assert!(of.windows(2).all(|w| w[0].offset + w[0].bytes <= w[1].offset));
        }
    }
}
