//! `host->auto->gpu0`: uses for each size the executor that this machine's profile names (`doorbell calibrate`).
//!
//! The choice is made when a transfer is prepared. The result is the chosen executor's own transfer, so `auto` costs nothing after that. Where another executor
//! is better for transfers that change their addresses, both are prepared, and the first move to other addresses switches to it. (The CPU's own copies are fast
//! only as long as its caches hold the bytes.) `auto[for=p99.9]` and `auto[for=max]` choose by another metric than the median. `auto[pieces=256]` chooses among
//! the routes for scattered pieces.

use crate::buffer::Buffer;
use crate::ends::{Direction, Ends, both_ways};
use crate::error::Error;
use crate::executor::{Executor, Transfer};
use crate::inspect::Inspect;
use crate::machine::Machine;
use crate::routes::entry::Entry;
use crate::routes::registry;
use crate::spec::{self, Host, Memory, Spec, Word};
use machine::Unavailable;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use submit::route_choice::{Ask, Metric, Places, Profile};

const NAME: &str = "auto";
const METRICS: [(&str, Metric); 2] = [("for=p99.9", Metric::P999), ("for=max", Metric::Max)];

/// A batch of this many pieces.
const PIECES: &str = "pieces=";

pub(crate) const ENTRY: Entry = Entry {
    word: Word { name: NAME, numbered: false, options: &[METRICS[0].0, METRICS[1].0, PIECES] },
    about: |_, spec| {
        let metric = metric(&spec.executor);
        format!("for each size the route that `doorbell calibrate` found the best by {metric}")
    },
    list: |machine| ["host", "host[pageable]"].map(|host| both_ways(machine, host, NAME)).concat(),
    check,
    open: |machine, spec| {
        let profile = machine.profile()?;
        Ok(Box::new(Auto { machine, profile, spec: spec.clone(), opened: BTreeMap::new() }))
    },
};

fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    Direction::of(machine, spec)?;
    if METRICS.iter().filter(|(option, _)| spec.executor.has(option)).count() > 1 {
        return Err(Unavailable::new("one metric decides: choose one"));
    }
    let profile = machine.profile()?;
    // Checks that the profile has a plan for this direction and memory.
    choose(&profile, machine, spec, 1, Places::Same).map(drop)
}

fn metric(executor: &spec::Executor) -> Metric {
    METRICS.iter().find(|(option, _)| executor.has(option)).map_or(Metric::P50, |(_, metric)| *metric)
}

fn pieces(executor: &spec::Executor) -> Option<u32> {
    executor.numbers(PIECES).and_then(|numbers| numbers.first().copied())
}

/// The text of the best route for this size.
fn choose(
    profile: &Profile,
    machine: &Machine,
    spec: &Spec,
    bytes: u64,
    places: Places,
) -> Result<String, Unavailable> {
    let direction = match Direction::of(machine, spec)? {
        Direction::ToGpu => submit::route_choice::Direction::ToGpu,
        Direction::FromGpu => submit::route_choice::Direction::FromGpu,
    };
    let host = [spec.source.memory, spec.destination.memory].into_iter().find_map(|memory| match memory {
        Memory::Host(host) => Some(host),
        Memory::Gpu(_) | Memory::Device => None,
    });
    let memory = match host.unwrap_or_default() {
        host @ (Host::Pageable | Host::Registered) => host.to_string(),
        // For engines and the CPU, these are the same as pinned memory.
        Host::Pinned | Host::WriteCombined | Host::Huge | Host::Node(_) => Host::Pinned.to_string(),
    };
    let batch = pieces(&spec.executor).unwrap_or(1);
    let ask = Ask { memory: &memory, places, metric: metric(&spec.executor), batch, ..Ask::of(direction, bytes) };
    let choice = profile.choose(&ask).map_err(|none| Unavailable::new(none.to_string()))?;
    Ok(choice.route)
}

type Opened<'m> = Box<dyn Executor + 'm>;

struct Auto<'m> {
    machine: &'m Machine,
    profile: Arc<Profile>,
    spec: Spec,
    /// Keyed by the text of the executor.
    opened: BTreeMap<String, Opened<'m>>,
}

impl<'m> Auto<'m> {
    /// The text of the executor for this size. Opens the executor when it is first needed.
    fn executor(&mut self, bytes: u64, places: Places) -> Result<String, Error> {
        let route = choose(&self.profile, self.machine, &self.spec, bytes, places)?;
        let unusable = |why: String| Unavailable::new(format!("the profile names {route}: {why}"));
        let parsed = registry::parse(&route).map_err(|e| unusable(e.to_string()))?;
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
            let opened = registry::of_spec(self.machine, &spec).map_err(|e| match e {
                Error::Unavailable(why) => unusable(why.reason).into(),
                other => other,
            })?;
            self.opened.insert(executor.clone(), opened);
        }
        Ok(executor)
    }

    /// The executor for transfers that keep their addresses. Also the one for transfers that change them, if that is a different executor that can be opened.
    fn both(&mut self, bytes: u64) -> Result<(&mut Opened<'m>, Option<&mut Opened<'m>>), Error> {
        let same = self.executor(bytes, Places::Same)?;
        // If only the executor for other places fails, the transfer is not refused.
        let others = self.executor(bytes, Places::Others).ok().filter(|others| *others != same);
        let (mut first, mut second) = (None, None);
        for (name, opened) in &mut self.opened {
            if *name == same {
                first = Some(opened);
            } else if Some(name) == others.as_ref() {
                second = Some(opened);
            }
        }
        let first = first.ok_or_else(|| Unavailable::new(format!("{same} was not kept")))?;
        Ok((first, second))
    }
}

impl Executor for Auto<'_> {
    /// For the largest transfer that fits both memories.
    fn reach(&mut self, from: &Buffer<'_>, to: &Buffer<'_>) -> Result<(), Error> {
        let bytes = from.capacity().min(to.capacity());
        let (same, others) = self.both(bytes)?;
        // If the other executor does not reach them, `prepare` fails for it again, and it is left out.
        let _ = others.map(|others| others.reach(from, to));
        same.reach(from, to)
    }

    fn prepare<'r>(&'r mut self, ends: Ends<'r>, bytes: u64) -> Result<Box<dyn Transfer + 'r>, Error> {
        let (same, others) = self.both(bytes)?;
        let same = same.prepare(ends, bytes)?;
        let others = others.and_then(|others| others.prepare(ends, bytes).ok());
        Ok(match others {
            None => same,
            Some(others) => Box::new(Moving { same, others, at: None, has_moved: false }),
        })
    }
}

/// A transfer that switches to another route once it has changed its addresses.
struct Moving<'r> {
    same: Box<dyn Transfer + 'r>,
    others: Box<dyn Transfer + 'r>,
    /// The places of the last `move_to`.
    at: Option<(u64, u64)>,
    has_moved: bool,
}

impl<'r> Moving<'r> {
    #[inline]
    fn way(&self) -> &(dyn Transfer + 'r) {
        if self.has_moved { self.others.as_ref() } else { self.same.as_ref() }
    }

    #[inline]
    fn way_mut(&mut self) -> &mut (dyn Transfer + 'r) {
        if self.has_moved { self.others.as_mut() } else { self.same.as_mut() }
    }
}

impl Transfer for Moving<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        self.way_mut().submit()
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        self.way_mut().poll()
    }

    fn is_polled(&self) -> bool {
        self.way().is_polled()
    }

    #[inline]
    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        self.way_mut().wait(timeout)
    }

    fn rest(&mut self) -> Result<(), Error> {
        self.same.rest().and(self.others.rest())
    }

    fn move_to(&mut self, source: u64, destination: u64) -> Result<(), Error> {
        let here = (source, destination);
        // The last transfer is done, so the next one may use the other route.
        self.has_moved |= self.at.unwrap_or((0, 0)) != here;
        self.way_mut().move_to(source, destination)?;
        self.at = Some(here);
        Ok(())
    }

    fn released_gpu_ns(&self) -> Option<u64> {
        self.way().released_gpu_ns()
    }

    fn started_gpu_ns(&self) -> Option<u64> {
        self.way().started_gpu_ns()
    }

    fn ends(&self) -> Option<&dyn Inspect> {
        self.way().ends()
    }
}
