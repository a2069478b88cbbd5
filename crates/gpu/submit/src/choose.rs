//! Which executor moves the bytes.
//!
//! The best executor depends on direction and size. The sizes at which it changes depend on the machine: they are measured, never guessed.
//! Without a profile, copy engines make all copies. When the session is opened, the sizes of its [`Chooser`] for copies to the GPU and from it
//! are stored in a table ([`Ways`]). A submission looks its size up there and allocates no memory.

use crate::route_choice::{Ask, Profile};
use std::fmt;

/// Source and destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    ToGpu,
    FromGpu,
    WithinGpu,
    WithinHost,
}

/// What moves the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Executor {
    #[default]
    CopyEngine,
    /// The bytes are part of the command stream: the CPU reads them from the source when the copy is submitted.
    Inline,
    /// The CPU's own stores through BAR1, and a load that returns when they have arrived. The copy is done when its submission returns.
    Stores,
    /// The CPU's own loads through BAR1: the same from the GPU.
    Loads,
}

impl Executor {
    /// The CPU's own stores or loads.
    #[inline]
    pub fn is_cpu(self) -> bool {
        matches!(self, Executor::Stores | Executor::Loads)
    }
}

impl fmt::Display for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Executor::CopyEngine => "a copy engine",
            Executor::Inline => "inline, in the command stream",
            Executor::Stores => "stores of the CPU",
            Executor::Loads => "loads of the CPU",
        })
    }
}

/// The executor of a copy, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub executor: Executor,
    /// One sentence.
    pub why: String,
}

/// A profile of this machine.
pub trait Chooser: Send + Sync {
    /// The largest size, inclusive, for which each executor is best in a direction, ascending. Above the last size, copy engines are. Copies
    /// within one memory always use copy engines.
    fn sizes(&self, direction: Direction) -> Vec<(u64, Executor)>;

    /// The reason, in one sentence.
    fn why(&self, direction: Direction, bytes: u64) -> String;
}

/// Uses the executor of the route that the profile names, if a session has it; otherwise copy engines.
impl Chooser for Profile {
    fn sizes(&self, direction: Direction) -> Vec<(u64, Executor)> {
        let Some(direction) = measured(direction) else { return Vec::new() };
        let plan = self.plan(&Ask::of(direction, 1));
        let ranges = plan.map(|plan| plan.ranges.as_slice()).unwrap_or_default();
        ranges.iter().map(|range| (range.to.unwrap_or(u64::MAX), executor(&range.route, direction))).collect()
    }

    fn why(&self, direction: Direction, bytes: u64) -> String {
        let Some(direction) = measured(direction) else {
            return "a calibration measures no copies within one memory".into();
        };
        let ask = Ask::of(direction, bytes);
        let why = |choice: crate::route_choice::Choice| match executor(&choice.route, direction) {
            Executor::CopyEngine if !is_engine(&choice.route) => format!("{}; a session has no such way", choice.why),
            _ => choice.why,
        };
        self.choose(&ask).map_or_else(|none| none.to_string(), why)
    }
}

/// `host->bar1[flush]->gpu0` gives `bar1`.
fn word(route: &str) -> &str {
    route.split("->").nth(1).and_then(|executor| executor.split('[').next()).unwrap_or_default()
}

fn executor(route: &str, direction: crate::route_choice::Direction) -> Executor {
    match (word(route), direction) {
        ("inline", crate::route_choice::Direction::ToGpu) => Executor::Inline,
        ("bar1", crate::route_choice::Direction::ToGpu) => Executor::Stores,
        ("bar1", crate::route_choice::Direction::FromGpu) => Executor::Loads,
        _ => Executor::CopyEngine,
    }
}

fn measured(direction: Direction) -> Option<crate::route_choice::Direction> {
    match direction {
        Direction::ToGpu => Some(crate::route_choice::Direction::ToGpu),
        Direction::FromGpu => Some(crate::route_choice::Direction::FromGpu),
        Direction::WithinGpu | Direction::WithinHost => None,
    }
}

fn is_engine(route: &str) -> bool {
    word(route).strip_prefix("ce").is_some_and(|number| number.bytes().all(|c| c.is_ascii_digit()))
}

/// The executors of copies to the GPU and from it, by size.
#[derive(Debug, Default)]
pub(crate) struct Ways([Box<[(u64, Executor)]>; 2]);

impl Ways {
    pub fn of(profile: Option<&dyn Chooser>) -> Ways {
        let sizes = |direction| profile.map(|profile| profile.sizes(direction)).unwrap_or_default().into_boxed_slice();
        Ways([Direction::ToGpu, Direction::FromGpu].map(sizes))
    }

    #[inline]
    pub fn choose(&self, direction: Direction, bytes: u64) -> Executor {
        let table = match direction {
            Direction::ToGpu => &self.0[0],
            Direction::FromGpu => &self.0[1],
            Direction::WithinGpu | Direction::WithinHost => return Executor::CopyEngine,
        };
        let at = table.partition_point(|(to, _)| *to < bytes);
        table.get(at).map_or(Executor::CopyEngine, |(_, executor)| *executor)
    }

    /// Whether the CPU itself moves some sizes: GPU memory is then mapped when it becomes a buffer.
    pub fn map(&self) -> bool {
        self.0.iter().flatten().any(|(_, executor)| executor.is_cpu())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route_choice::{Facts, Key, Metric, Plan, Range};

    #[test]
    fn a_profile_says_what_its_routes_do_and_nothing_else_is_guessed() {
        let range = |from, to, route: &str| Range { from, to, route: route.into(), by: Metric::P50 };
        let ranges = vec![
            range(1, Some(64), "host->bar1[flush]->gpu0"),
            range(65, Some(4096), "host->inline[armed]->gpu0"),
            range(4097, Some(8999), "host->sm->gpu0"),
            range(9000, None, "host->ce2->gpu0"),
        ];
        let key = Key {
            direction: crate::route_choice::Direction::ToGpu,
            memory: "pinned".into(),
            places: crate::route_choice::Places::Same,
            batch: 1,
            metric: Metric::P50,
            load: Key::IDLE.into(),
        };
        let plan = Plan { key, ranges, points: Vec::new(), undecided: Vec::new() };
        let profile = Profile { functional: true, taken: String::new(), facts: Facts::default(), plans: vec![plan] };
        let ways = Ways::of(Some(&profile));
        let of_size = [
            (1, Executor::Stores),
            (64, Executor::Stores),
            (65, Executor::Inline),
            (4096, Executor::Inline),
            (4097, Executor::CopyEngine),
            (9000, Executor::CopyEngine),
            (1 << 40, Executor::CopyEngine),
        ];
        for (bytes, executor) in of_size {
            assert_eq!(ways.choose(Direction::ToGpu, bytes), executor, "{bytes}");
        }
        for direction in [Direction::FromGpu, Direction::WithinGpu, Direction::WithinHost] {
            assert_eq!(ways.choose(direction, 8), Executor::CopyEngine);
        }
        assert!(ways.map() && !Ways::of(None).map());
        assert_eq!(Ways::of(None).choose(Direction::ToGpu, 8), Executor::CopyEngine);
        let why = |bytes| Chooser::why(&profile, Direction::ToGpu, bytes);
        assert!(why(8).contains("host->bar1[flush]->gpu0") && !why(8).contains("no such way"), "{}", why(8));
        assert!(why(5000).contains("host->sm->gpu0") && why(5000).contains("no such way"), "{}", why(5000));
        assert!(!why(9000).contains("no such way"), "{}", why(9000));
        let why = Chooser::why(&profile, Direction::FromGpu, 8);
        assert!(why.contains("nothing for from-gpu"), "{why}");
        let mut profile = profile;
        profile.plans[0].key.direction = crate::route_choice::Direction::FromGpu;
        profile.plans[0].ranges = vec![range(1, Some(64), "gpu0->bar1->host"), range(65, None, "gpu0->inline->host")];
        let ways = Ways::of(Some(&profile));
        let chosen = [64, 65].map(|bytes| ways.choose(Direction::FromGpu, bytes));
        assert_eq!((chosen, ways.map()), ([Executor::Loads, Executor::CopyEngine], true));
        assert_eq!(ways.choose(Direction::ToGpu, 8), Executor::CopyEngine);
    }
}
