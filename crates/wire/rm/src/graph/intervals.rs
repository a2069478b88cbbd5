//! Address ranges that do not overlap, each with a value; a hole splits the ranges that it touches.

use std::collections::BTreeMap;

/// A value that holds the offset of its range.
pub(super) trait Sliced: Clone {
    /// The range now begins `by` bytes later.
    fn advance(&mut self, by: u64);
}

/// Non-overlapping ranges by start address.
#[derive(Clone, Debug)]
pub(super) struct Intervals<T> {
    map: BTreeMap<u64, (u64, T)>,
}

impl<T> Default for Intervals<T> {
    fn default() -> Self {
        Intervals { map: BTreeMap::new() }
    }
}

impl<T: Sliced> Intervals<T> {
    /// Removes `[start, start + len)` and returns the removed pieces, with their start and length.
    pub fn cut(&mut self, start: u64, len: u64) -> Vec<(u64, u64, T)> {
        self.cut_if(start, len, |_| true)
    }

    /// Like [`cut`](Self::cut), but only of ranges whose value `wanted` accepts.
    pub fn cut_if(&mut self, start: u64, len: u64, wanted: impl Fn(&T) -> bool) -> Vec<(u64, u64, T)> {
        let end = start.saturating_add(len);
        if end == start {
            return Vec::new();
        }
        let first = self.map.range(..start).next_back().filter(|(s, (l, _))| *s + l > start).map(|(s, _)| *s);
        let hit: Vec<u64> = first
            .into_iter()
            .chain(self.map.range(start..end).map(|(s, _)| *s))
            .filter(|s| self.map.get(s).is_some_and(|(_, v)| wanted(v)))
            .collect();
        let mut out = Vec::with_capacity(hit.len());
        for s in hit {
            let Some((l, v)) = self.map.remove(&s) else { continue };
            // insert() keeps s + l within u64.
            let e = s + l;
            let (from, to) = (s.max(start), e.min(end));
            if s < from {
                self.map.insert(s, (from - s, v.clone()));
            }
            if to < e {
                let mut rest = v.clone();
                rest.advance(to - s);
                self.map.insert(to, (e - to, rest));
            }
            let mut piece = v;
            piece.advance(from - s);
            out.push((from, to - from, piece));
        }
        out
    }

    /// Puts a range in, over whatever was there.
    pub fn insert(&mut self, start: u64, len: u64, value: T) {
        let len = len.min(u64::MAX - start);
        if len == 0 {
            return;
        }
        self.cut(start, len);
        self.map.insert(start, (len, value));
    }

    /// The range that holds an address: its start, length and value.
    pub fn at(&self, address: u64) -> Option<(u64, u64, &T)> {
        let (s, (l, v)) = self.map.range(..=address).next_back()?;
        (address - s < *l).then_some((*s, *l, v))
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.map.values_mut().map(|(_, v)| v)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, &T)> {
        self.map.iter().map(|(s, (l, v))| (*s, *l, v))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct At(u64);
    impl Sliced for At {
        fn advance(&mut self, by: u64) {
            self.0 = self.0.wrapping_add(by);
        }
    }

    fn all(i: &Intervals<At>) -> Vec<(u64, u64, u64)> {
        i.iter().map(|(s, l, v)| (s, l, v.0)).collect()
    }

    #[test]
    fn a_hole_splits_and_keeps_offsets() {
        let mut i = Intervals::default();
        i.insert(100, 50, At(0));
        assert_eq!(i.cut(110, 10), vec![(110, 10, At(10))]);
        assert_eq!(all(&i), vec![(100, 10, 0), (120, 30, 20)]);
        assert_eq!(i.at(109).unwrap().2, &At(0));
        assert!(i.at(110).is_none() && i.at(150).is_none() && i.at(99).is_none());
        i.insert(105, 100, At(1000));
        assert_eq!(all(&i), vec![(100, 5, 0), (105, 100, 1000)]);
    }

    #[test]
    fn the_ends_of_the_address_space_are_no_special_case() {
        let mut i = Intervals::default();
        i.insert(u64::MAX - 10, 100, At(0));
        i.insert(0, 0, At(1));
        assert_eq!(all(&i), vec![(u64::MAX - 10, 10, 0)]);
        assert_eq!(i.cut(0, u64::MAX).len(), 1);
        assert!(all(&i).is_empty());
        assert!(i.cut(5, 0).is_empty());
    }

    #[test]
    fn only_wanted_ranges_are_cut() {
        let mut i = Intervals::default();
        i.insert(0, 10, At(0));
        i.insert(10, 10, At(100));
        assert_eq!(i.cut_if(0, 20, |v| v.0 >= 100).len(), 1);
        assert_eq!(all(&i), vec![(0, 10, 0)]);
    }
}
