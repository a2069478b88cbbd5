//! Allocates bus addresses behind an IOMMU. Only those in the ranges that the kernel reports can be mapped.

use std::collections::BTreeMap;

const PAGE: u64 = 4096;

#[derive(Debug, Default)]
pub(super) struct Iova {
    /// First and last address, sorted.
    ranges: Vec<(u64, u64)>,
    /// Lengths by first address.
    taken: BTreeMap<u64, u64>,
}

impl Iova {
    /// From ranges with their last addresses, as the kernel returns them.
    pub(super) fn new(mut ranges: Vec<(u64, u64)>) -> Iova {
        ranges.retain(|(first, last)| first <= last);
        ranges.sort_unstable();
        Iova { ranges, taken: BTreeMap::new() }
    }

    /// The lowest free place of `length` bytes (a multiple of a page): a device with few address lines reaches it, too. Never 0, which drivers take
    /// for an invalid address.
    pub(super) fn take(&mut self, length: u64, align: u64) -> Option<u64> {
        if length == 0 || !length.is_multiple_of(PAGE) || !align.is_power_of_two() {
            return None;
        }
        let align = align.max(PAGE);
        let found = self.ranges.iter().find_map(|(first, last)| {
            let mut at = (*first).max(1).checked_next_multiple_of(align)?;
            loop {
                let end = at.checked_add(length - 1).filter(|end| end <= last)?;
                // An allocation that begins at or before the end, and ends after the begin, is in the way.
                match self.taken.range(..=end).next_back().filter(|(start, long)| *start + (*long - 1) >= at) {
                    Some((start, long)) => at = start.checked_add(*long)?.checked_next_multiple_of(align)?,
                    None => return Some(at),
                }
            }
        })?;
        self.taken.insert(found, length);
        Some(found)
    }

    pub(super) fn give_back(&mut self, at: u64) {
        self.taken.remove(&at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_in_the_ranges_and_apart() {
        let mut iova = Iova::new(vec![(0xfef0_0000, 0xffff_ffff), (0, 0x4fff), (5, 4)]);
        assert_eq!(iova.take(0x2000, 0), None, "no power of two");
        assert_eq!(iova.take(0x2000, 1), Some(0x1000));
        assert_eq!(iova.take(0x2000, 1), Some(0x3000));
        assert_eq!(iova.take(0x1000, 1), Some(0xfef0_0000));
        assert_eq!(iova.take(0x20_0000, 0x20_0000), Some(0xff00_0000));
        iova.give_back(0x1000);
        assert_eq!(iova.take(0x3000, 1), Some(0xfef0_1000), "two pages are free below, not three");
        assert_eq!(iova.take(0x1000, 1), Some(0x1000));
        assert_eq!(iova.take(0x1000, 1), Some(0x2000));
        assert_eq!(iova.take(1 << 32, 1), None);
        assert_eq!(iova.take(0x800, 1), None);
    }

    #[test]
    fn the_end_of_the_address_space_is_no_trap() {
        let mut iova = Iova::new(vec![(u64::MAX - 0x1fff, u64::MAX)]);
        assert_eq!(iova.take(0x1000, 1), Some(u64::MAX - 0x1fff));
        assert_eq!(iova.take(0x1000, 1), Some(u64::MAX - 0xfff));
        assert_eq!(iova.take(0x1000, 1), None);
        assert_eq!(Iova::new(vec![]).take(0x1000, 1), None);
    }
}
