//! A card's own memory, allocated in pages.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

pub(crate) const PAGE: u64 = 4096;

/// The card's addresses from `begin` on.
pub(crate) struct Arena {
    pub begin: u64,
    pub length: u64,
    /// Length by address.
    taken: Mutex<BTreeMap<u64, u64>>,
}

/// A range with a single owner.
pub(crate) struct Range {
    arena: Arc<Arena>,
    pub address: u64,
    pub length: u64,
}

impl Arena {
    pub(crate) fn new(begin: u64, length: u64) -> Arc<Arena> {
        Arc::new(Arena { begin, length, taken: Mutex::default() })
    }

    /// Allocates whole pages from the first gap that holds them.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> Option<Range> {
        let length = bytes.checked_next_multiple_of(PAGE).filter(|length| *length > 0)?;
        let mut taken = poison::ignore(self.taken.lock());
        let mut address = self.begin;
        for (&begin, &there) in taken.iter() {
            if begin - address >= length {
                break;
            }
            address = begin + there;
        }
        if length > self.length || address - self.begin > self.length - length {
            return None;
        }
        taken.insert(address, length);
        Some(Range { arena: Arc::clone(self), address, length })
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        poison::ignore(self.arena.taken.lock()).remove(&self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_do_not_overlap_and_come_back() {
        let arena = Arena::new(0x1_0000, 8 * PAGE);
        let [a, b] = [1, 3 * PAGE].map(|bytes| arena.take(bytes).unwrap());
        assert_eq!([(a.address, a.length), (b.address, b.length)], [(0x1_0000, PAGE), (0x1_1000, 3 * PAGE)]);
        assert!(arena.take(5 * PAGE).is_none() && arena.take(0).is_none() && arena.take(u64::MAX).is_none());
        let rest = arena.take(4 * PAGE).unwrap();
        drop(b);
        assert_eq!(arena.take(2 * PAGE).unwrap().address, 0x1_1000);
        drop((a, rest));
        assert_eq!(arena.take(8 * PAGE).unwrap().address, 0x1_0000);
    }
}
