//! Samples of one cell: one a transfer, in memory that was there before the run.

use crate::clock::Clock;

/// One transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When it was submitted, ns since the run began.
    pub at_ns: u64,
    /// From before the submission until it came back, ns.
    pub submit_ns: u64,
    /// From before the submission until the bytes were seen to be there, ns.
    pub total_ns: u64,
}

/// There is not enough memory; all numbers but `count` are bytes.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoMemory {
    #[error("{count} samples need {} MiB of memory, and {} MiB are free: take fewer samples", .needs >> 20, .free >> 20)]
    Samples { count: u64, needs: u64, free: u64 },
    #[error("transfers of {bytes} bytes need {} MiB of memory, and {} MiB are free: take smaller sizes", .needs >> 20, .free >> 20)]
    Data { bytes: u64, needs: u64, free: u64 },
}

impl NoMemory {
    /// Whether transfers of `bytes` fit: `routes` times a source and a destination, and what they are compared with.
    pub fn data(bytes: u64, routes: u64) -> Result<(), NoMemory> {
        let needs = bytes.saturating_mul(routes.saturating_mul(2).saturating_add(4));
        match free_memory() {
            Some(free) if needs > free => Err(NoMemory::Data { bytes, needs, free }),
            _ => Ok(()),
        }
    }
}

/// Samples of one cell, in the order in which they were taken, and where each round begins.
#[derive(Debug, Default)]
pub struct Samples {
    all: Vec<Sample>,
    rounds: Vec<usize>,
    busy_ns: u64,
}

impl Samples {
    /// Room for `count` samples in `rounds` rounds, touched, so that no page fault falls into a sample.
    pub fn reserve(count: usize, rounds: usize) -> Samples {
        let mut all = vec![Sample { at_ns: 1, ..Sample::default() }; count];
        all.clear();
        Samples { all, rounds: Vec::with_capacity(rounds), busy_ns: 0 }
    }

    /// Whether `count` samples in each of `cells` cells fit into three quarters of the memory that is free.
    pub fn fit(count: u64, cells: u64) -> Result<(), NoMemory> {
        let needs = count.saturating_mul(cells).saturating_mul(size_of::<Sample>() as u64);
        match free_memory() {
            Some(free) if needs > free / 4 * 3 => {
                Err(NoMemory::Samples { count: count.saturating_mul(cells), needs, free })
            }
            _ => Ok(()),
        }
    }

    /// The samples after this belong to the next round.
    pub fn begin_round(&mut self) {
        self.rounds.push(self.all.len());
    }

    /// Keeps one transfer: readings of `clock` before it, after its submission and after its end. `began` is the run's begin.
    /// False, and nothing is kept, where all room is used.
    #[inline]
    pub fn push(&mut self, clock: &Clock, began: u64, before: u64, submitted: u64, done: u64) -> bool {
        if self.all.len() == self.all.capacity() {
            return false;
        }
        let total_ns = clock.ns(done.saturating_sub(before));
        self.busy_ns += total_ns;
        self.all.push(Sample {
            at_ns: clock.ns(before.saturating_sub(began)),
            submit_ns: clock.ns(submitted.saturating_sub(before)),
            total_ns,
        });
        true
    }

    pub fn all(&self) -> &[Sample] {
        &self.all
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The sum of all totals, ns.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    /// The samples round by round; a round without samples is an empty slice.
    pub fn rounds(&self) -> impl Iterator<Item = &[Sample]> {
        let ends = self.rounds.iter().skip(1).copied().chain(std::iter::once(self.all.len()));
        self.rounds.iter().zip(ends).map(|(&from, to)| &self.all[from..to])
    }
}

/// MemAvailable of /proc/meminfo, bytes.
fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sample_reallocates_and_none_is_lost_unseen() {
        let clock = Clock::monotonic_raw();
        let mut s = Samples::reserve(3, 2);
        let at = s.all.as_ptr();
        s.begin_round();
        assert!(s.push(&clock, 100, 110, 115, 130));
        assert!(s.push(&clock, 100, 140, 141, 150));
        s.begin_round();
        assert!(s.push(&clock, 100, 160, 161, 200));
        assert!(!s.push(&clock, 100, 210, 211, 212), "there was room for three");
        assert_eq!(s.all.as_ptr(), at);
        assert_eq!(s.all()[0], Sample { at_ns: 10, submit_ns: 5, total_ns: 20 });
        assert_eq!(s.rounds().map(<[Sample]>::len).collect::<Vec<_>>(), [2, 1]);
        assert_eq!((s.len(), s.busy_ns()), (3, 70));
    }

    #[test]
    fn a_count_that_no_machine_holds_is_refused_with_figures() {
        let e = Samples::fit(1 << 50, 1 << 20).unwrap_err();
        assert!(matches!(e, NoMemory::Samples { needs: u64::MAX, .. }));
        assert!(e.to_string().contains("take fewer samples"));
        assert_eq!(Samples::fit(100, 10), Ok(()));
        assert!(NoMemory::data(1 << 50, 1).unwrap_err().to_string().contains("take smaller sizes"));
        assert_eq!(NoMemory::data(4096, 10), Ok(()));
    }
}
