//! The clock of a GPU and the CPU's time stamp counter, converted by readings of both.

/// A moment on one of the two clocks.
#[derive(Debug, Clone, Copy)]
pub enum Moment {
    Tsc(u64),
    /// Nanoseconds.
    Gpu(u64),
}

/// The readings of one GPU's clock.
#[derive(Debug)]
pub struct Clock {
    /// Time stamps a second.
    hz: f64,
    /// The first reading. Nanoseconds since 1970 are more than a double holds, so `pairs` count from here.
    base: u64,
    pairs: Vec<Pair>,
    is_sorted: bool,
}

/// One moment on both clocks; the GPU's counts from its first reading.
#[derive(Debug, Clone, Copy)]
struct Pair {
    tsc: f64,
    ns: f64,
    /// Half the time that the reading took, in nanoseconds.
    error: f64,
}

impl Clock {
    /// `gpu_ns`: of the first reading, which is not added.
    pub fn new(hz: f64, gpu_ns: u64) -> Clock {
        Clock { hz, base: gpu_ns, pairs: Vec::new(), is_sorted: true }
    }

    /// Adds a reading, made between two time stamps.
    pub fn add(&mut self, before: u64, after: u64, gpu_ns: u64) {
        let half = after.saturating_sub(before) as f64 / 2.0;
        self.put(Pair { tsc: before as f64 + half, ns: self.since(gpu_ns), error: half / self.hz * 1e9 });
    }

    fn put(&mut self, pair: Pair) {
        self.is_sorted &= self.pairs.last().is_none_or(|last| last.tsc <= pair.tsc);
        self.pairs.push(pair);
    }

    /// Nanoseconds from the first reading on.
    fn since(&self, ns: u64) -> f64 {
        ns.wrapping_sub(self.base) as i64 as f64
    }

    /// The time stamp of the first reading after a moment.
    pub fn next(&mut self, at: Moment) -> Option<f64> {
        let next = match at {
            Moment::Tsc(tsc) => self.after(tsc as f64, |p| p.tsc),
            Moment::Gpu(ns) => self.after(self.since(ns), |p| p.ns),
        };
        self.pairs.get(next).map(|p| p.tsc)
    }

    fn after(&mut self, at: f64, on: fn(&Pair) -> f64) -> usize {
        if !std::mem::replace(&mut self.is_sorted, true) {
            self.pairs.sort_by(|a, b| a.tsc.total_cmp(&b.tsc));
        }
        self.pairs.partition_point(|p| on(p) <= at)
    }

    /// The GPU's time at a time stamp, and its maximum error.
    pub fn gpu_ns(&mut self, tsc: u64) -> Option<(u64, u64)> {
        let (ns, error) = self.convert(tsc as f64, |p| p.tsc, |p| p.ns, 1e9 / self.hz)?;
        Some((self.base.saturating_add_signed(ns.round() as i64), error.ceil() as u64))
    }

    /// The time stamp at a GPU time: the inverse of [`Clock::gpu_ns`].
    pub fn tsc(&mut self, ns: u64) -> Option<u64> {
        let (tsc, _) = self.convert(self.since(ns), |p| p.ns, |p| p.tsc, self.hz / 1e9)?;
        Some(tsc.round() as u64)
    }

    /// The time on the clock `to` when the clock `from` showed `at`, and its maximum error in nanoseconds. `slope`: ticks of `to` in one of `from`, for times
    /// outside of all readings.
    fn convert(&mut self, at: f64, from: fn(&Pair) -> f64, to: fn(&Pair) -> f64, slope: f64) -> Option<(f64, f64)> {
        let i = self.after(at, from);
        let before = i.checked_sub(1).and_then(|i| self.pairs.get(i));
        match (before, self.pairs.get(i)) {
            (Some(a), Some(b)) => {
                let part = (at - from(a)) / (from(b) - from(a)).max(1.0);
                Some((to(a) + part * (to(b) - to(a)), a.error.max(b.error)))
            }
            (Some(p), None) | (None, Some(p)) => {
                let away = (at - from(p)) * slope;
                // Allows 10 ppm of drift.
                Some((to(p) + away, p.error + away.abs() * 1e-5))
            }
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 1_790_000_000_123_456_789;
    const FIRST: u64 = 100_000_000_000_000;

    /// Readings 200 ms apart of clocks that drift; the GPU counts since 1970.
    fn clock() -> Clock {
        let mut clock = Clock::new(3e9, BASE);
        for t in [0.0, 2e8, 4e8, 6e8] {
            clock.put(Pair { tsc: 3.0 * t + 1e14, ns: t * (1.0 + 8e-6) + t * t * 1e-15, error: 50.0 });
        }
        clock
    }

    #[test]
    fn a_time_of_today_is_known_to_the_nanosecond() {
        let mut clock = clock();
        let mut ns = |tsc: u64| clock.gpu_ns(tsc).unwrap().0;
        assert_eq!(ns(FIRST), BASE);
        for n in 1..1000 {
            let step = ns(FIRST + 30 * n) - ns(FIRST + 30 * (n - 1));
            assert!((9..=11).contains(&step), "{step} ns in 10");
        }
    }

    #[test]
    fn a_time_of_the_gpus_and_a_time_stamp_lead_to_each_other() {
        let mut clock = clock();
        for i in 0..3000 {
            // Before the first reading, between all readings, and after the last one.
            let tsc = FIRST - 300_000_000 + i * 1_000_003;
            let (ns, _) = clock.gpu_ns(tsc).unwrap();
            assert!(clock.tsc(ns).unwrap().abs_diff(tsc) <= 3, "{tsc}");
        }
    }

    #[test]
    fn a_reading_is_a_moment_between_two_time_stamps() {
        let mut clock = Clock::new(1e9, 5);
        clock.add(3000, 3100, 2005);
        clock.add(1000, 1100, 5);
        assert_eq!((clock.gpu_ns(1050), clock.gpu_ns(3050)), (Some((5, 50)), Some((2005, 50))));
        assert_eq!((clock.next(Moment::Tsc(1050)), clock.next(Moment::Gpu(2005))), (Some(3050.0), None));
    }

    /// (A clock's reading may have any value on a damaged tape.)
    #[test]
    fn readings_that_are_far_apart_are_no_panic() {
        for base in [0, 1 << 40, i64::MAX as u64, u64::MAX] {
            let mut clock = Clock::new(3e9, base);
            clock.add(u64::MAX, 0, u64::MAX - base);
            clock.add(0, u64::MAX, base.wrapping_add(1 << 63));
            for at in [0, 1, 1 << 40, 1 << 63, u64::MAX] {
                let (ns, tsc) = (clock.gpu_ns(at), clock.tsc(at));
                assert!(ns.is_some() && tsc.is_some());
            }
        }
    }
}
