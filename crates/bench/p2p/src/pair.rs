//! All cells between two GPUs, or within one: every method in each direction. They are opened and verified, then they take turns.

use crate::account::{Both, Cell, Rate, Status, Times};
use crate::plan::Plan;
use crate::staged::Staged;
use crate::turns;
use crate::way::Way;
use measure::clock::Clock;
use statistics::{Figure, Ratio, Rounds};
use std::time::Instant;
use workload::spec::{End, Memory};
use workload::{Buffer, Error, Machine, Route, Transfer, verify};

/// Untimed transfers at the beginning of each turn.
const WARM: u32 = 2;
/// Number of random bytes to compare: timed transfers may be longer.
const VERIFIED: u64 = 16 << 20;

/// Two GPUs, or one.
pub(crate) struct Pair<'m> {
    machine: &'m Machine,
    plan: &'m Plan,
    cells: Vec<Opened<'m>>,
}

struct Opened<'m> {
    cell: Cell,
    route: Option<Route<'m>>,
    /// Nanoseconds of each round: alone, and of the latency.
    alone: Vec<Vec<u64>>,
    latency: Vec<Vec<u64>>,
    /// While the other direction runs: this direction, and the longer of the two. Stored in the first cell of a method; the other direction's in
    /// the second.
    beside: Vec<Vec<u64>>,
    longer: Vec<Vec<u64>>,
}

/// The members of a turn, by numbers of cells.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Latency(usize),
    Alone(usize),
    Both(usize, usize),
}

impl<'m> Pair<'m> {
    /// Opens every method in both directions, and verifies it. If it is unavailable, its cell gets that status.
    pub fn open(machine: &'m Machine, plan: &'m Plan, (a, b): (u32, u32)) -> Pair<'m> {
        let directions: &[(u32, u32)] = if a == b { &[(a, b)] } else { &[(a, b), (b, a)] };
        let mut pair = Pair { machine, plan, cells: Vec::new() };
        for &way in &plan.ways {
            for &(from, to) in directions {
                let mut cell = empty(way, (from, to));
                let opened = pair.verified(&mut cell);
                let route = opened.unwrap_or_else(|error| {
                    cell.status = status(error);
                    None
                });
                let none = Vec::new;
                pair.cells.push(Opened { cell, route, alone: none(), latency: none(), beside: none(), longer: none() });
            }
        }
        pair
    }

    /// `None` if a byte was wrong.
    fn verified(&self, cell: &mut Cell) -> Result<Option<Route<'m>>, Error> {
        let (plan, way, ends) = (self.plan, cell.way, (cell.from, cell.to));
        if way == Way::Staged && cell.from == cell.to {
            return Err(workload::Unavailable::new("a copy within one GPU is not staged").into());
        }
        let routes = way.routes(self.machine, cell.from, cell.to)?;
        cell.route = routes.iter().filter(|half| !half.is_empty()).cloned().collect::<Vec<_>>().join(" and ");
        let mut route = open(self.machine, way, ends, plan.bytes)?;
        for bytes in [plan.latency_bytes, plan.bytes.min(VERIFIED)] {
            let wrong = verify(&mut route, bytes, plan.seed ^ bytes, plan.timeout)?;
            // Two transfers each, the second of the complement of the first.
            cell.verified += 2;
            if let Some(wrong) = wrong {
                cell.wrong = Some(wrong.to_string());
                return Ok(None);
            }
        }
        Ok(Some(route))
    }

    /// Runs both directions of each method at the same time, untimed, to show that they work together.
    pub fn try_both(&mut self) {
        let clock = Clock::monotonic_raw();
        for turn in self.turns() {
            let Turn::Both(n, m) = turn else { continue };
            let (before, behind) = self.cells.split_at_mut(m);
            let routes = [&mut before[n].route, &mut behind[0].route];
            // Its time is not used.
            if let Err(error) = together(routes, 0, self.plan, &clock) {
                self.fail(turn, error);
            }
        }
    }

    /// All cells take turns. Returns the number of rounds.
    pub fn measure(&mut self, clock: &Clock, is_stopped: &dyn Fn() -> bool, tell: &mut dyn FnMut(u32)) -> u32 {
        let (all, mut told) = (self.turns(), None);
        turns::take(all.len(), self.plan.rounds, self.plan.seed, is_stopped, |n, round| {
            if told.replace(round) != Some(round) {
                tell(round);
            }
            let failed = self.turn(all[n], round, clock).err();
            failed.map(|error| self.fail(all[n], error)).is_none()
        })
    }

    fn turns(&self) -> Vec<Turn> {
        let is_open = |n: usize| self.cells.get(n).is_some_and(|one| one.route.is_some());
        let way = |n: usize| self.cells.get(n).map(|one| one.cell.way);
        let mut turns = Vec::new();
        for n in (0..self.cells.len()).filter(|n| is_open(*n)) {
            turns.extend([Turn::Latency(n), Turn::Alone(n)]);
            // The two directions of a method are adjacent.
            if is_open(n + 1) && way(n) == way(n + 1) {
                turns.push(Turn::Both(n, n + 1));
            }
        }
        turns
    }

    fn fail(&mut self, turn: Turn, error: Error) {
        let failed = match turn {
            Turn::Latency(n) | Turn::Alone(n) => vec![n],
            Turn::Both(n, m) => vec![n, m],
        };
        let status = status(error);
        failed.into_iter().for_each(|n| self.cells[n].cell.status = status.clone());
    }

    fn turn(&mut self, turn: Turn, round: u32, clock: &Clock) -> Result<(), Error> {
        let plan = self.plan;
        match turn {
            Turn::Latency(n) => {
                let one = &mut self.cells[n];
                let taken = alone(&mut one.route, plan.latency_bytes, plan.samples, plan, clock)?;
                one.latency.push(taken);
            }
            Turn::Alone(n) => {
                let one = &mut self.cells[n];
                let taken = alone(&mut one.route, plan.bytes, plan.transfers, plan, clock)?;
                one.alone.push(taken);
            }
            Turn::Both(n, m) => {
                let (before, behind) = self.cells.split_at_mut(m);
                let (this, other) = (&mut before[n], &mut behind[0]);
                let [of_this, of_other] = together([&mut this.route, &mut other.route], round, plan, clock)?;
                this.longer.push(of_this.iter().zip(&of_other).map(|(a, b)| *a.max(b)).collect());
                this.beside.push(of_this);
                other.beside.push(of_other);
            }
        }
        Ok(())
    }

    /// The results.
    pub fn cells(self) -> Vec<Cell> {
        let plan = self.plan;
        let times = |rounds: &[Vec<u64>]| Times::of(&Rounds::new(rounds).rounds_are_processes());
        let rate = |rounds: &[Vec<u64>], bytes: u64| times(rounds).map(|times| Rate::of(bytes, times));
        let bytes = plan.bytes;
        let both = |this: &Opened<'_>, other: &Opened<'_>, longer: &[Vec<u64>]| {
            let (of_this, of_other) = (rate(&this.beside, bytes)?, rate(&other.beside, bytes)?);
            Some(Both { this: of_this, other: of_other, sum: rate(longer, 2 * bytes)? })
        };
        let mut found: Vec<Cell> = Vec::new();
        for (n, one) in self.cells.iter().enumerate() {
            let mut cell = one.cell.clone();
            if cell.status == Status::Done {
                cell.latency = times(&one.latency);
                cell.alone = rate(&one.alone, bytes);
                let other = self.cells.iter().enumerate().find(|(m, other)| *m != n && other.cell.way == one.cell.way);
                cell.both = other.and_then(|(m, other)| both(one, other, &self.cells[n.min(m)].longer));
                let ce = self.cells.iter().find(|first| {
                    (first.cell.way, first.cell.from) == (Way::Ce, cell.from) && first.cell.status == Status::Done
                });
                cell.over_ce = ce.filter(|_| cell.way != Way::Ce).and_then(|ce| {
                    let of = |rounds: &[Vec<u64>]| Rounds::new(rounds).rounds_are_processes();
                    let (these, those) = (of(&one.alone), of(&ce.alone));
                    Ratio::of(&these, &those, Figure::P50, statistics::CONFIDENCE)
                });
            }
            found.push(cell);
        }
        found
    }
}

fn empty(way: Way, (from, to): (u32, u32)) -> Cell {
    Cell {
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
        over_ce: None,
    }
}

fn status(error: Error) -> Status {
    match error {
        Error::Unavailable(why) => Status::Unavailable(why.reason),
        error => Status::Failed(error.to_string()),
    }
}

fn open<'m>(machine: &'m Machine, way: Way, (from, to): (u32, u32), bytes: u64) -> Result<Route<'m>, Error> {
    let [route, second] = way.routes(machine, from, to)?;
    if way != Way::Staged {
        return workload::routes::open(machine, &route, bytes);
    }
    let staged = Staged::new(machine, [&route, &second])?;
    let memory = |n| Buffer::new(machine, End { memory: Memory::Gpu(n), offset: 0 }, bytes);
    Route::new(&format!("{route} and {second}"), memory(from)?, Box::new(staged), memory(to)?)
}

fn prepared<'r>(route: &'r mut Option<Route<'_>>, bytes: u64) -> Result<Box<dyn Transfer + 'r>, Error> {
    match route {
        Some(route) => route.prepare(bytes),
        None => Err(workload::Unavailable::new("it is not open").into()),
    }
}

/// Nanoseconds until each transfer is done, with the waiting mode of this method.
fn alone(route: &mut Option<Route<'_>>, bytes: u64, count: u32, plan: &Plan, clock: &Clock) -> Result<Vec<u64>, Error> {
    let mut transfer = prepared(route, bytes)?;
    let mut once = || {
        let begun = clock.now();
        transfer.submit()?;
        transfer.wait(plan.timeout)?;
        Ok(clock.ns(clock.now() - begun))
    };
    for _ in 0..WARM {
        once()?;
    }
    let taken: Result<Vec<u64>, Error> = (0..count).map(|_| once()).collect();
    transfer.rest()?;
    taken
}

/// Both are submitted and then polled in turn until both are done: each direction has its own time. Which one is submitted first changes with each
/// transfer and each round.
fn together(
    routes: [&mut Option<Route<'_>>; 2],
    round: u32,
    plan: &Plan,
    clock: &Clock,
) -> Result<[Vec<u64>; 2], Error> {
    let [this, other] = routes;
    let mut transfers = [prepared(this, plan.bytes)?, prepared(other, plan.bytes)?];
    let room = || Vec::with_capacity(plan.transfers as usize);
    let mut taken = [room(), room()];
    for n in 0..WARM + plan.transfers {
        let first = ((n + round) % 2) as usize;
        let begun = (clock.now(), Instant::now());
        transfers[first].submit()?;
        transfers[1 - first].submit()?;
        let mut ns = [None; 2];
        while ns.iter().any(Option::is_none) {
            for (transfer, ns) in transfers.iter_mut().zip(&mut ns) {
                if ns.is_none() && transfer.poll()? {
                    *ns = Some(clock.ns(clock.now() - begun.0));
                }
            }
            if begun.1.elapsed() > plan.timeout {
                return Err(Error::Late { bytes: plan.bytes, after: plan.timeout });
            }
        }
        if n >= WARM {
            taken.iter_mut().zip(ns).for_each(|(taken, ns)| taken.push(ns.unwrap_or(0)));
        }
    }
    transfers.iter_mut().try_for_each(|transfer| transfer.rest())?;
    Ok(taken)
}
