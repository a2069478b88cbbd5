//! Maps by small keys (thread numbers, addresses, indices) that are looked up for each event of a tape.
//!
//! The standard hash took a sixth of the time of a walk. This one multiplies by an odd number, begins with one that differs from
//! run to run, and puts the bits that differ most where the map looks.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

pub type FastMap<K, V> = HashMap<K, V, Seed>;

/// Start value of hashes.
#[derive(Clone, Copy, Debug)]
pub struct Seed(u64);

impl Default for Seed {
    fn default() -> Seed {
        static SEED: OnceLock<u64> = OnceLock::new();
        Seed(*SEED.get_or_init(|| RandomState::new().hash_one(0)))
    }
}

impl BuildHasher for Seed {
    type Hasher = Fast;

    fn build_hasher(&self) -> Fast {
        Fast(self.0)
    }
}

pub struct Fast(u64);

/// 2^64 by the golden ratio, odd.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for Fast {
    fn write(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(piece).for_each(|(to, from)| *to = *from);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }

    fn write_i32(&mut self, n: i32) {
        self.write_u64(u64::from(n as u32));
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0 ^ n).wrapping_mul(FACTOR);
        // Differences in the upper bits also change the lower ones.
        self.0 ^= self.0 >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Keys as tapes have them spread over the bits that a map picks its bucket by, and over those that it compares first.
    #[test]
    fn close_keys_get_far_hashes() {
        let seed = Seed::default();
        let addresses: Vec<u64> = (0..4096u64).map(|i| seed.hash_one((0u32, 0x7f00_1234_0000 + i * 40))).collect();
        let threads: Vec<u64> = (0..4096i32).map(|i| seed.hash_one(100_000 + i)).collect();
        let blocks: Vec<u64> = (0..4096u64).map(|i| seed.hash_one((1u32, i << 32))).collect();
        for all in [addresses, threads, blocks] {
            let low: HashSet<u64> = all.iter().map(|h| h & 0xfff).collect();
            let high: HashSet<u64> = all.iter().map(|h| h >> 57).collect();
            assert!(low.len() > 2000 && high.len() == 128, "{} of 4096, {} of 128", low.len(), high.len());
        }
    }
}
