//! Many machines that ran the same experiment: which of them is an outlier.

use crate::Key;
use serde::{Deserialize, Serialize};
use statistics::distribution::student_quantile;
use statistics::{Figure, Interval, Rounds, median_and_deviation};

/// With fewer machines, the outlier cannot be identified.
pub const FEWEST_MACHINES: usize = 4;

/// A machine is an outlier beyond this many robust standard deviations from the median: of 100 machines with normal figures, 0.05 are.
const DEVIATIONS: f64 = 3.5;

/// One machine's samples of a cell.
#[derive(Clone, Debug)]
pub struct Machine<'a> {
    pub name: &'a str,
    pub rounds: &'a Rounds,
}

/// A cell's figure on all machines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machines {
    pub cell: Key,
    pub metric: String,
    pub median: f64,
    /// One robust standard deviation as a factor; 1 if all machines are equal.
    pub spread: f64,
    /// The slowest first.
    pub standings: Vec<Standing>,
    /// Machines without the figure.
    pub without: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    pub machine: String,
    pub value: f64,
    pub interval: Option<Interval<f64>>,
    /// Relative to the median of the machines.
    pub ratio: f64,
    /// Even the nearer end of its interval is beyond the others, by more than the limit.
    pub outlier: bool,
}

/// `None` with fewer than [`FEWEST_MACHINES`] machines that have the figure. An outlier differs by at least the part `least`.
pub fn compare_machines(cell: &Key, machines: &[Machine<'_>], figure: Figure, least: f64) -> Option<Machines> {
    let value = |m: &Machine<'_>| m.rounds.figure(figure).filter(|v| *v > 0.0);
    let (with, without): (Vec<_>, Vec<_>) = machines.iter().partition(|m| value(m).is_some());
    if with.len() < FEWEST_MACHINES {
        return None;
    }
    let logs: Vec<f64> = with.iter().filter_map(|m| value(m)).map(f64::ln).collect();
    let (centre, deviation) = median_and_deviation(&logs)?;
    // With few machines the deviation itself is uncertain: use as many more deviations as Student's t requires.
    let reach = student_quantile(TAIL, with.len() as u32 - 1).abs().max(DEVIATIONS) * deviation;
    let beyond = reach.max((1.0 + least).ln());
    let mut standings: Vec<Standing> = with
        .iter()
        .zip(&logs)
        .map(|(machine, log)| {
            let interval = machine.rounds.interval(figure, statistics::CONFIDENCE);
            // Without an interval it may be as fast as the others.
            let (low, high) = interval.map_or((f64::NEG_INFINITY, f64::INFINITY), |i| (i.low.ln(), i.high.ln()));
            Standing {
                machine: machine.name.to_owned(),
                value: log.exp(),
                interval,
                ratio: (log - centre).exp(),
                outlier: low - centre > beyond || centre - high > beyond,
            }
        })
        .collect();
    standings.sort_by(|a, b| b.value.total_cmp(&a.value));
    Some(Machines {
        cell: cell.clone(),
        metric: figure.to_string(),
        median: centre.exp(),
        spread: deviation.exp(),
        standings,
        without: without.iter().map(|m| m.name.to_owned()).collect(),
    })
}

/// The part of a normal distribution below -[`DEVIATIONS`].
const TAIL: f64 = 2.326e-4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Machines a percent or so apart; one of them is `times` as slow.
    fn machines(count: usize, odd: usize, times: f64, noise: f64, rounds: usize, seed: u64) -> Vec<(String, Rounds)> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut machine = |n: usize| {
            let own = 1e4 * (1.0 + 0.01 * (random.f64() - 0.5)) * if n == odd { times } else { 1.0 };
            let round = |random: &mut fastrand::Rng| {
                let speed = own * (1.0 + noise * (random.f64() - 0.5));
                (0..50).map(|_| (speed * (1.0 + 0.1 * random.f64())) as u64).collect::<Vec<_>>()
            };
            let all: Vec<_> = (0..rounds).map(|_| round(&mut random)).collect();
            (format!("node{n}"), Rounds::new(&all).in_repeats_of(rounds.div_ceil(6)))
        };
        (0..count).map(&mut machine).collect()
    }

    fn outliers(all: &[(String, Rounds)]) -> Vec<String> {
        let key = Key { subject: "ce0".into(), bytes: 8, point: String::new() };
        let machines: Vec<_> = all.iter().map(|(name, rounds)| Machine { name, rounds }).collect();
        let found = compare_machines(&key, &machines, Figure::P50, 0.02).unwrap();
        found.standings.into_iter().filter(|s| s.outlier).map(|s| s.machine).collect()
    }

    #[test]
    fn the_odd_machine_is_named_and_no_other() {
        let mut wrong = 0;
        for seed in 0..50 {
            let found = outliers(&machines(8, 3, 1.1, 0.01, 12, seed));
            wrong += usize::from(found != ["node3"]);
            wrong += usize::from(outliers(&machines(8, 3, 0.9, 0.01, 12, seed)) != ["node3"]);
            wrong += usize::from(!outliers(&machines(8, 3, 1.0, 0.01, 12, seed)).is_empty());
        }
        assert!(wrong <= 5, "{wrong} of 150");
    }

    #[test]
    fn a_machine_that_may_be_as_fast_as_the_others_is_none() {
        // Its rounds are up to 60 % apart: 6 of them show little about its level.
        let mut all = machines(8, 8, 1.0, 0.01, 12, 1);
        all[5].1 = machines(1, 0, 1.15, 0.6, 6, 5).remove(0).1;
        assert_eq!(outliers(&all), Vec::<String>::new());
        all[5].1 = machines(1, 0, 1.15, 0.01, 6, 5).remove(0).1;
        assert_eq!(outliers(&all), ["node5"]);
    }

    #[test]
    fn of_three_machines_none_is_the_odd_one() {
        let all = machines(3, 0, 2.0, 0.01, 12, 1);
        let machines: Vec<_> = all.iter().map(|(name, rounds)| Machine { name, rounds }).collect();
        let key = Key { subject: "ce0".into(), bytes: 8, point: String::new() };
        assert_eq!(compare_machines(&key, &machines, Figure::P50, 0.02), None);
    }

    #[test]
    fn machines_without_the_figure_are_listed() {
        let mut all = machines(5, 9, 1.0, 0.01, 12, 1);
        all[1].1 = Rounds::new(&[[]; 3] as &[[u64; 0]]);
        let machines: Vec<_> = all.iter().map(|(name, rounds)| Machine { name, rounds }).collect();
        let key = Key { subject: "ce0".into(), bytes: 8, point: String::new() };
        let found = compare_machines(&key, &machines, Figure::P50, 0.02).unwrap();
        assert_eq!((found.without, found.standings.len()), (vec!["node1".to_owned()], 4));
        assert!(found.standings.windows(2).all(|w| w[0].value >= w[1].value));
    }
}
