//! Whether the experiment's asserts held.

use super::best::{self, Against};
use super::metric::value;
use super::{CellOfRun, Judged, JudgedCell, Measured, Verdict};
use crate::part::Status;
use experiment::{Assert, Bound};

impl Measured<'_> {
    pub(super) fn judge(&self, assert: &Assert) -> Judged {
        let is_meant = |c: &&CellOfRun| c.subject == assert.subject || assert.subject == "*";
        // Cells that this machine does not have break no bound, unless it has none of the asserted cells.
        let is_there = |c: &&CellOfRun| !matches!(c.status, Status::Unavailable(_));
        let any = self.cells.iter().filter(is_meant).any(|c| is_there(&c));
        let cells: Vec<_> = self
            .cells
            .iter()
            .filter(is_meant)
            .filter(|c| !any || is_there(c))
            .map(|c| self.judged(assert, c))
            .collect();
        let verdict = cells.iter().map(|c| c.verdict).max().unwrap_or(Verdict::NotJudged);
        Judged { assert: assert.clone(), verdict, cells }
    }

    pub(super) fn judged(&self, assert: &Assert, cell: &CellOfRun) -> JudgedCell {
        let (value, bound) = match self.functional {
            true => (Err("functional: no times".into()), Ok(Held::against(0.0))),
            false => (value(cell, assert.metric), self.bound(assert, cell)),
        };
        let (verdict, why) = match (&value, &bound) {
            (Ok(v), Ok(b)) => b.verdict(*v, matches!(assert.bound, Bound::AtLeast(_))),
            (Err(why), _) | (_, Err(why)) => (Verdict::NotJudged, Some(why.clone())),
        };
        let known = |v: f64| (!self.functional).then_some(v);
        let bound = bound.ok();
        JudgedCell {
            stage: cell.stage,
            subject: cell.subject.clone(),
            bytes: cell.bytes,
            verdict,
            value: value.ok().and_then(known),
            bound: bound.as_ref().and_then(|b| known(b.bound)),
            against: bound.and_then(|b| b.against),
            why,
        }
    }

    /// The bound for the value.
    fn bound(&self, assert: &Assert, cell: &CellOfRun) -> Result<Held, String> {
        match &assert.bound {
            Bound::AtMost(v) | Bound::AtLeast(v) => Ok(Held::against(*v)),
            Bound::AtMostTimes(times, other) => {
                let same = |c: &&CellOfRun| c.stage == cell.stage && c.subject == *other && c.bytes == cell.bytes;
                let found = self.cells.iter().find(same).ok_or_else(|| format!("{other} has no cell of this size"))?;
                let value = value(found, assert.metric).map_err(|why| format!("{other}: {why}"))?;
                Ok(Held::against(times * value))
            }
            Bound::AboveNoise(ns) => {
                let floor = self.stages.iter().find(|s| s.number == cell.stage).and_then(|s| s.noise_floor_ns);
                let floor = floor.ok_or("the machine's own noise was not measured")?;
                Ok(Held::against(floor as f64 + ns))
            }
            Bound::WithinBest(within) => {
                let is_among = |c: &&CellOfRun| within.among.is_empty() || within.among.contains(&c.subject);
                let rivals = self.cells.iter().filter(|c| best::is_rival(c, cell)).filter(is_among);
                let none = || format!("no other route between the same memories has a {} here", assert.metric);
                let best = best::least(rivals, assert.metric).ok_or_else(none)?;
                let bound = (best.1 * (1.0 + within.percent / 100.0)).max(best.1 + within.ns);
                Ok(Held { bound, against: Some(self.against(cell, best, assert.metric)) })
            }
        }
    }
}

/// A bound, and its origin.
struct Held {
    bound: f64,
    against: Option<Against>,
}

impl Held {
    fn against(bound: f64) -> Held {
        Held { bound, against: None }
    }

    /// If there is a ratio in the same rounds, it decides: a host that was slow in a round was slow for both. For a result above the bound, the
    /// whole interval must be above it too; otherwise the rounds are not sufficient.
    fn verdict(&self, value: f64, from_below: bool) -> (Verdict, Option<String>) {
        let judged = |held: bool| (if held { Verdict::Held } else { Verdict::Broken }, None);
        if from_below {
            return judged(value >= self.bound);
        }
        let Some((best, ratio)) = self.against.as_ref().and_then(|a| Some((a.value_ns, a.ratio?))) else {
            return judged(value <= self.bound);
        };
        let most = if best > 0.0 { self.bound / best } else { f64::INFINITY };
        match ratio.interval {
            _ if ratio.ratio <= most => judged(true),
            Some(interval) if interval.low <= most => {
                let why = format!(
                    "{:.3} times ({:.3} to {:.3}) and at most {most:.3} times: the rounds do not say whether it is more",
                    ratio.ratio, interval.low, interval.high
                );
                (Verdict::NotJudged, Some(why))
            }
            _ => judged(false),
        }
    }
}
