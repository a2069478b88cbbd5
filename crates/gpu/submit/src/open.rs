//! How a session gets its address space: CUDA's if there is CUDA, its own on the software GPU.

use crate::choose::Ways;
use crate::error::Error;
use crate::follow::{Follow, Followed};
use crate::words::Order;
use cuda::{Cuda, KeepCurrent};
use gpu::{AddressSpace, CopyEngine, DeviceOptions, Engine, Entry, Libcuda};
use machine::Machine;
use rm::abi::control::ce_caps;
use rm::driver::Libc;
use std::sync::{Arc, Mutex};

/// Maximum number of lanes of a session.
pub(crate) const LANES: usize = 64;

/// Where a session's channels are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Next to CUDA; without CUDA on the software GPU, if it is preloaded.
    #[default]
    Any,
    Cuda,
    Software,
}

type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// How a session is opened.
#[derive(Clone)]
pub struct Options {
    pub kind: Kind,
    /// CUDA's number of the GPU.
    pub gpu: u32,
    /// Number of lanes, up to 64: this many threads have their own. Each lane is two channels, one for each direction. A lane is [`Error::Busy`] while
    /// another thread submits there, or prepares, releases or waits for a message of that lane.
    pub lanes: usize,
    /// Number of launch lanes, up to 16: channels in CUDA's group for graphs. A graph belongs to the lane of the thread that prepared it, or to the lane that
    /// was passed to [`Session::copy_graph`](crate::Session::copy_graph). Launches on different lanes are not ordered; on one lane they run one after the
    /// other. A lane is [`Error::Busy`] while another thread launches there, or prepares or releases a graph of that lane. A lane's channel is opened with
    /// its first graph.
    pub launch_lanes: usize,
    /// Each submission checks with CUDA whether the memory is still the allocation that was pinned: 1 us or more, and CUDA's locks.
    pub check_each_submission: bool,
    /// Lists to the GPU leave the engine with the most physical engines alone. On an H200, 16 KiB pages move at 29 GB/s instead of 53, and matrix products next
    /// to them lose 0.4 % of their speed instead of 3.4 %.
    pub spare_kernels: bool,
    /// The profile of this machine; without one, copy engines make all copies.
    pub profile: Follow,
    /// Called with the session's steps when it is opened and closed. Submissions never call it.
    pub log: Option<Log>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            kind: Kind::Any,
            gpu: 0,
            lanes: 8,
            launch_lanes: 1,
            check_each_submission: false,
            spare_kernels: false,
            profile: Follow::Variable,
            log: None,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("kind", &self.kind).field("gpu", &self.gpu).finish_non_exhaustive()
    }
}

/// The other parts of an open session, in addition to its lanes.
pub(crate) struct Setup {
    /// Orders streams; made at the first use. Dropped before the machine, whose context it uses.
    pub order: Mutex<Option<Arc<Order>>>,
    /// None without CUDA.
    pub machine: Option<Machine>,
    pub space: Arc<AddressSpace>,
    /// The engine that copies to the GPU, and the one that copies from it.
    pub engines: [Engine; 2],
    /// Which of them copies within GPU memory and between GPUs.
    pub between: bool,
    pub profile: Followed,
    pub ways: Arc<Ways>,
    pub log: Option<Log>,
}

impl Setup {
    pub fn new(options: &Options) -> Result<Setup, Error> {
        let (machine, space) = match options.kind {
            Kind::Cuda => beside(options.gpu)?,
            Kind::Software => alone(options.gpu)?,
            Kind::Any => match beside(options.gpu) {
                Ok(opened) => opened,
                Err(first) => alone(options.gpu)
                    .map_err(|second| Error::Unavailable(format!("beside CUDA: {first}; without CUDA: {second}")))?,
            },
        };
        Setup::of(machine, space, options)
    }

    pub fn of(machine: Option<Machine>, space: Arc<AddressSpace>, options: &Options) -> Result<Setup, Error> {
        if options.check_each_submission {
            space.check_each_submission();
        }
        let (engines, between) = engines(&space);
        let order = Mutex::new(None);
        let profile = options.profile.found(space.device().is_soft(), machine.as_ref())?;
        let ways = Arc::new(Ways::of(profile.as_deref().ok()));
        let setup = Setup { order, machine, space, engines, between, profile, ways, log: options.log.clone() };
        setup.say(|| {
            let beside = if setup.machine.is_some() { "beside CUDA" } else { "without CUDA" };
            format!(
                "opened {beside} on GPU {}, {} lanes; copies to the GPU by {}, from it by {}, within it and between GPUs by {}",
                options.gpu,
                options.lanes,
                name(setup.engines[0]),
                name(setup.engines[1]),
                name(setup.engines[usize::from(between)])
            )
        });
        if let Err(why) = &setup.profile {
            setup.say(|| format!("{why}: copy engines move everything"));
        }
        Ok(setup)
    }

    /// Makes CUDA's context current in this thread until the result is dropped; that restores the thread's previous context.
    pub fn enter(&self) -> Result<Option<KeepCurrent>, Error> {
        let Some(machine) = &self.machine else { return Ok(None) };
        let context = machine.context().map_err(|why| Error::Unavailable(why.reason))?;
        let kept = context.cuda().keep_current();
        machine.enter()?;
        Ok(Some(kept))
    }

    pub fn say(&self, text: impl FnOnce() -> String) {
        if let Some(log) = &self.log {
            log(&text());
        }
    }
}

/// An engine, for people.
pub(crate) fn name(engine: Engine) -> String {
    match engine {
        Engine::Copy(number) => format!("copy engine {number}"),
        Engine::Graphics => "the graphics engine".into(),
    }
}

type Opened = (Option<Machine>, Arc<AddressSpace>);

fn beside(gpu: u32) -> Result<Opened, Error> {
    // Before CUDA is initialised, if it is not yet.
    let watched = Libcuda::open().map_err(|error| Error::Unavailable(error.to_string()))?;
    let cuda = Cuda::load().map_err(|error| Error::Unavailable(error.to_string()))?;
    // The program's threads keep their current contexts.
    let _kept = cuda.keep_current();
    let context = cuda.device(gpu as usize)?.primary_context()?;
    let uuid = context.device().uuid()?;
    let space = watched.address_space(uuid, Entry::OwnClient).map_err(|error| match error {
        gpu::Error::Libcuda(why) => Error::Unavailable(format!(
            "{why}; this order works: doorbell_init() (in Python `import doorbell`) before the first CUDA call, then CUDA, then opening \
             the session"
        )),
        other => other.into(),
    })?;
    // Only launches of graphs need it.
    let group = move || watched.address_space(uuid, Entry::CudasClient);
    Ok((Some(Machine::beside(context, space.clone()).with_group(group)), space))
}

fn alone(gpu: u32) -> Result<Opened, Error> {
    // Real hardware is refused: the GPU has an owner, and without CUDA there is no way to find out which one.
    let device = DeviceOptions::default().open(Arc::new(Libc), gpu as usize)?;
    Ok((None, AddressSpace::new(&device)?))
}

/// An asynchronous copy engine for each direction. Not the engine with which the kernel driver clears memory, so that no allocation delays a copy. Engines
/// that are made for their direction, if the driver reports that. Two that share no physical engine, so that both directions run at the same time.
///
/// And whether the second one copies within GPU memory and between GPUs: the one with more physical engines.
fn engines(space: &AddressSpace) -> ([Engine; 2], bool) {
    let all = space.device().engines().unwrap_or_default();
    let numbers = chosen(&all);
    let physical = numbers.map(|number| {
        let mask = all.iter().find(|engine| engine.number == number).and_then(|engine| engine.physical.as_ref().ok());
        mask.map_or(0, |mask| mask.count_ones())
    });
    (numbers.map(Engine::Copy), physical[1] > physical[0])
}

/// Their numbers.
fn chosen(all: &[CopyEngine]) -> [u32; 2] {
    let free = gpu::asynchronous(all);
    let drivers_own = free.last().map(|engine| engine.number);
    let best = |wanted: u16, apart: Option<&CopyEngine>| {
        let better = |engine: &&CopyEngine| {
            let alone =
                apart.is_some_and(|other| other.number == engine.number || engine.shares_with(other) != Some(false));
            let decompresses = engine.caps.has(ce_caps::DECOMP_SUPPORTED);
            (Some(engine.number) == drivers_own, alone, !engine.caps.has(wanted), decompresses, engine.number)
        };
        free.iter().copied().min_by_key(better)
    };
    let to = best(ce_caps::SYSMEM_READ, None);
    let from = best(ce_caps::SYSMEM_WRITE, to);
    // If there are only graphics engines, any.
    let number = |engine: Option<&CopyEngine>| engine.or(all.first()).map_or(0, |engine| engine.number);
    [number(to), number(from)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu::CopyCaps;

    #[test]
    fn no_direction_uses_the_engine_that_the_kernel_driver_clears_memory_with() {
        let engine = |number, caps, physical| CopyEngine { number, caps: CopyCaps(caps), physical: Ok(physical) };
        let read = ce_caps::SYSMEM_READ;
        let graphics = [engine(0, ce_caps::GRCE, 1), engine(1, ce_caps::GRCE, 2)];
        let of = |more: &[(u32, u16, u32)]| {
            let all = graphics.iter().map(|e| (e.number, e.caps.0, *e.physical.as_ref().unwrap()));
            let all: Vec<CopyEngine> = all
                .chain(more.iter().copied())
                .map(|(number, caps, physical)| engine(number, caps, physical))
                .collect();
            chosen(&all)
        };
        assert_eq!(of(&[(2, read, 4), (3, 0, 8), (4, 0, 16)]), [3, 4]);
        assert_eq!(of(&[(2, 0, 4), (3, 0, 8), (4, read, 16)]), [4, 3]);
        // If both directions share one engine, each delays the other less than a time slice of the driver's own engine would.
        assert_eq!(of(&[(2, 0, 4), (3, 0, 8)]), [3, 3]);
        assert_eq!(of(&[(2, 0, 4)]), [2, 2]);
        assert_eq!(of(&[]), [0, 0]);
        // An H200, as its driver describes it. From the GPU, ce4 is at least as quick as ce3 at every size, although the driver lists only ce3 as good at
        // writes to system memory.
        let h200 = [(2, read, 0x5000), (3, ce_caps::SYSMEM_WRITE, 0xa000), (4, ce_caps::NVLINK_P2P, 0xfff)];
        assert_eq!(of(&h200), [3, 4]);
    }
}
