//! The closed loop: one transfer after the other, of every route and size; one route at one size is a cell.
//!
//! Cells of one size take turns: each round has a block of samples of every route, in an order drawn anew, so that a machine
//! that changes its speed changes it for all, and ratios are taken within rounds. A route that is missing or fails becomes a
//! result and the others go on.
//!
//! Each route is verified before. Before each timed transfer some of its bytes become others, by the CPU alone, so that no transfer
//! can look as if it had moved what an earlier one moved; the first and the last of each block, and every n-th between them
//! ([`Plan::check_every`]), are compared whole, with the guards at both ends, when they are done. After a check, which asks CUDA
//! for bytes of the GPU's, come two transfers that are not timed.

use crate::clock::Clock;
use crate::samples::{NoMemory, Sample, Samples};
use crate::statistics::{Ratio, Summary, medians_of_rounds, worst};
use copy::{Checked, Difference, Route, Transfer, Wrong, verify};
use std::time::Duration;

/// How often timed transfers are checked, if nothing else is asked for.
pub const CHECK_EVERY: u64 = 16;

/// How many samples a cell takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    Exactly(u64),
    /// `most`, fewer where they would move more than `bytes` together, at least `least`.
    Moving {
        most: u64,
        least: u64,
        bytes: u64,
    },
}

/// What to measure and how.
#[derive(Clone, Debug)]
pub struct Plan {
    pub routes: Vec<String>,
    /// Bytes, in the order in which they are measured.
    pub sizes: Vec<u64>,
    pub samples: Count,
    /// How often the routes take turns at one size; never more than there are samples.
    pub rounds: u64,
    /// Ends a cell before it has all its samples; each round keeps at least one.
    pub time_per_cell: Option<Duration>,
    /// Random seed for data and ordering.
    pub seed: u64,
    /// After which a transfer counts as lost.
    pub timeout: Duration,
    /// Besides the first and the last timed transfer of a block each n-th is checked; 1: all are.
    pub check_every: u64,
    /// For each route the one (its index) that its ratio is taken to.
    pub compare: Vec<Option<usize>>,
}

impl Plan {
    /// How many samples are asked for at this size.
    pub fn samples_of(&self, bytes: u64) -> u64 {
        match self.samples {
            Count::Exactly(n) => n,
            Count::Moving { most, least, bytes: all } => (all / bytes.max(1)).clamp(least.min(most), most),
        }
    }

    /// Whether the samples of one size, and transfers of the largest, fit into memory.
    pub fn fits(&self) -> Result<(), NoMemory> {
        let routes = self.routes.len() as u64;
        let most = self.sizes.iter().map(|s| self.samples_of(*s)).max().unwrap_or(0);
        Samples::fit(most, routes)?;
        NoMemory::data(self.sizes.iter().copied().max().unwrap_or(0), routes)
    }
}

/// One route at one size.
#[derive(Clone, Debug)]
pub struct Cell {
    pub route: String,
    pub bytes: u64,
    pub outcome: Outcome,
}

#[derive(Clone, Debug)]
pub enum Outcome {
    Measured(Box<Measured>),
    /// This way does not exist here, or not for this size.
    Unavailable {
        reason: String,
    },
    Failed(Failed),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Failed {
    pub error: String,
    /// Where it was the data that was wrong.
    pub difference: Option<Difference>,
}

/// Samples of verified transfers.
#[derive(Clone, Debug)]
pub struct Measured {
    /// From before the submission until the bytes were seen to be there, ns.
    pub total: Summary,
    /// From before the submission until it came back, ns.
    pub submit: Summary,
    /// How many samples were asked for; fewer were taken where the time ran out.
    pub asked: u64,
    /// The slowest, slowest first.
    pub worst: Vec<Sample>,
    /// Against which route (its index), from the rounds that both took part in.
    pub ratio: Option<(usize, Ratio)>,
}

/// A route and what became of opening it.
pub struct Opened<'m> {
    name: String,
    route: Result<Box<dyn Route + 'm>, Outcome>,
    /// A transfer of its got lost and may still be under way: it is not used again, and stays open until all is done.
    lost: Option<Failed>,
}

impl Opened<'_> {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn is_open(&self) -> bool {
        self.route.is_ok()
    }
}

/// How far a run is; told between blocks, never within one.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub bytes: u64,
    /// Sizes that are done, and all.
    pub size: usize,
    pub sizes: usize,
    pub round: u64,
    pub rounds: u64,
}

/// Opens every route for the largest size.
pub fn open<'m>(
    plan: &Plan,
    mut opener: impl FnMut(&str, u64) -> Result<Box<dyn Route + 'm>, copy::Error>,
) -> Vec<Opened<'m>> {
    let capacity = plan.sizes.iter().copied().max().unwrap_or(0);
    let one =
        |name: &String| Opened { name: name.clone(), route: opener(name, capacity).map_err(outcome_of), lost: None };
    plan.routes.iter().map(one).collect()
}

/// Measures every cell, on the calling thread; ordered by size, then as the routes were named.
pub fn run(plan: &Plan, opened: &mut [Opened<'_>], clock: &Clock, mut tell: impl FnMut(Progress)) -> Vec<Cell> {
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let began = clock.now();
    let mut cells = Vec::with_capacity(plan.sizes.len() * opened.len());
    for (size, &bytes) in plan.sizes.iter().enumerate() {
        let progress = |round, rounds| Progress { bytes, size, sizes: plan.sizes.len(), round, rounds };
        let outcomes = one_size(plan, opened, clock, began, bytes, &mut random, |r, of| tell(progress(r, of)));
        let names = opened.iter().map(|o| o.name.clone());
        cells.extend(names.zip(outcomes).map(|(route, outcome)| Cell { route, bytes, outcome }));
    }
    cells
}

/// A cell while it is measured.
struct Live<'r> {
    route: usize,
    transfer: Box<dyn Transfer + 'r>,
    /// Where its memories can be looked at.
    checked: Option<Checked>,
    samples: Samples,
    failed: Option<Stopped>,
}

/// Why a cell takes no more samples.
enum Stopped {
    Error(copy::Error),
    Wrong(Wrong),
}

impl From<copy::Error> for Stopped {
    fn from(error: copy::Error) -> Stopped {
        Stopped::Error(error)
    }
}

impl Live<'_> {
    /// The others' turn: nothing of this one's is to be busy on the GPU meanwhile.
    fn rest(&mut self) {
        let rested = self.transfer.rest().err();
        self.failed = self.failed.take().or(rested.map(Stopped::Error));
    }
}

/// Untimed transfers at the beginning of a cell, and of each of its blocks.
const WARM_UP: u32 = 64;
const WARM_UP_TIME: Duration = Duration::from_millis(100);
const WARM_UP_OF_A_BLOCK: u32 = 2;

fn one_size(
    plan: &Plan,
    opened: &mut [Opened<'_>],
    clock: &Clock,
    began: u64,
    bytes: u64,
    random: &mut fastrand::Rng,
    mut tell: impl FnMut(u64, u64),
) -> Vec<Outcome> {
    let asked = plan.samples_of(bytes).max(1);
    let rounds = plan.rounds.clamp(1, asked);
    tell(0, rounds);

    let mut outcomes: Vec<Option<Outcome>> =
        opened.iter_mut().map(|o| verified(o, bytes, random, plan.timeout)).collect();

    if outcomes.iter().all(Option::is_some) {
        return outcomes.into_iter().flatten().collect();
    }

    // What the timed transfers move is new to the destination, so that it shows afterwards whether they moved it.
    let mut sent = vec![0; bytes as usize];
    random.fill(&mut sent);
    let mut live: Vec<Live<'_>> = Vec::with_capacity(opened.len());
    for (i, o) in opened.iter_mut().enumerate() {
        let (None, Ok(route)) = (&outcomes[i], &mut o.route) else { continue };
        let prepared = route.fill(&sent).and_then(|()| route.prepare(bytes));
        match prepared {
            Ok(transfer) => {
                let samples = Samples::reserve(asked as usize, rounds as usize);
                let checked = transfer.ends().map(|ends| Checked::new(ends, bytes, random.u64(..))).transpose();
                match checked {
                    Ok(checked) => live.push(Live { route: i, transfer, checked, samples, failed: None }),
                    Err(e) => outcomes[i] = Some(outcome_of(e)),
                }
            }
            Err(e) => outcomes[i] = Some(outcome_of(e)),
        }
    }

    for l in &mut live {
        l.failed = warm_up(l.transfer.as_mut(), plan.timeout, WARM_UP).err().map(Stopped::Error);
        l.rest();
    }
    let mut order: Vec<usize> = (0..live.len()).collect();
    for round in 0..rounds {
        tell(round, rounds);
        random.shuffle(&mut order);
        for &i in &order {
            let l = &mut live[i];
            l.samples.begin_round();
            if l.failed.is_none() {
                l.failed = block(plan, l, clock, began, asked, (round, rounds)).err();
                l.rest();
            }
        }
    }
    tell(rounds, rounds);

    let done: Vec<_> = live.into_iter().map(|l| (l.route, l.samples, l.failed, l.checked.is_some())).collect();
    let mut found = vec![0; bytes as usize];
    let mut medians: Vec<Vec<Option<u64>>> = vec![Vec::new(); opened.len()];
    for (i, samples, failed, checked) in done {
        let o = &mut opened[i];
        let right = match (failed, &mut o.route) {
            (Some(Stopped::Error(e)), _) => Err(retire(o, bytes, e)),
            (Some(Stopped::Wrong(wrong)), _) => Err(wrong_after(&wrong)),
            (None, Ok(_)) if checked => Ok(()),
            (None, Ok(route)) => after(route.as_mut(), &sent, &mut found),
            (None, Err(outcome)) => Err(outcome.clone()),
        };
        outcomes[i] = Some(match right {
            Ok(()) => {
                medians[i] = medians_of_rounds(samples.rounds());
                measured(&samples, asked)
            }
            Err(outcome) => outcome,
        });
    }
    for i in 0..outcomes.len() {
        let Some(against) = plan.compare.get(i).copied().flatten().filter(|a| *a != i) else { continue };
        if let Some(Outcome::Measured(m)) = &mut outcomes[i] {
            let those = medians.get(against).map_or(&[][..], Vec::as_slice);
            m.ratio = Ratio::of(&medians[i], those).map(|r| (against, r));
        }
    }
    let nothing = || Outcome::Failed(Failed { error: "it was not measured".into(), difference: None });
    outcomes.into_iter().map(|o| o.unwrap_or_else(nothing)).collect()
}

/// `None` where the route is open and moves this many bytes as it should, else what its cell becomes.
fn verified(o: &mut Opened<'_>, bytes: u64, random: &mut fastrand::Rng, timeout: Duration) -> Option<Outcome> {
    if let Some(f) = &o.lost {
        return Some(Outcome::Failed(f.clone()));
    }
    let route = match &mut o.route {
        Ok(r) => r,
        Err(outcome) => return Some(outcome.clone()),
    };
    match verify(route.as_mut(), bytes, random.u64(..), timeout) {
        Ok(None) => None,
        Err(e) => Some(retire(o, bytes, e)),
        Ok(Some(wrong)) => Some(Outcome::Failed(Failed { error: wrong.to_string(), difference: difference(&wrong) })),
    }
}

fn difference(wrong: &Wrong) -> Option<Difference> {
    match wrong {
        Wrong::Data(d) => Some(d.clone()),
        Wrong::PastTheEnd { .. } | Wrong::BeforeTheStart { .. } => None,
    }
}

/// A timed transfer left something else.
fn wrong_after(wrong: &Wrong) -> Outcome {
    Outcome::Failed(Failed { error: format!("after a timed transfer: {wrong}"), difference: difference(wrong) })
}

fn warm_up(transfer: &mut dyn Transfer, timeout: Duration, most: u32) -> Result<(), copy::Error> {
    let begin = std::time::Instant::now();
    for _ in 0..most {
        transfer.submit()?;
        transfer.wait(timeout)?;
        if begin.elapsed() > WARM_UP_TIME {
            break;
        }
    }
    Ok(())
}

/// The samples of one round of one cell.
fn block(
    plan: &Plan,
    l: &mut Live<'_>,
    clock: &Clock,
    began: u64,
    asked: u64,
    (round, rounds): (u64, u64),
) -> Result<(), Stopped> {
    // What is left is spread over the rounds that are left; of the time each round has its share.
    let until = asked * (round + 1) / rounds;
    let wanted = until - asked * round / rounds;
    let end_of_time = plan
        .time_per_cell
        .map_or(u64::MAX, |t| (t.as_nanos() as u64 as f64 * (round + 1) as f64 / rounds as f64) as u64);
    warm_up(l.transfer.as_mut(), plan.timeout, WARM_UP_OF_A_BLOCK)?;
    // The n-th ones fall elsewhere in each round.
    let every = plan.check_every.max(1);
    let mut unchecked = false;
    for taken in 0..wanted {
        if taken > 0 && l.samples.busy_ns() >= end_of_time {
            break;
        }
        if let (Some(checked), Some(ends)) = (&mut l.checked, l.transfer.ends()) {
            checked.renew(ends)?;
        }
        // ORDERING: the last sample's own stores are drained, or the submission's fence would wait for them.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let before = clock.now();
        l.transfer.submit()?;
        let submitted = clock.now();
        l.transfer.wait(plan.timeout)?;
        let done = clock.now();
        l.samples.push(clock, began, before, submitted, done);
        unchecked = true;
        if taken == 0 || taken + 1 == wanted || (taken + round) % every == 0 {
            check(l)?;
            unchecked = false;
            if taken + 1 < wanted {
                // The check has left other things in the caches.
                warm_up(l.transfer.as_mut(), plan.timeout, WARM_UP_OF_A_BLOCK)?;
            }
        }
    }
    // The time was over before the last that was wanted.
    if unchecked { check(l) } else { Ok(()) }
}

/// Compares what the last transfer left.
fn check(l: &mut Live<'_>) -> Result<(), Stopped> {
    let (Some(checked), Some(ends)) = (&mut l.checked, l.transfer.ends()) else { return Ok(()) };
    match checked.check(ends)? {
        None => Ok(()),
        Some(wrong) => Err(Stopped::Wrong(wrong)),
    }
}

/// What the last timed transfer left in the destination.
fn after(route: &mut dyn Route, sent: &[u8], found: &mut [u8]) -> Result<(), Outcome> {
    route.read_back(found).map_err(outcome_of)?;
    match Difference::between(sent, found, None) {
        None => Ok(()),
        Some(d) => {
            Err(Outcome::Failed(Failed { error: format!("after the timed transfers: {d}"), difference: Some(d) }))
        }
    }
}

fn measured(samples: &Samples, asked: u64) -> Outcome {
    let of = |f: fn(&Sample) -> u64| Summary::of(&mut samples.all().iter().map(f).collect::<Vec<u64>>());
    match (of(|s| s.total_ns), of(|s| s.submit_ns)) {
        (Some(total), Some(submit)) => {
            Outcome::Measured(Box::new(Measured { total, submit, asked, worst: worst(samples.all()), ratio: None }))
        }
        _ => Outcome::Failed(Failed { error: "no sample was taken".into(), difference: None }),
    }
}

/// The outcome of an error, and the end of the route where a transfer of its may still be under way.
fn retire(o: &mut Opened<'_>, bytes: u64, e: copy::Error) -> Outcome {
    if matches!(e, copy::Error::Late { .. }) {
        let error = format!("not tried: a transfer of {bytes} bytes was lost and may still be under way");
        o.lost = Some(Failed { error, difference: None });
    }
    outcome_of(e)
}

fn outcome_of(e: copy::Error) -> Outcome {
    match e {
        copy::Error::Unavailable(u) => Outcome::Unavailable { reason: u.reason },
        e => Outcome::Failed(Failed { error: with_causes(&e), difference: None }),
    }
}

/// An error and its causes, each once.
fn with_causes(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut cause = e.source();
    while let Some(c) = cause {
        let c_text = c.to_string();
        if !text.contains(&c_text) {
            text = format!("{text}: {c_text}");
        }
        cause = c.source();
    }
    text
}
