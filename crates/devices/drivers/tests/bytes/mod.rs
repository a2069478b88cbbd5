//! Bytes of memory that a card moves.

use pcie::Memory;

pub fn noise(bytes: u64, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(step).collect()
}

pub fn load(memory: &Memory, at: u64, bytes: u64) -> Vec<u8> {
    let mut into = vec![0; bytes as usize];
    memory.load(at, &mut into).unwrap();
    into
}
