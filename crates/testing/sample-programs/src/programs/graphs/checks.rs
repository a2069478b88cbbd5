//! Named checks of launches that bypass CUDA, on a real GPU or with a libcuda in software. The first is one kernel of one thread; each demands a
//! little more than those before. No launch follows the first error: a fault of the GPU ends CUDA's context, so later checks would be
//! meaningless.

use super::capture::Maker;
use super::kernels::Code;
use super::past_cuda::PastCuda;
use super::{DEVICE, LONGEST, shapes};
use crate::checks::{Record, Verdict};
use crate::{Error, Result};
use cuda::{Argument, Context};
use launch::{Kind, Set};
use std::time::Instant;

/// Launches of a shape by CUDA and by doorbell.
const TIMES: u64 = 8;
/// Launches of queued graphs.
const QUEUED: u64 = 100;

/// One check.
#[derive(Clone, Copy)]
pub struct LaunchCheck {
    pub name: &'static str,
    /// What must hold.
    pub about: &'static str,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Tiny,
    Parameters,
    /// A shape of `graphs`, with this many launches.
    Shape(&'static str, u64),
}

/// All of them, in their order.
pub const LAUNCH_CHECKS: &[LaunchCheck] = &[
    LaunchCheck {
        name: "launched-tiny",
        about: "one kernel of one thread, launched once by doorbell",
        what: What::Tiny,
    },
    LaunchCheck { name: "launched-kernel", about: "one kernel, with CUDA's results", what: What::Shape("one", TIMES) },
    LaunchCheck {
        name: "launched-chain",
        about: "ten kernels that start one another run in their order",
        what: What::Shape("chain-10", TIMES),
    },
    LaunchCheck {
        name: "launched-parameters",
        about: "a launch after new parameters runs with them",
        what: What::Parameters,
    },
    LaunchCheck {
        name: "launched-memset",
        about: "a memset of 64 bytes between kernels, as CUDA's macro does it",
        what: What::Shape("memset-4-64B", TIMES),
    },
    LaunchCheck {
        name: "launched-memcpy",
        about: "a copy of 4 KiB between kernels",
        what: What::Shape("memcpy-d2d-4KiB", TIMES),
    },
    LaunchCheck {
        name: "launched-queue",
        about: "many launches of which only the last is waited for",
        what: What::Shape("queued", QUEUED),
    },
];

/// Runs the checks of these names (all, if empty) on a CUDA GPU, and reports how each ended.
///
/// # Errors
/// CUDA, or a doorbell channel next to it, is not available, so no graph was launched.
pub fn check_launches(gpu: usize, seed: u64, only: &[String], mut each: impl FnMut(Record)) -> Result<()> {
    // Before CUDA is initialised.
    gpu::Libcuda::open()?;
    let cuda = cuda::Cuda::load()?;
    let context = cuda.device(gpu)?.primary_context()?;
    context.make_current()?;
    let mut checks = Checks::new(&context, seed)?;
    let mut stopped: Option<&str> = None;
    for check in LAUNCH_CHECKS.iter().filter(|check| only.is_empty() || only.iter().any(|name| name == check.name)) {
        let start = Instant::now();
        let verdict = match stopped {
            Some(name) => Verdict::Skipped(format!("{name} failed: no more launches are made")),
            None => match checks.run(check.what) {
                Ok(what) => Verdict::Passed(what),
                Err(error) if super::is_refusal(&error) && checks.past.is_alive() => {
                    Verdict::Skipped(error.to_string())
                }
                Err(error) => Verdict::Failed(error.to_string()),
            },
        };
        if matches!(verdict, Verdict::Failed(_)) {
            stopped = Some(check.name);
        }
        each(Record { name: check.name, verdict, took: start.elapsed() });
    }
    Ok(())
}

struct Checks<'c> {
    maker: Maker<'c>,
    past: PastCuda,
    seed: u64,
}

impl<'c> Checks<'c> {
    fn new(context: &'c Context, seed: u64) -> Result<Checks<'c>> {
        let launches = QUEUED as usize;
        let maker = Maker::new(context, launches, DEVICE.saturating_add(launches * 4 * LONGEST))?;
        Ok(Checks { maker, past: PastCuda::open(context)?, seed })
    }

    fn run(&mut self, what: What) -> Result<String> {
        match what {
            What::Tiny => self.stores(1),
            What::Parameters => self.stores(10),
            What::Shape(name, times) => self.shape(name, times),
        }
    }

    fn shape(&mut self, name: &str, times: u64) -> Result<String> {
        let all = shapes();
        let at = all.iter().position(|shape| shape.name == name);
        let at = at.ok_or_else(|| Error::UnknownShape { name: name.into() })?;
        let done = self.past.one(&self.maker, at as u32 + 1, &all[at], self.seed, times)?;
        Ok(format!("{} launches, {} kernels", done.launches, done.kernels))
    }

    /// A graph of one kernel that stores a word; from the second launch by doorbell on it gets new parameters, another word and another place.
    fn stores(&mut self, launches: u32) -> Result<String> {
        let Checks { maker, past, seed } = self;
        maker.begin(fastrand::Rng::with_seed(*seed));
        maker.need(&[(Code::Plain, "store")], 1)?;
        let (stream, place, value) = (maker.stream(0)?, maker.take(256)?, maker.value());
        let at = maker.memory.address(place);
        let part = maker.capture(|| {
            let arguments = [Argument::U64(at), Argument::U32(value)];
            // SAFETY: the arguments are the kernel's, and the memory lives until after the last launch.
            unsafe { maker.function(Code::Plain, "store")?.launch([1; 3], [1; 3], 0, stream, &arguments) }
        })?;
        let mut model = maker.start()?;
        let by_cuda = || -> Result<()> {
            // SAFETY: as above.
            unsafe { part.exec.launch(stream) }?;
            Ok(stream.synchronize()?)
        };
        // SAFETY: module, memory and context outlive the launches: each is waited for.
        let mut graph = unsafe { past.learn(by_cuda) }?;
        model.set(place, 0, value);
        maker.memory.check(&model, || "launches by CUDA".into())?;
        let kernel = graph.nodes().iter().find(|node| matches!(node.kind, Kind::Kernel { .. })).map(|node| node.number);
        let node = kernel.ok_or(Error::Unavailable { reason: "the graph has no kernel".into() })?;
        for n in 0..launches {
            let (word, value) = (n % 64, if n == 0 { value } else { maker.value() });
            // What CUDA left there is erased.
            model = maker.start()?;
            let (to, value_bytes) = ((at + 4 * u64::from(word)).to_le_bytes(), value.to_le_bytes());
            let new = [Set { node, offset: 0, bytes: &to }, Set { node, offset: 8, bytes: &value_bytes }];
            past.launch_with(&mut graph, if n == 0 { &[] } else { &new })?;
            model.set(place, word as usize, value);
            maker.memory.check(&model, || format!("launch {}", n + 1))?;
        }
        Ok(if launches == 1 { "one thread".into() } else { format!("{} launches with new parameters", launches - 1) })
    }
}
