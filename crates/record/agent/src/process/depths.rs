//! How many NVTX ranges a thread is in.

use core::cell::Cell;

/// Maximum number of domains whose ranges are counted for a thread at a time.
pub const DOMAINS: usize = 8;

/// Ranges that a thread is in, by domain.
pub struct Depths([Cell<(u64, u64)>; DOMAINS]);

impl Depths {
    /// Enters a range. Returns the depth before; `None` if there is no room to count.
    #[inline(always)]
    pub fn push(&self, domain: u64) -> Option<u64> {
        let free = |c: &&Cell<(u64, u64)>| c.get().1 == 0;
        let own = self.0.iter().find(|c| c.get().1 != 0 && c.get().0 == domain);
        let at = own.or_else(|| self.0.iter().find(free))?;
        let depth = at.get().1;
        at.set((domain, depth + 1));
        Some(depth)
    }

    /// Leaves a range. Returns the depth afterwards; `None` if no range is known to be open.
    #[inline(always)]
    pub fn pop(&self, domain: u64) -> Option<u64> {
        let at = self.0.iter().find(|c| c.get().1 != 0 && c.get().0 == domain)?;
        let depth = at.get().1 - 1;
        at.set((domain, depth));
        Some(depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_counted_by_domain() {
        // SAFETY: numbers.
        let d: Depths = unsafe { core::mem::zeroed() };
        assert_eq!((d.push(0), d.push(0), d.push(7)), (Some(0), Some(1), Some(0)));
        assert_eq!((d.pop(7), d.pop(7), d.pop(0), d.pop(0), d.pop(0)), (Some(0), None, Some(1), Some(0), None));
        for domain in 0..DOMAINS as u64 {
            assert_eq!(d.push(domain), Some(0));
        }
        assert_eq!((d.push(99), d.pop(99), d.push(3)), (None, None, Some(1)));
    }
}
