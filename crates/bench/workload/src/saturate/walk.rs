//! The order of places, and the bytes that each I/O carries.
//!
//! Each queue has its own part of the target, of a power of two of blocks. The queue visits them in a scattered order, lap after lap, and
//! each lap carries other bytes than the one before. So the number of I/Os alone determines the bytes that every block must hold, and an I/O
//! that moved no bytes leaves those of the previous lap.

use crate::saturate::queue::Place;

/// Images of the part in a device's memory; the laps carry them in turn.
pub const IMAGES: u64 = 2;

/// The way of one queue through its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    bytes: u64,
    blocks: u64,
    seed: u64,
    next: u64,
}

impl Walk {
    /// I/Os of `bytes` each through a part of `part` bytes: as many blocks as fit, rounded down to a power of two. `None` if no block fits.
    pub fn new(bytes: u64, part: u64, seed: u64) -> Option<Walk> {
        let fit = part.checked_div(bytes).filter(|fit| *fit > 0)?;
        Some(Walk { bytes, blocks: 1 << fit.ilog2(), seed, next: 0 })
    }

    /// Bytes of one I/O.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Bytes that the queue visits.
    pub fn part(&self) -> u64 {
        self.bytes * self.blocks
    }

    /// I/Os so far.
    pub fn taken(&self) -> u64 {
        self.next
    }

    /// The next I/O's place.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> Place {
        let number = self.next;
        self.next += 1;
        let at = self.scattered(number & (self.blocks - 1)) * self.bytes;
        let image = (number >> self.blocks.trailing_zeros()) % IMAGES;
        Place { target: at, device: image * self.part() + at }
    }

    /// A permutation of the blocks: multiplications by odd factors and shifts to the right can be undone within the bits of the block number.
    #[inline]
    fn scattered(&self, n: u64) -> u64 {
        let (mask, bits) = (self.blocks - 1, self.blocks.trailing_zeros());
        let shift = bits / 2 + 1;
        let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(self.seed) & mask;
        x ^= x >> shift;
        x = x.wrapping_mul(0xd134_2543_de82_ef95) & mask;
        x ^= x >> shift;
        x.wrapping_mul(0xaf25_1af3_b0f0_25b5).wrapping_add(self.seed >> 32) & mask
    }

    /// For each block, the number of I/Os to it so far.
    pub fn laps(&self) -> Vec<u64> {
        let mut laps = vec![0; self.blocks as usize];
        for n in 0..self.blocks.min(self.next) {
            laps[self.scattered(n) as usize] = self.next / self.blocks + u64::from(n < self.next % self.blocks);
        }
        laps
    }

    /// For each block, the image that is there after `taken` I/Os, or `None` if none has written it.
    pub fn images(&self) -> Vec<Option<u64>> {
        self.laps().iter().map(|laps| laps.checked_sub(1).map(|lap| lap % IMAGES)).collect()
    }
}

/// Contents of a device's memory: a random number for each place. `at` is a multiple of eight.
pub fn fill(into: &mut [u8], seed: u64, at: u64) {
    for (n, word) in into.chunks_mut(8).enumerate() {
        let bytes = number(seed, at / 8 + n as u64).to_le_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
    }
}

#[inline]
fn number(seed: u64, n: u64) -> u64 {
    fastrand::Rng::with_seed(seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).u64(..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_lap_visits_every_block_once_and_the_images_in_turn(bits in 0u32..12, seed in any::<u64>(), odd in 0u64..511) {
            let mut walk = Walk::new(512, 512 * (1 << bits) + odd, seed).unwrap();
            prop_assert_eq!((walk.blocks(), walk.part()), (1 << bits, 512 << bits));
            for lap in 0..3 {
                let mut seen = vec![false; walk.blocks() as usize];
                for _ in 0..walk.blocks() {
                    let Place { device, target } = walk.next();
                    prop_assert_eq!(device, target + lap % IMAGES * walk.part());
                    prop_assert!(!std::mem::replace(&mut seen[(target / 512) as usize], true));
                }
            }
        }

        #[test]
        fn each_block_holds_the_bytes_of_its_last_io(bits in 0u32..8, seed in any::<u64>(), ios in 0u64..2000) {
            let mut walk = Walk::new(8, 8 << bits, seed).unwrap();
            let mut holds = vec![None; walk.blocks() as usize];
            for _ in 0..ios {
                let Place { device, target } = walk.next();
                holds[(target / 8) as usize] = Some(device / walk.part());
            }
            prop_assert_eq!(walk.images(), holds);
            prop_assert_eq!(walk.taken(), ios);
        }
    }

    #[test]
    fn neighbours_in_time_are_no_neighbours_in_memory() {
        let mut walk = Walk::new(4096, 64 << 20, 7).unwrap();
        let mut before = walk.next().target;
        let near = (0..10_000).filter(|_| {
            let at = walk.next().target;
            std::mem::replace(&mut before, at).abs_diff(at) <= 8 * 4096
        });
        // By chance 17 in 16,384 are.
        assert!(near.count() < 100);
    }

    #[test]
    fn no_walk_fits_into_less_than_a_block() {
        assert_eq!((Walk::new(512, 511, 1), Walk::new(0, 4096, 1)), (None, None));
    }

    #[test]
    fn the_bytes_of_a_place_do_not_depend_on_where_one_begins() {
        let (mut whole, mut part) = ([0; 100], [0; 52]);
        fill(&mut whole, 5, 0);
        fill(&mut part, 5, 48);
        assert_eq!(whole[48..], part);
        fill(&mut part, 6, 48);
        assert_ne!(whole[48..], part);
    }
}
