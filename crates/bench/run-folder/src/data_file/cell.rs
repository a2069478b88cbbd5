//! The figures of a cell, computed from its rounds. Rounds and intervals meet only here.

use crate::data_file::{Cell, Digest, Error, Stage};
use crate::run::back_to_back;
use experiment::Observe;
use statistics::{CONFIDENCE, Figure, Interval, Ratio, Rounds};

/// A figure, and how far it can be off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    pub value: f64,
    /// `None` with too few rounds, and for extremes.
    pub interval: Option<Interval<f64>>,
    /// Samples were cut short below it: the true value is at least this large.
    pub at_least: bool,
}

/// One part of a cell, ready for computation.
#[derive(Clone, Debug)]
pub struct Measured {
    rounds: Rounds,
    capped_from: Option<u64>,
    pub capped: u64,
    back_to_back: u32,
    /// The span of all rounds together, if samples are not back to back.
    span_ns: Option<u64>,
}

impl Digest {
    /// `None` if the file has no such part of the cell. The cell is the stage's `number`-th.
    ///
    /// # Errors
    /// If a text is no round.
    pub fn measured(&self, stage: &Stage, number: usize, part: Observe) -> Result<Option<Measured>, Error> {
        let Some(cell) = stage.cells.get(number) else { return Ok(None) };
        let Some(series) = cell.series(part) else { return Ok(None) };
        let wrong = |wrong| Error::Series { stage: stage.number, subject: cell.subject.clone(), wrong };
        let rounds = Rounds::new(&series.values().map_err(wrong)?).in_repeats_of(stage.rounds as usize);
        Ok(Some(Measured {
            capped: series.capped,
            capped_from: series.capped_from,
            back_to_back: cell.back_to_back,
            span_ns: span_of(cell, &rounds),
            rounds,
        }))
    }
}

/// With paced arrivals, a round lasts until the next release is due, or until its last end if that is later.
fn span_of(cell: &Cell, rounds: &Rounds) -> Option<u64> {
    let due = |round| cell.period_ns.unwrap_or(0).saturating_mul(rounds.samples(round));
    cell.spans_ns.as_ref().map(|spans| spans.iter().enumerate().map(|(round, ns)| due(round).max(*ns)).sum())
}

impl Measured {
    pub fn samples(&self) -> u64 {
        self.rounds.sorted().len() as u64
    }

    /// Number of rounds with samples.
    pub fn rounds(&self) -> u64 {
        self.rounds.sampled().len() as u64
    }

    /// `None` if there are too few samples for it.
    pub fn figure(&self, figure: Figure) -> Option<Value> {
        let value = self.rounds.figure(figure)?;
        let interval = self.rounds.interval(figure, CONFIDENCE);
        let at_least = match figure {
            // Every sample contributes to it.
            Figure::Mean => self.capped > 0,
            _ => self.capped_from.is_some_and(|least| least as f64 <= value),
        };
        Some(Value { value, interval, at_least })
    }

    /// How many samples took longer.
    pub fn above(&self, ns: u64) -> u64 {
        let sorted = self.rounds.sorted();
        (sorted.len() - sorted.partition_point(|v| *v <= ns)) as u64
    }

    /// Samples a second: back to back without pauses, or else at the times when they arrived.
    pub fn rate(&self) -> Option<Value> {
        let many = f64::from(self.back_to_back.max(1));
        if let Some(ns) = self.span_ns {
            let value = many * self.samples() as f64 * 1e9 / ns as f64;
            return (ns > 0).then_some(Value { value, interval: None, at_least: false });
        }
        let (value, interval) = back_to_back(&self.rounds, many)?;
        Some(Value { value, interval, at_least: false })
    }

    /// How many times as long it takes as another, in the same rounds. `None` with too few samples or rounds of either, or if a sample that was cut
    /// short decides one of the two.
    pub fn ratio(&self, to: &Measured, figure: Figure) -> Option<Value> {
        if self.figure(figure)?.at_least || to.figure(figure)?.at_least {
            return None;
        }
        let ratio = Ratio::of(&self.rounds, &to.rounds, figure, CONFIDENCE)?;
        let enough = ratio.interval.is_some() || !figure.has_interval();
        enough.then_some(Value { value: ratio.ratio, interval: ratio.interval, at_least: false })
    }
}
