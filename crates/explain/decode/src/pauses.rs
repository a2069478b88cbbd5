//! Pauses: times in which only the driver calls of a process were recorded.

/// The pauses of one process, or of all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    /// Number of pauses that began.
    pub count: u64,
    /// Total time of pauses that have ended.
    pub ticks: u64,
    /// When the unfinished pause began.
    since: Option<u64>,
}

pushbuf::snapshot!(Pauses { count, ticks, since });

impl Pauses {
    /// One begins or ends. (An end without a begin: the begin was lost in a gap, so that pause is not known.)
    pub fn event(&mut self, begins: bool, tsc: u64) {
        match (begins, self.since) {
            (true, None) => {
                self.count += 1;
                self.since = Some(tsc);
            }
            (false, Some(since)) => {
                self.ticks = self.ticks.saturating_add(tsc.saturating_sub(since));
                self.since = None;
            }
            _ => {}
        }
    }

    /// Adds the pauses of a process. An unfinished one lasts until `end`.
    pub fn add(&mut self, other: &Pauses, end: u64) {
        let open = other.since.map_or(0, |since| end.saturating_sub(since));
        self.count += other.count;
        self.ticks = self.ticks.saturating_add(other.ticks).saturating_add(open);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_counted_and_one_that_does_not_end_lasts_until_the_end() {
        let mut p = Pauses::default();
        for (begins, tsc) in [(false, 5), (true, 10), (true, 12), (false, 30), (false, 40), (true, 100)] {
            p.event(begins, tsc);
        }
        let mut all = Pauses::default();
        all.add(&p, 150);
        all.add(&Pauses::default(), 150);
        assert_eq!((all.count, all.ticks), (2, 20 + 50));
    }
}
