//! The exact worst of many samples.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// So many of the slowest samples are kept.
pub const WORST: usize = 100;

/// One of the slowest samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slow<T = ()> {
    pub value: u64,
    /// Which of all samples it is, from 0.
    pub index: u64,
    /// Its note.
    pub note: T,
}

/// The slowest samples so far, in preallocated memory: offering a sample does not allocate. Among equal samples, the earlier ones stay.
#[derive(Clone, Debug)]
pub struct Worst<T = ()> {
    /// The smallest of them on top.
    kept: BinaryHeap<Kept<T>>,
    room: usize,
    offered: u64,
}

#[derive(Clone, Debug)]
struct Kept<T>(Slow<T>);

impl<T> Ord for Kept<T> {
    /// The greatest in this order is removed first: the smallest value, and the latest among equals.
    fn cmp(&self, other: &Kept<T>) -> Ordering {
        other.0.value.cmp(&self.0.value).then(self.0.index.cmp(&other.0.index))
    }
}

impl<T> PartialOrd for Kept<T> {
    fn partial_cmp(&self, other: &Kept<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Kept<T> {
    fn eq(&self, other: &Kept<T>) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Kept<T> {}

impl<T> Worst<T> {
    pub fn new(room: usize) -> Worst<T> {
        Worst { kept: BinaryHeap::with_capacity(room), room, offered: 0 }
    }

    /// Offers the next sample. `note` is called only if the sample is kept.
    #[inline]
    pub fn offer(&mut self, value: u64, note: impl FnOnce() -> T) {
        let index = self.offered;
        self.offered += 1;
        if self.kept.len() < self.room {
            self.kept.push(Kept(Slow { value, index, note: note() }));
        } else if let Some(mut least) = self.kept.peek_mut()
            && least.0.value < value
        {
            *least = Kept(Slow { value, index, note: note() });
        }
    }

    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// The slowest first; of equal ones the earlier first.
    pub fn into_sorted(self) -> Vec<Slow<T>> {
        self.kept.into_sorted_vec().into_iter().map(|k| k.0).collect()
    }
}

impl Worst {
    /// The slowest `room` of `samples`.
    pub fn of(samples: impl IntoIterator<Item = u64>, room: usize) -> Vec<Slow> {
        let mut worst = Worst::new(room);
        samples.into_iter().for_each(|v| worst.offer(v, || ()));
        worst.into_sorted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn they_are_those_that_a_whole_sort_finds(samples in prop::collection::vec(0u64..50, 0..400), room in 0usize..150) {
            let mut all: Vec<(u64, u64)> = samples.iter().copied().zip(0..).collect();
            all.sort_by_key(|(value, index)| (std::cmp::Reverse(*value), *index));
            all.truncate(room);
            let found: Vec<_> = Worst::of(samples, room).iter().map(|s| (s.value, s.index)).collect();
            prop_assert_eq!(found, all);
        }
    }

    #[test]
    fn only_kept_samples_ask_for_a_note() {
        let mut asked = 0;
        let mut worst = Worst::new(2);
        let at = worst.kept.as_slice().as_ptr();
        for value in [5, 9, 1, 5, 7] {
            worst.offer(value, || asked += 1);
        }
        assert_eq!(worst.kept.as_slice().as_ptr(), at, "offering allocates nothing");
        assert_eq!((asked, worst.offered()), (3, 5));
        assert_eq!(worst.into_sorted().iter().map(|s| s.index).collect::<Vec<_>>(), [1, 4]);
    }
}
