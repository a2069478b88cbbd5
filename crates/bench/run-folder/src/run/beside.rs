//! The effect of loads on cells: for stages that differ only in their loads, each figure divided by that of the stage without loads.

use super::groups::grouped;
use super::{CellOfRun, Coordinate, Figure, Run, StageOfRun};
use statistics::Interval;

/// The axis that selects the loads.
const LOADS: &str = "loads";

/// Stages at one place of the matrix, apart from loads.
#[derive(Clone, Debug, PartialEq)]
pub struct Beside {
    /// Without sizes.
    pub point: Vec<Coordinate>,
    /// Descriptions of the loads, in the order of their stages.
    pub aggressors: Vec<String>,
    pub victims: Vec<Victim>,
}

/// One subject at one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Victim {
    pub subject: String,
    pub bytes: u64,
    /// The stage without loads.
    pub stage: u32,
    pub alone: Point,
    /// In the order of the aggressors; none if it was not measured.
    pub beside: Vec<Option<Times>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub p50_ns: u64,
    /// `None` with too few samples.
    pub p999_ns: Option<u64>,
    pub max_ns: u64,
}

/// A figure with loads, and its ratio to the figure without. The two come from stages measured one after the other: they share no round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    pub stage: u32,
    pub figures: Point,
    pub p50: f64,
    pub p999: Option<f64>,
    pub max: f64,
    /// The bounds of the ratio; none if it may be 1. The ends of the intervals of the two are compared, as they were measured one after the other.
    pub p50_bounds: Option<Interval<f64>>,
    pub p999_bounds: Option<Interval<f64>>,
}

impl Times {
    /// The bounds, if it is longer for certain.
    pub fn delayed(&self) -> Option<Interval<f64>> {
        self.p50_bounds.filter(|bounds| bounds.low > 1.0)
    }
}

impl Run {
    /// Every victim with every load, if there is a stage without loads for comparison. Empty for a functional run.
    pub fn beside(&self) -> Vec<Beside> {
        let mut all: Vec<Beside> = Vec::new();
        for (_, stages) in grouped(&self.stages, |stage| self.own(stage)).iter().filter(|_| !self.functional) {
            let Some(alone) = stages.iter().find(|s| s.loads.is_empty()) else { continue };
            let loaded: Vec<&&StageOfRun> = stages.iter().filter(|s| !s.loads.is_empty()).collect();
            if loaded.is_empty() {
                continue;
            }
            let aggressors: Vec<String> = loaded.iter().map(|s| self.aggressor(s)).collect();
            let victims = self.cells_of(alone.number).filter_map(|cell| {
                let of_alone = point(cell)?;
                let beside: Vec<Option<Times>> = loaded.iter().map(|s| self.times(s.number, cell, of_alone)).collect();
                let (subject, bytes, stage) = (cell.subject.clone(), cell.bytes, alone.number);
                let victim = Victim { subject, bytes, stage, alone: of_alone, beside };
                victim.beside.iter().any(Option::is_some).then_some(victim)
            });
            let victims: Vec<Victim> = victims.collect();
            let place: Vec<Coordinate> = self.own(alone).into_iter().filter(|c| c.name != "bytes").collect();
            match all.iter_mut().find(|b| b.point == place && b.aggressors == aggressors) {
                Some(of_other_sizes) => of_other_sizes.victims.extend(victims),
                None if victims.is_empty() => {}
                None => all.push(Beside { point: place, aggressors, victims }),
            }
        }
        all
    }

    fn times(&self, stage: u32, cell: &CellOfRun, alone: Point) -> Option<Times> {
        let is_it = |c: &&CellOfRun| (c.subject.as_str(), c.bytes) == (cell.subject.as_str(), cell.bytes);
        let loaded = self.cells_of(stage).find(is_it)?;
        let figures = point(loaded)?;
        let bounds = |of: fn(&Figure) -> Option<Interval<f64>>| {
            let (a, b) = (of(loaded.observed()?)?, of(cell.observed()?)?);
            a.apart(&b).then(|| Interval { low: a.low / b.high.max(1.0), high: a.high / b.low.max(1.0) })
        };
        let over = |these: u64, those: u64| these as f64 / those.max(1) as f64;
        Some(Times {
            stage,
            figures,
            p50: over(figures.p50_ns, alone.p50_ns),
            p999: figures.p999_ns.zip(alone.p999_ns).map(|(these, those)| over(these, those)),
            max: over(figures.max_ns, alone.max_ns),
            p50_bounds: bounds(|figure| figure.p50_interval),
            p999_bounds: bounds(|figure| figure.p999_interval),
        })
    }

    /// Its place in the matrix, without axes of loads.
    fn own(&self, stage: &StageOfRun) -> Vec<Coordinate> {
        stage.point.iter().filter(|c| c.name != LOADS && self.load_of(c).is_none()).cloned().collect()
    }

    /// `copying.count` belongs to the load `copying`.
    fn load_of<'c>(&self, coordinate: &'c Coordinate) -> Option<(&'c str, &'c str)> {
        let (load, key) = coordinate.name.rsplit_once('.')?;
        self.experiment.loads.iter().any(|l| l.name == load).then_some((load, key))
    }

    /// `64 x copying (4MiB)`, with the values of the matrix other than the number of threads.
    fn aggressor(&self, stage: &StageOfRun) -> String {
        let one = |load: &crate::part::Loaded| {
            let of_it = stage.point.iter().filter_map(|c| Some((self.load_of(c)?, c)));
            let more = of_it.filter(|((name, key), _)| *name == load.name && *key != "count");
            let more: Vec<&str> = more.map(|(_, c)| c.value.as_str()).collect();
            let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join(", ")) };
            format!("{} x {}{more}", load.threads, load.name)
        };
        let all: Vec<String> = stage.loads.iter().map(one).collect();
        all.join(" + ")
    }
}

/// For measured cells; failed cells give no information about loads.
fn point(cell: &CellOfRun) -> Option<Point> {
    let s = &cell.valid()?.summary;
    Some(Point { p50_ns: s.p50, p999_ns: s.p999, max_ns: s.max })
}
