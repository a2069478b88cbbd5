//! The choice for one transfer, and why.

use crate::route_choice::decide::{self, PREFERENCE};
use crate::route_choice::model::{Border, Direction, Figure, Key, Metric, Places, Plan, Point, Profile, Range};
use numbers::nanoseconds;
use std::fmt;

/// The transfer to choose for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask<'a> {
    pub direction: Direction,
    /// `pinned`, `pageable`, `registered`.
    pub memory: &'a str,
    pub places: Places,
    /// At least 1.
    pub bytes: u64,
    /// Copies that are submitted together (1: each by itself).
    pub batch: u32,
    pub metric: Metric,
    /// The load that runs at the same time: [`Key::IDLE`] or a name.
    pub load: &'a str,
}

impl Ask<'_> {
    /// One copy from or to pinned memory, at the same addresses each time, on an idle machine, with the smallest median.
    pub fn of(direction: Direction, bytes: u64) -> Ask<'static> {
        let (memory, places) = ("pinned", Places::Same);
        Ask { direction, memory, places, bytes, batch: 1, metric: Metric::P50, load: Key::IDLE }
    }
}

/// The best route for a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its text.
    pub route: String,
    /// One sentence.
    pub why: String,
}

/// The profile has no plan for this direction and kind of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoPlan {
    pub direction: Direction,
    pub memory: String,
    /// The plans that it has.
    pub has: Vec<(Direction, String)>,
}

impl std::error::Error for NoPlan {}

impl fmt::Display for NoPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the profile has nothing for {} with {} memory; it has ", self.direction, self.memory)?;
        if self.has.is_empty() {
            return f.write_str("nothing at all");
        }
        let has: Vec<String> =
            self.has.iter().map(|(direction, memory)| format!("{direction} with {memory}")).collect();
        f.write_str(&has.join(", "))
    }
}

impl Profile {
    /// The best route by this profile. If it has no plan for the batch, metric or load, the nearest plan is used, and `why` mentions this.
    ///
    /// # Errors
    /// [`NoPlan`], the same for every size.
    pub fn choose(&self, ask: &Ask<'_>) -> Result<Choice, NoPlan> {
        let missing = || {
            let mut has: Vec<(Direction, String)> =
                self.plans.iter().map(|plan| (plan.key.direction, plan.key.memory.clone())).collect();
            has.sort();
            has.dedup();
            NoPlan { direction: ask.direction, memory: ask.memory.into(), has }
        };
        let plan = self.plan(ask).ok_or_else(missing)?;
        let range = plan.range(ask.bytes).ok_or_else(missing)?;
        let mut why = plan.reason(ask.bytes, range, self.functional);
        let differs = |what: &str, asked: String, taken: String| {
            if asked == taken {
                String::new()
            } else {
                format!("; not measured for {what} {asked}, this is for {taken}")
            }
        };
        why += &differs("load", ask.load.into(), plan.key.load.clone());
        why += &differs("places:", ask.places.to_string(), plan.key.places.to_string());
        why += &differs("batches of", ask.batch.max(1).to_string(), plan.key.batch.to_string());
        why += &differs("metric", ask.metric.to_string(), plan.key.metric.to_string());
        Ok(Choice { route: range.route.clone(), why })
    }

    /// The nearest plan, compared in this order: load (else idle), batch length (else the next shorter one), places, metric (else p50).
    pub fn plan(&self, ask: &Ask<'_>) -> Option<&Plan> {
        let of = |plan: &&Plan| plan.key.direction == ask.direction && plan.key.memory == ask.memory;
        self.plans.iter().filter(of).min_by_key(|plan| {
            let key = &plan.key;
            let load = if key.load == ask.load { 0 } else { 1 + u32::from(key.load != Key::IDLE) };
            let batch = match (ask.batch.max(1), key.batch) {
                (asked, has) if has <= asked => (0, asked - has),
                (asked, has) => (1, has - asked),
            };
            let metric = if key.metric == ask.metric { 0 } else { 1 + key.metric as u32 };
            (load, batch, key.places != ask.places, metric)
        })
    }
}

impl Plan {
    /// A sentence for one size: the route, its figure, the next best route, and the border.
    fn reason(&self, bytes: u64, range: &Range, functional: bool) -> String {
        let mut why = format!("{}: {}", numbers::bytes(bytes), range.route);
        if let Some(point) = self.point(bytes) {
            why += &self.figures(bytes, range, point, functional);
        }
        if range.by != self.key.metric {
            let undecided = self.undecided.iter().min_by_key(|u| u.bytes.abs_diff(bytes));
            why += &format!("; decided by {}", range.by);
            if let Some(u) = undecided {
                why += &format!(": {} samples are too few for {}, which needs {}", u.samples, self.key.metric, u.needs);
            }
        }
        why += &self.borders(range);
        match self.points.last() {
            Some(last) if bytes > last.bytes => {
                why + &format!("; nothing above {} was measured", numbers::bytes(last.bytes))
            }
            _ => why,
        }
    }

    fn figures(&self, bytes: u64, range: &Range, point: &Point, functional: bool) -> String {
        if functional {
            return "; a software GPU has no speed".into();
        }
        let at = if point.bytes == bytes { String::new() } else { format!(" at {}", numbers::bytes(point.bytes)) };
        let Some(own) = point.figures.iter().find(|figure| figure.route == range.route) else { return String::new() };
        let mut why = format!(", {} {}{at}", self.key.metric, nanoseconds(own.ns));
        let others = || point.figures.iter().filter(|figure| figure.route != range.route);
        if let Some(next) = others().min_by_key(|figure| figure.ns) {
            why += &format!("; next {} {}", next.route, nanoseconds(next.ns));
            if next.ns < own.ns {
                why += &kept(own, next);
            }
        }
        why
    }

    fn borders(&self, range: &Range) -> String {
        let below = range.from.checked_sub(2).and_then(|bytes| self.range(bytes + 1)).and_then(|r| self.border(r));
        let Some(Border { at, between }) = self.border(range).or(below) else { return "; for every size".into() };
        let between = between.map_or_else(String::new, |(low, high)| {
            format!(" ({} .. {})", numbers::bytes(low.bytes), numbers::bytes(high.bytes))
        });
        format!("; border at {}{between}", numbers::bytes(at))
    }
}

/// Why the slower one was chosen.
fn kept(own: &Figure, next: &Figure) -> String {
    let reason = PREFERENCE.get(decide::preference(&own.route)).map_or("it is preferred", |(_, why)| why);
    let slower = (own.ns as f64 / next.ns.max(1) as f64 - 1.0) * 100.0;
    format!(" ({slower:.1} % less, which does not decide: {reason})")
}
