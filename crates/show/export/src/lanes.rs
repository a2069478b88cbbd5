//! Slices that overlap, on as few tracks as possible: the slices of one track nest or are disjoint.

use std::collections::VecDeque;

/// Remembered slices of a lane. A slice that began before a forgotten one goes to another lane.
const REMEMBERED: usize = 64;

/// The lanes of one thread.
#[derive(Debug, Default)]
pub struct Lanes(Vec<Lane>);

#[derive(Debug, Default)]
struct Lane {
    /// The outermost slices, apart from each other and in order.
    spans: VecDeque<(u64, u64)>,
    forgotten: u64,
}

impl Lanes {
    /// The lane of a slice. Best called in the order of their ends.
    pub fn place(&mut self, from: u64, to: u64) -> usize {
        let found = self.0.iter_mut().position(|lane| lane.take(from, to));
        found.unwrap_or_else(|| self.another(from, to))
    }

    /// The same for slices that do not nest: those of one lane are all disjoint.
    pub fn place_apart(&mut self, from: u64, to: u64) -> usize {
        let found = self.0.iter_mut().position(|lane| lane.is_free(from, to) && lane.take(from, to));
        found.unwrap_or_else(|| self.another(from, to))
    }

    fn another(&mut self, from: u64, to: u64) -> usize {
        self.0.push(Lane { spans: [(from, to)].into(), forgotten: 0 });
        self.0.len() - 1
    }
}

impl Lane {
    /// No slice is in between. One that begins at `to` was written before: a viewer would end that one first.
    fn is_free(&self, from: u64, to: u64) -> bool {
        let before = self.spans.partition_point(|s| s.0 < from);
        let ends = before.checked_sub(1).and_then(|i| self.spans.get(i)).is_none_or(|s| s.1 <= from);
        ends && self.spans.get(before).is_none_or(|s| s.0 > to)
    }

    fn take(&mut self, from: u64, to: u64) -> bool {
        if from < self.forgotten {
            return false;
        }
        let before = self.spans.partition_point(|s| s.0 < from);
        // (Slices nested in the one that began before are not remembered.)
        if before.checked_sub(1).and_then(|i| self.spans.get(i)).is_some_and(|s| s.1 > from) {
            return false;
        }
        // If two slices begin together, a viewer cannot tell which is the outer one.
        if self.spans.get(before).is_some_and(|s| s.0 == from && s.1 > from) {
            return false;
        }
        let behind = self.spans.partition_point(|s| s.0 < to);
        if behind > before && self.spans.get(behind - 1).is_some_and(|s| s.1 > to) {
            return false;
        }
        self.spans.drain(before..behind);
        self.spans.insert(before, (from, to));
        if self.spans.len() > REMEMBERED
            && let Some((_, end)) = self.spans.pop_front()
        {
            self.forgotten = end;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_a_lane_lie_in_each_other_or_apart() {
        let mut random = 1u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) % below
        };
        let mut spans: Vec<(u64, u64)> =
            (0..3000).map(|_| (next(100_000), next(300))).map(|(a, n)| (a, a + n)).collect();
        spans.sort_by_key(|s| s.1);
        let (mut lanes, mut of_lane) = (Lanes::default(), Vec::<Vec<(u64, u64)>>::new());
        for &(from, to) in &spans {
            let lane = lanes.place(from, to);
            of_lane.resize(of_lane.len().max(lane + 1), Vec::new());
            of_lane[lane].push((from, to));
        }
        for lane in &of_lane {
            for (i, a) in lane.iter().enumerate() {
                for b in &lane[i + 1..] {
                    let apart = a.1 <= b.0 || b.1 <= a.0;
                    let within = (a.0 <= b.0 && b.1 <= a.1) || (b.0 <= a.0 && a.1 <= b.1);
                    assert!(apart || within, "{a:?} {b:?}");
                }
            }
        }
        assert!(of_lane.len() < 20, "{}", of_lane.len());
    }

    #[test]
    fn runs_of_kernels_are_apart_in_each_lane() {
        let mut lanes = Lanes::default();
        let runs = [(0, 10), (10, 20), (12, 18), (5, 25), (20, 30), (40, 50), (30, 40), (31, 39)];
        assert_eq!(runs.map(|(from, to)| lanes.place_apart(from, to)), [0, 0, 1, 2, 0, 0, 1, 0]);
    }

    #[test]
    fn locks_that_are_released_in_the_order_of_their_taking_need_two_lanes() {
        let mut lanes = Lanes::default();
        assert_eq!([(0, 10), (5, 15), (12, 20), (16, 25)].map(|(from, to)| lanes.place(from, to)), [0, 1, 0, 1]);
        assert_eq!([(30, 31), (32, 33), (29, 40)].map(|(from, to)| lanes.place(from, to)), [0, 0, 0]);
    }
}
