//! Whether what the experiment asserts has held.

use super::{CellOfRun, Judged, JudgedCell, StageOfRun, Verdict};
use crate::part::Status;
use experiment::{Assert, Bound, Metric};

/// The figure of this metric, where it is one of the samples alone.
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

/// The value of a cell by which it is compared and judged, or why there is none.
pub fn value(cell: &CellOfRun, metric: Metric) -> Result<f64, String> {
    match &cell.status {
        Status::Unavailable(why) => return Err(format!("unavailable: {why}")),
        Status::Failed(why) => return Err(format!("failed: {why}")),
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

pub(super) fn judge(assert: &Assert, stages: &[StageOfRun], cells: &[CellOfRun], functional: bool) -> Judged {
    let is_meant = |c: &&CellOfRun| c.subject == assert.subject || assert.subject == "*";
    // What this machine does not have breaks no bound, unless it has nothing of what is asserted.
    let is_there = |c: &&CellOfRun| !matches!(c.status, Status::Unavailable(_));
    let any = cells.iter().filter(is_meant).any(|c| is_there(&c));
    let one = |cell: &CellOfRun| {
        let (value, bound) = match functional {
            true => (Err("functional: no times".into()), Ok(0.0)),
            false => (value(cell, assert.metric), bound(assert, cell, stages, cells)),
        };
        let (verdict, why) = match (&value, &bound) {
            (Ok(v), Ok(b)) => {
                let held = if matches!(assert.bound, Bound::AtLeast(_)) { v >= b } else { v <= b };
                (if held { Verdict::Held } else { Verdict::Broken }, None)
            }
            (Err(why), _) | (_, Err(why)) => (Verdict::NotJudged, Some(why.clone())),
        };
        let known = |v: Result<f64, String>| v.ok().filter(|_| !functional);
        JudgedCell {
            stage: cell.stage,
            subject: cell.subject.clone(),
            bytes: cell.bytes,
            verdict,
            value: known(value),
            bound: known(bound),
            why,
        }
    };
    let cells: Vec<_> = cells.iter().filter(is_meant).filter(|c| !any || is_there(c)).map(one).collect();
    let verdict = cells.iter().map(|c| c.verdict).max().unwrap_or(Verdict::NotJudged);
    Judged { assert: assert.clone(), verdict, cells }
}

/// What the value is held against.
fn bound(assert: &Assert, cell: &CellOfRun, stages: &[StageOfRun], cells: &[CellOfRun]) -> Result<f64, String> {
    match &assert.bound {
        Bound::AtMost(v) | Bound::AtLeast(v) => Ok(*v),
        Bound::AtMostTimes(times, other) => {
            let same = |c: &&CellOfRun| c.stage == cell.stage && c.subject == *other && c.bytes == cell.bytes;
            let found = cells.iter().find(same).ok_or_else(|| format!("{other} has no cell of this size"))?;
            Ok(times * value(found, assert.metric).map_err(|why| format!("{other}: {why}"))?)
        }
        Bound::AboveNoise(ns) => {
            let floor = stages.iter().find(|s| s.number == cell.stage).and_then(|s| s.noise_floor_ns);
            floor.map(|f| f as f64 + ns).ok_or_else(|| "the machine's own noise was not looked at".into())
        }
    }
}
