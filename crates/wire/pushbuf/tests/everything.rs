//! No input panics: the fuzz target's corpus and 100,000 pseudo-random streams through every reader.

#[path = "../fuzz/everything.rs"]
mod everything;

use std::{fs, path::Path};

#[test]
fn the_fuzz_corpus() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/everything");
    let mut inputs = 0;
    for entry in fs::read_dir(&dir).unwrap() {
        let data = fs::read(entry.unwrap().path()).unwrap();
        (0..data.len().min(64)).for_each(|cut| everything::check(&data[..cut]));
        everything::check(&data);
        inputs += 1;
    }
    assert!(inputs >= 6, "{} holds {inputs} inputs", dir.display());
}

struct Random(u64);

impl Random {
    /// splitmix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Words that look like a stream: headers of the methods that mean something, with data of all sizes, and noise between.
fn stream(random: &mut Random) -> Vec<u8> {
    const OFFSETS: [u32; 24] = [
        0x0, 0x10, 0x1c, 0x5c, 0x6c, 0x158, 0x168, 0x180, 0x188, 0x1b0, 0x1b4, 0x1dc, 0x240, 0x2b4, 0x2c0, 0x300,
        0x318, 0x320, 0x400, 0x410, 0x700, 0x708, 0x1b00, 0x3ffc,
    ];
    let mut out = vec![random.next() as u8, random.below(40) as u8];
    for _ in 0..random.below(12) {
        let subch = [0, 1, 1, 2, 4, 4, 7][random.below(7) as usize];
        let offset = OFFSETS[random.below(24) as usize] / 4;
        let count = [0, 1, 2, 3, 4, 8, 64, 96][random.below(8) as usize];
        let form = [1, 1, 1, 3, 3, 4, 5, 0, 2, 6, 7][random.below(11) as usize];
        let header = match random.below(16) {
            0 => random.next() as u32,
            _ => form << 29 | count << 16 | subch << 13 | offset,
        };
        out.extend(header.to_le_bytes());
        let data = if random.below(8) == 0 { random.below(20) as u32 } else { count };
        for _ in 0..data {
            let word = match random.below(4) {
                0 => random.next() as u32,
                1 => 1 << random.below(32),
                _ => random.below(0x400) as u32,
            };
            out.extend(word.to_le_bytes());
        }
    }
    out.truncate(out.len() - random.below(3).min(out.len() as u64) as usize);
    out
}

#[test]
fn pseudo_random_streams() {
    let mut random = Random(1);
    for _ in 0..100_000 {
        let data = stream(&mut random);
        everything::check(&data);
    }
}
