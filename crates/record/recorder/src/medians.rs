//! The running median of each kernel's time.
//!
//! Invariant: the memory is bounded. When the table is full, a new kernel gets a place only if another one has not run for long. Otherwise it has no
//! median, and its runs are counted.

use std::collections::HashMap;

/// Maximum number of kernels with a median.
pub const KERNELS: usize = 1024;
/// The number of latest runs in a median, and the minimum number of runs for the first median.
const SAMPLES: usize = 64;
const LEAST: u64 = 32;
/// The median is computed again after this many runs.
const AGAIN: u64 = 16;
/// A kernel that did not run during this many runs of others loses its place.
const UNUSED: u64 = 1 << 16;

/// A kernel: its process, and the address of its code.
pub type Kernel = (u32, u64);

#[derive(Default)]
pub struct Medians {
    of: HashMap<Kernel, One>,
    /// Runs of all kernels, and their number when a free place was last searched for.
    runs: u64,
    searched: u64,
    /// Runs of kernels without a place.
    pub without_place: u64,
}

struct One {
    /// Nanoseconds of the latest runs, the oldest replaced first.
    latest: [u64; SAMPLES],
    runs: u64,
    median: Option<u64>,
    ran_at: u64,
}

impl Medians {
    /// A kernel ran for `ns` nanoseconds. Returns the median of its earlier runs, if there were enough.
    pub fn add(&mut self, kernel: Kernel, ns: u64) -> Option<u64> {
        self.runs += 1;
        if self.of.len() >= KERNELS && !self.of.contains_key(&kernel) && !self.make_room() {
            self.without_place += 1;
            return None;
        }
        let new = || One { latest: [0; SAMPLES], runs: 0, median: None, ran_at: 0 };
        let one = self.of.entry(kernel).or_insert_with(new);
        one.ran_at = self.runs;
        let median = one.median;
        if let Some(place) = one.latest.get_mut((one.runs % SAMPLES as u64) as usize) {
            *place = ns;
        }
        one.runs += 1;
        if one.runs >= LEAST && one.runs.is_multiple_of(AGAIN) {
            let mut sorted = one.latest;
            let known = sorted.get_mut(..one.runs.min(SAMPLES as u64) as usize).unwrap_or_default();
            let middle = known.len() / 2;
            one.median = Some(*known.select_nth_unstable(middle).1);
        }
        median
    }

    /// True if there is a free place now. (The table is searched once in many runs, because a search takes
    /// microseconds.)
    fn make_room(&mut self) -> bool {
        if self.runs < self.searched.saturating_add(KERNELS as u64) {
            return false;
        }
        self.searched = self.runs;
        let since = self.runs.saturating_sub(UNUSED);
        self.of.retain(|_, one| one.ran_at >= since);
        self.of.len() < KERNELS
    }

    /// The process has ended.
    pub fn forget(&mut self, process: u32) {
        self.of.retain(|(p, _), _| *p != process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_of_the_latest_runs_and_comes_after_some_tens() {
        let mut m = Medians::default();
        let first: Vec<_> = (0..LEAST).map(|i| m.add((0, 1), 100 + i % 3)).collect();
        assert!(first.iter().all(Option::is_none));
        assert_eq!(m.add((0, 1), 100_000), Some(101));
        // Another kernel, and the same code in another process.
        assert_eq!((m.add((0, 2), 5), m.add((1, 1), 5)), (None, None));
        // A few slow runs do not change it, many do.
        (0..20).for_each(|_| _ = m.add((0, 1), 100_000));
        assert_eq!(m.add((0, 1), 1), Some(102));
        (0..100).for_each(|_| _ = m.add((0, 1), 100_000));
        assert_eq!(m.add((0, 1), 1), Some(100_000));
    }

    #[test]
    fn a_full_table_counts_other_kernels_and_gives_them_the_places_of_those_that_run_no_more() {
        let mut m = Medians::default();
        (0..KERNELS as u64).for_each(|code| _ = m.add((0, code), 10));
        assert_eq!((m.add((0, 1 << 40), 10), m.without_place, m.of.len()), (None, 1, KERNELS));
        // One of the old kernels and the new one continue to run.
        for _ in 0..UNUSED {
            m.add((0, 7), 10);
            m.add((0, 1 << 40), 10);
        }
        assert_eq!((m.add((0, 7), 10), m.add((0, 1 << 40), 10)), (Some(10), Some(10)));
        assert!(m.of.len() == 2 && m.without_place < UNUSED, "{} {}", m.of.len(), m.without_place);
        m.forget(0);
        assert!(m.of.is_empty());
    }
}
