//! Which executor moves the bytes.
//!
//! The best one depends on direction and size, and the sizes at which it changes are the machine's: they are measured, never
//! guessed. Without a profile the copy engine does everything. The profile of a calibration is a [`Chooser`]: whoever loads it
//! sees that it was taken on this machine ([`planner::Profile::load_for`]).

use planner::{Ask, Profile};

/// From where to where.
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
    /// The bytes travel in the command stream: the CPU reads them from the source when the copy is submitted.
    Inline,
}

/// A profile of this machine.
pub trait Chooser: Send + Sync {
    fn choose(&self, direction: Direction, bytes: u64) -> Executor;
}

/// By the executor of the route that the profile names, where a session has it: `inline`; everything else is left to copy engines.
impl Chooser for Profile {
    fn choose(&self, direction: Direction, bytes: u64) -> Executor {
        let direction = match direction {
            Direction::ToGpu => planner::Direction::ToGpu,
            Direction::FromGpu => planner::Direction::FromGpu,
            // A calibration measures none of these.
            Direction::WithinGpu | Direction::WithinHost => return Executor::CopyEngine,
        };
        let Ok(choice) = Profile::choose(self, &Ask::of(direction, bytes)) else { return Executor::CopyEngine };
        match choice.route.split("->").nth(1).and_then(|executor| executor.split('[').next()) {
            Some("inline") => Executor::Inline,
            _ => Executor::CopyEngine,
        }
    }
}

/// What moves so many bytes in this direction.
pub(crate) fn choose(profile: Option<&dyn Chooser>, direction: Direction, bytes: u64) -> Executor {
    profile.map_or(Executor::CopyEngine, |profile| profile.choose(direction, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::{Facts, Key, Metric, Plan, Range};

    #[test]
    fn a_profile_says_inline_where_its_route_does_and_nothing_else_is_guessed() {
        let range = |from, to, route: &str| Range { from, to, route: route.into(), by: Metric::P50 };
        let ranges = vec![
            range(1, Some(4096), "host->inline[armed]->gpu0"),
            range(4097, Some(8999), "host->sm->gpu0"),
            range(9000, None, "host->ce2->gpu0"),
        ];
        let key = Key {
            direction: planner::Direction::ToGpu,
            memory: "pinned".into(),
            batch: 1,
            metric: Metric::P50,
            load: Key::IDLE.into(),
        };
        let plan = Plan { key, ranges, points: Vec::new(), undecided: Vec::new() };
        let profile = Profile { functional: true, taken: String::new(), facts: Facts::default(), plans: vec![plan] };
        let chosen = |direction, bytes| choose(Some(&profile), direction, bytes);
        assert_eq!(chosen(Direction::ToGpu, 1), Executor::Inline);
        assert_eq!(chosen(Direction::ToGpu, 4096), Executor::Inline);
        for bytes in [4097, 9000, 1 << 30] {
            assert_eq!(chosen(Direction::ToGpu, bytes), Executor::CopyEngine);
        }
        for direction in [Direction::FromGpu, Direction::WithinGpu, Direction::WithinHost] {
            assert_eq!(chosen(direction, 8), Executor::CopyEngine);
        }
        assert_eq!(choose(None, Direction::ToGpu, 8), Executor::CopyEngine);
    }
}
