//! What a GPU is reached by: CUDA, doorbell's channels in CUDA's address space, or only doorbell's channels.

use crate::error::{Error, Unavailable};
use cuda::Context;
use gpu::{AddressSpace, CopyEngine, Device, DeviceOptions, Entry, Libcuda};
use rm::driver::{Driver, Libc};
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

/// One GPU, and CUDA and doorbell's channels on it, or one of the two.
pub struct Machine {
    // doorbell's side is dropped first, because it uses CUDA's address space.
    own: Result<Arc<AddressSpace>, Unavailable>,
    /// The same address space entered with CUDA's client, opened when a route first needs CUDA's channel group.
    group: OnceLock<Result<Arc<AddressSpace>, Unavailable>>,
    open_group: Result<OpenGroup, Unavailable>,
    /// Its calls to the kernel driver are seen, so it opens address spaces.
    libcuda: Result<Libcuda, Unavailable>,
    cuda: Result<Context, Unavailable>,
    /// Queried once.
    engines: OnceLock<Option<Vec<CopyEngine>>>,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("own", &self.own).field("cuda", &self.cuda).finish_non_exhaustive()
    }
}

impl Machine {
    /// Opens GPU 0. With CUDA, its primary context becomes current on the calling thread.
    ///
    /// # Errors
    /// If neither CUDA nor doorbell's channels work: the reasons of both. If one of them works, the other is
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

    /// From an address space and a context that the caller has opened, or the reason why there is none.
    pub fn new(own: Result<Arc<AddressSpace>, Unavailable>, cuda: Result<Context, Unavailable>) -> Machine {
        let no_group =
            cuda.as_ref().map_or_else(Unavailable::clone, |_| Unavailable::new("CUDA's client was not asked for"));
        let unseen = |_: &_| Unavailable::new("CUDA's calls to the kernel driver were not watched");
        Machine {
            libcuda: Err(own.as_ref().map_or_else(Unavailable::clone, unseen)),
            own,
            open_group: Err(no_group),
            group: OnceLock::new(),
            cuda,
            engines: OnceLock::new(),
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
        let libcuda = watched.map_err(beside);
        let own = space_of(&libcuda, uuid);
        let open_group = libcuda
            .clone()
            .map(|libcuda| -> OpenGroup { Box::new(move || libcuda.address_space(uuid, Entry::CudasClient)) });
        Ok(Machine { libcuda, open_group, ..Machine::new(own, Ok(context)) })
    }

    fn without_cuda(reason: String) -> Result<Machine, Error> {
        match Machine::of_driver(Arc::new(Libc), true) {
            Ok(machine) => Ok(Machine::new(machine.own, Err(Unavailable::new(reason)))),
            Err(error) => Err(Unavailable::new(format!("{reason}; and without CUDA: {error}")).into()),
        }
    }

    /// Only doorbell's channels, over the caller's kernel driver. A real GPU only if `allow_real`.
    pub fn of_driver(driver: Arc<dyn Driver>, allow_real: bool) -> Result<Machine, Error> {
        let device: Arc<Device> = DeviceOptions::default().allow_real(allow_real).open(driver, 0)?;
        let reason = if device.is_soft() { "the software GPU has no CUDA" } else { "CUDA was not asked for" };
        Ok(Machine::new(Ok(AddressSpace::new(&device)?), Err(Unavailable::new(reason))))
    }

    /// CUDA and doorbell's channels in its address space, both opened by the caller.
    pub fn beside(context: Context, space: Arc<AddressSpace>) -> Machine {
        Machine::new(Ok(space), Ok(context))
    }

    /// Gives a machine with CUDA access to CUDA's channel group. `open` opens its address space with [`Entry::CudasClient`]; it
    /// is called when it is first needed.
    #[must_use]
    pub fn with_group(
        mut self,
        open: impl Fn() -> Result<Arc<AddressSpace>, gpu::Error> + Send + Sync + 'static,
    ) -> Machine {
        self.open_group = Ok(Box::new(open));
        self.group = OnceLock::new();
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
    pub fn copy_engine(&self) -> u32 {
        let first = || self.copy_engines().unwrap_or_default().first();
        self.asynchronous_engines().first().copied().or_else(first).map_or(0, |engine| engine.number)
    }

    /// Makes CUDA's context current on the calling thread. Each thread that uses CUDA must call this once.
    pub fn enter(&self) -> Result<(), Error> {
        match &self.cuda {
            Ok(context) => Ok(context.make_current()?),
            Err(_) => Ok(()),
        }
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

    /// doorbell's channels in CUDA's address space on the GPU with this UUID, opened by this call.
    ///
    /// # Errors
    /// Why there are none.
    pub fn space_of(&self, uuid: [u8; 16]) -> Result<Arc<AddressSpace>, Unavailable> {
        space_of(&self.libcuda, uuid)
    }
}

fn space_of(libcuda: &Result<Libcuda, Unavailable>, uuid: [u8; 16]) -> Result<Arc<AddressSpace>, Unavailable> {
    libcuda.as_ref().map_err(Unavailable::clone)?.address_space(uuid, Entry::OwnClient).map_err(beside)
}

fn beside(error: gpu::Error) -> Unavailable {
    Unavailable::new(format!("no channel of our own beside CUDA: {error}"))
}
