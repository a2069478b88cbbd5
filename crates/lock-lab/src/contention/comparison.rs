//! What policies make of the same cells: rounds put together, and whether they differ from the process that has none.

use super::cell::Cell;
use super::measure::Outcome;
use super::series::{Series, Times, What};
use lab::statistics::Percentile;
use serde::{Deserialize, Serialize};

/// The policy that the others are compared with: none.
pub const STOCK: &str = "stock";

/// One cell under one policy, all its rounds.
#[derive(Clone, Debug)]
pub struct Row {
    pub policy: String,
    pub cell: Cell,
    /// All rounds together.
    pub outcome: Outcome,
    /// Of each round the series' names and tails.
    rounds: Vec<Vec<(String, What, Tail)>>,
}

/// The end of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    pub p50: u64,
    /// `None` with too few samples.
    pub p99: Option<u64>,
    pub p999: Option<u64>,
    pub max: u64,
}

impl Tail {
    /// `None` without samples.
    pub fn of(times: &Times) -> Option<Tail> {
        Some(Tail {
            p50: times.percentile(Percentile::P50)?,
            p99: times.percentile(Percentile::P99),
            p999: times.percentile(Percentile::P999),
            max: times.max,
        })
    }

    fn figure(&self, name: &str) -> Option<u64> {
        match name {
            P999 => self.p999,
            P99 => self.p99,
            _ => Some(self.max),
        }
    }
}

const P999: &str = "p99.9";
const P99: &str = "p99";
const MAX: &str = "max";

/// What a policy did to one kind of call in one cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// In every round better than stock in any, and by a tenth at least over all.
    Helps,
    /// The other way round.
    Harms,
    None,
    /// Fewer than two rounds of either.
    TooFew,
}

/// One policy against none, in one cell and for one kind of call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Against {
    pub policy: String,
    pub cell: Cell,
    pub series: String,
    pub what: What,
    pub effect: Effect,
    /// Which figure was compared: `max`, or the highest percentile that both have samples for.
    pub figure: &'static str,
    pub stock_ns: u64,
    pub policy_ns: u64,
    /// It would have been larger: what took so long was over because its load was told to stop.
    pub stock_capped: bool,
    pub policy_capped: bool,
}

impl Against {
    /// How many times shorter the figure became; below 1 it became longer.
    pub fn factor(&self) -> f64 {
        self.stock_ns as f64 / self.policy_ns.max(1) as f64
    }
}

impl Row {
    pub fn series(&self, name: &str) -> Option<&Series> {
        self.outcome.series.iter().find(|s| s.name == name)
    }

    pub fn rounds(&self) -> usize {
        self.rounds.len()
    }

    /// The tail of one kind of call in each round that has it.
    pub fn tails<'r>(&'r self, name: &'r str, what: What) -> impl Iterator<Item = Tail> + 'r {
        self.rounds.iter().flatten().filter(move |(n, w, _)| n == name && *w == what).map(|(_, _, tail)| *tail)
    }
}

/// Rows, in the order in which their cells and policies first came.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    pub rows: Vec<Row>,
}

impl Comparison {
    /// Adds what one process measured in one cell.
    pub fn add(&mut self, policy: &str, outcome: Outcome) {
        let tail = |s: &Series, what: What| Some((s.name.clone(), what, Tail::of(s.times(what))?));
        let tails = |s| Series::looked_at(s).iter().filter_map(move |what| tail(s, *what));
        let round: Vec<_> = outcome.series.iter().flat_map(tails).collect();
        match self.rows.iter_mut().find(|r| r.policy == policy && r.cell == outcome.cell) {
            Some(row) => {
                row.outcome.merge(outcome);
                row.rounds.push(round);
            }
            None => {
                let row = Row { policy: policy.into(), cell: outcome.cell, outcome, rounds: vec![round] };
                // Policies of one cell stand together.
                let at = self.rows.iter().rposition(|r| r.cell == row.cell).map_or(self.rows.len(), |last| last + 1);
                self.rows.insert(at, row);
            }
        }
    }

    pub fn row(&self, policy: &str, cell: &Cell) -> Option<&Row> {
        self.rows.iter().find(|r| r.policy == policy && r.cell == *cell)
    }

    /// Every policy against none, in every cell that both have, for each kind of call of CUDA's: the highest percentile that
    /// both have samples for, and the largest observed.
    pub fn against(&self) -> Vec<Against> {
        let mut all = Vec::new();
        for row in self.rows.iter().filter(|r| r.policy != STOCK) {
            let Some(stock) = self.row(STOCK, &row.cell) else { continue };
            for series in row.outcome.series.iter().filter(|s| !s.own) {
                all.extend(series.looked_at().iter().flat_map(|what| against(stock, row, &series.name, *what)));
            }
        }
        all
    }
}

fn against(stock: &Row, row: &Row, name: &str, what: What) -> Vec<Against> {
    let tail = |r: &Row| Tail::of(r.series(name)?.times(what));
    let (Some(before), Some(after)) = (tail(stock), tail(row)) else { return Vec::new() };
    let percentile = [P999, P99].into_iter().find(|f| before.figure(f).is_some() && after.figure(f).is_some());
    let capped = |r: &Row, ns: u64| r.series(name).is_some_and(|s| s.is_capped(what) && s.times(what).max == ns);
    let one = |figure: &'static str| {
        let (stock_ns, policy_ns) = before.figure(figure).zip(after.figure(figure))?;
        // A round may have too few samples for what all of them together carry.
        let of_rounds = |r: &Row| r.tails(name, what).map(|t| t.figure(figure).unwrap_or(t.max)).collect::<Vec<_>>();
        Some(Against {
            policy: row.policy.clone(),
            cell: row.cell,
            series: name.into(),
            what,
            effect: effect(&of_rounds(row), &of_rounds(stock), policy_ns, stock_ns),
            figure,
            stock_ns,
            policy_ns,
            stock_capped: capped(stock, stock_ns),
            policy_capped: capped(row, policy_ns),
        })
    };
    percentile.into_iter().chain([MAX]).filter_map(one).collect()
}

fn effect(these: &[u64], those: &[u64], together: u64, stock_together: u64) -> Effect {
    if these.len() < 2 || those.len() < 2 {
        return Effect::TooFew;
    }
    let below = |a: &[u64], b: &[u64]| a.iter().max() < b.iter().min();
    let by_a_tenth = |less: u64, more: u64| less.saturating_mul(11) <= more.saturating_mul(10);
    if below(these, those) && by_a_tenth(together, stock_together) {
        Effect::Helps
    } else if below(those, these) && by_a_tenth(stock_together, together) {
        Effect::Harms
    } else {
        Effect::None
    }
}

impl Outcome {
    /// Puts the same cell's figures from another process to these.
    pub fn merge(&mut self, other: Outcome) {
        self.seconds += other.seconds;
        self.throttled += other.throttled;
        self.moved += other.moved;
        self.class = other.class;
        self.cpu = other.cpu;
        for note in other.notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        for series in other.series {
            match self.series.iter_mut().find(|s| s.name == series.name) {
                Some(same) => same.merge(&series),
                None => self.series.push(series),
            }
        }
        for load in other.load {
            match self.load.iter_mut().find(|l| (&l.what, l.bytes) == (&load.what, load.bytes)) {
                Some(same) => {
                    same.transfers += load.transfers;
                    let all = same.seconds + load.seconds;
                    let mean = |a: f64, b: f64| (a * same.seconds + b * load.seconds) / all;
                    (same.on_cpu, same.waiting) = (mean(same.on_cpu, load.on_cpu), mean(same.waiting, load.waiting));
                    same.seconds = all;
                    // Of the same threads in every round: those of the worst.
                    same.threads = same.threads.min(load.threads);
                    same.right = same.right.min(load.right);
                    for (why, n) in load.failed {
                        match same.failed.iter_mut().find(|(known, _)| *known == why) {
                            Some((_, threads)) => *threads += n,
                            None => same.failed.push((why, n)),
                        }
                    }
                }
                None => self.load.push(load),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contention::series::Times;

    fn outcome(cell: Cell, launches: &[u64]) -> Outcome {
        let mut call = crate::contention::series::Counting::new();
        launches.iter().for_each(|t| call.add(*t));
        let series = Series {
            name: "launch".into(),
            about: String::new(),
            own: false,
            unavailable: None,
            failed: None,
            call: call.done(),
            done: Times::default(),
            parts: None,
            done_parts: None,
            slowest: Vec::new(),
            slowest_done: Vec::new(),
        };
        let load = crate::contention::Loaded {
            what: "x".into(),
            threads: 2,
            bytes: 1,
            transfers: 10,
            seconds: 1.0,
            on_cpu: 0.5,
            waiting: 0.1,
            right: 2,
            failed: Vec::new(),
        };
        Outcome {
            cell,
            seconds: 1.0,
            cpu: Some(3),
            class: None,
            throttled: 0,
            moved: 1,
            notes: vec!["n".into()],
            series: vec![series],
            load: vec![load],
        }
    }

    fn compared(stock: [&[u64]; 3], policy: [&[u64]; 3]) -> Against {
        let mut all = Comparison::default();
        for (a, b) in stock.iter().zip(policy) {
            all.add("ticket", outcome(Cell::WORST, b));
            all.add(STOCK, outcome(Cell::WORST, a));
        }
        assert_eq!(all.rows.len(), 2);
        let mut against = all.against();
        assert!(against.len() <= 2 && against.last().unwrap().figure == "max", "{against:?}");
        against.remove(0)
    }

    #[test]
    fn a_policy_helps_where_all_its_rounds_are_better() {
        let a = compared([&[900; 50], &[1000; 50], &[800; 50]], [&[100; 50], &[110; 50], &[90; 50]]);
        assert_eq!((a.effect, a.figure, a.stock_ns, a.policy_ns), (Effect::Helps, "p99", 1000, 110));
        assert!((8.0..11.0).contains(&a.factor()), "{a:?}");
        let a = compared([&[100; 50], &[110; 50], &[90; 50]], [&[900; 50], &[1000; 50], &[800; 50]]);
        assert_eq!(a.effect, Effect::Harms);
        let a = compared([&[900; 50], &[100; 50], &[800; 50]], [&[90; 50], &[110; 50], &[90; 50]]);
        assert_eq!(a.effect, Effect::None, "one round was no better");
        let a = compared([&[1000; 50], &[1000; 50], &[1000; 50]], [&[980; 50], &[980; 50], &[980; 50]]);
        assert_eq!(a.effect, Effect::None, "less than a tenth");
        let a = compared([&[900; 5], &[900; 5], &[900; 5]], [&[90; 5], &[90; 5], &[90; 5]]);
        assert_eq!((a.figure, a.effect), ("max", Effect::Helps));
    }

    #[test]
    fn one_round_says_nothing() {
        let mut all = Comparison::default();
        all.add("pi", outcome(Cell::Alone, &[1; 2000]));
        all.add(STOCK, outcome(Cell::Alone, &[9; 2000]));
        all.add("pi", outcome(Cell::Sizes, &[1; 2000]));
        let against = all.against();
        assert_eq!((against.len(), against[0].effect, against[0].figure), (2, Effect::TooFew, "p99.9"));
    }

    #[test]
    fn rounds_are_put_together_and_policies_of_a_cell_stand_together() {
        let mut all = Comparison::default();
        for (policy, cell) in [("stock", Cell::Alone), ("stock", Cell::WORST), ("pi", Cell::Alone), ("pi", Cell::WORST)]
        {
            all.add(policy, outcome(cell, &[5]));
            all.add(policy, outcome(cell, &[7, 9]));
        }
        let order: Vec<_> = all.rows.iter().map(|r| (r.policy.as_str(), r.cell)).collect();
        let alone_first = [("stock", Cell::Alone), ("pi", Cell::Alone), ("stock", Cell::WORST), ("pi", Cell::WORST)];
        assert_eq!(order, alone_first);
        let row = &all.rows[0];
        assert_eq!((row.rounds(), row.outcome.seconds, row.outcome.moved, row.outcome.notes.len()), (2, 2.0, 2, 1));
        let launch = row.series("launch").unwrap();
        assert_eq!((launch.call.count, launch.call.min, launch.call.max), (3, 5, 9));
        assert_eq!(row.tails("launch", What::Call).map(|t| t.max).collect::<Vec<_>>(), [5, 9]);
        let load = &row.outcome.load[0];
        assert_eq!((load.threads, load.right, load.transfers, load.seconds), (2, 2, 20, 2.0));
    }
}
