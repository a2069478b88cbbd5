//! When the next frame is: ticks of an absolute clock, or inputs as they come.

use crate::error::{Ended, Reason};
use crate::memory::Memory;
use crate::options::Late;
use crate::source::Inputs;
use crate::sys;
use std::sync::atomic::Ordering;

/// A moment for which a frame is due.
pub(crate) struct Tick {
    pub number: u64,
    pub due: u64,
    /// Time of the next tick.
    pub next: u64,
    /// Ticks that were left out before it.
    pub missed: u64,
    /// The loop was too late for it, or for those before it.
    pub behind: bool,
    /// How late the thread woke up, if it slept or spun for it.
    pub woke: Option<u64>,
}

pub(crate) struct Ticks {
    first: u64,
    period: u64,
    number: u64,
    spin: u64,
    late: Late,
}

impl Ticks {
    /// Ticks from `now` on.
    pub fn new((first, now): (u64, u64), period: u64, spin: u64, late: Late) -> Ticks {
        Ticks { first, period, number: now.saturating_sub(first).div_ceil(period), spin, late }
    }

    fn at(&self, number: u64) -> u64 {
        self.first.saturating_add(number.saturating_mul(self.period))
    }

    /// Waits for the next tick.
    pub fn next(&mut self, memory: &Memory) -> Result<Tick, Ended> {
        let due = self.at(self.number);
        let mut now = sys::now();
        let waits = now < due;
        while now < due {
            let header = memory.header();
            let bell = header.source.bell.load(Ordering::SeqCst);
            stopped(memory)?;
            if due - now > self.spin {
                sys::sleep(&header.source.bell, bell, Some(due - self.spin));
            } else {
                std::hint::spin_loop();
            }
            now = sys::now();
        }
        stopped(memory)?;
        Ok(self.choose(now, waits))
    }

    /// Chooses the tick for `now`, after the time of tick `number` has come.
    fn choose(&mut self, now: u64, waited: bool) -> Tick {
        let passed = now.saturating_sub(self.at(self.number)) / self.period;
        let missed = if self.late == Late::CatchUp { 0 } else { passed };
        let woke = waited.then(|| now - self.at(self.number));
        let number = self.number + missed;
        self.number = number + 1;
        Tick { number, due: self.at(number), next: self.at(number + 1), missed, behind: passed > 0, woke }
    }
}

/// Waits for an input. Returns true if the caller should record how late the thread woke up.
pub(crate) fn input(memory: &Memory, inputs: &Inputs, spin: u64) -> Result<bool, Ended> {
    let header = memory.header();
    let (start, mut waited) = (sys::now(), false);
    loop {
        stopped(memory)?;
        if inputs.waiting(memory) > 0 {
            return Ok(waited);
        }
        waited = true;
        if spin == u64::MAX || sys::now() - start < spin {
            std::hint::spin_loop();
            continue;
        }
        let bell = header.source.bell.load(Ordering::SeqCst);
        // ORDERING: stored before the next check for inputs; a producer commits before it checks whether the loop
        // sleeps.
        header.progress.sleeps.store(1, Ordering::SeqCst);
        if inputs.waiting(memory) == 0 && header.source.stop.load(Ordering::SeqCst) == 0 {
            sys::sleep(&header.source.bell, bell, None);
        }
        header.progress.sleeps.store(0, Ordering::SeqCst);
    }
}

pub(crate) fn stopped(memory: &Memory) -> Result<(), Ended> {
    match memory.header().source.stop.load(Ordering::SeqCst) {
        0 => Ok(()),
        _ => Err(Reason::Asked.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number, due, missed, behind.
    fn at(ticks: &mut Ticks, now: u64) -> (u64, u64, u64, bool) {
        let Tick { number, due, next, missed, behind, .. } = ticks.choose(now, false);
        assert_eq!(next, due + 100);
        (number, due, missed, behind)
    }

    #[test]
    fn ticks_whose_time_is_over_are_missed_and_none_is_begun_twice() {
        for late in [Late::Skip, Late::Latest] {
            let mut ticks = Ticks::new((1000, 0), 100, 0, late);
            assert_eq!(at(&mut ticks, 1003), (0, 1000, 0, false));
            assert_eq!(at(&mut ticks, 1199), (1, 1100, 0, false), "its time is not over");
            assert_eq!(at(&mut ticks, 1550), (5, 1500, 3, true));
            assert_eq!(at(&mut ticks, 1600), (6, 1600, 0, false));
        }
    }

    #[test]
    fn ticks_of_a_clock_that_began_earlier_keep_its_numbers() {
        let mut ticks = Ticks::new((1000, 1250), 100, 0, Late::CatchUp);
        assert_eq!(at(&mut ticks, 1300), (3, 1300, 0, false));
        assert_eq!(Ticks::new((1000, 1200), 100, 0, Late::Skip).number, 2);
    }

    #[test]
    fn who_catches_up_leaves_no_tick_out() {
        let mut ticks = Ticks::new((1000, 0), 100, 0, Late::CatchUp);
        assert_eq!(at(&mut ticks, 1250), (0, 1000, 0, true));
        assert_eq!(at(&mut ticks, 1260), (1, 1100, 0, true));
        assert_eq!(at(&mut ticks, 1270), (2, 1200, 0, false));
        assert_eq!(at(&mut ticks, 1300), (3, 1300, 0, false));
    }
}
