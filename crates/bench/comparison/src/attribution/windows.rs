//! When each call of a part was made, in ticks of the time stamp counter.

use crate::attribution::Error;
use run_folder::Sample;
use run_folder::commands::Counter;

/// The clock of a part's samples in ticks of the time stamp counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    began_ns: u64,
    began_tsc: u64,
    per_ns: f64,
}

impl Ticks {
    /// # Errors
    /// The two moments of `counter` are equal.
    pub(crate) fn of(counter: &Counter) -> Result<Ticks, Error> {
        let (began, ended) = (&counter.began, &counter.ended);
        let (ns, ticks) = (ended.ns.checked_sub(began.ns), ended.tsc.checked_sub(began.tsc));
        let (Some(ns @ 1..), Some(ticks @ 1..)) = (ns, ticks) else { return Err(Error::Clock) };
        Ok(Ticks { began_ns: began.ns, began_tsc: began.tsc, per_ns: ticks as f64 / ns as f64 })
    }

    /// The counter at a time of the part.
    pub(crate) fn at(&self, ns: u64) -> u64 {
        self.began_tsc.saturating_add(self.of_ns(ns.saturating_sub(self.began_ns)))
    }

    pub(crate) fn of_ns(&self, ns: u64) -> u64 {
        (ns as f64 * self.per_ns).round() as u64
    }

    pub(crate) fn ns(&self, ticks: u64) -> u64 {
        (ticks as f64 / self.per_ns).round() as u64
    }
}

/// The calls of a part in the order of their time.
#[derive(Debug)]
pub struct Windows {
    /// In order; the calls of one thread do not overlap.
    all: Vec<Window>,
    /// The latest end of a sample among those up to each window.
    until: Vec<u64>,
    error_ns: f64,
    ticks: Ticks,
    /// How much earlier each window begins, and how much later it ends, ticks.
    slack: u64,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    from: u64,
    to: u64,
    done: u64,
    /// Cell, and which of its samples.
    call: (usize, usize),
}

/// What the measuring thread was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// In the call of a sample: cell, and which of its samples.
    Call(usize, usize),
    /// A call had returned, and its sample was not over.
    Waiting,
    Untimed,
}

impl Windows {
    /// # Errors
    /// The two moments of `counter` are equal.
    pub fn new(counter: &Counter, cells: &[&[Sample]]) -> Result<Windows, Error> {
        let ticks = Ticks::of(counter)?;
        let error_ns = counter.began.error_ns.max(counter.ended.error_ns);
        // So that the clocks' error loses no event at the very ends of a call.
        let slack = (error_ns * ticks.per_ns).ceil() as u64;
        let tsc = |at: u64| ticks.at(at);
        let window = |cell: usize, index: usize, s: &Sample| Window {
            from: tsc(s.call_ns).saturating_sub(slack),
            to: tsc(s.submitted_ns) + slack,
            done: tsc(s.done_ns) + slack,
            call: (cell, index),
        };
        let of_cell = |(cell, samples): (usize, &&[Sample])| {
            samples.iter().enumerate().map(move |(i, s)| (cell, i, *s)).collect()
        };
        let samples: Vec<Vec<(usize, usize, Sample)>> = cells.iter().enumerate().map(of_cell).collect();
        let mut all: Vec<Window> = samples.iter().flatten().map(|(cell, i, s)| window(*cell, *i, s)).collect();
        all.sort_by_key(|w| w.from);
        let mut latest = 0;
        let until = all.iter().map(|w| {
            latest = latest.max(w.done);
            latest
        });
        let until = until.collect();
        Ok(Windows { all, until, error_ns, ticks, slack })
    }

    /// What the measuring thread was doing at a time.
    pub fn at(&self, tsc: u64) -> At {
        let Some(last) = self.all.partition_point(|w| w.from <= tsc).checked_sub(1) else { return At::Untimed };
        let window = &self.all[last];
        match () {
            () if tsc <= window.to => At::Call(window.call.0, window.call.1),
            () if tsc <= self.until[last] => At::Waiting,
            () => At::Untimed,
        }
    }

    /// How long before a time its call was made; `tsc` is in a call.
    pub fn since_call_ns(&self, tsc: u64) -> u64 {
        let window = self.all.partition_point(|w| w.from <= tsc).checked_sub(1).map(|i| &self.all[i]);
        window.map_or(0, |w| self.ticks.ns(tsc.saturating_sub(w.from + self.slack)))
    }

    /// How far the clocks of samples and tape can be apart.
    pub fn error_ns(&self) -> f64 {
        self.error_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use run_folder::commands::Anchor;

    /// Three ticks a nanosecond, with an error of two.
    fn counter() -> Counter {
        let anchor = |ns, tsc| Anchor { ns, tsc, error_ns: 2.0 };
        Counter { pid: 1, tid: 1, began: anchor(0, 1_000_000), ended: anchor(100_000, 1_300_000) }
    }

    fn sample(call_ns: u64, submitted_ns: u64, done_ns: u64) -> Sample {
        Sample { call_ns, submitted_ns, done_ns, ..Sample::default() }
    }

    #[test]
    fn a_time_is_in_a_call_or_after_it_or_in_none() {
        let (one, two) = ([sample(100, 200, 900), sample(2_000, 2_100, 2_500)], [sample(1_000, 1_100, 1_900)]);
        let windows = Windows::new(&counter(), &[&one, &two]).unwrap();
        let at = |ns: u64| windows.at(1_000_000 + 3 * ns);
        assert_eq!([at(50), at(97), at(98), at(150)], [At::Untimed, At::Untimed, At::Call(0, 0), At::Call(0, 0)]);
        assert_eq!([at(202), at(203), at(902), at(903)], [At::Call(0, 0), At::Waiting, At::Waiting, At::Untimed]);
        assert_eq!([at(1_050), at(1_500), at(1_950)], [At::Call(1, 0), At::Waiting, At::Untimed]);
        assert_eq!([at(2_000), at(2_400), at(9_000)], [At::Call(0, 1), At::Waiting, At::Untimed]);
        assert_eq!(windows.error_ns(), 2.0);
        assert_eq!([98, 100, 150].map(|ns| windows.since_call_ns(1_000_000 + 3 * ns)), [0, 0, 50]);
    }

    #[test]
    fn several_under_way_are_waited_for_until_the_last_is_over() {
        let all = [sample(0, 10, 1_000), sample(20, 30, 500)];
        let windows = Windows::new(&counter(), &[&all]).unwrap();
        let at = |ns: u64| windows.at(1_000_000 + 3 * ns);
        assert_eq!([at(25), at(600), at(1_100)], [At::Call(0, 1), At::Waiting, At::Untimed]);
    }

    #[test]
    fn a_stopped_clock_is_refused() {
        let counter = Counter { ended: counter().began, ..counter() };
        assert!(matches!(Windows::new(&counter, &[]), Err(Error::Clock)));
    }

    proptest! {
        #[test]
        fn each_call_finds_itself(gaps in prop::collection::vec((10..1_000u64, 10..1_000u64, 0..1_000u64), 1..100)) {
            let mut now = 0;
            let one = |(before, call, wait): &(u64, u64, u64)| {
                let (from, to) = (now + before, now + before + call);
                now = to + wait;
                sample(from, to, now)
            };
            let all: Vec<Sample> = gaps.iter().map(one).collect();
            let windows = Windows::new(&counter(), &[&all]).unwrap();
            for (i, s) in all.iter().enumerate() {
                for ns in [s.call_ns, s.submitted_ns, u64::midpoint(s.call_ns, s.submitted_ns)] {
                    prop_assert_eq!(windows.at(1_000_000 + 3 * ns), At::Call(0, i));
                }
            }
        }
    }
}
