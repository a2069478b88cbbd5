//! What to measure next. Pure: it sees samples and the time that they took, and nothing else.
//!
//! 1. All routes at two sizes; of each kind of executor the best go on.
//! 2. These at a coarse ladder of sizes, every other one first. What is left far behind and falls back further is not asked
//!    again in that direction.
//! 3. Where the best routes of two neighbouring sizes differ, a size between them, until either would do at both, by the bounds of
//!    `route_choice::decide`, or until they lie a page apart or a 32nd of the smaller one: first where the other end's route loses most.
//!    For a tail an end that its samples do not decide is measured again first, for twice as long.
//! 4. Sizes that are still open, for twice as long each time.
//! 5. With time left, a size between two of the ladder that have the same best route, first where another one is near: what costs
//!    more than the sizes round it say (a limit of the driver's, a cache) is found there, and its borders by 3.
//!
//! It ends when nothing is open, or when the next stage would not fit into what is left of the budget.

use crate::point::{Best, Point, needs};
use route_choice::{Direction, Figure, Key, Metric, Places, Plan, Range, Undecided, decide};
use std::collections::BTreeMap;

/// One direction with one kind of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    pub direction: Direction,
    pub memory: String,
    pub places: Places,
    /// Pieces of each transfer; 1: it is whole.
    pub batch: u32,
    /// In the order of preference.
    pub candidates: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The coarse ladder, ascending.
    pub sizes: Vec<u64>,
    /// For which metric samples are spent.
    pub objective: Metric,
    pub budget_ns: u64,
    /// In each stage.
    pub rounds: u32,
    /// What opening, verifying and warming up a cell is thought to take at first, besides its bytes.
    pub open_ns: u64,
    /// A cell's first visit takes so long at most.
    pub cell_ns: u64,
}

impl Settings {
    /// Of a cell's first visit, enough for a metric's samples of small transfers.
    pub fn cell_ns(objective: Metric) -> u64 {
        if objective == Metric::P50 { MEDIAN_NS } else { TAIL_NS }
    }
}

/// One cell of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    pub sweep: usize,
    pub bytes: u64,
    /// Of the sweep's candidates.
    pub route: usize,
}

/// One stage: its cells take turns.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub asks: Vec<Ask>,
    pub rounds: u32,
    /// Of each cell at most.
    pub samples: u64,
    /// Of all cells together.
    pub duration_ns: u64,
    /// What the whole stage is thought to take.
    pub estimate_ns: u64,
    pub doing: Doing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// All routes at two sizes.
    Kinds,
    Ladder,
    Borders,
    /// What is close.
    Close,
    /// Between two sizes that have the same best route.
    Between,
}

/// What came of one cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Of each round, ns.
    Samples(Vec<Vec<u64>>),
    Refused(String),
}

#[derive(Clone, Debug)]
pub struct Search {
    settings: Settings,
    sweeps: Vec<State>,
    left_ns: u64,
    /// Stages took so many times what was thought.
    scale: f64,
}

/// What a phase has left to do.
type Phase = fn(&Search) -> Vec<Task>;

#[derive(Clone, Debug)]
struct State {
    sweep: Sweep,
    /// Why a candidate goes no further.
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

/// Routes at one size that have to take turns with each other.
#[derive(Clone, Debug)]
struct Task {
    sweep: usize,
    bytes: u64,
    routes: Vec<usize>,
    visits: u32,
}

/// Cells of a stage, and the bytes that they move.
const MOST_CELLS: usize = 32;
const MOST_BYTES: u64 = 1 << 30;
/// A stage is short enough that Ctrl-C and the progress are prompt.
const LONGEST_NS: u64 = 3_000_000_000;
/// Of a kind of executor so many go on.
const OF_A_KIND: usize = 3;
/// A route of the same kind that is slower by more goes no further.
const KIND: f64 = 1.10;
/// What is slower by so much, and falls back, is not asked again in that direction.
const BEHIND: f64 = 3.0;
/// Routes that are near enough to the best of one size to be the best of its neighbour.
const NEAR: f64 = 1.6;
/// Less than so much is not worth another route: half of what is aimed at, 100 ns, because the machine is not as fast at all times.
const WORTH_NS: f64 = 50.0;
/// A size is measured so often at most.
const VISITS: u32 = 4;
/// The shortest visit of a cell; the first one of a median, and of a tail.
const LEAST_NS: u64 = 2_000_000;
const MEDIAN_NS: u64 = 15_000_000;
const TAIL_NS: u64 = 150_000_000;
const MEDIAN_SAMPLES: u64 = 1_000;
/// What opening, verifying and warming up a cell takes at first for each byte.
const OPEN_NS_A_BYTE: f64 = 4.0;
/// The part of the budget that the ladder may take.
const LADDER: f64 = 0.6;
/// Estimates are that much too low now and then.
const MARGIN: f64 = 1.3;
/// Untimed transfers of a turn, beside the one sample that it has at least.
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

    /// What is left of the budget.
    pub fn left_ns(&self) -> u64 {
        self.left_ns
    }

    /// Something else took time.
    pub fn spend(&mut self, ns: u64) {
        self.left_ns = self.left_ns.saturating_sub(ns);
    }

    /// The next stage; `None` when nothing is open or nothing more fits.
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

    /// What came of a request, in the order of its cells.
    pub fn told(&mut self, request: &Request, answers: Vec<Answer>, spent_ns: u64) {
        self.spend(spent_ns);
        // What cannot be opened takes next to no time, and says nothing of what can be.
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

    /// Two sizes of the ladder: a small one, and one that takes its time.
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
        // The largest at once with every other one, so that each size lies between two that are known.
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
            let known: Vec<(u64, &Slot, Best)> =
                state.points.iter().filter_map(|(bytes, slot)| Some((*bytes, slot, slot.best?))).collect();
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
                // Neither end is certain, and both are near: what lies between them is no more certain.
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
        // A GPU without a speed has nothing that costs more.
        let sweeps = self.sweeps.iter().enumerate().filter(|_| self.settings.cell_ns > 0);
        for (sweep, state) in sweeps {
            let known: Vec<(u64, &Slot, Best)> =
                state.points.iter().filter_map(|(bytes, slot)| Some((*bytes, slot, slot.best?))).collect();
            for two in known.windows(2).filter(|two| two[0].2.route == two[1].2.route) {
                let [(low, lower, _), (high, upper, _)] = [two[0], two[1]];
                // Once between two of the ladder.
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
                // What would take a good part of the rest would leave others undecided.
                if rivals.len() > 1 && missing > 0 && missing as f64 * each <= self.left_ns as f64 / 4.0 {
                    tasks.push(Task { sweep, bytes: *bytes, routes: rivals, visits: slot.point.visits });
                } else if slot.best.is_some_and(|best| best.open) {
                    tasks.extend(state.again(sweep, *bytes));
                }
            }
        }
        tasks
    }

    /// One stage of the first tasks that fit together.
    fn pack(&self, tasks: Vec<Task>, doing: Doing) -> Option<Request> {
        let mut packed: Vec<&Task> = Vec::new();
        let (mut cells, mut bytes, mut estimate) = (0, 0u64, 0.0);
        // What is worth doing only with time left takes no risk: stages that took less than was thought say little of other sizes.
        // Of the shortest stages nobody knows to a few milliseconds what they take.
        let left_ns = self.left_ns.saturating_sub(self.settings.open_ns) as f64;
        let left_ns = if doing == Doing::Between { left_ns * self.scale.min(1.0) } else { left_ns };
        let first = tasks.iter().find(|task| self.estimate(task, LEAST_NS) * MARGIN <= left_ns)?;
        let wanted = self.cell_ns(&tasks, doing, first.visits);
        // Shorter where the budget does not hold it.
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

    /// Of each cell of a stage at most.
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
        // So long that the whole ladder fits into its part of the budget.
        let cells: usize = tasks.iter().map(|task| task.routes.len()).sum();
        let opening: f64 = tasks.iter().map(|task| self.estimate(task, 0)).sum();
        let share = self.left_ns as f64 * LADDER - opening;
        ((share / self.scale / cells.max(1) as f64).max(0.0) as u64).clamp(LEAST_NS, most)
    }

    /// What a task takes, ns.
    fn estimate(&self, task: &Task, cell_ns: u64) -> f64 {
        let state = &self.sweeps[task.sweep];
        let open = self.settings.open_ns as f64 + task.bytes as f64 * OPEN_NS_A_BYTE;
        let (rounds, samples) = (f64::from(self.settings.rounds), self.samples_of(task.visits) as f64);
        let of = |route: &usize| {
            // A turn has one sample at least, and its last one may begin just before its time is over.
            let each = state.expected(*route, task.bytes);
            let one = each * rounds;
            let thought = self.scale * (open + (one * (1.0 + WARM_UP)).max(cell_ns as f64 + one));
            // However short other stages were, transfers take what they take.
            let transfers = one.max((each * samples).min(cell_ns as f64));
            thought.max(transfers + self.scale.min(1.0) * open)
        };
        task.routes.iter().map(of).sum::<f64>()
    }

    /// What was found, for a load: a plan for each sweep and metric.
    pub fn plans(&self, load: &str) -> Vec<Plan> {
        let of = |state: &State| Metric::ALL.map(|metric| state.plan(metric, load));
        self.sweeps.iter().flat_map(of).flatten().collect()
    }

    /// Routes that went no further, and why.
    pub fn dropped(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sweeps.iter().flat_map(|state| {
            let names = state.sweep.candidates.iter().map(String::as_str);
            names.zip(&state.dropped).filter_map(|(name, why)| Some((name, why.as_deref()?)))
        })
    }

    /// Samples that were taken so far.
    pub fn samples(&self) -> u64 {
        let slots = self.sweeps.iter().flat_map(|state| state.points.values());
        slots.flat_map(|slot| &slot.point.cells).map(|cell| cell.samples()).sum()
    }
}

impl State {
    fn alive(&self) -> impl Iterator<Item = usize> {
        (0..self.dropped.len()).filter(|n| self.dropped[*n].is_none())
    }

    /// Of each kind of executor the best go on.
    fn thin(&mut self, ends: &[u64]) {
        self.thinned = true;
        let points: Vec<&Point> = ends.iter().filter_map(|bytes| Some(&self.points.get(bytes)?.point)).collect();
        let p50 = |point: &Point, n: usize| point.cells[n].p50();
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

    /// Far behind at the sizes next to this one, and falling back towards it.
    fn is_hopeless(&self, route: usize, bytes: u64) -> bool {
        let behind = |point: &Point| Some(point.cells[route].p50()? / point.least()?);
        let refused = |point: &Point| point.cells[route].refused.is_some();
        let below: Vec<&Point> = self.points.range(..bytes).rev().take(2).map(|(_, slot)| &slot.point).collect();
        let above: Vec<&Point> = self.points.range(bytes + 1..).take(2).map(|(_, slot)| &slot.point).collect();
        // It was not asked at the nearest size: it was hopeless there.
        let absent = |side: &[&Point]| side.first().is_some_and(|p| !refused(p) && p.cells[route].p50().is_none());
        if absent(&below) || absent(&above) {
            return true;
        }
        // Too many bytes for it. Of a batch they may have been too few.
        let is_measured = |(_, slot): (&u64, &Slot)| slot.point.cells[route].p50().is_some();
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

    /// What a transfer should take, ns, by the size nearest to it.
    fn expected(&self, route: usize, bytes: u64) -> f64 {
        let known = |(size, slot): (&u64, &Slot)| Some((*size, slot.point.cells[route].p50()?));
        let below = self.points.range(..=bytes).rev().find_map(known);
        let above = || self.points.range(bytes..).find_map(known);
        match below {
            Some((size, ns)) => ns * (bytes as f64 / size as f64).max(1.0),
            None => above().map_or(20_000.0 + bytes as f64, |(_, ns)| ns),
        }
    }

    /// Those that are near the best of a size, once more.
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
            let enough = |n: &usize| slot.point.cells[*n].samples() >= needs(metric);
            let figure = |n: usize| {
                let (ns, interval) = slot.point.cells[n].figure(metric)?;
                Some(Figure { route: routes[n].clone(), ns, interval, samples: slot.point.cells[n].samples() })
            };
            let figures: Vec<Figure> = slot.point.measured().filter(enough).filter_map(figure).collect();
            points.push(route_choice::Point { bytes: *bytes, figures });
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

    /// The last size of the range that ends between two sizes: where the medians of the two best routes, drawn as straight lines
    /// between the sizes, say that the second one becomes the best. In the middle where they say nothing.
    fn border(&self, (low, lower, a): (u64, &Slot, Best), (high, upper, b): (u64, &Slot, Best), metric: Metric) -> u64 {
        if high - low <= 1 {
            return low;
        }
        let routes = &self.sweep.candidates;
        let is_preferred = decide::preference(&routes[b.route]) < decide::preference(&routes[a.route]);
        // The preferred one is the best as long as it is within the bound.
        let bound = if is_preferred { 1.0 / decide::WITHIN } else { decide::WITHIN };
        let lead = |slot: &Slot| {
            let p50 = |n: usize| slot.point.cells[n].p50();
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
    /// How many times the fastest one's time a route takes, or 1 where that is a few clock ticks: what is lost by taking it. A
    /// route that was not measured here may lose anything.
    fn loss(&self, route: usize) -> f64 {
        match (self.point.cells[route].p50(), self.point.least()) {
            (Some(p50), Some(least)) if p50 - least > WORTH_NS => p50 / least,
            (Some(_), _) => 1.0,
            (None, _) => f64::INFINITY,
        }
    }

    /// How many times the fastest one's time the second one takes.
    fn second(&self) -> f64 {
        let mut all: Vec<f64> = self.point.cells.iter().filter_map(|cell| cell.p50()).collect();
        all.sort_by(f64::total_cmp);
        if let [first, second, ..] = all[..] { second / first } else { f64::INFINITY }
    }

    /// Whether this route could be taken here, though another one is: it loses little against the fastest, and against CUDA's best
    /// form.
    fn would_do(&self, route: usize, routes: &[String]) -> bool {
        let Some(p50) = self.point.cells[route].p50() else { return false };
        let cudas = (0..routes.len()).filter(|n| decide::is_cuda(&routes[*n]));
        let cuda = cudas.filter_map(|n| self.point.cells[n].p50()).min_by(f64::total_cmp);
        let is_near = self.point.least().is_none_or(|least| p50 - least <= WORTH_NS || p50 <= least * decide::WITHIN);
        is_near && cuda.is_none_or(|cuda| p50 <= cuda * decide::WITHIN_OF_CUDA)
    }

    fn is_near(&self, route: usize) -> bool {
        self.point.cells[route].p50().zip(self.point.least()).is_some_and(|(p50, least)| p50 <= least * NEAR)
    }
}

/// Two sizes so near need no third between them: a 32nd of the smaller one, 16 bytes at least, a page at most.
fn resolution(low: u64) -> u64 {
    (low / 32).clamp(16, 4096)
}

/// A size between two, as round as they are apart.
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
