//! Finds the sizes at which a copy changes its executor, to the byte: which sizes to try next, and the result.
//!
//! Pure: it returns sizes to try, gets the executor of each, and returns the next sizes. Sizes with the same remainder modulo 4 form a class and
//! are searched separately, so that a border that depends on alignment is found. If two neighbours of a class differ, the gap between them is
//! divided until it is 4. Then every byte around each change is tried.
//!
//! The assumption, printed with each result: between two tried sizes of one class with the same executor there is no other executor.

use run_folder::commands::CommandsOfRun;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Executors may depend on words of so many bytes.
const CLASSES: u64 = 4;
/// Number of sizes that divide a gap at a time.
const SPLIT: u64 = 8;
/// Every size within this many bytes of a change is tried.
const ROUND: u64 = 2 * CLASSES;
/// Maximum number of changes of one class; with more, the search stops narrowing.
pub const MOST_CHANGES: usize = 16;

/// The search for one subject.
#[derive(Clone, Debug, Default)]
pub struct Search {
    known: BTreeMap<u64, String>,
    grid: BTreeSet<u64>,
}

/// What was found for one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Borders {
    /// The executor of the smallest size.
    pub begins_with: String,
    /// In the order of sizes; if the classes differ, separately for each class.
    pub borders: Vec<Border>,
    /// Every class has the same borders: they depend only on the size.
    pub by_size_alone: bool,
    /// There were too many changes to narrow.
    pub irregular: bool,
    pub sizes_tried: u64,
    pub least: u64,
    pub most: u64,
    /// The largest gap between two tried sizes of one class with the same executor.
    pub widest_gap: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Border {
    /// The last size of one executor, and the first of the other.
    pub last: u64,
    pub first: u64,
    pub from: String,
    pub to: String,
    /// Only sizes with this remainder modulo 4; all sizes if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remainder: Option<u64>,
}

impl Search {
    /// Begins with the sizes of a grid, and the next sizes of the other classes after each.
    pub fn new(sizes: &[u64]) -> Search {
        let most = sizes.iter().copied().max().unwrap_or(0);
        let all = sizes.iter().flat_map(|size| (0..CLASSES).map(move |more| size + more));
        Search { known: BTreeMap::new(), grid: all.filter(|size| (1..=most).contains(size)).collect() }
    }

    /// Stores the executor of a size.
    pub fn found(&mut self, size: u64, executor: &str) {
        self.grid.remove(&size);
        self.known.insert(size, executor.to_owned());
    }

    /// A size that cannot be tried.
    pub fn unavailable(&mut self, size: u64) {
        self.grid.remove(&size);
    }

    /// The sizes to try next; none if all borders are known.
    pub fn next(&self) -> Vec<u64> {
        if !self.grid.is_empty() {
            return self.grid.iter().copied().collect();
        }
        let mut wanted = BTreeSet::new();
        for class in 0..CLASSES {
            let changes = self.changes(class);
            if changes.len() > MOST_CHANGES {
                continue;
            }
            for (low, high) in changes {
                let steps = (high - low) / CLASSES;
                if steps > 1 {
                    let parts = (SPLIT + 1).min(steps);
                    wanted.extend((1..parts).map(|part| low + steps * part / parts * CLASSES));
                } else {
                    wanted.extend(low.saturating_sub(ROUND).max(1)..=high + ROUND);
                }
            }
        }
        let most = self.known.keys().next_back().copied().unwrap_or(0);
        wanted.into_iter().filter(|size| *size <= most && !self.known.contains_key(size)).collect()
    }

    /// Neighbours of a class with different executors.
    fn changes(&self, class: u64) -> Vec<(u64, u64)> {
        let of_class = self.of_class(class);
        of_class.windows(2).filter(|two| two[0].1 != two[1].1).map(|two| (two[0].0, two[1].0)).collect()
    }

    fn of_class(&self, class: u64) -> Vec<(u64, &str)> {
        let of_class = self.known.iter().filter(|(size, _)| *size % CLASSES == class);
        of_class.map(|(size, executor)| (*size, executor.as_str())).collect()
    }

    /// `None` if no size was tried.
    pub fn borders(&self) -> Option<Borders> {
        let ((least, begins_with), (most, _)) = (self.known.first_key_value()?, self.known.last_key_value()?);
        let border = |low: u64, high: u64, remainder| Border {
            last: low,
            first: high,
            from: self.known.get(&low).cloned().unwrap_or_default(),
            to: self.known.get(&high).cloned().unwrap_or_default(),
            remainder,
        };
        let all: Vec<(u64, &str)> = self.known.iter().map(|(size, executor)| (*size, executor.as_str())).collect();
        let merged: Vec<(u64, u64)> =
            all.windows(2).filter(|two| two[0].1 != two[1].1).map(|two| (two[0].0, two[1].0)).collect();
        let by_class: Vec<Vec<(u64, u64)>> = (0..CLASSES).map(|class| self.changes(class)).collect();
        // One change of all sizes is one change of each class that has sizes on both sides.
        let by_size_alone = by_class.iter().all(|changes| changes.len() <= merged.len())
            && by_class.iter().any(|changes| changes.len() == merged.len());
        let borders = if by_size_alone {
            merged.iter().map(|(low, high)| border(*low, *high, None)).collect()
        } else {
            let of_class = |(class, changes): (u64, &Vec<(u64, u64)>)| -> Vec<Border> {
                changes.iter().map(|(low, high)| border(*low, *high, Some(class))).collect()
            };
            (0..CLASSES).zip(&by_class).flat_map(of_class).collect()
        };
        let gaps = (0..CLASSES).flat_map(|class| {
            let of_class = self.of_class(class);
            of_class.windows(2).filter(|two| two[0].1 == two[1].1).map(|two| two[1].0 - two[0].0).collect::<Vec<_>>()
        });
        Some(Borders {
            begins_with: begins_with.clone(),
            borders,
            by_size_alone,
            irregular: by_class.iter().any(|changes| changes.len() > MOST_CHANGES),
            sizes_tried: self.known.len() as u64,
            least: *least,
            most: *most,
            widest_gap: gaps.max().unwrap_or(0),
        })
    }
}

/// The executor of a copy's bytes, from its commands. An executor's own notification of 4 bytes is not counted.
pub fn executor(commands: &CommandsOfRun, size: u64) -> String {
    let of = |name: &str| commands.executors.get(name);
    let is_engine = |name: &&String| *name != "inline" && *name != "kernel" && !name.starts_with("fill ");
    let engines: Vec<(&str, u64)> = commands
        .executors
        .iter()
        .filter(|(name, moved)| is_engine(name) && moved.bytes.median > 0)
        .map(|(name, moved)| (name.as_str(), moved.bytes.median))
        .collect();
    let names: Vec<&str> = engines.iter().map(|(name, _)| *name).collect();
    let by_engines: u64 = engines.iter().map(|(_, bytes)| bytes).sum();
    let inline = of("inline").map_or(0, |moved| moved.bytes.median);
    match () {
        () if by_engines >= size => names.join(" + "),
        () if by_engines > 0 => format!("{} + inline", names.join(" + ")),
        () if inline >= size => "inline".into(),
        () if of("kernel").is_some_and(|moved| moved.operations.median > 0) => "kernel".into(),
        () if commands.doorbells.median == 0 => "no commands".into(),
        () => "not understood".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use run_folder::commands::{Moved, Typical};

    /// Searches until no more sizes are requested; returns the result and the number of passes.
    fn searched(sizes: &[u64], executor: impl Fn(u64) -> &'static str) -> (Borders, usize) {
        let mut search = Search::new(sizes);
        for pass in 0..64 {
            let next = search.next();
            if next.is_empty() {
                return (search.borders().unwrap(), pass);
            }
            next.iter().for_each(|size| search.found(*size, executor(*size)));
        }
        panic!("it does not end");
    }

    fn powers() -> Vec<u64> {
        (2..=16).map(|n| 1 << n).chain([98_304]).collect()
    }

    fn simple(last: u64, from: &str, to: &str) -> Border {
        Border { last, first: last + 1, from: from.into(), to: to.into(), remainder: None }
    }

    #[test]
    fn a_border_is_found_to_the_byte_in_few_passes() {
        for last in [5, 63, 64, 1_000, 24_575, 24_576, 65_535, 70_001] {
            let (found, passes) = searched(&powers(), |size| if size <= last { "inline" } else { "COPY2" });
            assert_eq!(found.borders, [simple(last, "inline", "COPY2")], "{found:?}");
            assert!(
                found.by_size_alone && !found.irregular && found.begins_with == "inline" && passes <= 8,
                "{passes}"
            );
        }
        let (none, passes) = searched(&powers(), |_| "COPY2");
        assert!(none.borders.is_empty() && none.by_size_alone && passes == 1, "{none:?}");
        assert_eq!((none.least, none.most, none.widest_gap), (4, 98_304, 98_304 - 65_536));
    }

    #[test]
    fn several_borders_and_ways_back_are_found() {
        let executor = |size| match size {
            0..=100 => "COPY2",
            101..=9_000 => "inline",
            9_001..=40_000 => "COPY3",
            _ => "inline",
        };
        let (found, _) = searched(&powers(), executor);
        let all = [simple(100, "COPY2", "inline"), simple(9_000, "inline", "COPY3"), simple(40_000, "COPY3", "inline")];
        assert_eq!(found.borders, all);
    }

    #[test]
    fn a_border_that_depends_on_alignment_is_one_of_each_class() {
        // Whole words are sent inline up to 1,024 bytes, other sizes up to 255.
        let executor =
            |size: u64| if size <= if size.is_multiple_of(4) { 1_024 } else { 255 } { "inline" } else { "COPY2" };
        let (found, _) = searched(&powers(), executor);
        assert!(!found.by_size_alone && !found.irregular, "{found:?}");
        let of = |class| {
            found.borders.iter().filter(|b| b.remainder == Some(class)).map(|b| (b.last, b.first)).collect::<Vec<_>>()
        };
        assert_eq!(
            [of(0), of(1), of(2), of(3)],
            [vec![(1_024, 1_028)], vec![(253, 257)], vec![(254, 258)], vec![(255, 259)]]
        );
    }

    #[test]
    fn frequent_changes_are_reported_as_irregular() {
        let sizes: Vec<u64> = (1..200).map(|n| 64 * n).collect();
        let (found, _) = searched(&sizes, |size| if size / 64 % 2 == 0 { "inline" } else { "COPY2" });
        assert!(found.irregular && found.widest_gap <= 64, "{found:?}");
    }

    #[test]
    fn the_executor_is_what_moved_the_bytes() {
        let with = |all: &[(&str, u64, u64)]| {
            let typical = |n| Typical { min: n, median: n, max: n, mean: n as f64 };
            let moved = |(name, operations, bytes): &(&str, u64, u64)| {
                ((*name).to_owned(), Moved { operations: typical(*operations), bytes: typical(*bytes) })
            };
            let doorbells = typical(u64::from(!all.is_empty()));
            CommandsOfRun { executors: all.iter().map(moved).collect(), doorbells, ..CommandsOfRun::default() }
        };
        assert_eq!(executor(&with(&[("inline", 2, 68)]), 64), "inline");
        assert_eq!(executor(&with(&[("inline", 1, 4), ("COPY2", 1, 4)]), 4), "COPY2");
        assert_eq!(executor(&with(&[("COPY2", 1, 50), ("COPY3", 1, 50)]), 100), "COPY2 + COPY3");
        assert_eq!(executor(&with(&[("inline", 2, 40), ("COPY3", 1, 64)]), 100), "COPY3 + inline");
        assert_eq!(executor(&with(&[("inline", 1, 4), ("kernel", 1, 0)]), 100), "kernel");
        assert_eq!(executor(&with(&[]), 100), "no commands");
        assert_eq!(executor(&with(&[("inline", 1, 4)]), 100), "not understood");
    }

    proptest! {
        #[test]
        fn every_border_between_sizes_of_the_grid_is_found(mut at in prop::collection::btree_set(5..98_000u64, 0..4)) {
            // Two borders between the same two sizes of the grid hide each other: this is the assumption.
            let grid = powers();
            let place = |size: u64| grid.partition_point(|g| *g + CLASSES <= size);
            let mut taken = BTreeSet::new();
            at.retain(|size| taken.insert(place(*size)) && grid.iter().all(|g| size.abs_diff(*g) > CLASSES));
            let executor = |size: u64| if at.range(..size).count() % 2 == 0 { "inline" } else { "COPY2" };
            let (found, passes) = searched(&grid, executor);
            let lasts: Vec<u64> = found.borders.iter().map(|b| b.last).collect();
            prop_assert_eq!(lasts, at.iter().copied().collect::<Vec<_>>());
            prop_assert!(found.borders.iter().all(|b| b.first == b.last + 1) && passes <= 10);
        }
    }
}
