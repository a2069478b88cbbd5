//! Two runs, cell by cell.

use crate::family::ERROR;
use crate::speeds::{DEVIATIONS, Same, least_share, spread};
use crate::{Conditions, Difference, LEAST_APART, Missing, Side, Speeds, holm};
use serde::{Deserialize, Serialize};
use statistics::{Figure, Interval, Rounds};
use std::borrow::Cow;
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

/// One cell of one run.
#[derive(Clone, Debug)]
pub struct Cell {
    pub rounds: Rounds,
    pub conditions: Conditions,
    /// The baseline's median in each round, if the experiment names a baseline and this cell is another one.
    pub baseline: Option<Vec<Option<f64>>>,
}

impl Cell {
    /// Without a baseline, under unknown conditions.
    pub fn of(rounds: Rounds) -> Cell {
        Cell { rounds, conditions: Conditions::default(), baseline: None }
    }
}

/// A cell's content in one run.
#[derive(Clone, Debug)]
pub enum Run {
    Measured(Box<Cell>),
    /// The cell is in the run, but has no samples.
    Failed(String),
    /// It does not exist on that machine, or the experiment has no such cell.
    Absent(String),
}

/// The options of a comparison.
#[derive(Clone, Debug)]
pub struct Request {
    pub figures: Vec<Figure>,
    /// A slowdown by less than this part does not fail.
    pub fail_above: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No difference is certain, and a slowdown by `fail_above` is ruled out: the interval ends below that.
    Equal,
    /// No difference is certain, and a slowdown by `fail_above` is not ruled out; or one run had more rounds of one speed.
    Unclear,
    Slower,
    Faster,
    TooFew(Missing),
    OnlyInA(String),
    OnlyInB(String),
    InNeither(String),
    /// Measured in A, and failed in B.
    Lost(String),
}

/// One figure of one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub cell: Key,
    pub metric: String,
    pub a: Option<f64>,
    pub b: Option<f64>,
    /// The ratio is of the multiples of the baseline.
    pub beside_baseline: bool,
    pub difference: Option<Difference>,
    /// A speed of which one run had more rounds than chance allows: the verdict is then `slower`, or unclear.
    pub speeds: Option<Speeds>,
    /// A slowdown by `fail_above` in a smaller part of B's rounds would not be found.
    pub least_share: Option<f64>,
    /// Adjusted for the number of tests.
    pub probability: Option<f64>,
    pub verdict: Verdict,
    /// It is certainly slower, and the interval includes a slowdown by `fail_above` or more; or it is lost.
    pub fails: bool,
    pub notes: Vec<String>,
}

impl Row {
    pub fn interval(&self) -> Option<Interval<f64>> {
        self.difference.as_ref().map(|d| d.interval)
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
    pub fail_above: f64,
    pub tests: u32,
    pub rows: Vec<Row>,
}

/// The ratio of one cell in both runs, figure by figure. Verdicts of slower and faster are those of [`Comparison::of`].
pub fn compare(cell: &Key, a: &Run, b: &Run, request: &Request) -> Vec<Row> {
    let (a, b) = match (a, b) {
        (Run::Measured(a), Run::Measured(b)) => (a, b),
        (a, b) => return vec![unmeasured(cell, a, b)],
    };
    let alone = Pair::alone(a, b);
    let beside = Pair::beside_baseline(a, b);
    let moved = Pair::baselines(a, b).and_then(|baselines| baselines.moved());
    let row = |figure: &Figure| {
        let (difference, pair) = match (&beside, moved) {
            (None, _) => (alone.judged(*figure), &alone),
            (Some(beside), None) => (beside.judged(*figure), beside),
            (Some(beside), Some(_)) => {
                let size = |d: &Result<Difference, Missing>| d.as_ref().map_or(f64::INFINITY, |d| d.ratio.ln().abs());
                let (first, second) = (beside.judged(*figure), alone.judged(*figure));
                if size(&first) <= size(&second) { (first, beside) } else { (second, &alone) }
            }
        };
        let speeds = pair.speeds;
        let mut notes: Vec<String> = speeds.iter().map(said).collect();
        notes.extend(moved.map(|ratio| {
            format!("the baseline is {ratio:.3} times as slow in B: the smaller of two changes is used: relative to the baseline, and absolute")
        }));
        Row {
            cell: cell.clone(),
            metric: figure.to_string(),
            a: a.rounds.figure(*figure),
            b: b.rounds.figure(*figure),
            beside_baseline: beside.as_ref().is_some_and(|beside| std::ptr::eq(beside, pair)),
            least_share: difference.as_ref().ok().map(|d| pair.least_share(d, request.fail_above)),
            probability: None,
            verdict: difference.as_ref().err().map_or(Verdict::Equal, |m| Verdict::TooFew(*m)),
            difference: difference.ok(),
            speeds,
            fails: false,
            notes,
        }
    };
    request.figures.iter().map(row).collect()
}

/// Rounds of both runs, as compared.
struct Pair<'a> {
    rounds: (Cow<'a, Rounds>, Cow<'a, Rounds>),
    /// Medians of the rounds, before speeds were divided out.
    medians: (Vec<Option<f64>>, Vec<Option<f64>>),
    speeds: Option<Speeds>,
    resolution: (f64, f64),
    sample_ns: (f64, f64),
    conditions: (Conditions, Conditions),
}

impl<'a> Pair<'a> {
    fn new(a: &'a Cell, b: &'a Cell, rounds: (Cow<'a, Rounds>, Cow<'a, Rounds>)) -> Pair<'a> {
        let median = |cell: &Cell| cell.rounds.figure(Figure::P50).unwrap_or(0.0);
        let medians = (rounds.0.each(Figure::P50), rounds.1.each(Figure::P50));
        let both = (medians.0.as_slice(), medians.1.as_slice());
        // The baseline shows the speed of the host, even if the cell failed.
        let host = a.baseline.as_deref().zip(b.baseline.as_deref());
        let same = host.and_then(|host| Same::of(host, both)).or_else(|| Same::of(both, both));
        let speeds = if same.is_some() { None } else { Speeds::changed(&medians.0, &medians.1) };
        let rounds = match same {
            Some(by) => (Cow::Owned(rounds.0.divided(&by.a, FINER)), Cow::Owned(rounds.1.divided(&by.b, FINER))),
            None => rounds,
        };
        Pair {
            rounds,
            medians,
            speeds,
            resolution: (a.rounds.resolution(), b.rounds.resolution()),
            sample_ns: (median(a), median(b)),
            conditions: (a.conditions, b.conditions),
        }
    }

    fn alone(a: &'a Cell, b: &'a Cell) -> Pair<'a> {
        Pair::new(a, b, (Cow::Borrowed(&a.rounds), Cow::Borrowed(&b.rounds)))
    }

    fn beside_baseline(a: &'a Cell, b: &'a Cell) -> Option<Pair<'a>> {
        let divided = |cell: &Cell| Some(Cow::Owned(cell.rounds.divided(cell.baseline.as_ref()?, UNIT)));
        Some(Pair::new(a, b, (divided(a)?, divided(b)?)))
    }

    /// The medians of the baseline itself.
    fn baselines(a: &'a Cell, b: &'a Cell) -> Option<Pair<'a>> {
        let medians = |cell: &Cell| {
            let each = |m: &Option<f64>| m.map(|m| vec![m as u64]).unwrap_or_default();
            let medians: Vec<Vec<u64>> = cell.baseline.as_ref()?.iter().map(each).collect();
            Some(Cow::Owned(Rounds::new(&medians).in_repeats(|r| cell.rounds.repeat(r))))
        };
        Some(Pair::new(a, b, (medians(a)?, medians(b)?)))
    }

    fn judged(&self, figure: Figure) -> Result<Difference, Missing> {
        let (resolution, sample_ns, conditions) = (self.resolution, self.sample_ns, self.conditions);
        let a =
            Side { rounds: &self.rounds.0, resolution: resolution.0, sample_ns: sample_ns.0, conditions: conditions.0 };
        let b =
            Side { rounds: &self.rounds.1, resolution: resolution.1, sample_ns: sample_ns.1, conditions: conditions.1 };
        Difference::of(a, b, figure)
    }

    /// The smallest part of B's rounds in which a slowdown by `fail_above` is found: as a separate speed if rounds hardly differ, else if it moves
    /// the figure out of its interval.
    fn least_share(&self, difference: &Difference, fail_above: f64) -> f64 {
        let (a, b) = &self.medians;
        let change = fail_above.ln_1p();
        if DEVIATIONS * spread(a).max(spread(b)) < change && change >= LEAST_APART.ln() {
            let count = |medians: &[Option<f64>]| medians.iter().flatten().count();
            return least_share(count(a), count(b));
        }
        let half = (difference.interval.high / difference.ratio).ln();
        if change > 0.0 { (half / change).min(1.0) } else { 1.0 }
    }

    /// How many times as slow the baseline is in B, if that is certain.
    ///
    /// A driver whose copies became faster makes all others slower relative to them, and a host that is slow throughout makes the baseline slow.
    /// The two cases look the same. So a cell is slower only if it is slower both relative to the baseline and by itself.
    fn moved(&self) -> Option<f64> {
        let difference = self.judged(Figure::P50).ok()?;
        (difference.probability <= ERROR).then_some(difference.ratio)
    }
}

/// Samples relative to a baseline are whole millionths of its median.
const UNIT: f64 = 1e6;

/// Samples whose speed is divided out are whole thousandths of their original values.
const FINER: f64 = 1e3;

fn unmeasured(cell: &Key, a: &Run, b: &Run) -> Row {
    let verdict = match (a, b) {
        (Run::Measured(_), Run::Failed(why)) => Verdict::Lost(why.clone()),
        (Run::Measured(_), Run::Absent(why)) => Verdict::OnlyInA(why.clone()),
        (Run::Failed(why) | Run::Absent(why), Run::Measured(_)) => Verdict::OnlyInB(why.clone()),
        (_, Run::Failed(why) | Run::Absent(why)) => Verdict::InNeither(why.clone()),
        (Run::Measured(_), Run::Measured(_)) => Verdict::Equal,
    };
    let fails = matches!(verdict, Verdict::Lost(_));
    Row {
        cell: cell.clone(),
        metric: String::new(),
        a: None,
        b: None,
        beside_baseline: false,
        difference: None,
        speeds: None,
        least_share: None,
        probability: None,
        verdict,
        fails,
        notes: vec![],
    }
}

fn said(speeds: &Speeds) -> String {
    let Speeds { times, share_a, share_b } = speeds;
    let (far, way) = ((times - 1.0).abs() * 100.0, if *times > 1.0 { "slower" } else { "faster" });
    let of = |share: &f64| share * 100.0;
    format!(
        "{:.0} % of the rounds of A and {:.0} % of those of B were {far:.0} % {way} than the others: a host that changes its speed, or a \
         change that slows some rounds",
        of(share_a),
        of(share_b)
    )
}

impl Comparison {
    /// Decides, for all rows together.
    pub fn of(mut rows: Vec<Row>, fail_above: f64) -> Comparison {
        let tested: Vec<usize> = (0..rows.len()).filter(|r| rows[*r].difference.is_some()).collect();
        let raw: Vec<f64> = tested.iter().filter_map(|r| rows[*r].difference.as_ref().map(|d| d.probability)).collect();
        for (&row, adjusted) in tested.iter().zip(holm(&raw)) {
            let row = &mut rows[row];
            row.probability = Some(adjusted);
            let Some(difference) = &row.difference else { continue };
            let reaches = difference.interval.high >= 1.0 + fail_above;
            row.verdict = match difference.ratio {
                // A slowdown by 0 cannot be ruled out, so a limit of 0 counts as equal here.
                _ if adjusted > ERROR && reaches && fail_above > 0.0 => Verdict::Unclear,
                _ if adjusted > ERROR => Verdict::Equal,
                ratio if ratio > 1.0 => Verdict::Slower,
                _ => Verdict::Faster,
            };
            row.fails = row.verdict == Verdict::Slower && reaches;
            if row.speeds.is_some() && row.verdict != Verdict::Slower {
                row.verdict = Verdict::Unclear;
            }
        }
        Comparison { fail_above, tests: tested.len() as u32, rows }
    }

    /// No time fails, however slow, because these are not times of a GPU. A lost cell still fails.
    pub fn forgive_times(&mut self) {
        self.rows.iter_mut().for_each(|r| r.fails = matches!(r.verdict, Verdict::Lost(_)));
    }

    pub fn fails(&self) -> bool {
        self.rows.iter().any(|r| r.fails)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(subject: &str) -> Key {
        Key { subject: subject.into(), bytes: 64, point: "policy=stock".into() }
    }

    /// `rounds` rounds of 100 samples of about 1 us multiplied by `times`, in up to six repeats.
    fn measured(rounds: usize, times: f64, seed: u64) -> Run {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut round =
            |_| -> Vec<u64> { (0..100).map(|_| (1e3 * times * (1.0 + 0.05 * random.f64())) as u64).collect() };
        let all: Vec<_> = (0..rounds).map(&mut round).collect();
        Run::Measured(Box::new(Cell::of(Rounds::new(&all).in_repeats_of(rounds.div_ceil(6)))))
    }

    fn request(figure: Figure) -> Request {
        Request { figures: vec![figure], fail_above: 0.05 }
    }

    fn one(a: &Run, b: &Run, figure: Figure) -> Row {
        Comparison::of(compare(&key("ce0"), a, b, &request(figure)), 0.05).rows.remove(0)
    }

    #[test]
    fn cells_of_one_run_are_reported_and_a_failure_in_b_fails() {
        let (run, failed, absent) =
            (measured(10, 1.0, 1), Run::Failed("no bytes".into()), Run::Absent("no route".into()));
        let verdict = |a, b| {
            let row = one(a, b, Figure::P50);
            (row.verdict, row.fails)
        };
        assert_eq!(verdict(&run, &failed), (Verdict::Lost("no bytes".into()), true));
        assert_eq!(verdict(&run, &absent), (Verdict::OnlyInA("no route".into()), false));
        assert_eq!(verdict(&absent, &run), (Verdict::OnlyInB("no route".into()), false));
        assert_eq!(verdict(&failed, &run), (Verdict::OnlyInB("no bytes".into()), false));
        assert_eq!(verdict(&failed, &absent), (Verdict::InNeither("no route".into()), false));
    }

    #[test]
    fn too_few_rounds_or_samples_are_no_verdict() {
        let few = one(&measured(5, 1.0, 1), &measured(10, 2.0, 2), Figure::P50);
        assert_eq!(few.verdict, Verdict::TooFew(Missing::Rounds { a: 5, b: 10 }));
        let tail = one(&measured(10, 1.0, 1), &measured(10, 2.0, 2), Figure::P999);
        assert_eq!(tail.verdict, Verdict::TooFew(Missing::Samples { a: 1000, b: 1000, needs: 10_000 }));
        assert_eq!(
            one(&measured(9, 1.0, 1), &measured(9, 1.0, 2), Figure::Max).verdict,
            Verdict::TooFew(Missing::Extreme)
        );
        assert_eq!(
            one(&measured(9, 0.0, 1), &measured(9, 1.0, 2), Figure::P50).verdict,
            Verdict::TooFew(Missing::Zero)
        );
    }

    #[test]
    fn a_certain_slowdown_below_the_bound_does_not_fail() {
        let rows = compare(&key("ce0"), &measured(20, 1.0, 1), &measured(20, 1.04, 2), &request(Figure::P50));
        let row = Comparison::of(rows, 0.1).rows.remove(0);
        assert_eq!((&row.verdict, row.fails), (&Verdict::Slower, false), "{row:?}");
        let row = one(&measured(20, 1.0, 1), &measured(20, 1.3, 2), Figure::P50);
        assert_eq!((&row.verdict, row.fails), (&Verdict::Slower, true));
        let row = one(&measured(20, 1.0, 1), &measured(20, 0.8, 2), Figure::P50);
        assert_eq!((&row.verdict, row.fails), (&Verdict::Faster, false));
        assert!(row.interval().unwrap().holds(0.8));
    }

    /// 60 rounds in six repeats whose medians vary by 1 %; this part of them takes so many times as long.
    fn planted(part: f64, times: f64, random: &mut fastrand::Rng) -> Run {
        let mut order: Vec<usize> = (0..60).collect();
        random.shuffle(&mut order);
        let slow = &order[..(60.0 * part).round() as usize];
        let mut round = |r: usize| -> Vec<u64> {
            let normal = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
            let level = 1e5 * (0.01 * normal).exp() * if slow.contains(&r) { times } else { 1.0 };
            (0..20).map(|_| (level * (1.0 + 0.05 * random.f64())) as u64).collect()
        };
        let all: Vec<_> = (0..60).map(&mut round).collect();
        Run::Measured(Box::new(Cell::of(Rounds::new(&all).in_repeats_of(10))))
    }

    #[test]
    fn a_part_of_slow_rounds_is_never_equal_or_faster() {
        let mut random = fastrand::Rng::with_seed(9);
        for (part_a, part_b, times) in
            [(0.0, 0.1, 1.08), (0.0, 0.8, 1.08), (0.0, 0.9, 1.3), (0.25, 0.75, 1.15), (0.75, 0.25, 1.15)]
        {
            let mut verdicts = |_| {
                one(&planted(part_a, times, &mut random), &planted(part_b, times, &mut random), Figure::P50).verdict
            };
            let verdicts: Vec<Verdict> = (0..100).map(&mut verdicts).collect();
            let wrong = verdicts.iter().filter(|v| matches!(v, Verdict::Equal | Verdict::Faster)).count();
            assert!(wrong <= 1, "{part_a} {part_b} {times}: {wrong} of 100");
        }
        let mut equal = |_: &usize| {
            one(&planted(0.0, 1.0, &mut random), &planted(0.0, 1.0, &mut random), Figure::P50).verdict == Verdict::Equal
        };
        let equal = (0..100).filter(&mut equal).count();
        assert!(equal >= 95, "{equal} of 100");
    }

    #[test]
    fn cells_that_are_exactly_alike_are_equal() {
        let alike = || {
            let rounds = Rounds::new(&vec![vec![40u64; 50]; 12]);
            Run::Measured(Box::new(Cell::of(rounds)))
        };
        let row = one(&alike(), &alike(), Figure::P50);
        assert_eq!((row.verdict, row.difference.unwrap().ratio), (Verdict::Equal, 1.0));
    }

    #[test]
    fn cells_that_rounds_cannot_distinguish_are_not_called_equal() {
        // Rounds up to 60 % apart: a slowdown by 5 % is neither certain nor ruled out.
        let wild = |seed: u64| {
            let mut random = fastrand::Rng::with_seed(seed);
            let all: Vec<Vec<u64>> = (0..12)
                .map(|_| {
                    let speed = 1e3 * (1.0 + 0.6 * random.f64());
                    (0..100).map(|_| (speed * (1.0 + 0.05 * random.f64())) as u64).collect()
                })
                .collect();
            Run::Measured(Box::new(Cell::of(Rounds::new(&all))))
        };
        let row = one(&wild(1), &wild(2), Figure::P50);
        assert_eq!((&row.verdict, row.fails), (&Verdict::Unclear, false), "{row:?}");
    }

    #[test]
    fn one_step_of_a_coarse_clock_is_no_slowdown() {
        // The GPU's clock in steps of 32 ns: all samples are one step or the next.
        let cell = |ns: u64| {
            let rounds: Vec<Vec<u64>> =
                (0..20).map(|_| (0..50).map(|n| ns + 32 * u64::from(n == 0)).collect()).collect();
            Run::Measured(Box::new(Cell::of(Rounds::new(&rounds))))
        };
        let row = one(&cell(1024), &cell(1056), Figure::P50);
        assert_eq!(row.verdict, Verdict::Unclear, "{row:?}");
        let row = one(&cell(1024), &cell(1184), Figure::P50);
        assert_eq!(row.verdict, Verdict::Slower, "five steps: {row:?}");
    }

    #[test]
    fn a_host_at_another_speed_does_not_matter_relative_to_a_baseline() {
        let with = |speed: f64, times: f64, seed| {
            let (Run::Measured(cell), Run::Measured(other)) =
                (measured(20, speed * times, seed), measured(20, speed, seed + 9))
            else {
                unreachable!()
            };
            Run::Measured(Box::new(Cell { baseline: Some(other.rounds.each(Figure::P50)), ..*cell }))
        };
        // A ran at one speed only, B at the other.
        assert_eq!(one(&with(1.0, 3.0, 1), &with(1.15, 3.0, 2), Figure::P50).verdict, Verdict::Equal);
        let row = one(&with(1.0, 3.0, 1), &with(1.15, 3.3, 2), Figure::P50);
        assert!(row.verdict == Verdict::Slower && row.interval().unwrap().holds(1.1), "{row:?}");
        // The baseline became faster by itself: that makes no cell slower.
        let (Run::Measured(cell), Run::Measured(faster)) = (measured(20, 3.0, 5), measured(20, 0.8, 6)) else {
            unreachable!()
        };
        let beside_faster = Run::Measured(Box::new(Cell { baseline: Some(faster.rounds.each(Figure::P50)), ..*cell }));
        let row = one(&with(1.0, 3.0, 1), &beside_faster, Figure::P50);
        assert!(row.verdict == Verdict::Equal && row.notes[0].contains("times as slow in B"), "{row:?}");
        // Without it the case would look like a slowdown.
        assert_eq!(one(&measured(20, 1.0, 1), &measured(20, 1.15, 2), Figure::P50).verdict, Verdict::Slower);
    }

    #[test]
    #[ignore = "3 s; run by .ci/run"]
    fn of_many_equal_cells_hardly_ever_one_is_called_different() {
        // 40 equal cells in 100 comparisons: without an adjustment a third of them would call one.
        let different = |run: u64| {
            let cell = |n: u64| {
                let seed = run * 1000 + n * 2;
                compare(
                    &key(&n.to_string()),
                    &measured(12, 1.0, seed),
                    &measured(12, 1.0, seed + 1),
                    &request(Figure::P50),
                )
            };
            let comparison = Comparison::of((0..40).flat_map(cell).collect(), 0.05);
            assert_eq!(comparison.tests, 40);
            comparison.rows.iter().any(|r| matches!(r.verdict, Verdict::Slower | Verdict::Faster))
        };
        let each = |part: u64| (part..100).step_by(2).filter(|run| different(*run)).count();
        let wrong: usize = std::thread::scope(|scope| {
            let parts = [0, 1].map(|part| scope.spawn(move || each(part)));
            parts.map(|part| part.join().unwrap()).into_iter().sum()
        });
        assert!(wrong <= 5, "{wrong} of 100");
    }
}
