//! Decides what to measure next. Pure: its only inputs are samples and the time that they took.
//!
//! 1. All routes at two sizes; the best of each kind of executor continue.
//! 2. These at a coarse ladder of sizes, every second one first. A route that is far slower and gets relatively slower is not tried further in that
//!    direction.
//! 3. If the best routes of two neighbouring sizes differ: a size between them. This repeats until either route would do at both (by the bounds of
//!    `submit::route_choice::decide`), or until they are a page apart or a 32nd of the smaller one. The pair where the other end's route loses most comes
//!    first. For a tail, an end that is not decided by its samples is measured again first, for twice as long.
//! 4. Sizes that are still open, for twice as long each time.
//! 5. With time left: a size between two of the ladder that have the same best route, first where another route is close. This finds sizes that
//!    cost more than their neighbours suggest (a limit of the driver, a cache); their borders are then found by 3.
//!
//! It ends when no size is open, or when the next stage would not fit into the rest of the budget.

use crate::calibration::point::{Best, Point, needs};
use std::collections::BTreeMap;
use submit::route_choice::{Direction, Figure, Key, Metric, Places, Plan, Range, Undecided, decide};

/// One direction with one kind of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    pub direction: Direction,
    pub memory: String,
    pub places: Places,
    /// Pieces of each transfer (1: it is not divided).
    pub batch: u32,
    /// In the order of preference.
    pub candidates: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The coarse ladder, ascending.
    pub sizes: Vec<u64>,
    /// The metric for which samples are spent.
    pub objective: Metric,
    pub budget_ns: u64,
    /// Rounds in each stage.
    pub rounds: u32,
    /// First estimate for opening, verifying and warming up a cell, without the time for its bytes.
    pub open_ns: u64,
    /// Maximum time of a cell's first visit.
    pub cell_ns: u64,
}

impl Settings {
    /// Time of a cell's first visit, enough for a metric's samples of small transfers.
    pub fn cell_ns(objective: Metric) -> u64 {
        if objective == Metric::P50 { MEDIAN_NS } else { TAIL_NS }
    }
}

/// One cell of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    pub sweep: usize,
    pub bytes: u64,
    /// Index into the sweep's candidates.
    pub route: usize,
}

/// One stage: its cells take turns.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub asks: Vec<Ask>,
    pub rounds: u32,
    /// Maximum number of samples of each cell.
    pub samples: u64,
    /// Time of all cells together.
    pub duration_ns: u64,
    /// Estimated time of the whole stage.
    pub estimate_ns: u64,
    pub doing: Doing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// All routes at two sizes.
    Kinds,
    Ladder,
    Borders,
    /// Close routes.
    Close,
    /// Between two sizes with the same best route.
    Between,
}

/// The result of one cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Samples of each round, ns.
    Samples(Vec<Vec<u64>>),
    Refused(String),
}

#[derive(Clone, Debug)]
pub struct Search {
    settings: Settings,
    sweeps: Vec<State>,
    left_ns: u64,
    /// How many times the estimate stages really took.
    scale: f64,
}

/// The remaining tasks of a phase.
type Phase = fn(&Search) -> Vec<Task>;

#[derive(Clone, Debug)]
struct State {
    sweep: Sweep,
    /// Why a candidate was dropped.
    dropped: Vec<Option<String>>,
    thinned: bool,
    points: BTreeMap<u64, Slot>,
}

#[derive(Clone, Debug)]
struct Slot {
    point: Point,
    /// By the objective, or by the median.
    best: Option<Best>,
}

/// Routes at one size that must take turns with each other.
#[derive(Clone, Debug)]
struct Task {
    sweep: usize,
    bytes: u64,
    routes: Vec<usize>,
    visits: u32,
}

/// Maximum number of cells of a stage, and of bytes that they move.
const MOST_CELLS: usize = 32;
const MOST_BYTES: u64 = 1 << 30;
/// Stages are short, so that Ctrl-C and progress are prompt.
const LONGEST_NS: u64 = 3_000_000_000;
/// How many routes of a kind of executor continue.
const OF_A_KIND: usize = 3;
/// A route that is slower than another of its kind by more than this is dropped.
const KIND: f64 = 1.10;
/// A route that is slower by this factor, and gets relatively slower, is not tried further in that direction.
const BEHIND: f64 = 3.0;
/// Routes this close to the best of one size may be the best of its neighbour.
const NEAR: f64 = 1.6;
/// A smaller gain is not worth another route: half of the 100 ns that are aimed at, because the machine's speed varies.
const WORTH_NS: f64 = 50.0;
/// Maximum number of visits of a size.
const VISITS: u32 = 4;
/// The shortest visit of a cell; the first one of a median, and of a tail.
const LEAST_NS: u64 = 2_000_000;
const MEDIAN_NS: u64 = 15_000_000;
const TAIL_NS: u64 = 150_000_000;
const MEDIAN_SAMPLES: u64 = 1_000;
/// What opening, verifying and warming up a cell takes at first for each byte.
const OPEN_NS_A_BYTE: f64 = 4.0;
/// The part of the budget for the ladder.
const LADDER: f64 = 0.6;
/// Estimates may be too low by this factor.
const MARGIN: f64 = 1.3;
/// Untimed transfers of a turn, in addition to its first sample.
const WARM_UP: f64 = 1.5;

impl Search {
    pub fn new(settings: Settings, sweeps: Vec<Sweep>) -> Search {
        let state = |sweep: Sweep| State {
            dropped: vec![None; sweep.candidates.len()],
            thinned: false,
            points: BTreeMap::new(),
            sweep,
        };
        let left_ns = settings.budget_ns;
        Search { settings, sweeps: sweeps.into_iter().map(state).collect(), left_ns, scale: 1.0 }
    }

    /// The rest of the budget.
    pub fn left_ns(&self) -> u64 {
        self.left_ns
    }

    /// Subtracts time that other work took.
    pub fn spend(&mut self, ns: u64) {
        self.left_ns = self.left_ns.saturating_sub(ns);
    }

    /// The next stage; `None` if nothing is open or no stage fits.
    pub fn next(&self) -> Option<Request> {
        let phases: [(Doing, Phase); 5] = [
            (Doing::Kinds, Search::kinds),
            (Doing::Ladder, Search::ladder),
            (Doing::Borders, Search::borders),
            (Doing::Close, Search::close),
            (Doing::Between, Search::between),
        ];
        phases.into_iter().find_map(|(doing, tasks)| {
            let tasks = tasks(self);
            if tasks.is_empty() { None } else { self.pack(tasks, doing) }
        })
    }

    /// Stores the answers to a request, in the order of its cells.
    pub fn told(&mut self, request: &Request, answers: Vec<Answer>, spent_ns: u64) {
        self.spend(spent_ns);
        // A route that cannot be opened takes almost no time, and does not help to estimate routes that can.
        let opened = answers.iter().filter(|answer| matches!(answer, Answer::Samples(_))).count() as f64;
        let part = (opened / request.asks.len().max(1) as f64).max(0.1);
        let measure = (spent_ns as f64 / part / request.estimate_ns.max(1) as f64).clamp(0.1, 10.0);
        self.scale = (self.scale * (1.0 + measure) / 2.0).clamp(0.05, 20.0);
        let mut firsts: BTreeMap<(usize, u64), usize> = BTreeMap::new();
        for (ask, answer) in request.asks.iter().zip(answers) {
            let state = &mut self.sweeps[ask.sweep];
            let candidates = state.sweep.candidates.len();
            let slot =
                state.points.entry(ask.bytes).or_insert_with(|| Slot { point: Point::new(candidates), best: None });
            let first =
                *firsts.entry((ask.sweep, ask.bytes)).or_insert_with(|| slot.point.stage(request.rounds as usize));
            match answer {
                Answer::Samples(rounds) if rounds.iter().any(|round| !round.is_empty()) => {
                    slot.point.told(ask.route, first, rounds);
                }
                Answer::Samples(_) => {}
                Answer::Refused(why) => slot.point.cells[ask.route].refused = Some(why),
            }
        }
        for (sweep, bytes) in firsts.into_keys() {
            let State { sweep, points, .. } = &mut self.sweeps[sweep];
            if let Some(slot) = points.get_mut(&bytes) {
                slot.best = slot.point.best_or_median(&sweep.candidates, self.settings.objective);
            }
        }
        let ends = self.kind_sizes();
        for state in &mut self.sweeps {
            if !state.thinned && ends.iter().all(|bytes| state.points.contains_key(bytes)) {
                state.thin(&ends);
            }
        }
    }

    /// Two sizes of the ladder: a small one, and a large one.
    fn kind_sizes(&self) -> Vec<u64> {
        let sizes = &self.settings.sizes;
        let mut two = vec![sizes[sizes.len() / 6], sizes[sizes.len() * 4 / 7]];
        two.dedup();
        two
    }

    fn kinds(&self) -> Vec<Task> {
        let mut tasks = Vec::new();
        for bytes in self.kind_sizes() {
            for (sweep, state) in self.sweeps.iter().enumerate() {
                if !state.points.contains_key(&bytes) && !state.sweep.candidates.is_empty() {
                    let routes = (0..state.sweep.candidates.len()).collect();
                    tasks.push(Task { sweep, bytes, routes, visits: 0 });
                }
            }
        }
        tasks
    }

    fn ladder(&self) -> Vec<Task> {
        let sizes = &self.settings.sizes;
        // The largest is measured early, with every second one, so that each remaining size is between two known ones.
        let (mut first, mut second): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        sizes.iter().rev().enumerate().for_each(|(n, s)| if n % 2 == 0 { first.push(*s) } else { second.push(*s) });
        let mut tasks = Vec::new();
        for bytes in first.into_iter().rev().chain(second.into_iter().rev()) {
            for (sweep, state) in self.sweeps.iter().enumerate() {
                let routes: Vec<usize> = state.alive().filter(|n| !state.is_hopeless(*n, bytes)).collect();
                if !state.points.contains_key(&bytes) && !routes.is_empty() {
                    tasks.push(Task { sweep, bytes, routes, visits: 0 });
                }
            }
        }
        tasks
    }

    fn borders(&self) -> Vec<Task> {
        let by_median = self.settings.objective == Metric::P50;
        let (mut tasks, mut between) = (Vec::new(), Vec::new());
        for (sweep, state) in self.sweeps.iter().enumerate() {
            let known = state.known();
            let mut again: Vec<u64> = Vec::new();
            for two in known.windows(2).filter(|two| two[0].2.route != two[1].2.route) {
                let [(low, lower, a), (high, upper, b)] = [two[0], two[1]];
                let loss = lower.loss(b.route).max(upper.loss(a.route));
                let routes = &state.sweep.candidates;
                if by_median && lower.would_do(b.route, routes) && upper.would_do(a.route, routes) {
                    continue;
                }
                let unsure: Vec<u64> = two
                    .iter()
                    .filter(|(_, slot, best)| !by_median && best.open && slot.point.visits < VISITS - 1)
                    .map(|(bytes, ..)| *bytes)
                    .collect();
                if !unsure.is_empty() {
                    again.extend(unsure);
                    continue;
                }
                // Neither end is certain, and both are close to each other: a size between them would be no more certain.
                let is_vague = (a.open || b.open) && (high - low) * 4 <= low;
                if high - low <= resolution(low) || is_vague {
                    continue;
                }
                let near = |n: &usize| {
                    [lower, upper].iter().any(|slot| slot.is_near(*n)) || [a, b].iter().any(|best| best.route == *n)
                };
                let routes: Vec<usize> = state.alive().filter(near).collect();
                between.push((loss, Task { sweep, bytes: middle(low, high), routes, visits: 0 }));
            }
            again.dedup();
            tasks.extend(again.into_iter().filter_map(|bytes| state.again(sweep, bytes)));
        }
        between.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        tasks.extend(between.into_iter().map(|(_, task)| task));
        tasks
    }

    fn between(&self) -> Vec<Task> {
        let mut tasks = Vec::new();
        // On a GPU without a speed no size costs more.
        let sweeps = self.sweeps.iter().enumerate().filter(|_| self.settings.cell_ns > 0);
        for (sweep, state) in sweeps {
            let known = state.known();
            for two in known.windows(2).filter(|two| two[0].2.route == two[1].2.route) {
                let [(low, lower, _), (high, upper, _)] = [two[0], two[1]];
                // Once between each two sizes of the ladder.
                if high < 3 * low {
                    continue;
                }
                let near = |n: &usize| lower.is_near(*n) || upper.is_near(*n);
                let routes: Vec<usize> = state.alive().filter(near).collect();
                let second = lower.second().min(upper.second());
                if routes.len() > 1 {
                    tasks.push((second, Task { sweep, bytes: middle(low, high), routes, visits: 0 }));
                }
            }
        }
        tasks.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        tasks.into_iter().map(|(_, task)| task).collect()
    }

    fn close(&self) -> Vec<Task> {
        let (mut tasks, objective) = (Vec::new(), self.settings.objective);
        for (sweep, state) in self.sweeps.iter().enumerate() {
            for (bytes, slot) in state.points.iter().filter(|(_, slot)| slot.point.visits < VISITS) {
                let rivals = slot.point.rivals(objective);
                let missing = needs(objective).saturating_sub(slot.point.fewest(objective));
                let each: f64 = rivals.iter().map(|route| state.expected(*route, *bytes)).sum();
                // A task that takes a large part of the rest would leave others undecided.
                if rivals.len() > 1 && missing > 0 && missing as f64 * each <= self.left_ns as f64 / 4.0 {
                    tasks.push(Task { sweep, bytes: *bytes, routes: rivals, visits: slot.point.visits });
                } else if slot.best.is_some_and(|best| best.open) {
                    tasks.extend(state.again(sweep, *bytes));
                }
            }
        }
        tasks
    }

    /// One stage with the first tasks that fit together.
    fn pack(&self, tasks: Vec<Task>, doing: Doing) -> Option<Request> {
        let mut packed: Vec<&Task> = Vec::new();
        let (mut cells, mut bytes, mut estimate) = (0, 0u64, 0.0);
        // Optional work must not take a risk: stages that took less than estimated say little about other sizes. The time of the shortest stages is
        // uncertain by a few milliseconds.
        let left_ns = self.left_ns.saturating_sub(self.settings.open_ns) as f64;
        let left_ns = if doing == Doing::Between { left_ns * self.scale.min(1.0) } else { left_ns };
        let first = tasks.iter().find(|task| self.estimate(task, LEAST_NS) * MARGIN <= left_ns)?;
        let wanted = self.cell_ns(&tasks, doing, first.visits);
        // Shorter if the budget is not enough.
        let mut cell_ns = wanted;
        while cell_ns > LEAST_NS && self.estimate(first, cell_ns) * MARGIN > left_ns {
            cell_ns = (cell_ns / 2).max(LEAST_NS);
        }
        for task in tasks.iter().filter(|task| task.visits == first.visits) {
            let (more, moved) = (task.routes.len(), task.bytes.saturating_mul(2 * task.routes.len() as u64));
            let takes = self.estimate(task, cell_ns);
            let fits = (estimate + takes) * MARGIN <= left_ns;
            let alone = packed.is_empty();
            let room =
                cells + more <= MOST_CELLS && bytes + moved <= MOST_BYTES && estimate + takes <= LONGEST_NS as f64;
            if fits && (alone || room) {
                (cells, bytes, estimate) = (cells + more, bytes + moved, estimate + takes);
                packed.push(task);
            }
        }
        let ask = |task: &&Task| {
            let Task { sweep, bytes, .. } = **task;
            task.routes.iter().map(move |route| Ask { sweep, bytes, route: *route }).collect::<Vec<_>>()
        };
        let asks: Vec<Ask> = packed.iter().flat_map(ask).collect();
        (!asks.is_empty()).then(|| Request {
            rounds: self.settings.rounds,
            samples: self.samples_of(first.visits),
            duration_ns: cell_ns * asks.len() as u64,
            estimate_ns: estimate as u64,
            asks,
            doing,
        })
    }

    /// Maximum number of samples of each cell of a stage.
    fn samples_of(&self, visits: u32) -> u64 {
        let least = match self.settings.objective {
            Metric::P50 => MEDIAN_SAMPLES,
            metric => needs(metric) + needs(metric) / 20,
        };
        least << visits
    }

    /// The time of each cell of a stage.
    fn cell_ns(&self, tasks: &[Task], doing: Doing, visits: u32) -> u64 {
        let most = match doing {
            Doing::Kinds => self.settings.cell_ns.min(MEDIAN_NS) / 2,
            _ => self.settings.cell_ns << visits.min(3),
        };
        let most = most.max(LEAST_NS);
        if !matches!(doing, Doing::Kinds | Doing::Ladder) {
            return most;
        }
        // So short that the whole ladder fits into its part of the budget.
        let cells: usize = tasks.iter().map(|task| task.routes.len()).sum();
        let opening: f64 = tasks.iter().map(|task| self.estimate(task, 0)).sum();
        let share = self.left_ns as f64 * LADDER - opening;
        ((share / self.scale / cells.max(1) as f64).max(0.0) as u64).clamp(LEAST_NS, most)
    }

    /// Estimated time of a task, ns.
    fn estimate(&self, task: &Task, cell_ns: u64) -> f64 {
        let state = &self.sweeps[task.sweep];
        let open = self.settings.open_ns as f64 + task.bytes as f64 * OPEN_NS_A_BYTE;
        let (rounds, samples) = (f64::from(self.settings.rounds), self.samples_of(task.visits) as f64);
        let of = |route: &usize| {
            // A turn has at least one sample, and its last one may begin just before its time is over.
            let each = state.expected(*route, task.bytes);
            let one = each * rounds;
            let thought = self.scale * (open + (one * (1.0 + WARM_UP)).max(cell_ns as f64 + one));
            // However short other stages were, transfers need their time.
            let transfers = one.max((each * samples).min(cell_ns as f64));
            thought.max(transfers + self.scale.min(1.0) * open)
        };
        task.routes.iter().map(of).sum::<f64>()
    }

    /// The result for a load: a plan for each sweep and metric.
    pub fn plans(&self, load: &str) -> Vec<Plan> {
        let of = |state: &State| Metric::ALL.map(|metric| state.plan(metric, load));
        self.sweeps.iter().flat_map(of).flatten().collect()
    }

    /// Dropped routes, and the reasons.
    pub fn dropped(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sweeps.iter().flat_map(|state| {
            let names = state.sweep.candidates.iter().map(String::as_str);
            names.zip(&state.dropped).filter_map(|(name, why)| Some((name, why.as_deref()?)))
        })
    }

    /// Samples that were taken so far.
    pub fn samples(&self) -> u64 {
        let slots = self.sweeps.iter().flat_map(|state| state.points.values());
        slots.flat_map(|slot| &slot.point.cells).map(|cell| cell.samples).sum()
    }
}

impl State {
    fn alive(&self) -> impl Iterator<Item = usize> {
        (0..self.dropped.len()).filter(|n| self.dropped[*n].is_none())
    }

    /// The sizes that have a best route.
    fn known(&self) -> Vec<(u64, &Slot, Best)> {
        self.points.iter().filter_map(|(bytes, slot)| Some((*bytes, slot, slot.best?))).collect()
    }

    /// Keeps the best routes of each kind of executor.
    fn thin(&mut self, ends: &[u64]) {
        self.thinned = true;
        let points: Vec<&Point> = ends.iter().filter_map(|bytes| Some(&self.points.get(bytes)?.point)).collect();
        let p50 = |point: &Point, n: usize| point.cells[n].p50;
        let kinds: Vec<usize> = self.sweep.candidates.iter().map(|route| decide::preference(route)).collect();
        let mut keep: Vec<usize> = Vec::new();
        for n in 0..kinds.len() {
            let of_kind = || (0..kinds.len()).filter(|other| kinds[*other] == kinds[n]);
            let least = |point: &Point| of_kind().filter_map(|o| p50(point, o)).min_by(f64::total_cmp);
            let behind = |point: &&Point| Some(p50(point, n)? / least(point)?);
            let (fastest, near) = (points.iter().filter_map(behind))
                .fold((false, false), |(fastest, near), ratio| (fastest || ratio <= 1.0, near || ratio <= KIND));
            let kept = keep.iter().filter(|k| kinds[**k] == kinds[n]).count();
            if let Some(why) = points.iter().find_map(|point| point.cells[n].refused.clone())
                && points.iter().all(|point| p50(point, n).is_none())
            {
                self.dropped[n] = Some(why);
            } else if fastest || (near && kept < OF_A_KIND) {
                keep.push(n);
            } else {
                self.dropped[n] = Some("others of its kind are as fast or faster".into());
            }
        }
    }

    /// Far slower at the neighbouring sizes, and relatively slower towards this one.
    fn is_hopeless(&self, route: usize, bytes: u64) -> bool {
        let behind = |point: &Point| Some(point.cells[route].p50? / point.least()?);
        let refused = |point: &Point| point.cells[route].refused.is_some();
        let below: Vec<&Point> = self.points.range(..bytes).rev().take(2).map(|(_, slot)| &slot.point).collect();
        let above: Vec<&Point> = self.points.range(bytes + 1..).take(2).map(|(_, slot)| &slot.point).collect();
        // It was not tried at the nearest size: it was hopeless there.
        let absent = |side: &[&Point]| side.first().is_some_and(|p| !refused(p) && p.cells[route].p50.is_none());
        if absent(&below) || absent(&above) {
            return true;
        }
        // Too many bytes for it. For a batch they may have been too few.
        let is_measured = |(_, slot): (&u64, &Slot)| slot.point.cells[route].p50.is_some();
        if below.first().is_some_and(|p| refused(p)) && !self.points.range(bytes + 1..).any(is_measured) {
            return true;
        }
        let falls = |side: &[&Point]| match side {
            [near, far] => behind(near).zip(behind(far)).is_some_and(|(near, far)| near >= BEHIND && near >= far * 1.2),
            _ => false,
        };
        let far = |side: &[&Point]| side.first().and_then(|p| behind(p)).is_some_and(|ratio| ratio >= BEHIND);
        (falls(&below) && (above.is_empty() || far(&above))) || (far(&below) && far(&above))
    }

    /// The expected time of a transfer, ns, from the nearest size.
    fn expected(&self, route: usize, bytes: u64) -> f64 {
        let known = |(size, slot): (&u64, &Slot)| Some((*size, slot.point.cells[route].p50?));
        let below = self.points.range(..=bytes).rev().find_map(known);
        let above = || self.points.range(bytes..).find_map(known);
        match below {
            Some((size, ns)) => ns * (bytes as f64 / size as f64).max(1.0),
            None => above().map_or(20_000.0 + bytes as f64, |(_, ns)| ns),
        }
    }

    /// The routes close to the best of a size, for another visit.
    fn again(&self, sweep: usize, bytes: u64) -> Option<Task> {
        let slot = self.points.get(&bytes)?;
        let routes: Vec<usize> = slot.point.measured().filter(|n| slot.is_near(*n)).collect();
        if routes.len() < 2 {
            return None;
        }
        Some(Task { sweep, bytes, routes, visits: slot.point.visits })
    }

    fn plan(&self, metric: Metric, load: &str) -> Option<Plan> {
        let routes = &self.sweep.candidates;
        let (mut points, mut undecided, mut ranges) = (Vec::new(), Vec::new(), Vec::<Range>::new());
        let mut before = None;
        for (bytes, slot) in &self.points {
            let Some(best) = slot.point.best_or_median(routes, metric) else { continue };
            let enough = |n: &usize| slot.point.cells[*n].samples >= needs(metric);
            let figure = |n: usize| {
                let (ns, interval) = slot.point.cells[n].figure(metric)?;
                Some(Figure { route: routes[n].clone(), ns, interval, samples: slot.point.cells[n].samples })
            };
            let figures: Vec<Figure> = slot.point.measured().filter(enough).filter_map(figure).collect();
            points.push(submit::route_choice::Point { bytes: *bytes, figures });
            if best.by != metric {
                let samples = slot.point.fewest(metric);
                undecided.push(Undecided { bytes: *bytes, samples, needs: needs(metric) });
            }
            let range = Range { from: 1, to: None, route: routes[best.route].clone(), by: best.by };
            match (ranges.last_mut(), before) {
                (Some(last), _) if last.route == range.route && last.by == range.by => {}
                (Some(last), Some(before)) => {
                    let border = self.border(before, (*bytes, slot, best), metric);
                    last.to = Some(border);
                    ranges.push(Range { from: border + 1, ..range });
                }
                _ => ranges.push(range),
            }
            before = Some((*bytes, slot, best));
        }
        let Sweep { direction, memory, places, batch, .. } = &self.sweep;
        let (memory, load) = (memory.clone(), load.into());
        let key = Key { direction: *direction, memory, places: *places, batch: *batch, metric, load };
        (!ranges.is_empty()).then_some(Plan { key, ranges, points, undecided })
    }

    /// The last size of the range that ends between two sizes. The medians of the two best routes are interpolated linearly between the sizes: the
    /// border is where the second route becomes the best. If that gives no border, the middle.
    fn border(&self, (low, lower, a): (u64, &Slot, Best), (high, upper, b): (u64, &Slot, Best), metric: Metric) -> u64 {
        if high - low <= 1 {
            return low;
        }
        let routes = &self.sweep.candidates;
        let is_preferred = decide::preference(&routes[b.route]) < decide::preference(&routes[a.route]);
        // The preferred route is the best as long as it is within the bound.
        let bound = if is_preferred { 1.0 / decide::WITHIN } else { decide::WITHIN };
        let lead = |slot: &Slot| {
            let p50 = |n: usize| slot.point.cells[n].p50;
            Some(p50(b.route)? * bound - p50(a.route)?)
        };
        match (lead(lower), lead(upper)) {
            (Some(before), Some(behind)) if metric == Metric::P50 && before > 0.0 && behind < 0.0 => {
                let part = before / (before - behind);
                (low + ((high - low) as f64 * part) as u64).clamp(low, high - 1)
            }
            _ => middle(low, high),
        }
    }
}

impl Slot {
    /// How many times as long as the fastest a route takes, or 1 if the difference is a few clock ticks: the loss from taking it. For a route that
    /// was not measured here the loss is unlimited.
    fn loss(&self, route: usize) -> f64 {
        match (self.point.cells[route].p50, self.point.least()) {
            (Some(p50), Some(least)) if p50 - least > WORTH_NS => p50 / least,
            (Some(_), _) => 1.0,
            (None, _) => f64::INFINITY,
        }
    }

    /// How many times as long as the fastest the second one takes.
    fn second(&self) -> f64 {
        let mut all: Vec<f64> = self.point.cells.iter().filter_map(|cell| cell.p50).collect();
        all.sort_by(f64::total_cmp);
        if let [first, second, ..] = all[..] { second / first } else { f64::INFINITY }
    }

    /// Whether this route would also do here: it loses little compared with the fastest, and with CUDA's best form.
    fn would_do(&self, route: usize, routes: &[String]) -> bool {
        let Some(p50) = self.point.cells[route].p50 else { return false };
        let cudas = (0..routes.len()).filter(|n| decide::is_cuda(&routes[*n]));
        let cuda = cudas.filter_map(|n| self.point.cells[n].p50).min_by(f64::total_cmp);
        let is_near = self.point.least().is_none_or(|least| p50 - least <= WORTH_NS || p50 <= least * decide::WITHIN);
        is_near && cuda.is_none_or(|cuda| p50 <= cuda * decide::WITHIN_OF_CUDA)
    }

    fn is_near(&self, route: usize) -> bool {
        self.point.cells[route].p50.zip(self.point.least()).is_some_and(|(p50, least)| p50 <= least * NEAR)
    }
}

/// Two sizes this close need no third between them: a 32nd of the smaller one, at least 16 bytes, at most a page.
fn resolution(low: u64) -> u64 {
    (low / 32).clamp(16, 4096)
}

/// A size between two, rounded according to their distance.
fn middle(low: u64, high: u64) -> u64 {
    let middle = low + (high - low) / 2;
    let grain = match high - low {
        16_384.. => 4096,
        256.. => 64,
        16.. => 4,
        _ => 1,
    };
    let round = middle / grain * grain;
    if round > low && round < high { round } else { middle }
}
