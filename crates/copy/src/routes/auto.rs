//! `host->auto->gpu0`: for each size the executor that this machine's profile names (`doorbell calibrate`).
//!
//! The choice is made when a transfer is prepared; what is prepared is the chosen executor's own transfer, so `auto` costs
//! nothing after that. `auto[for=p99.9]` and `auto[for=max]` choose by another metric than the median, `auto[pieces=256]` among the
//! ways to move scattered pieces.

use crate::buffer::Buffer;
use crate::ends::Direction;
use crate::entry::{Found, Others};
use crate::error::{Error, Unavailable};
use crate::machine::Machine;
use crate::route::{Executor, Transfer};
use crate::spec::{self, Host, Memory, Spec, Word};
use planner::{Ask, Metric, Profile};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const NAME: &str = "auto";
const METRICS: [(&str, Metric); 2] = [("for=p99.9", Metric::P999), ("for=max", Metric::Max)];

/// A batch of so many pieces.
const PIECES: &str = "pieces=";

pub(crate) const WORD: Word = Word { name: NAME, numbered: false, options: &[METRICS[0].0, METRICS[1].0, PIECES] };

pub(crate) fn about(_: &Machine, spec: &Spec) -> String {
    let metric = metric(&spec.executor);
    format!("for each size the route that `doorbell calibrate` found the best by {metric}")
}

pub(crate) fn list(machine: &Machine) -> Vec<String> {
    let gpu = machine.index();
    let both = |host: &str| [format!("{host}->auto->gpu{gpu}"), format!("gpu{gpu}->auto->{host}")];
    [both("host"), both("host[pageable]")].concat()
}

pub(crate) fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    Direction::of(machine, spec)?;
    if METRICS.iter().filter(|(option, _)| spec.executor.has(option)).count() > 1 {
        return Err(Unavailable::new("one metric decides: choose one"));
    }
    let profile = machine.profile()?;
    // It has a plan for this direction and memory at all.
    choose(&profile, machine, spec, 1).map(drop)
}

pub(crate) fn open<'m>(machine: &'m Machine, spec: &Spec, others: Others) -> Found<'m> {
    let profile = machine.profile()?;
    Ok(Box::new(Auto { machine, profile, spec: spec.clone(), others, opened: BTreeMap::new() }))
}

fn metric(executor: &spec::Executor) -> Metric {
    METRICS.iter().find(|(option, _)| executor.has(option)).map_or(Metric::P50, |(_, metric)| *metric)
}

fn pieces(executor: &spec::Executor) -> Option<u32> {
    executor.numbers(PIECES).and_then(|numbers| numbers.first().copied())
}

/// The text of the best route for this size.
fn choose(profile: &Profile, machine: &Machine, spec: &Spec, bytes: u64) -> Result<String, Unavailable> {
    let direction = match Direction::of(machine, spec)? {
        Direction::ToGpu => planner::Direction::ToGpu,
        Direction::FromGpu => planner::Direction::FromGpu,
    };
    let host = [spec.source.memory, spec.destination.memory].into_iter().find_map(|memory| match memory {
        Memory::Host(host) => Some(host),
        Memory::Gpu(_) | Memory::Device => None,
    });
    let memory = match host.unwrap_or_default() {
        host @ (Host::Pageable | Host::Registered) => host.to_string(),
        // To engines and CPU alike they are pinned memory.
        Host::Pinned | Host::WriteCombined | Host::Huge | Host::Node(_) => Host::Pinned.to_string(),
    };
    let batch = pieces(&spec.executor).unwrap_or(1);
    let ask = Ask { memory: &memory, metric: metric(&spec.executor), batch, ..Ask::of(direction, bytes) };
    let choice = profile.choose(&ask).map_err(|none| Unavailable::new(none.to_string()))?;
    Ok(choice.route)
}

struct Auto<'m> {
    machine: &'m Machine,
    profile: Arc<Profile>,
    spec: Spec,
    others: Others,
    /// By the text of the executor.
    opened: BTreeMap<String, Box<dyn Executor + 'm>>,
}

impl<'m> Auto<'m> {
    /// The executor for this size, opened when it is first needed.
    fn executor(&mut self, bytes: u64) -> Result<&mut (dyn Executor + 'm), Error> {
        let route = choose(&self.profile, self.machine, &self.spec, bytes)?;
        let unusable = |why: String| Unavailable::new(format!("the profile names {route}: {why}"));
        let parsed = (self.others.parse)(&route).map_err(|e| unusable(e.to_string()))?;
        if parsed.executor.name == NAME {
            return Err(unusable("that is no single route".into()).into());
        }
        // Its executor, between the memories of this route, with as many pieces.
        let mut spec = Spec { executor: parsed.executor, ..self.spec.clone() };
        let own = spec.executor.numbers.iter_mut().find(|(option, _)| *option == PIECES);
        match (pieces(&self.spec.executor), own) {
            (None, None) => {}
            (Some(count), Some((_, own))) => *own = vec![count],
            _ => return Err(unusable("it has no plan for batches".into()).into()),
        }
        let executor = spec.executor.to_string();
        if !self.opened.contains_key(&executor) {
            let opened = (self.others.open)(self.machine, &spec).map_err(|e| match e {
                Error::Unavailable(why) => unusable(why.reason).into(),
                other => other,
            })?;
            self.opened.insert(executor.clone(), opened);
        }
        match self.opened.get_mut(&executor) {
            Some(opened) => Ok(opened.as_mut()),
            None => Err(unusable("it was not kept".into()).into()),
        }
    }
}

impl Executor for Auto<'_> {
    /// For the largest transfer that both hold.
    fn reach(&mut self, from: &Buffer<'_>, to: &Buffer<'_>) -> Result<(), Error> {
        let bytes = from.capacity().min(to.capacity());
        self.executor(bytes)?.reach(from, to)
    }

    fn prepare<'r>(
        &'r mut self,
        from: &'r Buffer<'r>,
        to: &'r Buffer<'r>,
        bytes: u64,
    ) -> Result<Box<dyn Transfer + 'r>, Error> {
        self.executor(bytes)?.prepare(from, to, bytes)
    }
}
