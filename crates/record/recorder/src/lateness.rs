//! What kept the recorder from the rings before a look at which it finds that events did not fit into them.

use std::time::{Duration, Instant};

/// Of one look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Late {
    /// How much later than planned it came, or how long it took.
    pub late: Duration,
    /// How long the recorder waited meanwhile until earlier events were packed and written.
    pub held_up: Duration,
    /// The longest write to the file meanwhile.
    pub write: Duration,
}

pub struct Lateness {
    began: Instant,
    planned: Duration,
    /// How much later than planned the present look came.
    over: Duration,
    /// The waits and writes during the look before.
    before: (Duration, Duration),
    lost: u64,
    worst: Late,
}

impl Lateness {
    pub fn new() -> Lateness {
        let (planned, over, before, worst) = Default::default();
        Lateness { began: Instant::now(), planned, over, before, lost: 0, worst }
    }

    /// A look begins.
    pub fn begins(&mut self) {
        let now = Instant::now();
        self.over = (now - self.began).saturating_sub(std::mem::take(&mut self.planned));
        self.began = now;
    }

    /// The next look is to begin so much later.
    pub fn pauses(&mut self, planned: Duration) {
        // (Counted from when the present one began.)
        self.planned = self.began.elapsed() + planned;
    }

    /// A look ends. `lost`: events that did not fit so far.
    pub fn ends(&mut self, lost: u64, held_up: Duration, write: Duration) {
        let before = std::mem::replace(&mut self.before, (held_up, write));
        // (The count falls when a process ends.)
        if std::mem::replace(&mut self.lost, lost) >= lost {
            return;
        }
        let late = self.over.max(self.began.elapsed());
        let found = Late { late, held_up: held_up + before.0, write: write.max(before.1) };
        if found.late.max(found.held_up) > self.worst.late.max(self.worst.held_up) {
            self.worst = found;
        }
    }

    /// The worst look after which more was lost.
    pub fn worst(&self) -> Late {
        self.worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn only_looks_that_find_a_loss_count() {
        let mut l = Lateness::new();
        l.begins();
        std::thread::sleep(20 * MS);
        l.ends(0, 15 * MS, 15 * MS);
        assert_eq!(l.worst(), Late::default(), "nothing was lost");
        // What the look before waited for explains a loss that this one finds.
        l.begins();
        l.ends(7, 2 * MS, MS);
        let worst = l.worst();
        assert!(worst.late >= 20 * MS && (worst.held_up, worst.write) == (17 * MS, 15 * MS), "{worst:?}");
        // A process with losses ended, and another has lost less.
        l.begins();
        l.ends(3, Duration::ZERO, Duration::ZERO);
        assert_eq!(l.worst(), worst);
    }

    #[test]
    fn a_planned_pause_is_not_late() {
        let mut l = Lateness::new();
        l.begins();
        l.ends(0, Duration::ZERO, Duration::ZERO);
        l.pauses(10_000 * MS);
        std::thread::sleep(5 * MS);
        l.begins();
        l.ends(1, Duration::ZERO, Duration::ZERO);
        assert!(l.worst().late < 5 * MS, "{:?}", l.worst());
    }
}
