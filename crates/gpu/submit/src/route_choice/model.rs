//! The contents of a profile.

use crate::route_choice::facts::Facts;
use serde::Serialize;
use std::fmt;

/// The result of a calibration on one machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// Taken on the software GPU: it shows that routes work, but its figures are not speeds. Refused for a real GPU.
    pub functional: bool,
    /// Time of the calibration, UTC, RFC 3339.
    pub taken: String,
    pub facts: Facts,
    /// Each [`Key`] once.
    pub plans: Vec<Plan>,
}

/// Source and destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    ToGpu,
    FromGpu,
    BetweenGpus,
}

impl Direction {
    pub const ALL: [Direction; 3] = [Direction::ToGpu, Direction::FromGpu, Direction::BetweenGpus];

    /// Its name in files.
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

/// The figure to minimise.
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

    /// Its name in files.
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

/// The addresses of consecutive transfers. The CPU's own copies are fast as long as its caches hold the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Places {
    /// The same addresses each time.
    #[default]
    Same,
    /// Different addresses each time.
    Others,
}

impl Places {
    pub const ALL: [Places; 2] = [Places::Same, Places::Others];

    /// Its name in files.
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

/// The transfers that a plan is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Key {
    pub direction: Direction,
    /// Kind of host memory, as routes name it: `pinned`, `pageable`, `registered`.
    pub memory: String,
    pub places: Places,
    /// Copies that are submitted together (1: each by itself).
    pub batch: u32,
    pub metric: Metric,
    /// The load that ran at the same time: `idle`, or its name.
    pub load: String,
}

impl Key {
    /// The load of an idle machine.
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

/// The best route for each size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    pub key: Key,
    /// Ascending; together they contain every size from 1 byte on exactly once.
    pub ranges: Vec<Range>,
    /// The measurements, by ascending size.
    pub points: Vec<Point>,
    /// Sizes with too few samples for this metric.
    pub undecided: Vec<Undecided>,
}

/// Sizes with one best route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Range {
    pub from: u64,
    /// Inclusive; the last range has no end.
    pub to: Option<u64>,
    /// Its text.
    pub route: String,
    /// The metric that decided: not the plan's if that had too few samples.
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
    /// In the plan's metric.
    pub ns: u64,
    /// 95 %; none for a maximum, and none with fewer than three rounds.
    pub interval: Option<(u64, u64)>,
    pub samples: u64,
}

/// A size for which a metric was not decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Undecided {
    pub bytes: u64,
    /// Number of samples of the route with the fewest.
    pub samples: u64,
    /// Number of samples that each route would have needed.
    pub needs: u64,
}

/// The border where the best route changes: somewhere between two measured sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Border<'p> {
    /// The last size of the range below.
    pub at: u64,
    /// The measured sizes next to it, if there are any on both sides.
    pub between: Option<(&'p Point, &'p Point)>,
}

impl Plan {
    /// The range that contains this size.
    pub fn range(&self, bytes: u64) -> Option<&Range> {
        let at = self.ranges.partition_point(|range| range.to.is_some_and(|to| to < bytes.max(1)));
        self.ranges.get(at)
    }

    /// The most relevant measured size for this one: the nearest, by ratio, in the same range, else the nearest of all.
    pub fn point(&self, bytes: u64) -> Option<&Point> {
        let range = self.range(bytes)?;
        let within = |p: &&Point| p.bytes >= range.from && range.to.is_none_or(|to| p.bytes <= to);
        let apart = |p: &&Point| p.bytes.max(bytes) as f64 / p.bytes.min(bytes).max(1) as f64;
        let nearer = |a: &&Point, b: &&Point| apart(a).total_cmp(&apart(b));
        self.points.iter().filter(within).min_by(nearer).or_else(|| self.points.iter().min_by(nearer))
    }

    /// The border at the end of a range; the last range has none.
    pub fn border(&self, range: &Range) -> Option<Border<'_>> {
        let at = range.to?;
        let above = self.points.partition_point(|p| p.bytes <= at);
        let between = above.checked_sub(1).and_then(|below| Some((self.points.get(below)?, self.points.get(above)?)));
        Some(Border { at, between })
    }
}

/// `host->ce3[folded]->gpu0` gives `ce3[folded]`.
pub(crate) fn executor(route: &str) -> &str {
    let inner = route.split_once("->").map_or(route, |(_, rest)| rest);
    inner.rsplit_once("->").map_or(inner, |(executor, _)| executor)
}
