//! Where the time of one sample went, as far as it can be known.

use crate::clock::Clock;
use crate::counters::Spent;
use gpu::Correlation;

/// A sample as it was taken. Times are ticks of the lab's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moments {
    pub before: u64,
    pub submitted: u64,
    pub done: u64,
    /// The longest time between two looks for the end.
    pub gap: Option<u64>,
    /// When the engine released it, by the GPU's clock.
    pub released_gpu_ns: Option<u64>,
    pub spent: Option<Spent>,
}

/// The parts of one sample, ns. What is `None` is not known, and [`Split::unknown`] says why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// From the return of the submission (its doorbell is rung) until the engine released the transfer, by the GPU's clock.
    /// Negative where the engine was done before the submission had come back.
    pub engine_ns: Option<i64>,
    /// From the release until the CPU saw it.
    pub seen_ns: Option<i64>,
    /// How far the two can be off.
    pub clock_error_ns: Option<u64>,
    /// The longest time in which the CPU did not look for the end: longer than a microsecond, it was kept from it.
    pub longest_gap_ns: Option<u64>,
    /// Asleep, in a lock or in the kernel.
    pub asleep_ns: Option<u64>,
    /// Ready, and without a CPU.
    pub run_queue_ns: Option<u64>,
    /// On a CPU: in libcuda's code, spinning on a lock, or spinning until the engine is done.
    pub on_cpu_ns: Option<u64>,
    /// Times it slept, and times its CPU was taken away.
    pub switches: Option<(u64, u64)>,
    pub unknown: Vec<&'static str>,
}

/// What most of a sample's time is known to have been spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// In the submission of our own: stores to the GPU, or the CPU was taken away there.
    Submission,
    /// Between doorbell and release: fetching, waiting in the engine, moving.
    Engine,
    /// The CPU was kept from looking.
    CpuKeptAway,
    /// Between the release and the CPU's next look: the write's way to memory.
    Seeing,
    /// Asleep: locks of libcuda's, or the kernel.
    Asleep,
    RunQueue,
    /// On a CPU, where libcuda's code, its spinning locks and its spinning for the engine are not told apart.
    OnCpu,
    Unknown,
}

const NO_CLOCK: &str = "engine and seeing: no clock of the GPU's to compare with";
const NO_RELEASE: &str = "engine: no release with a time (stores are posted, or the number alone is written)";
const CUDAS_ENGINE: &str = "engine: within the time on the CPU, where libcuda's code, spinning locks and spinning for the \
                            engine are not told apart";
const NO_SCHEDSTAT: &str = "run queue: this kernel does not count it; it is within what is asleep";

impl Split {
    pub(super) fn of(m: &Moments, clock: &Clock, correlations: &[Correlation]) -> Split {
        let mut split = Split::default();
        match &m.spent {
            Some(spent) => split.of_cuda(spent),
            None => split.of_own(m, clock, correlations),
        }
        split
    }

    fn of_own(&mut self, m: &Moments, clock: &Clock, correlations: &[Correlation]) {
        self.longest_gap_ns = m.gap.map(|gap| clock.ns(gap));
        let Some(released) = m.released_gpu_ns else {
            self.unknown.push(NO_RELEASE);
            return;
        };
        let Some((tick, error)) = tick_of(released, correlations) else {
            self.unknown.push(NO_CLOCK);
            return;
        };
        let signed = |from: u64, to: u64| match to >= from {
            true => clock.ns(to - from) as i64,
            false => -(clock.ns(from - to) as i64),
        };
        self.engine_ns = Some(signed(m.submitted, tick));
        self.seen_ns = Some(signed(tick, m.done));
        self.clock_error_ns = Some(error);
    }

    fn of_cuda(&mut self, spent: &Spent) {
        self.asleep_ns = spent.asleep_ns();
        self.run_queue_ns = spent.run_queue_ns;
        self.on_cpu_ns = Some(spent.cpu_ns);
        self.switches = Some((spent.voluntary, spent.involuntary));
        if spent.run_queue_ns.is_none() {
            self.unknown.push(NO_SCHEDSTAT);
        }
        self.unknown.push(CUDAS_ENGINE);
    }

    /// The largest of the parts that are known, if it is more than half of the sample.
    pub fn cause(&self, submit_ns: u64, total_ns: u64) -> Cause {
        let positive = |ns: Option<i64>| ns.map_or(0, |ns| ns.max(0) as u64);
        let gap = self.longest_gap_ns.unwrap_or(0);
        let own = self.switches.is_none();
        // A gap lies within the other parts: whoever did not look cannot say when the end came.
        let parts = [
            (gap, Cause::CpuKeptAway),
            (if own { submit_ns } else { 0 }, Cause::Submission),
            (positive(self.engine_ns), Cause::Engine),
            (positive(self.seen_ns), Cause::Seeing),
            (self.asleep_ns.unwrap_or(0), Cause::Asleep),
            (self.run_queue_ns.unwrap_or(0), Cause::RunQueue),
            (self.on_cpu_ns.unwrap_or(0), Cause::OnCpu),
        ];
        let largest = parts.iter().rev().max_by_key(|(ns, _)| *ns);
        match largest {
            // One look may cost a load from the GPU; that is the look's own time, not somebody else's.
            Some((ns, Cause::CpuKeptAway)) if *ns < 2_000 => Cause::Unknown,
            Some((ns, cause)) if ns.saturating_mul(2) > total_ns => *cause,
            _ => Cause::Unknown,
        }
    }
}

/// The tick at a time of the GPU's clock, by the two correlations round it, and how far it can be off, ns.
fn tick_of(gpu_ns: u64, correlations: &[Correlation]) -> Option<(u64, u64)> {
    let later = correlations.iter().position(|c| c.gpu_ns >= gpu_ns).unwrap_or(correlations.len());
    let pair = later.clamp(1, correlations.len().checked_sub(1)?.max(1));
    match correlations {
        [] => None,
        [one] => Some((one.tsc_at(gpu_ns), one.error_ns)),
        all => {
            let (from, to) = (&all[pair - 1], &all[pair]);
            let error = from.error_ns.max(to.error_ns);
            Some(from.drift(to).map_or((from.tsc_at(gpu_ns), error), |d| (d.tsc_at(gpu_ns), error)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HZ: u64 = 1_000_000_000;

    fn correlation(tsc: u64, gpu_ns: u64, error_ns: u64) -> Correlation {
        Correlation { tsc, gpu_ns, error_ns, tsc_hz: HZ }
    }

    #[test]
    fn times_of_the_gpu_are_found_between_the_correlations_round_them() {
        // The GPU's clock goes twice as fast in the second interval.
        let all = [correlation(0, 1_000, 10), correlation(1_000, 2_000, 30), correlation(2_000, 4_000, 20)];
        assert_eq!(tick_of(1_500, &all), Some((500, 30)));
        assert_eq!(tick_of(3_000, &all), Some((1_500, 30)));
        assert_eq!(tick_of(500, &all).map(|t| t.1), Some(30), "before the first one it goes on as after it");
        assert_eq!(tick_of(1_250, &all[..1]), Some((250, 10)));
        assert_eq!(tick_of(5, &[]), None);
    }

    #[test]
    fn the_parts_of_our_own_add_up() {
        let clock = Clock::monotonic_raw();
        let all = [correlation(0, 0, 40), correlation(10_000, 10_000, 50)];
        let m = Moments {
            before: 1_000,
            submitted: 1_060,
            done: 6_000,
            gap: Some(90),
            released_gpu_ns: Some(5_300),
            spent: None,
        };
        let split = Split::of(&m, &clock, &all);
        assert_eq!((split.engine_ns, split.seen_ns, split.clock_error_ns), (Some(4_240), Some(700), Some(50)));
        assert_eq!(split.engine_ns.unwrap() + split.seen_ns.unwrap() + 60, 5_000);
        assert_eq!(split.cause(60, 5_000), Cause::Engine);
        // Released before the submission came back.
        let early = Split::of(&Moments { released_gpu_ns: Some(1_050), ..m }, &clock, &all);
        assert_eq!((early.engine_ns, early.cause(60, 5_000)), (Some(-10), Cause::Seeing));
        let kept = Split::of(&Moments { gap: Some(4_500), ..m }, &clock, &all);
        assert_eq!(kept.cause(60, 5_000), Cause::CpuKeptAway);
        let blind = Split::of(&m, &clock, &[]);
        assert_eq!((blind.engine_ns, blind.unknown.as_slice()), (None, [NO_CLOCK].as_slice()));
    }

    #[test]
    fn cudas_parts_are_the_kernels_counters() {
        let spent = Spent { wall_ns: 900, cpu_ns: 200, voluntary: 1, involuntary: 0, run_queue_ns: Some(50) };
        let m = Moments { before: 0, submitted: 1, done: 880, gap: None, released_gpu_ns: None, spent: Some(spent) };
        let clock = Clock::monotonic_raw();
        let split = Split::of(&m, &clock, &[]);
        assert_eq!((split.asleep_ns, split.run_queue_ns, split.on_cpu_ns), (Some(650), Some(50), Some(200)));
        assert_eq!((split.cause(1, 880), split.unknown.as_slice()), (Cause::Asleep, [CUDAS_ENGINE].as_slice()));
        let unknown = Spent { run_queue_ns: None, ..spent };
        let split = Split::of(&Moments { spent: Some(unknown), ..m }, &clock, &[]);
        assert_eq!((split.asleep_ns, split.unknown.len()), (None, 2));
        let awake = Spent { voluntary: 0, run_queue_ns: Some(600), ..spent };
        let split = Split::of(&Moments { spent: Some(awake), ..m }, &clock, &[]);
        assert_eq!((split.asleep_ns, split.cause(1, 880)), (Some(0), Cause::RunQueue));
    }
}
