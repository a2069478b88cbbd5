//! Random data from a seed.

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub fn word(&mut self) -> u32 {
        (self.draw() >> 32) as u32
    }

    /// A number from 0 to `below` - 1; `below` is not 0.
    pub fn below(&mut self, below: u64) -> u64 {
        // The bias is one in 2^64 / below, which is negligible.
        ((u128::from(self.draw()) * u128::from(below)) >> 64) as u64
    }

    /// True in `of` of a hundred cases.
    pub fn percent(&mut self, of: u64) -> bool {
        self.below(100) < of
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.draw().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_that_of_splitmix64() {
        // First values for seed 1234567, as published with the algorithm's reference code.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.draw(), 6_457_827_717_110_365_317);
        assert_eq!(random.draw(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn numbers_stay_below_and_lengths_are_kept() {
        let mut random = Random::new(1);
        for below in [1, 2, 3, 100, u64::MAX] {
            assert!((0..1000).all(|_| random.below(below) < below));
        }
        for length in [0, 1, 7, 8, 9] {
            assert_eq!(random.bytes(length).len(), length);
        }
    }
}
