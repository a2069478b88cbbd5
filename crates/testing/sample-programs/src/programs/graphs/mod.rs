//! Graphs of every shape that can be captured, each launched again and again.
//!
//! Each shape is a graph whose nodes change memory in a way that only the right order gives; the CPU does the same, and both are compared after
//! each launch. Before each shape a kernel is launched whose grid announces the shape: (its number, [`MARK`], 1) blocks of one thread. Shapes that
//! need something that the driver or GPU lacks are skipped, with the reason.

mod capture;
mod checks;
mod forms;
mod kernels;
mod memory;
mod moves;
mod order;
mod past_cuda;
mod sizes;

use crate::{Error, Launcher, Options, Part, Report, Result};
use capture::Maker;
pub use checks::{LAUNCH_CHECKS, LaunchCheck, check_launches};
use cuda::{Argument, Context, Event, Node};
use fastrand::Rng;
use kernels::Code;
use memory::{Model, Place};
pub(crate) use past_cuda::PastCuda;
use std::cell::Cell;
use std::rc::Rc;

/// Blocks in y of the kernel that announces a shape.
pub const MARK: u32 = 61;
/// GPU memory for one shape, besides its logs.
const DEVICE: usize = 16 << 20;
/// Entries that the longest log has of each launch.
const LONGEST: usize = 2100;

/// A module with the kernel `log`: `log[1 + log[0]] = value; log[0] += 1`, one thread.
pub(crate) fn logging(context: &Context) -> cuda::Result<cuda::Module<'_>> {
    Code::Plain.load(context)
}

/// A graph, or several, to be made and launched.
struct Shape {
    name: String,
    make: Make,
}

type Make = Box<dyn for<'m, 'c> Fn(&'m Maker<'c>) -> Result<Made<'c>>>;

fn shape(name: impl Into<String>, make: impl for<'m, 'c> Fn(&'m Maker<'c>) -> Result<Made<'c>> + 'static) -> Shape {
    Shape { name: name.into(), make: Box::new(make) }
}

/// Graphs, and how they are launched.
struct Made<'c> {
    parts: Vec<capture::Part<'c>>,
    play: Play<'c>,
}

impl<'c> From<capture::Part<'c>> for Made<'c> {
    fn from(part: capture::Part<'c>) -> Made<'c> {
        Made { parts: vec![part], play: Play::Waited }
    }
}

enum Play<'c> {
    /// Each launch is waited for. Several graphs take turns.
    Waited,
    /// Only the last one is.
    Queued,
    /// On two streams in turns.
    Streams,
    /// Uploaded first.
    Uploaded,
    /// With an event that a stream records before each launch.
    Recorded(Event<'c>),
    /// With a new entry for its log, by the kernel at a node, after each third launch.
    Updated { node: Node, log: Place, entry: Rc<Cell<u32>> },
}

/// All shapes, in the order of their numbers, from 1.
fn shapes() -> Vec<Shape> {
    // Shapes that may leave a context broken are last.
    [order::shapes(), sizes::shapes(), moves::shapes(), forms::shapes(), moves::pageable(), moves::frames()]
        .into_iter()
        .flatten()
        .collect()
}

/// Their names.
pub(crate) fn names() -> Vec<String> {
    shapes().into_iter().map(|shape| shape.name).collect()
}

pub(crate) fn run(context: &Context, options: &Options, report: &mut Report) -> Result<()> {
    let times = options.count_or(6);
    let launches = usize::try_from(times).unwrap_or(usize::MAX);
    let maker = Maker::new(context, launches, DEVICE.saturating_add(launches.saturating_mul(4 * LONGEST)))?;
    let mut past = match options.launcher {
        Launcher::Cuda => None,
        Launcher::Doorbell => Some(PastCuda::open(context)?),
    };
    let (mut failed, mut kernels, mut launched) = (None, 0, 0);
    for (number, shape) in (1..).zip(shapes()) {
        if !options.only.is_empty() && !options.only.contains(&shape.name) {
            continue;
        }
        let outcome = mark(&maker, number).and_then(|()| match &mut past {
            None => one(&maker, number, &shape, options.seed, times),
            Some(past) => past.one(&maker, number, &shape, options.seed, times),
        });
        kernels += 1;
        let mut part = Part { name: shape.name, number, launches: 0, skipped: None };
        match outcome {
            Ok(done) => {
                (launched, kernels, part.launches) = (launched + done.launches, kernels + done.kernels, done.launches);
                done.found.iter().for_each(|bytes| report.add(bytes));
            }
            Err(error) if is_refusal(&error) => part.skipped = Some(error.to_string()),
            Err(error) => {
                (options.progress)(&format!("shape {number}, {}: {error}", part.name));
                failed.get_or_insert(match error {
                    Error::Wrong { .. } => error,
                    error => Error::Shape { name: part.name, error: Box::new(error) },
                });
                // A fault of the GPU also ends CUDA's context, so later shapes would be meaningless.
                if past.as_ref().is_some_and(|past| !past.is_alive()) {
                    break;
                }
                continue;
            }
        }
        (options.progress)(&part.to_string());
        report.parts.push(part);
    }
    report.fact("shapes", report.parts.iter().filter(|part| part.skipped.is_none()).count() as u64);
    report.fact("skipped", report.parts.iter().filter(|part| part.skipped.is_some()).count() as u64);
    report.fact("graph launches", launched);
    report.fact("kernels", kernels);
    failed.map_or(Ok(()), Err)
}

/// Launches the kernel that announces a shape.
fn mark(maker: &Maker<'_>, number: u32) -> Result<()> {
    maker.begin(Rng::with_seed(0));
    let (stream, word) = (maker.stream(0)?, maker.take(4)?);
    let arguments = [Argument::U64(maker.memory.address(word)), Argument::U32(number)];
    // SAFETY: the arguments are the kernel's, and the memory lives until after the stream has been synchronised.
    unsafe { maker.function(Code::Plain, "store")?.launch([number, MARK, 1], [1; 3], 0, stream, &arguments) }?;
    Ok(stream.synchronize()?)
}

struct Done {
    launches: u64,
    kernels: u64,
    found: [Vec<u8>; 3],
}

/// The shape's graphs, and the contents of the memory before their first launch.
fn make<'c>(maker: &Maker<'c>, number: u32, shape: &Shape, seed: u64) -> Result<(Made<'c>, Model)> {
    maker.begin(Rng::with_seed(seed.rotate_left(32) ^ u64::from(number)));
    maker.need(&[(Code::Plain, "log"), (Code::Plain, "copy")], 1)?;
    let made = (shape.make)(maker)?;
    Ok((made, maker.start()?))
}

fn one(maker: &Maker<'_>, number: u32, shape: &Shape, seed: u64, times: u64) -> Result<Done> {
    let (mut made, mut model) = make(maker, number, shape, seed)?;
    if matches!(made.play, Play::Uploaded) {
        for part in &made.parts {
            part.exec.upload(maker.stream(0)?)?;
        }
        maker.stream(0)?.synchronize()?;
    }
    let (mut launches, mut kernels, mut found) = (0, 0, Default::default());
    for time in 0..times {
        for part in &mut made.parts {
            before(maker, &made.play, part, time)?;
            if time > 0 && matches!(made.play, Play::Waited) {
                maker.renew(part, &mut model);
            }
            let stream = maker.stream(if matches!(made.play, Play::Streams) { time as usize % 2 } else { 0 })?;
            // SAFETY: the maker's memory lives until after the stream has been synchronised.
            unsafe { part.exec.launch(stream) }?;
            part.acts.iter_mut().for_each(|act| act(&mut model));
            launches += 1;
            kernels += part.kernels;
            if time + 1 < times && matches!(made.play, Play::Queued) {
                continue;
            }
            stream.synchronize()?;
            found = maker.memory.check(&model, || format!("shape {}, launch {}", shape.name, time + 1))?;
        }
    }
    Ok(Done { launches, kernels, found })
}

/// What is done before a launch.
fn before(maker: &Maker<'_>, play: &Play<'_>, part: &capture::Part<'_>, time: u64) -> Result<()> {
    match play {
        Play::Recorded(event) => Ok(event.record(maker.stream(1)?)?),
        Play::Updated { node, log, entry } if time > 0 && time.is_multiple_of(3) => {
            entry.set(entry.get().wrapping_add(1));
            Ok(maker.set_entry(&part.exec, *node, *log, entry.get())?)
        }
        _ => Ok(()),
    }
}

/// Whether this driver or GPU does not have it, which is no mistake: no such function or kernel, or CUDA's own word for that.
fn is_refusal(error: &Error) -> bool {
    // (CUDA_ERROR_) NO_BINARY_FOR_GPU, INVALID_PTX, UNSUPPORTED_PTX_VERSION, NOT_FOUND, COOPERATIVE_LAUNCH_TOO_LARGE, NOT_PERMITTED, NOT_SUPPORTED;
    // codes from 900 on mean that something cannot be captured.
    const CODES: [i32; 7] = [209, 218, 222, 500, 720, 800, 801];
    match error {
        Error::Unavailable { .. } | Error::Cuda(cuda::Error::Missing { .. }) => true,
        Error::Launch(launch::Error::Gpu(error)) => matches!(error, gpu::Error::NotSeen { .. }),
        // (The program's own launch failed, or its result was wrong.)
        Error::Launch(launch::Error::Launching(_)) => false,
        Error::Launch(_) => true,
        Error::Cuda(cuda::Error::Call { code, .. }) => CODES.contains(code) || (900..=908).contains(code),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_fit_on_a_command_line() {
        let mut names = names();
        assert!(names.iter().all(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')), "{names:?}");
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn a_refusal_is_no_mistake() {
        let call = |code| {
            Error::Cuda(cuda::Error::Call { call: "cuGraphLaunch", name: String::new(), code, text: String::new() })
        };
        assert!([801, 900, 218].into_iter().all(|code| is_refusal(&call(code))));
        assert!([1, 700, 719].into_iter().all(|code| !is_refusal(&call(code))));
        assert!(is_refusal(&Error::Cuda(cuda::Error::Missing { call: "cuGraphUpload" })));
    }
}
