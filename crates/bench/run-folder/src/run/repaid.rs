//! After how many transfers a one-time cost is repaid.

use super::CellOfRun;
use experiment::{Experiment, Repay};
use serde::{Deserialize, Serialize};

/// One question of the experiment at one size in one stage. A time is missing if one of its subjects has none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repaid {
    /// Index of the experiment's question, from 0.
    pub repay: u32,
    pub stage: u32,
    pub bytes: u64,
    pub once_ns: Option<u64>,
    pub each_ns: Option<u64>,
    pub against_ns: Option<u64>,
    pub after: After,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum After {
    /// After this many transfers.
    Transfers(u64),
    /// A transfer takes at least as long as otherwise.
    Never,
    Unknown,
}

impl After {
    /// The smallest number of transfers for which `once + n * each <= n * against`.
    fn of(once: u64, each: u64, against: u64) -> After {
        match against.checked_sub(each).filter(|saved| *saved > 0) {
            Some(saved) => After::Transfers(once.div_ceil(saved)),
            None => After::Never,
        }
    }
}

/// All questions, at each size at which one of their subjects should be measured.
pub(super) fn all(experiment: &Experiment, cells: &[CellOfRun]) -> Vec<Repaid> {
    let mut all = Vec::new();
    for (number, repay) in (0u32..).zip(&experiment.repays) {
        for at in places(repay, cells) {
            let sum = |names: &[String]| names.iter().map(|name| p50(cells, at, name)).sum::<Option<u64>>();
            let (once_ns, each_ns, against_ns) = (sum(&repay.once), sum(&repay.each), sum(&repay.against));
            let after = match (once_ns, each_ns, against_ns) {
                (Some(once), Some(each), Some(against)) => After::of(once, each, against),
                _ => After::Unknown,
            };
            all.push(Repaid { repay: number, stage: at.0, bytes: at.1, once_ns, each_ns, against_ns, after });
        }
    }
    all
}

/// Stages and sizes, in the order of the cells.
fn places(repay: &Repay, cells: &[CellOfRun]) -> Vec<(u32, u64)> {
    let mut places = Vec::new();
    let names = [&repay.once, &repay.each, &repay.against];
    for cell in cells.iter().filter(|cell| names.iter().any(|names| names.contains(&cell.subject))) {
        let at = (cell.stage, cell.bytes);
        if !places.contains(&at) {
            places.push(at);
        }
    }
    places
}

/// The p50 of all its samples, by nearest rank: one of them.
fn p50(cells: &[CellOfRun], (stage, bytes): (u32, u64), name: &str) -> Option<u64> {
    let cell = cells.iter().find(|cell| cell.stage == stage && cell.bytes == bytes && cell.subject == name)?;
    Some(cell.observed()?.summary.p50)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_repaid_when_the_sums_are_equal_and_never_without_a_saving() {
        for (once, each, against, after) in [
            (100, 10, 20, After::Transfers(10)),
            (101, 10, 20, After::Transfers(11)),
            (1, 10, 20, After::Transfers(1)),
            (0, 10, 20, After::Transfers(0)),
            (u64::MAX, 0, 1, After::Transfers(u64::MAX)),
            (100, 20, 20, After::Never),
            (0, 21, 20, After::Never),
        ] {
            assert_eq!(After::of(once, each, against), after, "{once} once, {each} against {against}");
            if let After::Transfers(n) = after {
                let (once, each, against) = (u128::from(once), u128::from(each), u128::from(against));
                let pays = |n: u128| once + n * each <= n * against;
                assert!(pays(n.into()) && (n == 0 || !pays(u128::from(n) - 1)));
            }
        }
    }
}
