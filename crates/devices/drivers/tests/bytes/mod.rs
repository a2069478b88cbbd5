//! Bytes of memory that a card moves.

use pcie::Memory;

pub fn load(memory: &Memory, at: u64, bytes: u64) -> Vec<u8> {
    let mut into = vec![0; bytes as usize];
    memory.load(at, &mut into).unwrap();
    into
}
