//! The ranks of one job, by what their recordings have in all: rows that are unlike on one rank, facts that few have otherwise, and what changed
//! since the job before.
//!
//! A rank has one total of a row and no interval. So more is asked of an outlier than of a machine, whose figure has one.

use crate::Change;
use serde::{Deserialize, Serialize};
use statistics::{median, median_and_deviation};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// With fewer ranks no row is called an outlier: the median of four has two of them in it.
pub const FEWEST_RANKS: usize = 5;

/// How many robust standard deviations, which part of the median, and which part of the rank's time.
const DEVIATIONS: f64 = 6.0;
const PART_OF_MEDIAN: f64 = 0.1;
const PART_OF_TIME: f64 = 0.001;

/// Of the robust standard error of the median of the differences between two jobs.
const ERRORS: f64 = 4.0;

/// The standard error of a median over that of a mean.
const OF_MEDIAN: f64 = 1.2533;

/// Rows that are judged by their time, the most direct cause first. (A late rank makes collectives long on all others: they are no outliers.)
const TIMED: [&str; 6] = ["locks", "copies", "kernels", "calls", "outside", "waiting calls"];
const CHANGING: [&str; 7] = ["locks", "copies", "kernels", "collectives", "calls", "outside", "waiting calls"];

/// A job, and the one before, if what changed is asked for.
#[derive(Debug, Deserialize)]
pub struct Jobs {
    pub job: Job,
    pub before: Option<Job>,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct Judged {
    pub minimum_ranks: usize,
    pub outliers: Vec<Outlier>,
    pub odd: Vec<Odd>,
    pub changes: Option<Changes>,
}

/// The ranks that were read, and their rows.
#[derive(Debug, Default, Deserialize)]
pub struct Job {
    pub ranks: Vec<Rank>,
    pub rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
pub struct Rank {
    pub rank: u32,
    pub seconds: f64,
    /// What should be the same on all ranks: driver, versions.
    pub facts: BTreeMap<String, String>,
    pub counts: BTreeMap<String, u64>,
    /// Of kinds with more rows than the rank names: the ns that one of the others has at most.
    pub folded: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
pub struct Row {
    pub kind: String,
    pub name: String,
    /// By rank: how often, and ns.
    pub of: BTreeMap<u32, (u64, u64)>,
}

/// A row that is unlike on a rank.
#[derive(Debug, PartialEq, Serialize)]
pub struct Outlier {
    pub rank: u32,
    pub kind: String,
    pub name: String,
    pub ns: u64,
    pub median_ns: u64,
    pub spread_ns: u64,
    /// Above 0: more than the median.
    pub excess_ns: i64,
    pub count: u64,
    pub median_count: u64,
    pub ranks: usize,
    /// Most ranks have no such row.
    pub alone: bool,
}

/// A fact that few ranks have otherwise than most.
#[derive(Debug, PartialEq, Serialize)]
pub struct Odd {
    pub what: String,
    pub value: String,
    pub ranks: Vec<u32>,
    pub usual: String,
    pub usual_ranks: usize,
}

/// Medians over the ranks that both jobs have.
#[derive(Debug, PartialEq, Serialize)]
pub struct ChangedTime {
    pub kind: String,
    pub name: String,
    pub before_ns: i64,
    pub after_ns: i64,
    pub error_ns: i64,
    pub ranks: usize,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct Changes {
    /// The largest first.
    pub times: Vec<ChangedTime>,
    pub facts: Vec<Change>,
    /// Rows of most ranks of one job that no rank of the other has.
    pub new: Vec<String>,
    pub gone: Vec<String>,
    /// Why times are not judged.
    pub why_not: Option<String>,
}

impl Jobs {
    pub fn judged(&self) -> Judged {
        let changes = self.before.as_ref().map(|before| self.job.changes_since(before));
        Judged { minimum_ranks: FEWEST_RANKS, outliers: self.job.outliers(), odd: self.job.odd(), changes }
    }
}

impl Job {
    fn rows_of<'j>(&'j self, kind: &'j str) -> impl Iterator<Item = &'j Row> {
        self.rows.iter().filter(move |row| row.kind == kind)
    }

    /// The largest excess first.
    pub fn outliers(&self) -> Vec<Outlier> {
        if self.ranks.len() < FEWEST_RANKS {
            return Vec::new();
        }
        let rows = TIMED.iter().flat_map(|kind| self.rows_of(kind));
        let mut found: Vec<Outlier> = rows.flat_map(|row| self.outliers_of(row)).collect();
        found.sort_by_key(|one| Reverse(one.excess_ns.unsigned_abs()));
        found
    }

    fn outliers_of(&self, row: &Row) -> Vec<Outlier> {
        let of = &row.of;
        let folded = |rank: &Rank| rank.folded.get(&row.kind).copied();
        // A rank that has more rows than it names has this one for at most so long.
        let ns = |rank: &Rank| of.get(&rank.rank).map_or(folded(rank).unwrap_or(0), |(_, ns)| *ns) as f64;
        let mut counts: Vec<f64> = self.ranks.iter().map(|r| of.get(&r.rank).map_or(0, |(n, _)| *n) as f64).collect();
        let found = median_and_deviation(&self.ranks.iter().map(ns).collect::<Vec<_>>());
        let Some(((middle, deviation), usual)) = found.zip(median(&mut counts)) else { return Vec::new() };
        if of.values().all(|(_, ns)| *ns == 0) {
            return Vec::new();
        }
        let is_known = |rank: &&Rank| of.contains_key(&rank.rank) || folded(rank).is_none();
        let outlier = |rank: &Rank| {
            let excess = ns(rank) - middle;
            let floor = PART_OF_TIME * 1e9 * rank.seconds;
            let (count, own) = of.get(&rank.rank).copied().unwrap_or_default();
            is_beyond(excess, deviation, middle, floor).then(|| Outlier {
                rank: rank.rank,
                kind: row.kind.clone(),
                name: row.name.clone(),
                ns: own,
                median_ns: middle as u64,
                spread_ns: deviation as u64,
                excess_ns: excess as i64,
                count,
                median_count: usual as u64,
                ranks: self.ranks.len(),
                alone: middle == 0.0 && usual < 1.0,
            })
        };
        self.ranks.iter().filter(is_known).filter_map(outlier).collect()
    }

    /// Facts, and which kernels ran, where at most a quarter of the ranks differ from the rest; counts that are far from the median.
    pub fn odd(&self) -> Vec<Odd> {
        let mut found = Vec::new();
        if self.ranks.len() < FEWEST_RANKS {
            return found;
        }
        for what in self.ranks.iter().flat_map(|r| r.facts.keys()).collect::<BTreeSet<_>>() {
            let value = |r: &Rank| r.facts.get(what).map_or("not known", |v| v).to_owned();
            found.extend(differing(what, self.ranks.iter().map(|r| (r.rank, value(r)))));
        }
        for what in self.ranks.iter().flat_map(|r| r.counts.keys()).collect::<BTreeSet<_>>() {
            let value = |r: &Rank| r.counts.get(what).copied().unwrap_or(0);
            let values: Vec<f64> = self.ranks.iter().map(|r| value(r) as f64).collect();
            let Some((middle, deviation)) = median_and_deviation(&values) else { continue };
            let odd = self.ranks.iter().filter(|r| is_beyond(value(r) as f64 - middle, deviation, middle, 1.0));
            found.extend(odd.map(|rank| Odd {
                what: what.clone(),
                value: value(rank).to_string(),
                ranks: vec![rank.rank],
                usual: format!("{middle} (median)"),
                usual_ranks: self.ranks.len() - 1,
            }));
        }
        let named: Vec<u32> =
            self.ranks.iter().filter(|r| r.folded.get("kernels").is_none_or(|ns| *ns == 0)).map(|r| r.rank).collect();
        if named.len() >= FEWEST_RANKS {
            let mut kernels: Vec<&Row> = self.rows_of("kernels").collect();
            kernels.sort_by_key(|row| &row.name);
            for row in kernels {
                let value = |n: &u32| if row.of.contains_key(n) { "runs" } else { "does not run" };
                let values = named.iter().map(|n| (*n, value(n).to_owned()));
                found.extend(differing(&format!("kernel {}", row.name), values));
            }
        }
        found
    }

    /// Rank by rank, so that ranks which always differ do not hide it.
    pub fn changes_since(&self, before: &Job) -> Changes {
        let only = |one: &Job, other: &Job| CHANGING.iter().flat_map(|kind| one.only(other, kind)).collect();
        let mut changes = Changes {
            times: Vec::new(),
            facts: self.changed_facts(before),
            new: only(self, before),
            gone: only(before, self),
            why_not: None,
        };
        let both: Vec<&Rank> =
            self.ranks.iter().filter(|r| before.ranks.iter().any(|then| then.rank == r.rank)).collect();
        if both.len() < FEWEST_RANKS {
            let n = both.len();
            changes.why_not =
                Some(format!("the jobs have {n} ranks in common; times are judged from {FEWEST_RANKS} on"));
            return changes;
        }
        let seconds = median(&mut both.iter().map(|r| r.seconds).collect::<Vec<_>>()).unwrap_or(0.0);
        for kind in CHANGING {
            let then: BTreeMap<&str, &Row> = before.rows_of(kind).map(|row| (row.name.as_str(), row)).collect();
            let now: BTreeMap<&str, &Row> = self.rows_of(kind).map(|row| (row.name.as_str(), row)).collect();
            let in_both = now.iter().filter_map(|(name, now)| Some((*then.get(name)?, *now)));
            changes.times.extend(in_both.filter_map(|(then, now)| changed(then, now, &both)).filter(|change| {
                let apart = (change.after_ns - change.before_ns).unsigned_abs() as f64;
                let floor = (PART_OF_MEDIAN * change.before_ns as f64).max(PART_OF_TIME * 1e9 * seconds);
                apart > floor.max(ERRORS * change.error_ns as f64)
            }));
        }
        changes.times.sort_by_key(|change| Reverse((change.after_ns - change.before_ns).unsigned_abs()));
        changes
    }

    /// Rows of at least half of the ranks that no rank of the other has. Where the other has more rows than it names, that is not known.
    fn only(&self, other: &Job, kind: &str) -> Vec<String> {
        let there: BTreeSet<&str> = other.rows_of(kind).map(|row| row.name.as_str()).collect();
        if there.is_empty() || other.ranks.iter().any(|rank| rank.folded.get(kind).is_some_and(|ns| *ns > 0)) {
            return Vec::new();
        }
        let of_most = |row: &&Row| 2 * row.of.len() >= self.ranks.len() && !there.contains(row.name.as_str());
        let mut names: Vec<String> =
            self.rows_of(kind).filter(of_most).map(|row| format!("{kind}: {}", row.name)).collect();
        names.sort();
        names
    }

    fn changed_facts(&self, before: &Job) -> Vec<Change> {
        let (then, now) = (before.usual_facts(), self.usual_facts());
        let value = |of: &BTreeMap<&str, &str>, what: &str| of.get(what).map_or("not known", |v| v).to_owned();
        let all: BTreeSet<&str> = then.keys().chain(now.keys()).copied().collect();
        let changed = all.into_iter().filter(|what| then.get(what) != now.get(what));
        let mut found: Vec<Change> =
            changed.map(|what| Change { what: what.into(), a: value(&then, what), b: value(&now, what) }).collect();
        let (a, b) = (before.ranks.len().to_string(), self.ranks.len().to_string());
        found.extend((a != b).then(|| Change { what: "ranks".into(), a, b }));
        found
    }

    /// What most ranks have; of equally many the one of the first rank.
    fn usual_facts(&self) -> BTreeMap<&str, &str> {
        let mut usual: BTreeMap<&str, &str> = BTreeMap::new();
        for (what, value) in self.ranks.iter().flat_map(|r| &r.facts) {
            let count =
                |value: &str| self.ranks.iter().filter(|r| r.facts.get(what).is_some_and(|v| v == value)).count();
            let known = usual.entry(what).or_insert(value);
            if count(value) > count(known) {
                *known = value;
            }
        }
        usual
    }
}

/// Farther from the median than ranks usually are, than a part of it, and than `floor`.
fn is_beyond(excess: f64, deviation: f64, middle: f64, floor: f64) -> bool {
    excess.abs() > (DEVIATIONS * deviation).max(PART_OF_MEDIAN * middle).max(floor)
}

/// Of values that three quarters of the ranks share: the others.
fn differing(what: &str, values: impl Iterator<Item = (u32, String)>) -> Vec<Odd> {
    let mut of_value: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (rank, value) in values {
        of_value.entry(value).or_default().push(rank);
    }
    of_value.values_mut().for_each(|ranks| ranks.sort_unstable());
    let all: usize = of_value.values().map(Vec::len).sum();
    let usual = of_value.iter().find(|(_, ranks)| 4 * ranks.len() >= 3 * all);
    let Some((usual, usual_ranks)) = usual.map(|(value, ranks)| (value.clone(), ranks.len())) else {
        return Vec::new();
    };
    of_value.remove(&usual);
    let odd = |(value, ranks)| Odd { what: what.into(), value, ranks, usual: usual.clone(), usual_ranks };
    of_value.into_iter().map(odd).collect()
}

fn changed(then: &Row, now: &Row, ranks: &[&Rank]) -> Option<ChangedTime> {
    let ns = |row: &Row, rank: &Rank| row.of.get(&rank.rank).map_or(0, |(_, ns)| *ns) as f64;
    let apart: Vec<f64> = ranks.iter().map(|r| ns(now, r) - ns(then, r)).collect();
    let before = median(&mut ranks.iter().map(|r| ns(then, r)).collect::<Vec<_>>())?;
    let (more, deviation) = median_and_deviation(&apart)?;
    Some(ChangedTime {
        kind: now.kind.clone(),
        name: now.name.clone(),
        before_ns: before as i64,
        after_ns: (before + more) as i64,
        error_ns: (OF_MEDIAN * deviation / (ranks.len() as f64).sqrt()) as i64,
        ranks: ranks.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often, and ns, on a rank.
    type Has<'a> = &'a dyn Fn(u32) -> Option<(u64, u64)>;

    fn job(ranks: u32, rows: &[(&str, &str, Has<'_>)]) -> Job {
        let rank = |rank| {
            let (facts, counts, folded) = Default::default();
            Rank { rank, seconds: 10.0, facts, counts, folded }
        };
        let row = |(kind, name, of): &(&str, &str, Has<'_>)| Row {
            kind: (*kind).into(),
            name: (*name).into(),
            of: (0..ranks).filter_map(|n| Some((n, of(n)?))).collect(),
        };
        Job { ranks: (0..ranks).map(rank).collect(), rows: rows.iter().map(row).collect() }
    }

    fn named(found: &[Outlier]) -> Vec<(u32, &str, &str)> {
        found.iter().map(|one| (one.rank, one.kind.as_str(), one.name.as_str())).collect()
    }

    fn with_driver(mut job: Job, driver: impl Fn(u32) -> &'static str) -> Job {
        for rank in &mut job.ranks {
            rank.facts.insert("driver".into(), driver(rank.rank).into());
        }
        job
    }

    #[test]
    fn a_slow_lock_is_found_and_noise_is_not() {
        let mut random = fastrand::Rng::with_seed(2);
        let noise: Vec<u64> = (0..64).map(|_| 1_700_000 + random.u64(0..600_000)).collect();
        let queue = |n: u32| Some((20, if n == 9 { 80_000_000 } else { noise[n as usize] }));
        let found = job(64, &[("locks", "queue", &queue)]).outliers();
        assert_eq!(named(&found), [(9, "locks", "queue")]);
        assert_eq!((found[0].ranks, found[0].ns, found[0].median_count), (64, 80_000_000, 20));
        assert_eq!(found[0].excess_ns, 80_000_000 - found[0].median_ns as i64);
    }

    #[test]
    fn many_bad_ranks_do_not_hide_one_another_and_four_are_not_judged() {
        let queue = |n| Some((20, if n < 20 { 80_000_000 } else { 2_000_000 }));
        assert_eq!(job(64, &[("locks", "queue", &queue)]).outliers().len(), 20);
        let one = |n| Some((1, if n == 3 { 1_000_000_000 } else { 1 }));
        assert!(job(4, &[("locks", "queue", &one)]).outliers().is_empty());
    }

    #[test]
    fn a_row_that_a_rank_does_not_name_has_at_most_what_its_last_row_has() {
        let below = |most: u32| move |n: u32| (n < most).then_some((1, 5_000_000_000));
        assert!(
            job(12, &[("kernels", "gemm", &below(6))]).outliers().is_empty(),
            "half of the ranks: none is the usual"
        );
        let mut all = job(12, &[("kernels", "gemm", &below(11))]);
        assert_eq!(named(&all.outliers()), [(11, "kernels", "gemm")]);
        all.ranks[11].folded.insert("kernels".into(), 4_900_000_000);
        assert!(all.outliers().is_empty());
    }

    #[test]
    fn another_driver_another_kernel_and_another_count_are_named() {
        let (every, fourth) = (|_| Some((1, 0)), |n| (n == 4).then_some((1, 0)));
        let of = |driver: fn(u32) -> &'static str| {
            with_driver(job(16, &[("kernels", "gemm", &every), ("kernels", "odd", &fourth)]), driver)
        };
        let what =
            |odd: &[Odd]| odd.iter().map(|o| (o.what.clone(), o.value.clone(), o.ranks.clone())).collect::<Vec<_>>();
        let mut all = of(|n| if n == 12 { "570.10" } else { "580.95" });
        let kernel = || ("kernel odd".to_owned(), "runs".to_owned(), vec![4]);
        assert_eq!(what(&all.odd()), [("driver".into(), "570.10".into(), vec![12]), kernel()]);
        all.ranks.iter_mut().for_each(|r| _ = r.counts.insert("launches".into(), if r.rank == 1 { 16 } else { 4 }));
        let odd = all.odd();
        assert_eq!((odd[1].what.as_str(), odd[1].usual.as_str(), odd[1].usual_ranks), ("launches", "4 (median)", 15));
        let half = of(|n| if n % 2 == 1 { "570.10" } else { "580.95" });
        assert_eq!(what(&half.odd()), [kernel()], "half and half: none is odd");
    }

    #[test]
    fn what_every_rank_has_more_of_is_a_change_and_ranks_that_always_differ_are_none() {
        let of = |more: u64| move |n: u32| Some((10, (u64::from(n) + 1) * 100_000_000 + more));
        let (same, new) = (|n: u32| Some((1, u64::from(n) * 100_000_000)), |_| Some((1, 1)));
        let before = job(16, &[("kernels", "gemm", &of(0)), ("kernels", "same", &same)]);
        let after =
            job(16, &[("kernels", "gemm", &of(300_000_000)), ("kernels", "same", &same), ("kernels", "new", &new)]);
        let found = after.changes_since(&before);
        let times: Vec<_> = found.times.iter().map(|c| (c.name.as_str(), c.after_ns - c.before_ns)).collect();
        assert_eq!(times, [("gemm", 300_000_000)]);
        assert_eq!((found.new, found.gone, found.why_not), (vec!["kernels: new".to_owned()], vec![], None));
    }

    #[test]
    fn facts_and_the_number_of_ranks_change() {
        let (before, after) = (with_driver(job(8, &[]), |_| "570.10"), with_driver(job(6, &[]), |_| "580.95"));
        let change = |what: &str, a: &str, b: &str| Change { what: what.into(), a: a.into(), b: b.into() };
        let facts = [change("driver", "570.10", "580.95"), change("ranks", "8", "6")];
        assert_eq!(after.changes_since(&before).facts, facts);
        let few = job(4, &[]).changes_since(&job(4, &[]));
        assert!(few.why_not.is_some_and(|why| why.contains("from 5 on")));
    }
}
