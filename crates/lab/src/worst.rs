//! The worst transfer of a time: what takes turns on one thread, with and without load beside it, and where the time of the
//! worst of them went.
//!
//! A maximum is the largest that was observed, in so many samples under a load whose rate was measured. It bounds nothing.
//!
//! The invariant: between the submission of a transfer of our own and its end the measuring thread reads memory and the time
//! stamp counter, and nothing else; the kernel's counters are read round calls of CUDA's alone, outside what is timed.

mod split;

pub use split::{Cause, Split};

use crate::clock::Clock;
use crate::counters::{Counters, Spent};
use crate::interference::Rate;
use crate::noise::{Gaps, Looking};
use crate::samples::{NoMemory, Samples};
use crate::statistics::{Summary, WORST};
use copy::{Checked, Difference, Route, Transfer, verify};
use environment::Taken;
use environment::clock::Source;
use gpu::Correlation;
use placement::rest_if_due;
use split::Moments;
use std::time::Duration;

/// Whose code a contender runs while it is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Channels and mappings of our own: no system call until the bytes are there.
    Own,
    /// libcuda's.
    Cuda,
}

/// One thing that takes its turn, opened.
pub struct Contender<'m> {
    pub name: String,
    /// What moves the bytes, in one line.
    pub about: String,
    pub kind: Kind,
    pub bytes: u64,
    /// Between its turns it lets go of the GPU ([`Transfer::rest`]): the first transfer of a turn readies it, and is none of
    /// its samples.
    pub rests: bool,
    /// Why it was not opened, or not opened right.
    pub route: Result<Box<dyn Route + 'm>, Missing>,
}

/// Why a contender has no samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It does not exist on this machine.
    Unavailable(String),
    Failed(String),
}

impl From<copy::Error> for Missing {
    fn from(error: copy::Error) -> Missing {
        match error {
            copy::Error::Unavailable(u) => Missing::Unavailable(u.reason),
            other => Missing::Failed(other.to_string()),
        }
    }
}

/// How a phase is run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub duration: Duration,
    /// A turn of one contender ends after this time or after `most` samples, whichever comes first; it has one at least.
    pub turn: Duration,
    pub most: u32,
    pub seed: u64,
    /// A transfer that takes longer ends its contender.
    pub timeout: Duration,
}

impl Plan {
    /// Samples of a contender that there is room for: a fortieth of a millisecond each, if all the time were its own.
    pub fn room(&self) -> u64 {
        (self.duration.as_micros() as u64 / 25).clamp(1_000, 4_000_000)
    }

    /// Whether the samples fit into memory.
    pub fn fits(&self, contenders: usize) -> Result<(), NoMemory> {
        Samples::fit(self.room(), contenders as u64)
    }
}

/// One of the worst samples.
#[derive(Clone, Debug)]
pub struct Worst {
    /// When it was submitted, ns since the phase began.
    pub at_ns: u64,
    /// Until the submission came back, ns.
    pub submit_ns: u64,
    /// Until the bytes, or CUDA's answer, were there, ns.
    pub total_ns: u64,
    pub split: Split,
}

/// The samples of one contender in one phase.
#[derive(Clone, Debug)]
pub struct Measured {
    pub total: Summary,
    pub submit: Summary,
    /// The worst hundred, the worst first.
    pub worst: Vec<Worst>,
}

/// One contender in one phase.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub about: String,
    pub kind: Kind,
    pub bytes: u64,
    /// `None` where nothing was sampled.
    pub measured: Option<Measured>,
    pub missing: Option<Missing>,
}

/// What a phase gave.
#[derive(Clone, Debug)]
pub struct Phase {
    pub rows: Vec<Row>,
    pub turns: u64,
    pub seconds: f64,
    /// Correlations of the GPU's clock and how far the worst of them can be off, ns; `None` where there is no such clock.
    pub clock: Option<(usize, u64)>,
    /// The room for the samples of one was used up before the time was: it had no more turns then.
    pub full: bool,
    /// The machine's own noise, in turns among those of the contenders.
    pub noise: Gaps,
}

/// A phase and the machine's own noise on the same CPU, before it and after it, under the same load.
#[derive(Clone, Debug)]
pub struct Stage {
    /// What the load achieved while the contenders took turns; `None` where nothing ran beside them.
    pub load: Option<Rate>,
    pub noise: [Gaps; 2],
    pub phase: Phase,
    /// What the measuring CPU was taken for meanwhile, from the first look at the noise to the last.
    pub taken: Option<Taken>,
    /// Periods in which the measuring thread's budget did not do, where it has one.
    pub throttled: u64,
}

impl Stage {
    /// The longest time that a busy thread was kept off the CPU, ns: no transfer can be expected to be steadier.
    pub fn floor_ns(&self) -> u64 {
        self.noise.iter().chain([&self.phase.noise]).map(|gaps| gaps.max_ns).max().unwrap_or(0)
    }

    /// Whether the worst of a contender's samples lies at most `within_ns` above the floor.
    pub fn is_within(&self, row: &Row, within_ns: u64) -> bool {
        row.missing.is_none()
            && row.measured.as_ref().is_some_and(|m| m.total.max <= self.floor_ns().saturating_add(within_ns))
    }
}

/// Moves random bytes with each contender and compares them; those that are not right take no turn.
pub fn verified(contenders: &mut [Contender<'_>], seed: u64, timeout: Duration) {
    let mut random = fastrand::Rng::with_seed(seed);
    for contender in contenders {
        let Ok(route) = &mut contender.route else { continue };
        match verify(&mut **route, contender.bytes, random.u64(..), timeout) {
            Ok(None) => {}
            Ok(Some(wrong)) => contender.route = Err(Missing::Failed(wrong.to_string())),
            Err(error) => contender.route = Err(error.into()),
        }
    }
}

/// The GPU's clock is compared with the counter about once in this time.
const CORRELATE: Duration = Duration::from_secs(1);

/// A contender while it takes turns.
struct Live<'r> {
    index: usize,
    kind: Kind,
    rests: bool,
    transfer: Box<dyn Transfer + 'r>,
    /// Where its memories can be looked at.
    checked: Option<Checked>,
    turns: u64,
    totals: Vec<u64>,
    submits: Vec<u64>,
    kept: Kept,
    failed: Option<Missing>,
}

/// The worst so far, in memory that was there before: unsorted, with the least of them known.
struct Kept {
    samples: Vec<Raw>,
    least: u64,
}

/// A sample as it was taken: ticks.
#[derive(Clone, Copy, Debug)]
struct Raw {
    moments: Moments,
    total: u64,
}

impl Kept {
    fn new() -> Kept {
        Kept { samples: Vec::with_capacity(WORST), least: 0 }
    }

    #[inline]
    fn offer(&mut self, total: u64, moments: impl FnOnce() -> Moments) {
        let full = self.samples.len() == WORST;
        if full && total <= self.least {
            return;
        }
        let raw = Raw { moments: moments(), total };
        if full {
            if let Some(least) = self.samples.iter_mut().min_by_key(|r| r.total) {
                *least = raw;
            }
        } else {
            self.samples.push(raw);
        }
        self.least = self.samples.iter().map(|r| r.total).min().unwrap_or(0);
    }
}

/// Memory that was touched: no page fault falls into a sample.
fn touched(count: usize) -> Vec<u64> {
    let mut all = vec![1; count];
    all.clear();
    all
}

/// Lets the contenders take turns on the calling thread, in an order drawn anew for each round. `correlate` is asked about
/// once a second for the GPU's clock; `tell` hears how much time is over.
///
/// What the transfers moved is new random data. Where their memories can be looked at, some of its bytes change before each
/// transfer, and what is there is compared, with the guards at both ends, in every [`CHECK_TURNS`]-th turn of a contender and
/// after its last; else after the last alone.
pub fn run(
    plan: &Plan,
    contenders: &mut [Contender<'_>],
    clock: &Clock,
    correlate: Option<&dyn Fn() -> Correlation>,
    mut tell: impl FnMut(Duration),
) -> Phase {
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let data = fresh(contenders, &mut random);
    // Its ticks are the GPU's correlations' only where they are those of the time stamp counter.
    let correlate = correlate.filter(|_| clock.source() == Source::Tsc);
    let mut correlations: Vec<Correlation> = correlate.iter().map(|c| c()).collect();
    let mut live = prepared(plan, contenders);
    let room = plan.room() as usize;

    let (mut order, began): (Vec<usize>, u64) = ((0..live.len()).collect(), clock.now());
    let elapsed = || Duration::from_nanos(clock.ns(clock.now().saturating_sub(began)));
    let (mut turns, mut told, mut noise) = (0, Duration::ZERO, Looking::new());
    while elapsed() < plan.duration && live.iter().any(|l| l.failed.is_none() && l.totals.len() < room) {
        random.shuffle(&mut order);
        for &n in &order {
            let live = &mut live[n];
            if live.failed.is_some() || live.totals.len() == room {
                continue;
            }
            if let Err(missing) = turn(plan, live, clock, room) {
                live.failed = Some(missing);
            }
        }
        turns += 1;
        noise.look(clock, plan.turn);
        let now = elapsed();
        if now.saturating_sub(told) >= CORRELATE {
            told = now;
            correlations.extend(correlate.iter().map(|c| c()));
            tell(now);
        }
    }
    let seconds = elapsed().as_secs_f64();
    correlations.extend(correlate.iter().map(|c| c()));

    let full = live.iter().any(|l| l.totals.len() == room);
    for live in live.iter_mut().filter(|l| l.failed.is_none() && !l.totals.is_empty()) {
        live.failed = check(live).err();
    }
    let taken: Vec<_> = live.into_iter().map(|l| (l.index, of_live(l, clock, began, &correlations))).collect();
    let mut rows: Vec<Row> = contenders.iter().map(missing_row).collect();
    let mut unchecked = vec![true; contenders.len()];
    for (index, (measured, failed, checked)) in taken {
        unchecked[index] = !checked;
        rows[index].measured = measured;
        rows[index].missing = failed;
    }
    compare(contenders, &data, &unchecked, &mut rows);
    let error = correlations.iter().map(|c| c.error_ns).max();
    Phase { rows, turns, seconds, clock: error.map(|e| (correlations.len(), e)), full, noise: noise.gaps(clock) }
}

/// Gives every source new random bytes, of which none is at its place at the destination already.
fn fresh(contenders: &mut [Contender<'_>], random: &mut fastrand::Rng) -> Vec<Vec<u8>> {
    let one = |contender: &mut Contender<'_>| {
        let mut data = vec![0; contender.bytes as usize];
        let Ok(route) = &mut contender.route else { return data };
        let filled = route.read_back(&mut data).and_then(|()| {
            data.iter_mut().for_each(|byte| *byte ^= random.u8(1..));
            route.fill(&data)
        });
        if let Err(error) = filled {
            contender.route = Err(error.into());
        }
        data
    };
    contenders.iter_mut().map(one).collect()
}

fn prepared<'r>(plan: &Plan, contenders: &'r mut [Contender<'_>]) -> Vec<Live<'r>> {
    let room = plan.room() as usize;
    let mut live = Vec::new();
    for (index, contender) in contenders.iter_mut().enumerate() {
        let (bytes, kind, rests) = (contender.bytes, contender.kind, contender.rests);
        let Ok(route) = &mut contender.route else { continue };
        // What cannot be prepared was not verified either.
        let Ok(transfer) = route.prepare(bytes) else { continue };
        let (totals, submits, kept) = (touched(room), touched(room), Kept::new());
        let seed = plan.seed.wrapping_add(index as u64);
        let checked = transfer.ends().map(|ends| Checked::new(ends, bytes, seed)).transpose();
        let (checked, failed) = match checked {
            Ok(checked) => (checked, None),
            Err(error) => (None, Some(Missing::from(error))),
        };
        live.push(Live { index, kind, rests, transfer, checked, turns: 0, totals, submits, kept, failed });
    }
    live
}

/// A contender is checked in the first of so many turns: what that asks of CUDA takes milliseconds under load.
const CHECK_TURNS: u64 = 16;

/// One turn.
fn turn(plan: &Plan, live: &mut Live<'_>, clock: &Clock, room: usize) -> Result<(), Missing> {
    if live.rests {
        live.transfer.submit()?;
        live.transfer.wait(plan.timeout)?;
    }
    let mut begun = clock.now();
    for _ in 0..plan.most.max(1) {
        if live.totals.len() == room {
            break;
        }
        if rest_if_due() {
            begun = clock.now();
        }
        if let (Some(checked), Some(ends)) = (&mut live.checked, live.transfer.ends()) {
            checked.renew(ends)?;
        }
        let moments = match live.kind {
            Kind::Own => own(&mut *live.transfer, clock, plan.timeout)?,
            Kind::Cuda => time_cuda_call(&mut *live.transfer, clock, plan.timeout)?,
        };
        let total = moments.done.saturating_sub(moments.before);
        live.totals.push(total);
        live.submits.push(moments.submitted.saturating_sub(moments.before));
        live.kept.offer(total, || moments);
        if clock.ns(clock.now().saturating_sub(begun)) > plan.turn.as_nanos() as u64 {
            break;
        }
    }
    live.turns += 1;
    if live.turns % CHECK_TURNS == 1 {
        check(live)?;
    }
    if live.rests { Ok(live.transfer.rest()?) } else { Ok(()) }
}

/// Compares what the last transfer left.
fn check(live: &mut Live<'_>) -> Result<(), Missing> {
    let (Some(checked), Some(ends)) = (&mut live.checked, live.transfer.ends()) else { return Ok(()) };
    match checked.check(ends)? {
        None => Ok(()),
        Some(wrong) => Err(Missing::Failed(format!("after a transfer: {wrong}"))),
    }
}

/// A transfer of our own: no system call from the submission to the end. Two looks that lie far apart say that the thread
/// was kept from looking.
#[inline]
fn own(transfer: &mut dyn Transfer, clock: &Clock, timeout: Duration) -> Result<Moments, copy::Error> {
    let before = clock.now();
    transfer.submit()?;
    let submitted = clock.now();
    let (mut last, mut gap) = (submitted, 0);
    loop {
        let there = transfer.poll()?;
        let now = clock.now();
        gap = gap.max(now.saturating_sub(last));
        last = now;
        if there {
            break;
        }
        let after = Duration::from_nanos(clock.ns(now.saturating_sub(submitted)));
        if after > timeout {
            // Says what it is late with.
            transfer.wait(Duration::ZERO)?;
            break;
        }
    }
    let released_gpu_ns = transfer.released_gpu_ns();
    Ok(Moments { before, submitted, done: last, gap: Some(gap), released_gpu_ns, spent: None })
}

/// A call of CUDA's, and its wait.
#[inline]
fn time_cuda_call(transfer: &mut dyn Transfer, clock: &Clock, timeout: Duration) -> Result<Moments, copy::Error> {
    let counters = Counters::of_thread();
    let before = clock.now();
    transfer.submit()?;
    let submitted = clock.now();
    transfer.wait(timeout)?;
    let done = clock.now();
    let spent = Spent::between(&counters, &Counters::of_thread());
    Ok(Moments { before, submitted, done, gap: None, released_gpu_ns: None, spent: Some(spent) })
}

/// What was measured, why no more was, and whether what was moved has been checked.
type OfLive = (Option<Measured>, Option<Missing>, bool);

fn of_live(live: Live<'_>, clock: &Clock, began: u64, correlations: &[Correlation]) -> OfLive {
    let Live { mut totals, mut submits, kept, failed, checked, .. } = live;
    let nanoseconds = |ticks: &mut Vec<u64>| {
        ticks.iter_mut().for_each(|t| *t = clock.ns(*t));
        Summary::of(ticks)
    };
    let (total, submit) = (nanoseconds(&mut totals), nanoseconds(&mut submits));
    let mut raw = kept.samples;
    raw.sort_by_key(|r| std::cmp::Reverse(r.total));
    let worst = raw
        .iter()
        .map(|r| Worst {
            at_ns: clock.ns(r.moments.before.saturating_sub(began)),
            submit_ns: clock.ns(r.moments.submitted.saturating_sub(r.moments.before)),
            total_ns: clock.ns(r.total),
            split: Split::of(&r.moments, clock, correlations),
        })
        .collect();
    (total.zip(submit).map(|(total, submit)| Measured { total, submit, worst }), failed, checked.is_some())
}

fn missing_row(contender: &Contender<'_>) -> Row {
    Row {
        name: contender.name.clone(),
        about: contender.about.clone(),
        kind: contender.kind,
        bytes: contender.bytes,
        measured: None,
        missing: contender.route.as_ref().err().cloned(),
    }
}

/// What the destinations hold, against what was sent. One that is wrong, or whose transfer failed, takes no more turns.
fn compare(contenders: &mut [Contender<'_>], data: &[Vec<u8>], unchecked: &[bool], rows: &mut [Row]) {
    for (((contender, data), row), unchecked) in contenders.iter_mut().zip(data).zip(rows).zip(unchecked) {
        if let Some(missing) = row.missing.clone() {
            contender.route = Err(missing);
            continue;
        }
        let Ok(route) = &mut contender.route else { continue };
        if !unchecked {
            continue;
        }
        let mut found = vec![0; data.len()];
        let wrong = match route.read_back(&mut found) {
            Err(error) => Some(error.to_string()),
            Ok(()) if row.measured.is_none() => None,
            Ok(()) => Difference::between(data, &found, None).map(|d| format!("after its transfers: {d}")),
        };
        if let Some(wrong) = wrong {
            row.missing = Some(Missing::Failed(wrong));
            contender.route = Err(Missing::Failed("it was wrong before".into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(total: u64) -> Moments {
        Moments { before: 0, submitted: 0, done: total, gap: None, released_gpu_ns: None, spent: None }
    }

    #[test]
    fn the_worst_hundred_are_kept_without_more_memory() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut all: Vec<u64> = (0..5000).map(|_| random.u64(0..2000)).collect();
        let mut kept = Kept::new();
        let at = kept.samples.as_ptr();
        all.iter().for_each(|t| kept.offer(*t, || moments(*t)));
        assert_eq!(kept.samples.as_ptr(), at);
        let mut found: Vec<u64> = kept.samples.iter().map(|r| r.total).collect();
        found.sort_unstable();
        all.sort_unstable();
        assert_eq!(found, all[all.len() - WORST..]);
    }

    #[test]
    fn room_is_bounded_whatever_the_time() {
        let plan = |s| Plan {
            duration: Duration::from_secs(s),
            turn: Duration::from_millis(1),
            most: 100,
            seed: 1,
            timeout: Duration::from_secs(1),
        };
        assert_eq!((plan(0).room(), plan(60).room(), plan(86_400).room()), (1_000, 2_400_000, 4_000_000));
        assert!(plan(86_400).fits(1 << 20).is_err());
    }
}
