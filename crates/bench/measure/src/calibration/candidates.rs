//! Which routes are candidates for the best one: those that can be opened, and that are safe for any program.

use submit::route_choice::{Direction, decide};
use workload::Machine;
use workload::spec::{Executor, Host, Memory, Spec};

/// A route that is not examined, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    pub route: String,
    pub why: String,
}

/// Options that only a program can choose, and why a planner does not.
const OPTIONS: [(&str, &str); 6] = [
    ("armed", "it holds the engine between transfers"),
    ("answered", "it keeps a kernel spinning on the GPU"),
    ("pipelined", "a copy may overtake the one before it"),
    ("timed", "it is for measurements"),
    ("folded", "the same copy, with its completion reported in another way: other options decide the time"),
    ("group=cuda", "it shares a channel group with CUDA's own work"),
];

/// Executors of the same kind.
const EXECUTORS: [(&str, &str); 4] = [
    ("auto", "the profile itself is for this"),
    ("message", "it does not copy"),
    ("aperture", "each submission is a system call"),
    ("resident", "it keeps a kernel spinning on the GPU"),
];

/// The routes of one direction, memory kind and batch length, in order of preference, and the routes that are left out.
pub fn candidates(machine: &Machine, direction: Direction, memory: Host, batch: u32) -> (Vec<String>, Vec<Left>) {
    let (mut kept, mut left) = (Vec::new(), Vec::new());
    for listed in workload::routes::names(machine) {
        for name in forms(&listed.name) {
            let Ok(spec) = workload::routes::parse(&name) else { continue };
            let Some(spec) = of_memory(&spec, direction, memory).and_then(|spec| of_batch(spec, batch)) else {
                continue;
            };
            let route = spec.to_string();
            if kept.iter().any(|(_, known)| *known == route) || left.iter().any(|known: &Left| known.route == route) {
                continue;
            }
            let unavailable = || listed.unavailable.as_ref().map(|u| u.reason.clone());
            match unsafe_default(&spec.executor, direction).or_else(unavailable) {
                Some(why) => left.push(Left { route, why }),
                None => kept.push((rank(machine, &spec), route)),
            }
        }
    }
    kept.sort();
    (kept.into_iter().map(|(_, route)| route).collect(), left)
}

/// A route in the forms to try. CUDA's batches have one more form: the one that polls is usually faster.
fn forms(name: &str) -> Vec<String> {
    let polled = name.replace("cuda[batch,pieces=", "cuda[batch,polled,pieces=");
    if polled == name { vec![polled] } else { vec![name.to_owned(), polled] }
}

const PIECES: &str = "pieces=";

/// A route that moves this many pieces; for one piece, a route without pieces.
fn of_batch(mut spec: Spec, batch: u32) -> Option<Spec> {
    let pieces = spec.executor.numbers.iter_mut().find(|(option, _)| *option == PIECES);
    match (pieces, batch) {
        (None, 1) => Some(spec),
        (Some((_, count)), 2..) => {
            *count = vec![batch];
            Some(spec)
        }
        _ => None,
    }
}

/// The same executor from or to this kind of memory, if it is of this direction. If routes with a separate kind are listed, one with it exists as
/// well; otherwise the form is tried.
fn of_memory(spec: &Spec, direction: Direction, memory: Host) -> Option<Spec> {
    let mut spec = spec.clone();
    let host = match (direction, spec.source.memory, spec.destination.memory) {
        (Direction::ToGpu, Memory::Host(_), Memory::Gpu(_)) => &mut spec.source,
        (Direction::FromGpu, Memory::Gpu(_), Memory::Host(_)) => &mut spec.destination,
        _ => return None,
    };
    host.memory = Memory::Host(memory);
    Some(spec)
}

fn unsafe_default(executor: &Executor, direction: Direction) -> Option<String> {
    let named = EXECUTORS.iter().find(|(name, _)| *name == executor.name).map(|(_, why)| *why);
    let option = || OPTIONS.iter().find(|(option, _)| executor.has(option)).map(|(_, why)| *why);
    let posted = || {
        let posted = executor.name == "bar1" && direction == Direction::ToGpu && !executor.has("flush");
        posted.then_some("its completion does not show that the bytes have arrived")
    };
    named.or_else(option).or_else(posted).map(str::to_owned)
}

/// The order of preference is by kind of executor, then engines that run in parallel with kernels (the kernel driver's own engine last) before
/// those on the graphics runlist, then few options.
fn rank(machine: &Machine, spec: &Spec) -> (usize, usize, usize, Option<u32>) {
    let by_itself = machine.asynchronous_engines();
    let engine = match spec.executor.index {
        Some(index) => by_itself.iter().position(|e| e.number == index).unwrap_or(by_itself.len()),
        None => 0,
    };
    (decide::preference(&spec.to_string()), engine, spec.executor.options.len(), spec.executor.index)
}
