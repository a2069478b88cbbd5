//! Keeps the largest of many values, up to a number.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Debug)]
pub struct Largest<T> {
    most: usize,
    /// The smallest is on top.
    heap: BinaryHeap<Reverse<T>>,
}

impl<T: Ord> Largest<T> {
    pub fn new(most: usize) -> Largest<T> {
        Largest { most, heap: BinaryHeap::new() }
    }

    /// Whether a value would be kept. `is_larger`: whether it is larger than the smallest kept value.
    pub fn would_keep(&self, is_larger: impl FnOnce(&T) -> bool) -> bool {
        self.heap.len() < self.most || self.heap.peek().is_some_and(|least| is_larger(&least.0))
    }

    pub fn add(&mut self, one: T) {
        self.heap.push(Reverse(one));
        if self.heap.len() > self.most {
            self.heap.pop();
        }
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }

    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// In no order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.heap.iter().map(|one| &one.0)
    }

    /// The largest first.
    pub fn into_sorted(self) -> Vec<T> {
        // The order is reversed, so the largest is first.
        self.heap.into_sorted_vec().into_iter().map(|one| one.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_kept_in_their_order() {
        let mut largest = Largest::new(3);
        for n in (0..1000).map(|i| i * 37 % 1000) {
            let would_keep = largest.would_keep(|least| n > *least);
            assert_eq!(would_keep, largest.len() < 3 || largest.iter().any(|kept| n > *kept));
            if n % 2 == 0 {
                largest.add(n);
            }
        }
        assert_eq!(largest.len(), 3);
        assert_eq!(largest.into_sorted(), [998, 996, 994]);
    }

    #[test]
    fn none_is_kept_where_none_is_asked_for() {
        let mut largest = Largest::new(0);
        assert!(!largest.would_keep(|_: &i32| true));
        largest.add(1);
        assert!(largest.is_empty());
    }
}
