//! Whether two figures of a run differ: an interval must show it, and the difference must be more than one step of the clock. Smaller differences
//! are not findings. Maxima are single samples without an interval, and never findings.

use experiment::Metric;
use run_folder::Run;
use run_folder::run::{CellOfRun, Figure, RatioOfRun};
use statistics::Interval;

/// Which of a cell's percentiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Percentile {
    P50,
    P999,
}

impl Percentile {
    fn of(self, figure: &Figure) -> Option<(u64, Interval<f64>)> {
        match self {
            Percentile::P50 => Some((figure.summary.p50, figure.p50_interval?)),
            Percentile::P999 => Some((figure.summary.p999?, figure.p999_interval?)),
        }
    }
}

/// Times above this are too long for a clock's step to matter, or to be seen.
const SMALL_NS: u64 = 100_000;

/// The step of the clock that two cells were timed by: the least difference of any two of their times.
fn step(cells: [&CellOfRun; 2]) -> u64 {
    let mut all: Vec<u64> = Vec::new();
    for cell in cells {
        let rounds = cell.per_round.p50.iter().chain(&cell.per_round.max).chain(cell.per_round.p99.iter().flatten());
        all.extend(rounds.copied().chain(cell.worst.iter().map(|w| w.value_ns)));
        if let Some(s) = cell.observed().map(|f| &f.summary) {
            all.extend([Some(s.min), Some(s.p50), s.p90, s.p99, s.p999, s.p9999, Some(s.max)].into_iter().flatten());
        }
    }
    all.retain(|ns| *ns < SMALL_NS);
    all.sort_unstable();
    all.windows(2).map(|w| w[1] - w[0]).filter(|step| *step > 0).min().unwrap_or(0)
}

/// The bounds of the certain ratio of the percentile of `these` to that of `those`. `None` if the ratio may be one. The two were measured one after
/// the other, so the ends of their intervals are compared.
pub fn times(these: &CellOfRun, those: &CellOfRun, percentile: Percentile) -> Option<Interval<f64>> {
    let ((a, of_a), (b, of_b)) = (percentile.of(these.observed()?)?, percentile.of(those.observed()?)?);
    let interval = Interval { low: of_a.low / of_b.high.max(1.0), high: of_a.high / of_b.low.max(1.0) };
    (!interval.holds(1.0) && a.abs_diff(b) > step([these, those])).then_some(interval)
}

/// Whether a ratio to the baseline of the same rounds is certain.
pub fn is_sure(run: &Run, cell: &CellOfRun, ratio: &RatioOfRun) -> bool {
    if ratio.ratio.differs() != Some(true) {
        return false;
    }
    let is_it = |c: &&CellOfRun| c.subject == ratio.baseline && c.bytes == cell.bytes;
    let baseline = run.cells_of(cell.stage).find(is_it);
    let p50 = |c: &CellOfRun| c.observed().map(|f| f.summary.p50);
    match baseline.and_then(|b| Some((p50(cell)?, p50(b)?, b))) {
        Some((a, b, other)) if ratio.metric == Metric::P50 => a.abs_diff(b) > step([cell, other]),
        _ => true,
    }
}
