//! Measures it: every way between every two GPUs, and within each.

use crate::MOST;
use crate::account::{Both, Cell, Over, Status};
use crate::staged::Staged;
use crate::way::Way;
use copy::spec::{End, Memory};
use copy::{Buffer, Error, Machine, Route, Transfer, verify};
use lab::clock::Clock;
use statistics::Summary;
use std::time::{Duration, Instant};

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    pub gpus: u32,
    pub ways: Vec<Way>,
    /// Of a timed transfer.
    pub bytes: u64,
    pub repeats: u32,
    /// Samples of the latency.
    pub samples: u32,
    pub latency_bytes: u64,
    pub seed: u64,
    pub timeout: Duration,
}

/// Untimed transfers before the timed ones.
const WARM: u32 = 2;
/// Random bytes that are compared: what is timed may be longer.
const VERIFIED: u64 = 16 << 20;

/// How many GPUs there are, up to eight; those that are not open yet are opened.
pub fn gpus(machine: &Machine) -> u32 {
    (machine.index()..machine.index() + MOST).take_while(|n| machine.gpu(*n).is_ok()).count() as u32
}

/// All cells. `functional`: verified, not timed. Stopped between two cells, what is measured so far comes back.
pub fn run(
    machine: &Machine,
    plan: &Plan,
    functional: bool,
    is_stopped: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Way, u32, u32),
) -> Vec<Cell> {
    let clock = Clock::new();
    let mut cells = Vec::new();
    for &way in &plan.ways {
        for from in 0..plan.gpus {
            for to in 0..plan.gpus {
                if is_stopped() {
                    return cells;
                }
                tell(way, from, to);
                let timed = (!functional).then_some(&clock);
                cells.push(cell(machine, plan, way, (from, to), timed));
            }
        }
    }
    cells
}

fn cell(machine: &Machine, plan: &Plan, way: Way, (from, to): (u32, u32), clock: Option<&Clock>) -> Cell {
    let mut cell = Cell {
        way,
        from,
        to,
        route: String::new(),
        p2p: way.is_peer(),
        status: Status::Done,
        verified: 0,
        wrong: None,
        alone: None,
        both: None,
        latency: None,
    };
    let done = measure(machine, plan, &mut cell, clock);
    cell.status = match done {
        Ok(()) => Status::Done,
        Err(Error::Unavailable(why)) => Status::Unavailable(why.reason),
        Err(error) => Status::Failed(error.to_string()),
    };
    cell
}

fn measure(machine: &Machine, plan: &Plan, cell: &mut Cell, clock: Option<&Clock>) -> Result<(), Error> {
    let (way, from, to) = (cell.way, cell.from, cell.to);
    if way == Way::Staged && from == to {
        return Err(copy::Unavailable::new("within one GPU nothing is staged").into());
    }
    let routes = way.routes(machine, from, to)?;
    cell.route = routes.iter().filter(|half| !half.is_empty()).cloned().collect::<Vec<_>>().join(" and ");
    let mut route = open(machine, way, (from, to), plan.bytes)?;
    for bytes in [plan.latency_bytes, plan.bytes.min(VERIFIED)] {
        let wrong = verify(&mut route, bytes, plan.seed ^ bytes, plan.timeout)?;
        // Two transfers each, the second of the complement of the first.
        cell.verified += 2;
        if let Some(wrong) = wrong {
            cell.wrong = Some(wrong.to_string());
            return Ok(());
        }
    }
    let Some(clock) = clock else {
        // That both directions work at once is part of what works.
        if from != to {
            let mut back = open(machine, way, (to, from), plan.bytes)?;
            together([&mut route, &mut back], plan, &Clock::monotonic_raw())?;
        }
        return Ok(());
    };
    cell.latency = latency(&mut route, plan, clock)?;
    cell.alone = alone(&mut route, plan, clock)?;
    if from != to {
        let mut back = open(machine, way, (to, from), plan.bytes)?;
        cell.both = together([&mut route, &mut back], plan, clock)?;
    }
    Ok(())
}

fn open<'m>(machine: &'m Machine, way: Way, (from, to): (u32, u32), bytes: u64) -> Result<Route<'m>, Error> {
    let [route, second] = way.routes(machine, from, to)?;
    if way != Way::Staged {
        return copy::open(machine, &route, bytes);
    }
    let staged = Staged::new(machine, [&route, &second])?;
    let memory = |n| Buffer::new(machine, End { memory: Memory::Gpu(n), offset: 0 }, bytes);
    Route::new(&format!("{route} and {second}"), memory(from)?, Box::new(staged), memory(to)?)
}

/// Nanoseconds until it is there, waiting as this way waits.
fn once(transfer: &mut dyn Transfer, clock: &Clock, timeout: Duration) -> Result<u64, Error> {
    let begun = clock.now();
    transfer.submit()?;
    transfer.wait(timeout)?;
    Ok(clock.ns(clock.now() - begun))
}

fn latency(route: &mut Route<'_>, plan: &Plan, clock: &Clock) -> Result<Option<Summary>, Error> {
    let mut transfer = route.prepare(plan.latency_bytes)?;
    for _ in 0..WARM {
        once(&mut *transfer, clock, plan.timeout)?;
    }
    let samples: Result<Vec<u64>, Error> =
        (0..plan.samples).map(|_| once(&mut *transfer, clock, plan.timeout)).collect();
    transfer.rest()?;
    Ok(Summary::of(&mut samples?))
}

fn alone(route: &mut Route<'_>, plan: &Plan, clock: &Clock) -> Result<Option<Over>, Error> {
    let mut transfer = route.prepare(plan.bytes)?;
    for _ in 0..WARM {
        once(&mut *transfer, clock, plan.timeout)?;
    }
    let rate = |ns: u64| plan.bytes as f64 * 1e9 / ns.max(1) as f64;
    let rates: Result<Vec<f64>, Error> =
        (0..plan.repeats).map(|_| Ok(rate(once(&mut *transfer, clock, plan.timeout)?))).collect();
    transfer.rest()?;
    Ok(Over::of(rates?))
}

/// Both are submitted at once and looked at in turn until both are there: each direction by its own time.
fn together(routes: [&mut Route<'_>; 2], plan: &Plan, clock: &Clock) -> Result<Option<Both>, Error> {
    let [this, other] = routes;
    let (mut this, mut other) = (this.prepare(plan.bytes)?, other.prepare(plan.bytes)?);
    let mut rates: [Vec<f64>; 3] = Default::default();
    for n in 0..WARM + plan.repeats {
        let begun = (clock.now(), Instant::now());
        this.submit()?;
        other.submit()?;
        let mut ns = [None; 2];
        while ns.iter().any(Option::is_none) {
            for (transfer, ns) in [&mut this, &mut other].into_iter().zip(&mut ns) {
                if ns.is_none() && transfer.poll()? {
                    *ns = Some(clock.ns(clock.now() - begun.0));
                }
            }
            if begun.1.elapsed() > plan.timeout {
                return Err(Error::Late { bytes: plan.bytes, after: plan.timeout });
            }
        }
        let times = ns.map(|ns| ns.unwrap_or(1).max(1) as f64);
        if n >= WARM {
            let bytes = plan.bytes as f64 * 1e9;
            rates[0].push(bytes / times[0]);
            rates[1].push(bytes / times[1]);
            rates[2].push(2.0 * bytes / times[0].max(times[1]));
        }
    }
    this.rest()?;
    other.rest()?;
    let [this, other, sum] = rates.map(Over::of);
    Ok(this.zip(other).zip(sum).map(|((this, other), sum)| Both { this, other, sum }))
}
