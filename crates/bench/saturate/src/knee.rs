//! The smallest numbers of CPU threads and devices that fill the link.
//!
//! The search is pure: from the known rates it returns the next cell to measure. It ends with the smallest number of threads whose payload rate
//! is within a part of the best rate, and the smallest number of devices with that many threads. It assumes that more devices do not make it
//! slower than that part. Every measured rate may become the best.

use serde::{Deserialize, Serialize};

/// Within this part of the best rate the link counts as full.
pub const WITHIN: f64 = 0.03;

/// The known result of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Known {
    /// Payload bytes a second.
    Rate(f64),
    /// It cannot be measured, or failed.
    Never,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    Measure {
        threads: u32,
        devices: u32,
    },
    Found(Knee),
    /// No cell has a rate.
    Nothing,
}

/// The smallest numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Knee {
    pub threads: u32,
    pub devices: u32,
    /// Payload bytes a second there, and the best measured rate.
    pub rate: f64,
    pub best: f64,
    pub within: f64,
}

/// `threads` and `devices` are the allowed values, ascending.
pub fn next(threads: &[u32], devices: &[u32], within: f64, known: impl Fn(u32, u32) -> Option<Known>) -> Next {
    let mut best: Option<f64> = None;
    // The largest first: the others are compared with its rate.
    for (t, d) in threads.iter().rev().flat_map(|t| devices.iter().rev().map(move |d| (*t, *d))) {
        match known(t, d) {
            None if best.is_none() => return Next::Measure { threads: t, devices: d },
            Some(Known::Rate(rate)) => best = Some(best.map_or(rate, |best| best.max(rate))),
            None | Some(Known::Never) => {}
        }
    }
    let Some(best) = best else { return Next::Nothing };
    let fills = |t, d| known(t, d).map(|known| matches!(known, Known::Rate(rate) if rate >= (1.0 - within) * best));
    for t in threads {
        let possible: Vec<u32> = devices.iter().copied().filter(|d| known(*t, *d) != Some(Known::Never)).collect();
        match fewest(&possible, |d| fills(*t, d)) {
            Fewest::Ask(devices) => return Next::Measure { threads: *t, devices },
            Fewest::Is(devices) => {
                let rate = match known(*t, devices) {
                    Some(Known::Rate(rate)) => rate,
                    _ => best,
                };
                return Next::Found(Knee { threads: *t, devices, rate, best, within });
            }
            Fewest::None => {}
        }
    }
    Next::Nothing
}

enum Fewest {
    Ask(u32),
    Is(u32),
    None,
}

/// The smallest value for which `holds` is true, assuming that it is true for all larger ones.
fn fewest(values: &[u32], holds: impl Fn(u32) -> Option<bool>) -> Fewest {
    let Some((last, before)) = values.split_last() else { return Fewest::None };
    match holds(*last) {
        None => return Fewest::Ask(*last),
        Some(false) => {
            return before
                .iter()
                .rev()
                .find(|value| holds(**value) == Some(true))
                .map_or(Fewest::None, |v| Fewest::Is(*v));
        }
        Some(true) => {}
    }
    let (mut low, mut high) = (0, before.len());
    while low < high {
        let middle = (low + high) / 2;
        match holds(values[middle]) {
            None => return Fewest::Ask(values[middle]),
            Some(true) => high = middle,
            Some(false) => low = middle + 1,
        }
    }
    Fewest::Is(values[low])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Searches to the end; returns the result, and how many cells that took.
    fn search(threads: &[u32], devices: &[u32], rate: impl Fn(u32, u32) -> Known) -> (Next, usize) {
        let mut known = BTreeMap::new();
        loop {
            match next(threads, devices, WITHIN, |t, d| known.get(&(t, d)).copied()) {
                Next::Measure { threads, devices } => {
                    assert!(known.insert((threads, devices), rate(threads, devices)).is_none(), "asked twice");
                }
                found => return (found, known.len()),
            }
        }
    }

    /// A link of 50, threads that submit 20 each and devices that move 14 each.
    fn link(t: u32, d: u32) -> Known {
        Known::Rate(50f64.min(20.0 * f64::from(t)).min(14.0 * f64::from(d)))
    }

    #[test]
    fn the_fewest_threads_come_before_the_fewest_devices() {
        let (found, asked) = search(&[1, 2, 4, 8], &[1, 2, 3, 4, 6, 8], link);
        let Next::Found(knee) = found else { panic!("{found:?}") };
        assert_eq!((knee.threads, knee.devices, knee.rate, knee.best), (4, 4, 50.0, 50.0));
        assert!(asked < 12, "{asked} of 24 cells");
        // One thread is enough if threads are not the limit.
        let (found, _) = search(&[1, 2], &[1, 2, 4], |_, d| link(8, d));
        assert!(matches!(found, Next::Found(Knee { threads: 1, devices: 4, .. })), "{found:?}");
        // A cell with a higher rate than the largest becomes the best.
        let (found, _) = search(&[1, 2], &[1, 2], |t, d| Known::Rate(if (t, d) == (1, 2) { 70.0 } else { 60.0 }));
        assert!(matches!(found, Next::Found(Knee { threads: 1, devices: 2, rate: 70.0, best: 70.0, .. })), "{found:?}");
    }

    #[test]
    fn unmeasurable_candidates_are_left_out() {
        let some = |t, d| if d > 2 || t > d { Known::Never } else { link(t, d) };
        let (found, _) = search(&[1, 2, 4], &[1, 2, 4], some);
        assert!(matches!(found, Next::Found(Knee { threads: 2, devices: 2, rate: 28.0, .. })), "{found:?}");
        assert_eq!(search(&[1, 2], &[1, 2], |_, _| Known::Never).0, Next::Nothing);
        assert_eq!(search(&[], &[1], link).0, Next::Nothing);
    }

    proptest! {
        #[test]
        fn it_finds_what_looking_at_every_cell_finds(
            link in 1.0f64..100.0,
            of_thread in 1.0f64..40.0,
            of_device in 1.0f64..40.0,
        ) {
            let (threads, devices) = ([1, 2, 3, 4, 6, 8, 12, 16], [1, 2, 3, 4, 5, 6, 7, 8]);
            let rate = |t: u32, d: u32| link.min(of_thread * f64::from(t)).min(of_device * f64::from(d));
            let (found, asked) = search(&threads, &devices, |t, d| Known::Rate(rate(t, d)));
            let best = rate(16, 8);
            let all = threads.iter().flat_map(|t| devices.iter().map(move |d| (*t, *d)));
            let wanted = all.clone().filter(|(t, d)| rate(*t, *d) >= 0.97 * best).min();
            let Next::Found(knee) = found else { panic!("{found:?}") };
            prop_assert_eq!(Some((knee.threads, knee.devices)), wanted);
            prop_assert!(asked <= 13, "{} cells", asked);
        }
    }
}
