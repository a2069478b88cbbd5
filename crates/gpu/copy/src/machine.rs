//! The means to move bytes on this machine: CUDA, doorbell's channels in CUDA's address space, or only doorbell's channels.

use crate::device::Card;
use crate::error::{Error, Unavailable};
use cuda::runtime::Runtime;
use cuda::{Context, Cuda};
use gpu::{AddressSpace, CopyEngine, Device, DeviceOptions, Entry, Libcuda};
use rm::abi::control::ce_caps;
use rm::driver::{Driver, Libc};
use route_choice::Profile;
use std::cmp::Reverse;
use std::sync::{Arc, OnceLock};

/// The real GPU or the software GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Where {
    /// The machine's GPU, through libcuda where that exists.
    #[default]
    Real,
    /// The software GPU, which must be preloaded and then serves the kernel driver's files. Real hardware is refused.
    Soft,
}

/// Enters CUDA's address space a second time, with CUDA's own client.
type OpenGroup = Box<dyn Fn() -> Result<Arc<AddressSpace>, gpu::Error> + Send + Sync>;

/// Opens another GPU in addition to the machine's.
type OpenPeer = Box<dyn Fn(&Machine, u32) -> Result<Machine, Unavailable> + Send + Sync>;

/// Finds the profile of this machine.
type FindProfile = Box<dyn Fn() -> Result<Arc<Profile>, Unavailable> + Send + Sync>;

/// Maximum number of GPUs that routes may name.
const GPUS: usize = 16;

/// One GPU and the means to move its bytes, and the computer's other GPUs, which are opened when a route first names them. Routes
/// borrow it.
pub struct Machine {
    /// Indexed by their numbers. They use this machine's CUDA.
    peers: [OnceLock<Result<Box<Machine>, Unavailable>>; GPUS],
    open_peer: Result<OpenPeer, Unavailable>,
    // doorbell's side is dropped first, because it uses CUDA's address space.
    own: Result<Arc<AddressSpace>, Unavailable>,
    /// The same address space entered with CUDA's client, opened when a route first needs CUDA's channel group.
    group: OnceLock<Result<Arc<AddressSpace>, Unavailable>>,
    open_group: Result<OpenGroup, Unavailable>,
    runtime: OnceLock<Result<Runtime, Unavailable>>,
    cuda: Result<Context, Unavailable>,
    index: u32,
    /// Queried once.
    engines: OnceLock<Option<Vec<CopyEngine>>>,
    profile: OnceLock<Result<Arc<Profile>, Unavailable>>,
    find_profile: Option<FindProfile>,
    /// The device on the bus. If there is none, a copy engine takes its place.
    card: Option<Arc<dyn Card>>,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut all = f.debug_struct("Machine");
        all.field("own", &self.own).field("cuda", &self.cuda).field("index", &self.index).finish_non_exhaustive()
    }
}

impl Machine {
    /// Opens GPU 0. With CUDA, its primary context becomes current on the calling thread.
    ///
    /// # Errors
    /// If neither CUDA nor doorbell's channels work: the reasons of both. If one of them works, the routes of the other are
    /// [`Unavailable`], with the reason.
    pub fn open(place: Where) -> Result<Machine, Error> {
        match place {
            Where::Soft => Machine::of_driver(Arc::new(Libc), false).map_err(|error| match error {
                Error::Gpu(error @ gpu::Error::Open { .. }) => {
                    Unavailable::new(format!("{error}; the software GPU has to be preloaded")).into()
                }
                other => other,
            }),
            Where::Real => Machine::real(),
        }
    }

    fn new(own: Result<Arc<AddressSpace>, Unavailable>, cuda: Result<Context, Unavailable>) -> Machine {
        let (no_group, no_runtime) = match &cuda {
            Ok(_) => ("CUDA's client was not asked for", "the CUDA runtime was not asked for"),
            Err(why) => (why.reason.as_str(), why.reason.as_str()),
        };
        Machine {
            peers: Default::default(),
            open_peer: Err(Unavailable::new("this machine was opened with gpu0 alone")),
            own,
            open_group: Err(Unavailable::new(no_group)),
            group: OnceLock::new(),
            runtime: Err(Unavailable::new(no_runtime)).into(),
            cuda,
            index: 0,
            engines: OnceLock::new(),
            profile: OnceLock::new(),
            find_profile: None,
            card: None,
        }
    }

    /// doorbell's channels belong to doorbell's own client. Channels in CUDA's group need CUDA's client, which is entered when
    /// one is first needed.
    fn real() -> Result<Machine, Error> {
        // Before libcuda is initialised, so that its later calls to the kernel driver are seen.
        let watched = Libcuda::open();
        let cuda = cuda::Cuda::load().map_err(|reason| reason.to_string()).and_then(|cuda| {
            let context = cuda.device(0).and_then(|device| device.primary_context());
            context.map_err(|error| format!("CUDA has no context: {error}"))
        });
        let context = match cuda {
            Ok(context) => context,
            Err(reason) => return Machine::without_cuda(reason),
        };
        let uuid = context.device().uuid()?;
        let beside = |error: gpu::Error| Unavailable::new(format!("no channel of our own beside CUDA: {error}"));
        let watched = watched.map_err(beside);
        let own = watched.clone().and_then(|libcuda| libcuda.address_space(uuid, Entry::OwnClient).map_err(beside));
        let mut machine = Machine { runtime: OnceLock::new(), ..Machine::new(own, Ok(context)) };
        machine.open_group = watched
            .clone()
            .map(|libcuda| -> OpenGroup { Box::new(move || libcuda.address_space(uuid, Entry::CudasClient)) });
        machine.open_peer = Ok(Box::new(move |home, n| {
            let space = |uuid| {
                let libcuda = watched.clone()?;
                libcuda.address_space(uuid, Entry::OwnClient).map_err(beside)
            };
            peer(home, n, space)
        }));
        Ok(machine)
    }

    fn without_cuda(reason: String) -> Result<Machine, Error> {
        match Machine::of_driver(Arc::new(Libc), true) {
            Ok(machine) => Ok(Machine::new(machine.own, Err(Unavailable::new(reason)))),
            Err(error) => Err(Unavailable::new(format!("{reason}; and without CUDA: {error}")).into()),
        }
    }

    /// A machine with neither CUDA nor doorbell's channels, for code that needs no GPU. Every route is [`Unavailable`], with this
    /// reason.
    pub fn without_a_gpu(reason: &str) -> Machine {
        Machine::new(Err(Unavailable::new(reason)), Err(Unavailable::new(reason)))
    }

    /// Only doorbell's channels, over the caller's kernel driver. A real GPU only if `allow_real`.
    pub fn of_driver(driver: Arc<dyn Driver>, allow_real: bool) -> Result<Machine, Error> {
        let device: Arc<Device> = DeviceOptions::default().allow_real(allow_real).open(driver, 0)?;
        let reason = if device.is_soft() { "the software GPU has no CUDA" } else { "CUDA was not asked for" };
        Ok(Machine::new(Ok(AddressSpace::new(&device)?), Err(Unavailable::new(reason))))
    }

    /// Only doorbell's channels, in the caller's address space.
    pub fn of_space(space: Arc<AddressSpace>) -> Machine {
        Machine::new(Ok(space), Err(Unavailable::new("CUDA was not asked for")))
    }

    /// Only CUDA, loaded by the caller.
    pub fn of_cuda(cuda: &Cuda) -> Result<Machine, Error> {
        let reason = "CUDA's own calls to the kernel driver were not seen, so its address space cannot be entered";
        let context = cuda.device(0)?.primary_context()?;
        let mut machine = Machine::new(Err(Unavailable::new(reason)), Ok(context));
        machine.open_peer = Ok(Box::new(move |home, n| peer(home, n, |_| Err(Unavailable::new(reason)))));
        Ok(machine)
    }

    /// CUDA and doorbell's channels in its address space, both opened by the caller.
    pub fn beside(context: Context, space: Arc<AddressSpace>) -> Machine {
        Machine::new(Ok(space), Ok(context))
    }

    /// Gives a machine with CUDA access to CUDA's channel group. `open` opens its address space with [`Entry::CudasClient`]; it
    /// is called when a route first needs it.
    #[must_use]
    pub fn with_group(
        mut self,
        open: impl Fn() -> Result<Arc<AddressSpace>, gpu::Error> + Send + Sync + 'static,
    ) -> Machine {
        self.open_group = Ok(Box::new(open));
        self.group = OnceLock::new();
        self
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
            let open = self.open_peer.as_ref().map_err(Unavailable::clone)?;
            open(self, n).map(|mut peer| {
                peer.index = n;
                Box::new(peer)
            })
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

    /// The copy engines; `None` where they cannot be queried or the driver does not list them.
    pub fn copy_engines(&self) -> Option<&[CopyEngine]> {
        let ask = || self.own.as_ref().ok()?.device().engines().ok();
        self.engines.get_or_init(ask).as_deref()
    }

    /// The engines that run while kernels run, the best for doorbell's copies first: [`gpu::asynchronous`].
    pub fn asynchronous_engines(&self) -> Vec<&CopyEngine> {
        gpu::asynchronous(self.copy_engines().unwrap_or_default())
    }

    /// The default copy engine's number: the best that runs while kernels run, else the first.
    pub(crate) fn copy_engine(&self) -> u32 {
        let first = || self.copy_engines().unwrap_or_default().first();
        self.asynchronous_engines().first().copied().or_else(first).map_or(0, |engine| engine.number)
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

    /// Makes CUDA's context current on the calling thread. Each thread that uses a route must call this once.
    pub fn enter(&self) -> Result<(), Error> {
        match &self.cuda {
            Ok(context) => Ok(context.make_current()?),
            Err(_) => Ok(()),
        }
    }

    /// The machine of the GPU whose copy engine takes the place of a device: the second GPU, else the first.
    pub(crate) fn device_seat(&self) -> &Machine {
        self.gpu(self.index() + 1).unwrap_or(self)
    }

    /// The number of the GPU in the names of routes.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// CUDA's primary context, or why there is none.
    pub fn context(&self) -> Result<&Context, Unavailable> {
        self.cuda.as_ref().map_err(Unavailable::clone)
    }

    /// The address space of doorbell channels (CUDA's where there is CUDA), or why there is none.
    pub fn space(&self) -> Result<&Arc<AddressSpace>, Unavailable> {
        self.own.as_ref().map_err(Unavailable::clone)
    }

    /// CUDA's address space entered with CUDA's own client, for channels in CUDA's group. The first call opens it.
    pub fn group_space(&self) -> Result<&Arc<AddressSpace>, Unavailable> {
        let opened = self.group.get_or_init(|| {
            let open = self.open_group.as_ref().map_err(Unavailable::clone)?;
            open().map_err(|error| Unavailable::new(format!("CUDA's client could not be entered: {error}")))
        });
        opened.as_ref().map_err(Unavailable::clone)
    }

    /// The CUDA runtime library, loaded by the first call, or why there is none.
    pub fn runtime(&self) -> Result<Runtime, Unavailable> {
        let load = || Runtime::load().map_err(|unavailable| Unavailable::new(unavailable.reason));
        self.runtime.get_or_init(load).clone()
    }
}

/// Another GPU that CUDA uses, with doorbell channels there. It and each open GPU can reach each other's memory where the
/// hardware allows it.
fn peer(
    home: &Machine,
    n: u32,
    space: impl FnOnce([u8; 16]) -> Result<Arc<AddressSpace>, Unavailable>,
) -> Result<Machine, Unavailable> {
    let first = home.context()?;
    let opened = (|| {
        let cuda = first.cuda();
        let count = cuda.device_count()?;
        if n as usize >= count {
            return Ok(Err(Unavailable::new(format!("CUDA has {count} GPU{}", if count == 1 { "" } else { "s" }))));
        }
        let context = cuda.device(n as usize)?.primary_context()?;
        let open = home.peers.iter().filter_map(|peer| peer.get()?.as_ref().ok()?.cuda.as_ref().ok());
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
    Ok(Machine::new(space(uuid), Ok(context)))
}
