//! Two runs, cell by cell.

use crate::family::ERROR;
use crate::{Between, Difference, Missing, Side, holm};
use serde::{Deserialize, Serialize};
use statistics::{Figure, Interval, Rounds};
use std::fmt;

/// The identity of a cell, for matching two runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    pub subject: String,
    pub bytes: u64,
    /// Names and values of the matrix's axes: `policy=stock copies.count=4`, or empty.
    pub point: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.subject)?;
        if self.bytes > 0 {
            write!(f, " {} B", self.bytes)?;
        }
        if !self.point.is_empty() {
            write!(f, " [{}]", self.point)?;
        }
        Ok(())
    }
}

/// A cell's content in one run.
#[derive(Clone, Debug)]
pub enum Cell {
    Measured(Rounds),
    /// The cell is in the run, but has no samples.
    Failed(String),
    /// It does not exist on that machine, or the experiment has no such cell.
    Absent(String),
}

/// The limits of a comparison: a slowdown by a smaller part does not fail.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    pub middle: f64,
    /// For percentiles above p90.
    pub tail: f64,
}

impl Limits {
    /// A tail varies more: its limit is so many times that of the median and the mean, unless it is given.
    pub const TAIL: f64 = 5.0;

    pub fn new(middle: f64, tail: Option<f64>) -> Limits {
        Limits { middle, tail: tail.unwrap_or(Limits::TAIL * middle) }
    }

    pub fn of(&self, figure: Figure) -> f64 {
        if figure.is_tail() { self.tail } else { self.middle }
    }
}

/// The options of a comparison.
#[derive(Clone, Debug)]
pub struct Request {
    pub figures: Vec<Figure>,
    pub limits: Limits,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The interval lies within the limit, to both sides.
    Equal,
    /// No difference is certain, and one beyond the limit is not ruled out.
    Unclear,
    Slower,
    Faster,
    TooFew(Missing),
    OnlyInA(String),
    OnlyInB(String),
    InNeither(String),
    /// Measured in A, and failed in B.
    Lost(String),
    /// In both, on a software GPU: its times are not compared.
    Worked,
}

/// One figure of one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub cell: Key,
    pub metric: String,
    pub a: Option<f64>,
    pub b: Option<f64>,
    pub limit: f64,
    pub difference: Option<Difference>,
    /// Adjusted for the number of tests.
    pub probability: Option<f64>,
    pub verdict: Verdict,
}

impl Row {
    pub fn interval(&self) -> Option<Interval<f64>> {
        self.difference.as_ref().map(|d| d.interval)
    }

    /// It is certainly slower, and by the limit or more for all that is known; or it is lost.
    pub fn fails(&self) -> bool {
        matches!(self.verdict, Verdict::Slower | Verdict::Lost(_))
    }

    /// Whether a verdict was due, and whether there is one.
    pub fn decided(&self) -> Option<bool> {
        match self.verdict {
            Verdict::Equal | Verdict::Slower | Verdict::Faster | Verdict::Lost(_) => Some(true),
            Verdict::Unclear | Verdict::TooFew(_) | Verdict::OnlyInA(_) => Some(false),
            Verdict::OnlyInB(_) | Verdict::InNeither(_) | Verdict::Worked => None,
        }
    }
}

/// A fact that differs between the two environments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub what: String,
    pub a: String,
    pub b: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub limits: Limits,
    pub rows: Vec<Row>,
}

/// The verdict of all rows together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overall {
    Lost,
    Regression,
    /// A figure was not decided.
    Unclear,
    Faster,
    Equal,
    /// On a software GPU.
    Worked,
    /// No cell is in both runs.
    Nothing,
}

/// The ratio of one cell in both runs, figure by figure. `between` says how far processes of this cell differ, for runs that do not show it.
/// Verdicts of slower and faster are those of [`Comparison::of`].
pub fn compare(
    cell: &Key,
    a: &Cell,
    b: &Cell,
    request: &Request,
    between: impl Fn(Figure) -> Option<Between>,
) -> Vec<Row> {
    let (a, b) = match (a, b) {
        (Cell::Measured(a), Cell::Measured(b)) => (a, b),
        (a, b) => return vec![unmeasured(cell, a, b)],
    };
    let row = |figure: &Figure| {
        let between = Between::shown(a, *figure).or_else(|| Between::shown(b, *figure)).or_else(|| between(*figure));
        let difference = Difference::of(Side { rounds: a, between }, Side { rounds: b, between }, *figure);
        Row {
            cell: cell.clone(),
            metric: figure.to_string(),
            a: a.figure(*figure),
            b: b.figure(*figure),
            limit: request.limits.of(*figure),
            probability: None,
            verdict: difference.as_ref().err().map_or(Verdict::Unclear, |m| Verdict::TooFew(*m)),
            difference: difference.ok(),
        }
    };
    request.figures.iter().map(row).collect()
}

fn unmeasured(cell: &Key, a: &Cell, b: &Cell) -> Row {
    let verdict = match (a, b) {
        (Cell::Measured(_), Cell::Failed(why)) => Verdict::Lost(why.clone()),
        (Cell::Measured(_), Cell::Absent(why)) => Verdict::OnlyInA(why.clone()),
        (Cell::Failed(why) | Cell::Absent(why), Cell::Measured(_)) => Verdict::OnlyInB(why.clone()),
        (_, Cell::Failed(why) | Cell::Absent(why)) => Verdict::InNeither(why.clone()),
        (Cell::Measured(_), Cell::Measured(_)) => Verdict::Worked,
    };
    Row {
        cell: cell.clone(),
        metric: String::new(),
        a: None,
        b: None,
        limit: 0.0,
        difference: None,
        probability: None,
        verdict,
    }
}

impl Comparison {
    /// What is certainly slower or faster: first what fails, then the largest differences.
    pub fn findings(&self) -> Vec<&Row> {
        let is_one = |row: &&Row| matches!(row.verdict, Verdict::Slower | Verdict::Faster);
        let apart = |row: &Row| row.difference.as_ref().map_or(0.0, |d| d.ratio.ln().abs());
        let mut all: Vec<&Row> = self.rows.iter().filter(is_one).collect();
        all.sort_by(|a, b| b.fails().cmp(&a.fails()).then(apart(b).total_cmp(&apart(a))));
        all
    }

    /// Decides, for all rows together.
    pub fn of(mut rows: Vec<Row>, limits: Limits) -> Comparison {
        let tested: Vec<usize> = (0..rows.len()).filter(|r| rows[*r].difference.is_some()).collect();
        let raw: Vec<f64> = tested.iter().filter_map(|r| rows[*r].difference.as_ref().map(|d| d.probability)).collect();
        for (&row, adjusted) in tested.iter().zip(holm(&raw)) {
            let row = &mut rows[row];
            row.probability = Some(adjusted);
            let Some(Difference { ratio, interval, .. }) = row.difference else { continue };
            let most = 1.0 + row.limit;
            row.verdict = match () {
                // Nothing is equal to within 0.
                () if row.limit > 0.0 && interval.low * most >= 1.0 && interval.high <= most => Verdict::Equal,
                () if adjusted > ERROR => Verdict::Unclear,
                () if ratio > 1.0 => Verdict::Slower,
                () => Verdict::Faster,
            };
        }
        Comparison { limits, rows }
    }

    /// For runs on a software GPU: no time counts. A lost cell still does.
    pub fn forgive_times(&mut self) {
        for row in self.rows.iter_mut().filter(|r| !r.metric.is_empty()) {
            row.verdict = Verdict::Worked;
        }
    }

    pub fn fails(&self) -> bool {
        self.rows.iter().any(Row::fails)
    }

    /// How many figures are decided, and how many had to be.
    pub fn decided(&self) -> (u64, u64) {
        let due = || self.rows.iter().filter_map(Row::decided);
        (due().filter(|decided| *decided).count() as u64, due().count() as u64)
    }

    pub fn overall(&self) -> Overall {
        let any = |is: fn(&Row) -> bool| self.rows.iter().any(is);
        match () {
            () if any(|r| matches!(r.verdict, Verdict::Lost(_))) => Overall::Lost,
            () if self.fails() => Overall::Regression,
            () if any(|r| r.decided() == Some(false)) => Overall::Unclear,
            () if any(|r| r.verdict == Verdict::Faster) => Overall::Faster,
            () if any(|r| r.verdict == Verdict::Equal) => Overall::Equal,
            () if any(|r| r.verdict == Verdict::Worked) => Overall::Worked,
            () => Overall::Nothing,
        }
    }
}

impl fmt::Display for Overall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Overall::Lost => "lost",
            Overall::Regression => "regression",
            Overall::Unclear => "unclear",
            Overall::Faster => "faster",
            Overall::Equal => "equal",
            Overall::Worked => "worked",
            Overall::Nothing => "nothing to compare",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn key(subject: &str) -> Key {
        Key { subject: subject.into(), bytes: 64, point: "policy=stock".into() }
    }

    /// Six processes of ten rounds of 50 samples of about 1 us multiplied by `times`.
    fn measured(times: f64, seed: u64) -> Rounds {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut round = |_| -> Vec<u64> {
            (0..50).map(|_| (1e3 * times * (1.0 - 0.02 * (1.0 - random.f64()).ln())) as u64).collect()
        };
        Rounds::new(&(0..60).map(&mut round).collect::<Vec<_>>()).in_repeats_of(10)
    }

    fn one(a: Rounds, b: Rounds, figure: Figure, limit: f64) -> Row {
        let request = Request { figures: vec![figure], limits: Limits::new(limit, None) };
        let rows = compare(&key("ce0"), &Cell::Measured(a), &Cell::Measured(b), &request, |_| None);
        Comparison::of(rows, request.limits).rows.remove(0)
    }

    #[test]
    fn cells_of_one_run_are_reported_and_a_failure_in_b_fails() {
        let (run, failed, absent) =
            (Cell::Measured(measured(1.0, 1)), Cell::Failed("no bytes".into()), Cell::Absent("no route".into()));
        let request = Request { figures: vec![Figure::P50], limits: Limits::new(0.05, None) };
        let of = |a: &Cell, b: &Cell| {
            let comparison = Comparison::of(compare(&key("ce0"), a, b, &request, |_| None), request.limits);
            (comparison.rows[0].verdict.clone(), comparison.overall())
        };
        assert_eq!(of(&run, &failed), (Verdict::Lost("no bytes".into()), Overall::Lost));
        assert_eq!(of(&run, &absent), (Verdict::OnlyInA("no route".into()), Overall::Unclear));
        assert_eq!(of(&absent, &run), (Verdict::OnlyInB("no route".into()), Overall::Nothing));
        assert_eq!(of(&failed, &run), (Verdict::OnlyInB("no bytes".into()), Overall::Nothing));
        assert_eq!(of(&failed, &absent), (Verdict::InNeither("no route".into()), Overall::Nothing));
    }

    #[test]
    fn too_few_processes_or_samples_are_no_verdict() {
        let verdict = |a, b, figure| one(a, b, figure, 0.05).verdict;
        let tail = verdict(measured(1.0, 1), measured(2.0, 2), Figure::P999);
        assert_eq!(tail, Verdict::TooFew(Missing::Samples { a: 3000, b: 3000, needs: 10_000 }));
        let two = |times, seed| measured(times, seed).in_repeats_of(30);
        let few = verdict(two(1.0, 1), two(2.0, 2), Figure::P50);
        assert_eq!(few, Verdict::TooFew(Missing::Processes { a: 2, b: 2 }));
        assert_eq!(verdict(measured(1.0, 1), measured(1.0, 2), Figure::Max), Verdict::TooFew(Missing::Extreme));
        assert_eq!(verdict(measured(0.0, 1), measured(1.0, 2), Figure::P50), Verdict::TooFew(Missing::Zero));
    }

    #[test]
    fn one_process_is_held_against_what_processes_differ_by() {
        let single = |times, seed| measured(times, seed).in_repeats_of(60);
        let with = |times, between| {
            let request = Request { figures: vec![Figure::P50], limits: Limits::new(0.05, None) };
            let (a, b) = (Cell::Measured(single(1.0, 1)), Cell::Measured(single(times, 2)));
            Comparison::of(compare(&key("ce0"), &a, &b, &request, |_| between), request.limits).overall()
        };
        let known = |deviation| Some(Between { deviation, freedom: 5 });
        assert_eq!(with(1.0, None), Overall::Unclear);
        assert_eq!((with(1.0, known(0.005)), with(1.1, known(0.005))), (Overall::Equal, Overall::Regression));
        assert_eq!((with(1.1, known(0.03)), with(1.5, known(0.03))), (Overall::Unclear, Overall::Regression));
        // A baseline of six processes shows it.
        assert_eq!(one(measured(1.0, 3), single(1.0, 4), Figure::P50, 0.05).verdict, Verdict::Equal);
        assert_eq!(one(measured(1.0, 3), single(1.2, 4), Figure::P50, 0.05).verdict, Verdict::Slower);
    }

    #[test]
    fn a_limit_is_monotone_and_nothing_is_equal_to_within_none() {
        let verdict = |times, limit| one(measured(1.0, 1), measured(times, 2), Figure::P50, limit).verdict;
        assert_eq!((verdict(1.0, 0.0), verdict(1.0, 0.05)), (Verdict::Unclear, Verdict::Equal));
        let at = [0.0, 0.01, 0.03, 0.05, 0.1].map(|limit| verdict(1.04, limit));
        assert_eq!(at[0], Verdict::Slower);
        assert_eq!(at[4], Verdict::Equal);
        assert!(at.windows(2).all(|w| w[0] == Verdict::Slower || w[1] != Verdict::Slower), "{at:?}");
        assert_eq!((verdict(1.3, 0.05), verdict(0.8, 0.05)), (Verdict::Slower, Verdict::Faster));
        assert!(one(measured(1.0, 1), measured(0.8, 2), Figure::P50, 0.05).interval().unwrap().holds(0.8));
        // A tail's limit is five times that of the others.
        assert_eq!(one(measured(1.0, 1), measured(1.15, 2), Figure::P99, 0.05).verdict, Verdict::Equal);
    }

    #[test]
    fn cells_that_are_exactly_alike_are_equal() {
        let alike = || Rounds::new(&vec![vec![40u64; 50]; 12]).in_repeats_of(2);
        let row = one(alike(), alike(), Figure::P50, 0.05);
        let interval = row.difference.unwrap().interval;
        assert!(row.verdict == Verdict::Equal && interval.high - interval.low < 1e-4, "{interval:?}");
    }

    #[test]
    fn one_step_of_a_coarse_clock_is_no_slowdown() {
        // The GPU's clock in steps of 32 ns: all samples are one step or the next.
        let cell = |ns: u64| {
            let rounds: Vec<Vec<u64>> =
                (0..20).map(|_| (0..50).map(|n| ns + 32 * u64::from(n == 0)).collect()).collect();
            Rounds::new(&rounds).in_repeats_of(4)
        };
        assert_eq!(one(cell(1024), cell(1056), Figure::P50, 0.03).verdict, Verdict::Unclear);
        let row = one(cell(1024), cell(1184), Figure::P50, 0.03);
        assert_eq!(row.verdict, Verdict::Slower, "five steps: {row:?}");
    }
}
