//! The machine as routes see it: its GPUs, the CUDA runtime, a profile for `auto`, and a device on the bus.

use crate::device::Card;
use crate::error::Error;
use cuda::Cuda;
use cuda::runtime::Runtime;
use gpu::CopyEngine;
use machine::{Unavailable, Where};
use rm::abi::control::ce_caps;
use rm::driver::Driver;
use std::cmp::Reverse;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use submit::route_choice::Profile;

/// Finds the profile of this machine.
type FindProfile = Box<dyn Fn() -> Result<Arc<Profile>, Unavailable> + Send + Sync>;

/// Maximum number of GPUs that routes may name.
const GPUS: usize = 16;

/// One GPU ([`machine::Machine`]), and the computer's other GPUs, which are opened when a route first names them. Routes borrow it.
pub struct Machine {
    /// Indexed by their numbers. They use this machine's CUDA.
    peers: [OnceLock<Result<Box<Machine>, Unavailable>>; GPUS],
    /// Whether CUDA may open them.
    opens_peers: bool,
    gpu: machine::Machine,
    runtime: OnceLock<Result<Runtime, Unavailable>>,
    index: u32,
    profile: OnceLock<Result<Arc<Profile>, Unavailable>>,
    find_profile: Option<FindProfile>,
    /// The device on the bus. If there is none, a copy engine takes its place.
    card: Option<Arc<dyn Card>>,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("gpu", &self.gpu).field("index", &self.index).finish_non_exhaustive()
    }
}

impl Deref for Machine {
    type Target = machine::Machine;

    fn deref(&self) -> &machine::Machine {
        &self.gpu
    }
}

impl From<machine::Machine> for Machine {
    /// With this GPU alone, and without the CUDA runtime.
    fn from(gpu: machine::Machine) -> Machine {
        let no_runtime = gpu.context().err().unwrap_or_else(|| Unavailable::new("the CUDA runtime was not asked for"));
        Machine {
            peers: Default::default(),
            opens_peers: false,
            gpu,
            runtime: Err(no_runtime).into(),
            index: 0,
            profile: OnceLock::new(),
            find_profile: None,
            card: None,
        }
    }
}

impl Machine {
    /// Opens GPU 0. With CUDA, its primary context becomes current on the calling thread.
    ///
    /// # Errors
    /// As [`machine::Machine::open`].
    pub fn open(place: Where) -> Result<Machine, Error> {
        let mut machine = Machine::from(machine::Machine::open(place)?);
        if place == Where::Real && machine.context().is_ok() {
            (machine.opens_peers, machine.runtime) = (true, OnceLock::new());
        }
        Ok(machine)
    }

    /// A machine with neither CUDA nor doorbell's channels, for code that needs no GPU. Every route is [`Unavailable`], with this
    /// reason.
    pub fn without_a_gpu(reason: &str) -> Machine {
        machine::Machine::new(Err(Unavailable::new(reason)), Err(Unavailable::new(reason))).into()
    }

    /// Only doorbell's channels, over the caller's kernel driver. A real GPU only if `allow_real`.
    pub fn of_driver(driver: Arc<dyn Driver>, allow_real: bool) -> Result<Machine, Error> {
        Ok(machine::Machine::of_driver(driver, allow_real)?.into())
    }

    /// Only CUDA, loaded by the caller.
    pub fn of_cuda(cuda: &Cuda) -> Result<Machine, Error> {
        let reason = "CUDA's own calls to the kernel driver were not seen, so its address space cannot be entered";
        let context = cuda.device(0)?.primary_context()?;
        let machine = Machine::from(machine::Machine::new(Err(Unavailable::new(reason)), Ok(context)));
        Ok(Machine { opens_peers: true, ..machine })
    }

    /// Gives the machine another GPU, opened by the caller: `gpu1`, or the next free number.
    #[must_use]
    pub fn with_peer(self, mut peer: Machine) -> Machine {
        let free = self.peers.iter().enumerate().position(|(n, peer)| n as u32 > self.index && peer.get().is_none());
        if let Some(n) = free {
            peer.index = n as u32;
            // The slot was free.
            let _ = self.peers[n].set(Ok(Box::new(peer)));
        }
        self
    }

    /// The machine of GPU `n`: this one, or another of the computer, which the first call opens. This machine's context stays
    /// current on the calling thread.
    ///
    /// # Errors
    /// Why this GPU does not exist or cannot be opened.
    pub fn gpu(&self, n: u32) -> Result<&Machine, Unavailable> {
        if n == self.index {
            return Ok(self);
        }
        let closed = |why: Unavailable| Unavailable::new(format!("gpu{n} is not open: {why}"));
        let Some(slot) = self.peers.get(n as usize) else {
            return Err(closed(Unavailable::new(format!("GPUs are counted up to {}", GPUS - 1))));
        };
        let opened = slot.get_or_init(|| {
            if !self.opens_peers {
                return Err(Unavailable::new("this machine was opened with gpu0 alone"));
            }
            peer(self, n).map(|peer| Box::new(Machine { index: n, ..peer }))
        });
        opened.as_deref().map_err(|why| closed(why.clone()))
    }

    /// Gives the machine its profile, which route `auto` follows. `find` is called once, when a route first needs the profile. It
    /// must check that the profile was taken on this machine.
    #[must_use]
    pub fn with_profile(
        mut self,
        find: impl Fn() -> Result<Arc<Profile>, Unavailable> + Send + Sync + 'static,
    ) -> Machine {
        self.find_profile = Some(Box::new(find));
        self.profile = OnceLock::new();
        self
    }

    /// Gives the machine a device on the bus. The `device` of routes is then this one, not a copy engine.
    #[must_use]
    pub fn with_card(mut self, card: Arc<dyn Card>) -> Machine {
        self.card = Some(card);
        self
    }

    /// The machine's device on the bus.
    pub fn card(&self) -> Option<&Arc<dyn Card>> {
        self.card.as_ref()
    }

    /// The profile of this machine, or why there is none.
    pub fn profile(&self) -> Result<Arc<Profile>, Unavailable> {
        let find = || match &self.find_profile {
            Some(find) => find(),
            None => Err(Unavailable::new("no profile was given; `doorbell calibrate` makes one")),
        };
        self.profile.get_or_init(find).clone()
    }

    /// Gives a machine with CUDA its runtime library, loaded by the caller.
    #[must_use]
    pub fn with_runtime(mut self, runtime: Runtime) -> Machine {
        self.runtime = Ok(runtime).into();
        self
    }

    /// The number of the copy engine for copies to another GPU. Among the engines that the driver reports as made for the link
    /// between GPUs, this is the one with the largest number of physical engines. On an H200 one of three is: it makes 383 GB/s,
    /// the others 90.
    pub fn engine_between_gpus(&self) -> u32 {
        let physical = |engine: &&CopyEngine| Reverse(engine.physical.as_ref().map_or(0, |mask| mask.count_ones()));
        let linked = self.asynchronous_engines().into_iter().filter(|engine| engine.caps.has(ce_caps::NVLINK_P2P));
        linked.min_by_key(physical).map_or_else(|| self.copy_engine(), |engine| engine.number)
    }

    /// The number of the copy engine for copies from the host (`reads`) or to it: one that the driver reports as made for that,
    /// if there is one.
    pub fn engine_for_host(&self, reads: bool) -> u32 {
        let made_for = if reads { ce_caps::SYSMEM_READ } else { ce_caps::SYSMEM_WRITE };
        let made = self.asynchronous_engines().into_iter().find(|engine| engine.caps.has(made_for));
        made.map_or_else(|| self.copy_engine(), |engine| engine.number)
    }

    /// The machine of the GPU whose copy engine takes the place of a device: the second GPU, else the first.
    pub(crate) fn device_seat(&self) -> &Machine {
        self.gpu(self.index() + 1).unwrap_or(self)
    }

    /// The number of the GPU in the names of routes.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The CUDA runtime library, loaded by the first call, or why there is none.
    pub fn runtime(&self) -> Result<Runtime, Unavailable> {
        let load = || Runtime::load().map_err(|unavailable| Unavailable::new(unavailable.reason));
        self.runtime.get_or_init(load).clone()
    }
}

/// Another GPU that CUDA uses, with doorbell channels there. It and each open GPU can reach each other's memory where the
/// hardware allows it.
fn peer(home: &Machine, n: u32) -> Result<Machine, Unavailable> {
    let first = home.context()?;
    let opened = (|| {
        let cuda = first.cuda();
        let count = cuda.device_count()?;
        if n as usize >= count {
            return Ok(Err(Unavailable::new(format!("CUDA has {count} GPU{}", if count == 1 { "" } else { "s" }))));
        }
        let context = cuda.device(n as usize)?.primary_context()?;
        let open = home.peers.iter().filter_map(|peer| peer.get()?.as_ref().ok()?.gpu.context().ok());
        for other in std::iter::once(first).chain(open) {
            // Without peer access CUDA still copies between the two, but doorbell's channels return an error: the memory is not
            // mapped.
            let _ = other.enable_peer(&context)? && context.enable_peer(other)?;
        }
        let uuid = context.device().uuid()?;
        Ok(Ok((context, uuid)))
    })();
    let restored = first.make_current();
    let failed = |error: cuda::Error| Unavailable::new(format!("CUDA: {error}"));
    let (context, uuid) = opened.map_err(failed)??;
    restored.map_err(failed)?;
    Ok(machine::Machine::new(home.space_of(uuid), Ok(context)).into())
}
