//! What a profile holds.

use crate::facts::Facts;
use serde::Serialize;
use std::fmt;

/// What a calibration found on one machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// Taken on the software GPU: it shows that routes work, and no figure in it is a speed. Refused for a real GPU.
    pub functional: bool,
    /// When, UTC, RFC 3339.
    pub taken: String,
    pub facts: Facts,
    /// Each [`Key`] once.
    pub plans: Vec<Plan>,
}

/// From where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    ToGpu,
    FromGpu,
    BetweenGpus,
}

impl Direction {
    pub const ALL: [Direction; 3] = [Direction::ToGpu, Direction::FromGpu, Direction::BetweenGpus];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Direction::ToGpu => "to-gpu",
            Direction::FromGpu => "from-gpu",
            Direction::BetweenGpus => "between-gpus",
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is to be small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Metric {
    #[default]
    #[serde(rename = "p50")]
    P50,
    #[serde(rename = "p99.9")]
    P999,
    #[serde(rename = "max")]
    Max,
}

impl Metric {
    pub const ALL: [Metric; 3] = [Metric::P50, Metric::P999, Metric::Max];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Metric::P50 => "p50",
            Metric::P999 => "p99.9",
            Metric::Max => "max",
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where transfers go that follow one another. The CPU's own copies are fast as long as its caches hold the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Places {
    /// From and to the same addresses each time.
    #[default]
    Same,
    /// From and to others each time.
    Others,
}

impl Places {
    pub const ALL: [Places; 2] = [Places::Same, Places::Others];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Places::Same => "same",
            Places::Others => "others",
        }
    }
}

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a plan is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Key {
    pub direction: Direction,
    /// Kind of host memory, as routes name it: `pinned`, `pageable`, `registered`.
    pub memory: String,
    pub places: Places,
    /// Copies that are submitted together; 1: each by itself.
    pub batch: u32,
    pub metric: Metric,
    /// What ran beside it: `idle`, or the name of a load.
    pub load: String,
}

impl Key {
    /// The load of a machine that does nothing else.
    pub const IDLE: &'static str = "idle";
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} memory, ", self.direction, self.memory)?;
        if self.places != Places::Same {
            f.write_str("changing places, ")?;
        }
        if self.batch != 1 {
            write!(f, "batches of {}, ", self.batch)?;
        }
        write!(f, "{}, {}", self.metric, self.load)
    }
}

/// Which route for which size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    pub key: Key,
    /// Ascending; together they hold every size from 1 byte on exactly once.
    pub ranges: Vec<Range>,
    /// What was measured, by ascending size.
    pub points: Vec<Point>,
    /// Sizes at which too few samples were taken for this metric.
    pub undecided: Vec<Undecided>,
}

/// Sizes with one best route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Range {
    pub from: u64,
    /// Included; the last range has no end.
    pub to: Option<u64>,
    /// Its text.
    pub route: String,
    /// Which metric decided: another than the plan's where there were too few samples for that.
    pub by: Metric,
}

/// One measured size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    pub bytes: u64,
    pub figures: Vec<Figure>,
}

/// One route at one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    pub route: String,
    /// Of the plan's metric.
    pub ns: u64,
    /// 95 %; none of a maximum, and with fewer than six rounds.
    pub interval: Option<(u64, u64)>,
    pub samples: u64,
}

/// A size at which a metric was not decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Undecided {
    pub bytes: u64,
    /// Of the route with the fewest.
    pub samples: u64,
    /// So many each would have been needed.
    pub needs: u64,
}

/// Where the best route changes: somewhere between two measured sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Border<'p> {
    /// The last size of the range below.
    pub at: u64,
    /// The measured sizes next to it, if there are any on both sides.
    pub between: Option<(&'p Point, &'p Point)>,
}

impl Plan {
    /// The range that holds this size.
    pub fn range(&self, bytes: u64) -> Option<&Range> {
        let at = self.ranges.partition_point(|range| range.to.is_some_and(|to| to < bytes.max(1)));
        self.ranges.get(at)
    }

    /// The measured size that says most of this one: the nearest, by ratio, in the same range, else the nearest of all.
    pub fn point(&self, bytes: u64) -> Option<&Point> {
        let range = self.range(bytes)?;
        let within = |p: &&Point| p.bytes >= range.from && range.to.is_none_or(|to| p.bytes <= to);
        let apart = |p: &&Point| p.bytes.max(bytes) as f64 / p.bytes.min(bytes).max(1) as f64;
        let nearer = |a: &&Point, b: &&Point| apart(a).total_cmp(&apart(b));
        self.points.iter().filter(within).min_by(nearer).or_else(|| self.points.iter().min_by(nearer))
    }

    /// The border at the end of a range; none of the last.
    pub fn border(&self, range: &Range) -> Option<Border<'_>> {
        let at = range.to?;
        let above = self.points.partition_point(|p| p.bytes <= at);
        let between = above.checked_sub(1).and_then(|below| Some((self.points.get(below)?, self.points.get(above)?)));
        Some(Border { at, between })
    }
}

/// `host->ce3[folded]->gpu0`: `ce3[folded]`.
pub(crate) fn executor(route: &str) -> &str {
    let inner = route.split_once("->").map_or(route, |(_, rest)| rest);
    inner.rsplit_once("->").map_or(inner, |(executor, _)| executor)
}
