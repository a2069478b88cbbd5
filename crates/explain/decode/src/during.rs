//! When ranges of NVTX were open, in any thread: for what other threads did meanwhile.

/// Ranges between two merges, at least.
const SOME: usize = 1 << 16;

/// Times of each process, which do not overlap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct During {
    /// Process, begin and end, in this order.
    times: Vec<(u32, u64, u64)>,
    /// Their number after the last merge.
    merged: usize,
}

impl During {
    /// Whether one was open in this process.
    pub fn holds(&self, process: u32, tsc: u64) -> bool {
        let after = self.times.partition_point(|(p, began, _)| (*p, *began) <= (process, tsc));
        let last = after.checked_sub(1).and_then(|last| self.times.get(last));
        last.is_some_and(|(p, _, ended)| *p == process && tsc <= *ended)
    }

    /// A range was open. Call [`During::merge`] after the last one.
    pub(crate) fn add(&mut self, process: u32, began: u64, ended: u64) {
        self.times.push((process, began, ended));
        if self.times.len() > 2 * self.merged + SOME {
            self.merge();
        }
    }

    pub(crate) fn merge(&mut self) {
        self.times.sort_unstable();
        self.times.dedup_by(|next, last| {
            let meets = next.0 == last.0 && next.1 <= last.2;
            if meets {
                last.2 = last.2.max(next.2);
            }
            meets
        });
        self.merged = self.times.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_meet_are_one() {
        let mut during = During::default();
        for (process, began, ended) in [(1, 50, 60), (0, 10, 20), (0, 15, 30), (0, 30, 31), (0, 40, 50), (0, 12, 13)] {
            during.add(process, began, ended);
        }
        during.merge();
        assert_eq!(during.times, [(0, 10, 31), (0, 40, 50), (1, 50, 60)]);
        let holds =
            [(0, 9), (0, 10), (0, 31), (0, 32), (0, 45), (1, 45), (1, 60), (2, 60)].map(|(p, at)| during.holds(p, at));
        assert_eq!(holds, [false, true, true, false, true, false, true, false]);
        assert!(!During::default().holds(0, 0));
    }
}
