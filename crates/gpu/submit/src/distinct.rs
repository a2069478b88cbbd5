//! Whether the pages of a list have different destinations.

use crate::error::Error;
use crate::scattered::{Index, Pages, Part};

/// Looks at what `pages` forbids.
pub(crate) fn check(parts: &[Part], pages: &Pages<'_>) -> Result<(), Error> {
    if !pages.distinct {
        return Ok(());
    }
    if pages.to_stride < pages.bytes {
        return Err(Error::Argument("pages of the destination overlap: their stride is less than their bytes"));
    }
    let Some(numbers) = Numbers::of(pages) else {
        return Err(Error::Argument("a page of the destination is named twice"));
    };
    if pages.bytes > 0 && pages.overlap(parts, &numbers) {
        return Err(Error::Argument("pages of two parts overlap in the destination"));
    }
    Ok(())
}

/// The numbers of pages, to look up.
enum Numbers {
    /// All below this one.
    Whole(u64),
    /// A bit for each.
    Bits(Vec<u64>),
    /// In order, if those are less.
    Sorted(Vec<u64>),
}

impl Numbers {
    /// `None` if a number is there twice.
    fn of(pages: &Pages<'_>) -> Option<Numbers> {
        let all = || (0..pages.count).map(|n| pages.to_index.at(n));
        if matches!(pages.to_index, Index::Whole) {
            return Some(Numbers::Whole(pages.count as u64));
        }
        let most = all().max().unwrap_or(0);
        if most / 64 > pages.count as u64 + 64 {
            let mut all: Vec<u64> = all().collect();
            all.sort_unstable();
            return (!all.windows(2).any(|two| two[0] == two[1])).then_some(Numbers::Sorted(all));
        }
        let mut seen = vec![0u64; (most / 64) as usize + 1];
        let is_twice = all().any(|number| {
            // (Another thread may have changed the numbers since.)
            seen.get_mut((number / 64) as usize).is_some_and(|word| {
                let bit = 1 << (number % 64);
                std::mem::replace(word, *word | bit) & bit != 0
            })
        });
        (!is_twice).then_some(Numbers::Bits(seen))
    }

    fn has(&self, number: u64) -> bool {
        match self {
            Numbers::Whole(count) => number < *count,
            Numbers::Bits(seen) => seen.get((number / 64) as usize).is_some_and(|word| word >> (number % 64) & 1 == 1),
            Numbers::Sorted(all) => all.binary_search(&number).is_ok(),
        }
    }

    fn most(&self) -> u64 {
        match self {
            Numbers::Whole(count) => count.saturating_sub(1),
            Numbers::Bits(seen) => seen.len() as u64 * 64 - 1,
            Numbers::Sorted(all) => all.last().copied().unwrap_or(0),
        }
    }
}

impl Pages<'_> {
    /// Whether pages of two parts overlap in their destination.
    fn overlap(&self, parts: &[Part], numbers: &Numbers) -> bool {
        let are_apart = |distance: u64| {
            let of = |n: usize| self.to_index.at(n);
            distance <= numbers.most()
                && (0..self.count).any(|n| of(n).checked_add(distance).is_some_and(|n| numbers.has(n)))
        };
        let mut parts: Vec<&Part> = parts.iter().collect();
        parts.sort_unstable_by_key(|part| (part.to.0, part.to_at));
        let extent = numbers.most().saturating_mul(self.to_stride).saturating_add(self.bytes);
        parts.iter().enumerate().any(|(n, a)| {
            let near = parts[n + 1..].iter().take_while(|b| b.to == a.to && b.to_at - a.to_at < extent);
            near.into_iter().any(|b| {
                let between = b.to_at - a.to_at;
                let whole = between / self.to_stride;
                // The page of the one part with a number, and of the other one with a number that much less.
                [whole, whole + 1].into_iter().any(|distance| {
                    between.abs_diff(distance.saturating_mul(self.to_stride)) < self.bytes && are_apart(distance)
                })
            })
        })
    }
}
