//! The value of a metric for one cell.

use super::CellOfRun;
use crate::part::Status;
use experiment::Metric;

/// The figure of this metric, if it depends only on the samples.
pub(super) fn figure(metric: Metric) -> Option<statistics::Figure> {
    Some(match metric {
        Metric::Min => statistics::Figure::Min,
        Metric::Mean => statistics::Figure::Mean,
        Metric::P50 => statistics::Figure::P50,
        Metric::P99 => statistics::Figure::P99,
        Metric::P999 => statistics::Figure::P999,
        Metric::P9999 => statistics::Figure::P9999,
        Metric::Max => statistics::Figure::Max,
        Metric::Misses | Metric::Rate => return None,
    })
}

/// The value of a cell for comparison and judgement, or why there is none.
pub fn value(cell: &CellOfRun, metric: Metric) -> Result<f64, String> {
    match &cell.status {
        Status::Unavailable(why) => return Err(format!("unavailable: {why}")),
        Status::Failed(why) => return Err(format!("failed: {why}")),
        Status::Invalid(why) => return Err(format!("invalid: {why}")),
        Status::Measured => {}
    }
    let few = |needed: u64| format!("{metric} needs {needed} samples, and there are {}", cell.samples);
    let needs = |p: statistics::Percentile| few(p.needs());
    match metric {
        Metric::Misses => cell.misses.map(|m| m.part()).ok_or_else(|| "it has no deadline".into()),
        Metric::Rate => cell.rate.as_ref().and_then(|r| r.bytes_per_second).ok_or_else(|| "it moves no bytes".into()),
        _ => {
            let s = &cell.observed().ok_or("it has no samples")?.summary;
            match metric {
                Metric::Min => Ok(s.min as f64),
                Metric::Mean => Ok(s.mean),
                Metric::P50 => Ok(s.p50 as f64),
                Metric::P99 => s.p99.map(|v| v as f64).ok_or_else(|| needs(statistics::Percentile::P99)),
                Metric::P999 => s.p999.map(|v| v as f64).ok_or_else(|| needs(statistics::Percentile::P999)),
                Metric::P9999 => s.p9999.map(|v| v as f64).ok_or_else(|| needs(statistics::Percentile::P9999)),
                _ => Ok(s.max as f64),
            }
        }
    }
}
