//! The samples of one cell, by rounds, and their figures.

use super::arrivals::{Arrivals, Releases};
use super::sum_up::is_to_gpu;
use super::{Cause, Figure, PerRound, Rate, WorstOfRun, budget};
use crate::part::{EndedBy, Explained, Part, Sample};
use crate::samples::reads_counters;
use crate::{Error, Samples};
use experiment::{Arrival, Cell, Observe, Stage, What};
use statistics::{CONFIDENCE, Due, Interval, Misses, Rounds, WORST, Worst};
use std::collections::BTreeMap;

/// The relevant data of all samples of a cell.
pub(super) struct Gathered {
    /// Rounds of a repeat.
    each: usize,
    /// By round, with all repeats in sequence.
    done: Vec<Vec<u64>>,
    submit: Vec<Vec<u64>>,
    engine: Vec<Vec<u64>>,
    worst: Worst<Kept>,
    /// For the rounds in which counters were read.
    counted: Worst<Kept>,
    observe: Observe,
    /// With paced arrivals.
    releases: Option<Releases>,
    /// For each round, whether its turn ended with its time, not with its samples.
    by_time: Vec<bool>,
    /// For each round: number of samples, the first release, the last end.
    spans: Vec<Option<(u64, u64, u64)>>,
    budget: Option<budget::Gathered>,
    pub samples: u64,
    pub capped: u64,
}

/// A round with more missing samples consists of misses anyway.
const MOST_UNMADE: u64 = 1 << 20;

struct Kept {
    repeat: u32,
    index: u64,
    sample: Sample,
}

/// The observed value of a sample.
pub fn observed(s: &Sample, observe: Observe) -> Option<u64> {
    match observe {
        Observe::Submit => Some(s.submit()),
        Observe::Done => Some(s.done()),
        Observe::Engine => s.engine(),
    }
}

impl Gathered {
    /// From the parts of one stage, each with its samples.
    pub fn of(stage: &Stage, cell: usize, parts: &[(&Part, Samples)], budgets: bool) -> Result<Gathered, Error> {
        let (each, repeats) = (stage.run.rounds as usize, stage.run.repeats as usize);
        let rounds = || vec![Vec::new(); each * repeats];
        let observe = stage.cells[cell].subject.observe;
        let mut all = Gathered {
            each,
            done: rounds(),
            submit: rounds(),
            engine: rounds(),
            worst: Worst::new(WORST),
            counted: Worst::new(WORST),
            observe,
            releases: match stage.cells[cell].subject.arrival {
                Arrival::Paced { period_ns } => Some(Releases::new(period_ns.max(1), each * repeats)),
                Arrival::Closed { .. } => None,
            },
            // Files of an older doorbell do not contain it.
            by_time: vec![stage.run.samples.is_none(); each * repeats],
            spans: vec![None; each * repeats],
            budget: budgets.then(|| budget::Gathered::new(each * repeats)),
            samples: 0,
            capped: 0,
        };
        for (part, samples) in parts {
            for turn in &part.cells[cell].turns {
                let at = part.repeat as usize * each + turn.round as usize;
                if let Some(by_time) = all.by_time.get_mut(at).filter(|_| (turn.round as usize) < each) {
                    *by_time = matches!(turn.ended, EndedBy::Time | EndedBy::Capped);
                }
            }
            let mut index = 0;
            let mut beyond = None;
            samples.each(cell, |some| {
                for s in some {
                    let at = (index, part.repeat as usize * each + s.round as usize);
                    index += 1;
                    if s.round as usize >= each || part.repeat as usize >= repeats {
                        beyond = Some(s.round);
                    } else if !reads_counters(s.round, stage.run.counters_every) {
                        all.add(s, part.repeat, at);
                    } else if let Some(value) = observed(s, observe) {
                        all.counted.offer(value, || Kept { repeat: part.repeat, index: at.0, sample: *s });
                    }
                }
            })?;
            if let Some(round) = beyond {
                let what = format!("round {round} of repeat {}, of {each} rounds in {repeats}", part.repeat);
                return Err(Error::damaged(samples.path(), what));
            }
        }
        Ok(all)
    }

    fn add(&mut self, s: &Sample, repeat: u32, (index, round): (u64, usize)) {
        self.samples += 1;
        self.capped += u64::from(s.capped);
        self.done[round].push(s.done());
        self.submit[round].push(s.submit());
        self.engine[round].extend(s.engine());
        if let Some(budget) = &mut self.budget {
            budget.add(round, s);
        }
        if let Some(releases) = &mut self.releases {
            releases.add(round, s);
        }
        let (n, first, last) = self.spans[round].unwrap_or((0, s.release_ns, 0));
        self.spans[round] = Some((n + 1, first.min(s.release_ns), last.max(s.done_ns)));
        if let Some(value) = observed(s, self.observe) {
            self.worst.offer(value, || Kept { repeat, index, sample: *s });
        }
    }

    /// With samples.
    pub fn rounds(&self) -> u64 {
        self.spans.iter().flatten().count() as u64
    }

    /// Call this before the times are taken.
    pub fn misses(&self, deadline_ns: Option<u64>) -> Option<Misses> {
        let deadline_ns = deadline_ns?;
        let unmade = |round: usize| match &self.releases {
            Some(releases) if self.by_time[round] => releases.unmade_and_missed(round, deadline_ns),
            _ => 0,
        };
        let due = self.done.iter().enumerate().map(|(round, made)| Due { made, unmade: unmade(round) });
        Some(Misses::of(due, deadline_ns)).filter(|m| m.of > 0)
    }

    /// The due samples by rounds, for a ratio of misses: measured samples, and for those never made how long they were due. Call this before the
    /// times are taken.
    pub fn due(&self) -> Rounds {
        let Some(releases) = &self.releases else { return Rounds::new(&self.done) };
        let mut due = self.done.clone();
        for (round, times) in due.iter_mut().enumerate().filter(|(round, _)| self.by_time[*round]) {
            if let Some((late, unmade)) = releases.unmade(round) {
                times.extend((0..unmade.min(MOST_UNMADE)).map(|n| late - n * releases.period_ns()));
            }
        }
        Rounds::new(&due)
    }

    pub fn arrivals(&self) -> Option<Arrivals> {
        self.releases.as_ref()?.arrivals(|round| self.by_time[round])
    }

    pub fn take(&mut self, what: Observe) -> Rounds {
        let each = self.each;
        let rounds = Rounds::new(&std::mem::take(match what {
            Observe::Submit => &mut self.submit,
            Observe::Done => &mut self.done,
            Observe::Engine => &mut self.engine,
        }));
        rounds.in_repeats_of(each)
    }

    pub fn budget(&mut self) -> Option<budget::Budget> {
        self.budget.take()?.budget(self.each)
    }

    /// `values` are the times of all samples, by rounds.
    pub fn rate(&self, cell: &Cell, values: &Rounds) -> Option<Rate> {
        let many = f64::from(cell.subject.back_to_back.max(1));
        let (transfers_per_second, interval) = match cell.subject.arrival {
            Arrival::Closed { depth: 1 } => back_to_back(values, many)?,
            _ => {
                let spans = self.spans.iter().flatten();
                let (n, ns) = spans.fold((0, 0), |(n, ns), s| (n + s.0, ns + s.2.saturating_sub(s.1)));
                if ns == 0 {
                    return None;
                }
                (many * n as f64 * 1e9 / ns as f64, None)
            }
        };
        // It is unknown how many of its bytes another call copies.
        let what = &cell.subject.what;
        let moves = cell.bytes > 0 && (matches!(what, What::Route(_)) || is_to_gpu(what).is_some());
        let bytes_per_second = moves.then_some(transfers_per_second * cell.bytes as f64);
        Some(Rate { transfers_per_second, bytes_per_second, interval })
    }

    /// The slowest of the rounds that count, and of those with counters. `explained` returns a part's explanation of a sample.
    pub fn worst<'a>(self, explained: impl Fn(u32, u64) -> Option<&'a Explained>) -> [Vec<WorstOfRun>; 2] {
        let one = |value_ns: u64, kept: Kept| {
            let Kept { repeat, index, sample: s } = kept;
            let signed = |from: u64, to: u64| to as i64 - from as i64;
            let released = (s.ended_ns > 0).then_some(s.ended_ns);
            let mut worst = WorstOfRun {
                repeat,
                index,
                round: s.round,
                at_ns: s.release_ns,
                value_ns,
                total_ns: s.done(),
                queued_ns: s.call_ns.saturating_sub(s.release_ns),
                submit_ns: s.submit(),
                engine_ns: released.map(|ns| signed(s.submitted_ns, ns)),
                seen_ns: released.map(|ns| signed(ns, s.done_ns)),
                capped: s.capped,
                ..WorstOfRun::default()
            };
            if let Some(e) = explained(repeat, index) {
                worst.engine_ns = worst.engine_ns.or(e.engine_ns);
                worst.seen_ns = worst.seen_ns.or(e.seen_ns);
                worst.longest_gap_ns = e.longest_gap_ns;
                worst.asleep_ns = e.asleep_ns;
                worst.run_queue_ns = e.run_queue_ns;
                worst.on_cpu_ns = e.on_cpu_ns;
            }
            worst.mostly = worst.cause(self.observe);
            worst
        };
        let all = |worst: Worst<Kept>| worst.into_sorted().into_iter().map(|w| one(w.value, w.note)).collect();
        [all(self.worst), all(self.counted)]
    }
}

impl WorstOfRun {
    /// The largest known part of the observed time, if it is more than half.
    fn cause(&self, observe: Observe) -> Cause {
        match observe {
            Observe::Done => self.cause_of_all(),
            Observe::Submit => self.cause_of_call(),
            Observe::Engine => Cause::Engine,
        }
    }

    /// The kernel counted until the end was seen: counted time that does not fit after the call belongs to the call.
    fn cause_of_call(&self) -> Cause {
        let after = self.total_ns.saturating_sub(self.queued_ns).saturating_sub(self.submit_ns);
        let within = |ns: Option<u64>| ns.unwrap_or(0).saturating_sub(after);
        let parts = [
            (within(self.asleep_ns), Cause::Asleep),
            (within(self.run_queue_ns), Cause::RunQueue),
            (within(self.on_cpu_ns), Cause::OnCpu),
        ];
        let largest = parts.into_iter().rev().max_by_key(|(ns, _)| *ns);
        largest.filter(|(ns, _)| ns.saturating_mul(2) > self.submit_ns).map_or(Cause::Submission, |(_, cause)| cause)
    }

    fn cause_of_all(&self) -> Cause {
        let positive = |ns: Option<i64>| ns.map_or(0, |ns| ns.max(0) as u64);
        // The kernel's counts for the thread are more specific than the time in the call.
        let own = self.on_cpu_ns.is_none();
        let parts = [
            (self.queued_ns, Cause::Queue),
            (if own { self.submit_ns } else { 0 }, Cause::Submission),
            (positive(self.engine_ns), Cause::Engine),
            // Time before the call returned belongs to the call.
            (positive(self.seen_ns.map(|ns| ns + self.engine_ns.unwrap_or(0).min(0))), Cause::Seeing),
            (self.asleep_ns.unwrap_or(0), Cause::Asleep),
            (self.run_queue_ns.unwrap_or(0), Cause::RunQueue),
            (self.on_cpu_ns.unwrap_or(0), Cause::OnCpu),
        ];
        // One poll may cost a load from the GPU: that is the poll's own time, not a disturbance.
        let of = |part: Option<u64>, ns: u64| part.is_some_and(|part| part.saturating_mul(2) > ns);
        let kept_away = |ns: u64| of(self.longest_gap_ns.filter(|gap| *gap >= 2_000), ns);
        // Among equal ones the first.
        match parts.into_iter().rev().max_by_key(|(ns, _)| *ns) {
            Some((ns, cause)) if ns.saturating_mul(2) > self.total_ns => match cause {
                // The reason why it was seen late, if known.
                Cause::Seeing if of(self.asleep_ns, ns) => Cause::Asleep,
                Cause::Seeing if of(self.run_queue_ns, ns) => Cause::RunQueue,
                Cause::Seeing if kept_away(ns) => Cause::CpuKeptAway,
                cause => cause,
            },
            // If the CPU did not poll, it is unknown when the end came.
            _ if self.engine_ns.is_none() && kept_away(self.total_ns) => Cause::CpuKeptAway,
            _ => Cause::Unknown,
        }
    }
}

/// Samples a second without pauses, of `many` copies each.
pub(crate) fn back_to_back(values: &Rounds, many: f64) -> Option<(f64, Option<Interval<f64>>)> {
    let mean = values.figure(statistics::Figure::Mean).filter(|mean| *mean > 0.0)?;
    let rate = |ns: f64| many * 1e9 / ns;
    let interval = values.interval(statistics::Figure::Mean, CONFIDENCE).filter(|i| i.low > 0.0);
    Some((rate(mean), interval.map(|i| Interval { low: rate(i.high), high: rate(i.low) })))
}

/// The figures of one quantity.
pub(super) fn figure(rounds: &Rounds) -> Option<Figure> {
    let interval = |figure| rounds.interval(figure, CONFIDENCE);
    Some(Figure {
        summary: rounds.summary()?,
        p50_interval: interval(statistics::Figure::P50),
        p999_interval: interval(statistics::Figure::P999),
    })
}

/// `each`: rounds of one repeat. `rested`: how long the loads rested, by repeat and round.
pub(super) fn per_round(rounds: &Rounds, each: u32, rested: &BTreeMap<(u32, u32), u64>) -> PerRound {
    let of = |figure| rounds.each(figure).into_iter();
    let figures = of(statistics::Figure::P50).zip(of(statistics::Figure::P99)).zip(of(statistics::Figure::Max));
    let mut all = PerRound::default();
    for (number, ((p50, p99), max)) in (0u32..).zip(figures) {
        let (Some(p50), Some(max)) = (p50, max) else { continue };
        let (repeat, round) = (number / each.max(1), number % each.max(1));
        all.repeat.push(repeat);
        all.round.push(round);
        if !rested.is_empty() {
            all.rested_ns.push(rested.get(&(repeat, round)).copied().unwrap_or(0));
        }
        all.samples.push(rounds.samples(number as usize));
        all.p50.push(p50 as u64);
        all.p99.push(p99.map(|v| v as u64));
        all.max.push(max as u64);
    }
    all
}
