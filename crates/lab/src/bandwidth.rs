//! How much a way moves in a second: equal copies back to back, timed by the GPU's clock, ways in turns.
//!
//! In each round every way runs its copies once, in an order drawn anew, and ratios are taken within rounds. The time of a
//! round is the GPU's, from before the first copy to the end of the last; the CPU's clock beside it says the same from the
//! moment that they are let go, the submission of our own included. Data is random: the complement is moved first, and what
//! the timed copies left is compared. On the software GPU nothing is a time.

use crate::clock::Clock;
use crate::statistics::{Ratio, Summary};
use copy::{BackToBack, Difference};
use serde::Serialize;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Plan {
    pub routes: Vec<String>,
    /// Of one copy.
    pub bytes: u64,
    /// Back to back in each round.
    pub copies: u32,
    pub rounds: u32,
    /// For each route the one (its index) that its ratio is taken to.
    pub compare: Vec<Option<usize>>,
    /// Random seed for data and ordering.
    pub seed: u64,
    /// After which a way's copies count as lost.
    pub timeout: Duration,
    /// On the software GPU: what works is a result, how long it took is none.
    pub functional: bool,
}

/// 10^9 bytes a second, over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    pub p50: f64,
    pub min: f64,
    pub max: f64,
}

/// How many times as much as another way moves, paired by round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Versus {
    pub route: String,
    pub median: f64,
    /// Holds the median with 95 % confidence; none with fewer than six rounds.
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub rounds: u64,
}

/// One way, as it goes into result files.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    pub route: String,
    /// Rounds that were measured.
    pub rounds: u64,
    /// By the GPU's clock; null on the software GPU and where nothing was measured.
    pub gpu_gbps: Option<Rate>,
    /// By the CPU's clock, from the first submission (of CUDA's: from the opening of the gate) to the end of the last copy.
    pub cpu_gbps: Option<Rate>,
    pub versus: Option<Versus>,
    /// Every byte came, before the rounds and after.
    pub verified: bool,
    /// Why there is nothing: this way does not exist here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// A way while it is measured.
struct Live<'m> {
    way: Option<Box<dyn BackToBack + 'm>>,
    cell: Cell,
    /// Nanoseconds of each round; `None` for one that it took no part in.
    gpu: Vec<Option<u64>>,
    cpu: Vec<Option<u64>>,
}

impl Live<'_> {
    fn fail(&mut self, error: copy::Error) {
        match error {
            copy::Error::Unavailable(why) => self.cell.unavailable = Some(why.reason),
            other => self.cell.failed = Some(other.to_string()),
        }
    }

    fn is_well(&self) -> bool {
        self.way.is_some() && self.cell.unavailable.is_none() && self.cell.failed.is_none()
    }

    /// What has to be done with the way, if it is well; an error ends it.
    fn with<T>(&mut self, work: impl FnOnce(&mut dyn BackToBack) -> Result<T, copy::Error>) -> Option<T> {
        if !self.is_well() {
            return None;
        }
        match work(self.way.as_mut()?.as_mut()) {
            Ok(value) => Some(value),
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    fn compare(&mut self, sent: &[u8], when: &str) -> bool {
        let mut found = vec![0; sent.len()];
        if self.with(|way| way.read_back(&mut found)).is_none() {
            return false;
        }
        let difference = Difference::between(sent, &found, None);
        self.cell.failed = difference.as_ref().map(|d| format!("{when} the timed copies: {d}"));
        difference.is_none()
    }
}

/// Opens every way and measures it, on the calling thread; `progress` hears of each round before it begins.
pub fn run<'m>(
    plan: &Plan,
    clock: &Clock,
    mut open: impl FnMut(&str, u64) -> Result<Box<dyn BackToBack + 'm>, copy::Error>,
    mut progress: impl FnMut(u32),
) -> Vec<Cell> {
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let mut data = vec![0; plan.bytes as usize];
    random.fill(&mut data);
    let complement: Vec<u8> = data.iter().map(|byte| !byte).collect();
    let mut all: Vec<Live<'m>> = plan.routes.iter().map(|name| opened(name, plan.bytes, &mut open)).collect();
    for live in &mut all {
        live.with(|way| {
            way.fill(&complement)?;
            way.ready(plan.bytes, 1)?;
            way.go()?;
            way.finish(plan.timeout)
        });
        if live.compare(&complement, "before") {
            live.with(|way| way.fill(&data));
        }
    }
    let mut order: Vec<usize> = (0..all.len()).collect();
    for round in 0..plan.rounds {
        progress(round);
        random.shuffle(&mut order);
        for &i in &order {
            let taken = all[i].with(|way| once(plan, clock, way));
            all[i].gpu.push(taken.map(|(gpu, _)| gpu));
            all[i].cpu.push(taken.map(|(_, cpu)| cpu));
        }
    }
    for live in &mut all {
        live.cell.verified = live.compare(&data, "after");
    }
    summed_up(plan, all)
}

fn opened<'m>(
    name: &str,
    bytes: u64,
    open: &mut impl FnMut(&str, u64) -> Result<Box<dyn BackToBack + 'm>, copy::Error>,
) -> Live<'m> {
    let cell = Cell {
        route: name.into(),
        rounds: 0,
        gpu_gbps: None,
        cpu_gbps: None,
        versus: None,
        verified: false,
        unavailable: None,
        failed: None,
    };
    let mut live = Live { way: None, cell, gpu: Vec::new(), cpu: Vec::new() };
    match open(name, bytes) {
        Ok(way) => live.way = Some(way),
        Err(error) => live.fail(error),
    }
    live
}

/// One round of one way: nanoseconds by the GPU's clock and by the CPU's.
fn once(plan: &Plan, clock: &Clock, way: &mut dyn BackToBack) -> Result<(u64, u64), copy::Error> {
    way.ready(plan.bytes, plan.copies)?;
    let before = clock.now();
    way.go()?;
    let gpu = way.finish(plan.timeout)?;
    let after = clock.now();
    Ok((gpu.round() as u64, clock.ns(after.saturating_sub(before))))
}

fn summed_up(plan: &Plan, all: Vec<Live<'_>>) -> Vec<Cell> {
    let moved = plan.bytes as f64 * f64::from(plan.copies);
    let rate = |ns: &[Option<u64>]| {
        // Below the clock's step there is no bandwidth to speak of.
        let summary = Summary::of(&mut ns.iter().copied().flatten().filter(|ns| *ns > 0).collect::<Vec<u64>>())?;
        let of = |ns: u64| moved / ns as f64;
        Some(Rate { p50: of(summary.p50), min: of(summary.max), max: of(summary.min) })
    };
    let measured = |live: &Live<'_>| live.cell.verified && !plan.functional;
    let mut cells = Vec::with_capacity(all.len());
    for (i, live) in all.iter().enumerate() {
        let mut cell = live.cell.clone();
        cell.rounds = live.gpu.iter().flatten().count() as u64;
        if measured(live) {
            (cell.gpu_gbps, cell.cpu_gbps) = (rate(&live.gpu), rate(&live.cpu));
            let against = plan.compare.get(i).copied().flatten().and_then(|other| all.get(other));
            cell.versus = against.filter(|other| measured(other)).and_then(|other| {
                // A quotient of times, upside down: of what is moved in the same time.
                let Ratio { median, interval, rounds } = Ratio::of(&other.gpu, &live.gpu)?;
                let (low, high) = (interval.map(|i| i.low), interval.map(|i| i.high));
                Some(Versus { route: other.cell.route.clone(), median, low, high, rounds })
            });
        }
        cells.push(cell);
    }
    cells
}
