//! What there is to move bytes with: CUDA, our own channels beside it, or our own alone.

use crate::error::{Error, Unavailable};
use cuda::{Context, Cuda};
use gpu::{AddressSpace, Device, DeviceOptions, Entry, Libcuda};
use rm::driver::{Driver, Libc};
use std::sync::{Arc, OnceLock};

/// Which GPU answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Where {
    /// The machine's own, through libcuda where there is one.
    #[default]
    Real,
    /// The software GPU, which has to stand behind the kernel driver's files (preloaded). Real hardware is refused.
    Soft,
}

/// One GPU and the two ways to it. Routes borrow it.
#[derive(Debug)]
pub struct Machine {
    // Our own side goes first: it stands in CUDA's address space.
    own: Result<Arc<AddressSpace>, Unavailable>,
    cuda: Result<Context, Unavailable>,
    index: u32,
    /// Asked for once.
    engines: OnceLock<Option<Vec<u32>>>,
}

impl Machine {
    /// Opens GPU 0. With CUDA its primary context becomes the calling thread's.
    ///
    /// # Errors
    /// Where neither CUDA nor a channel of our own is possible: the reasons of both. If one of them is, the routes of the
    /// other are [`Unavailable`], with the reason.
    pub fn open(place: Where) -> Result<Machine, Error> {
        match place {
            Where::Soft => Machine::of_driver(Arc::new(Libc), false),
            Where::Real => Machine::real(),
        }
    }

    fn real() -> Result<Machine, Error> {
        // Before libcuda is initialised: from then on its calls to the kernel driver are seen.
        let watched = Libcuda::open();
        let cuda = match cuda::Cuda::load().map_err(|reason| reason.to_string()).and_then(|cuda| {
            let context = cuda.device(0).and_then(|device| device.primary_context());
            context.map_err(|error| format!("CUDA has no context: {error}"))
        }) {
            Ok(context) => context,
            Err(reason) => return Machine::without_cuda(reason),
        };
        let own = match watched {
            Ok(libcuda) => libcuda.address_space(cuda.device().uuid()?, Entry::OwnClient),
            Err(error) => Err(error),
        };
        let own = own.map_err(|error| Unavailable::new(format!("no channel of our own beside CUDA: {error}")));
        Ok(Machine { own, cuda: Ok(cuda), index: 0, engines: OnceLock::new() })
    }

    fn without_cuda(reason: String) -> Result<Machine, Error> {
        match Machine::of_driver(Arc::new(Libc), true) {
            Ok(machine) => Ok(Machine { cuda: Err(Unavailable::new(reason)), ..machine }),
            Err(error) => Err(Unavailable::new(format!("{reason}; and without CUDA: {error}")).into()),
        }
    }

    /// Our own channels alone, over a kernel driver that the caller has. A real GPU only if `allow_real`.
    pub fn of_driver(driver: Arc<dyn Driver>, allow_real: bool) -> Result<Machine, Error> {
        let device: Arc<Device> = DeviceOptions::default().allow_real(allow_real).open(driver, 0)?;
        let reason = if device.is_soft() { "the software GPU has no CUDA" } else { "CUDA was not asked for" };
        Ok(Machine {
            own: Ok(AddressSpace::new(&device)?),
            cuda: Err(Unavailable::new(reason)),
            index: 0,
            engines: OnceLock::new(),
        })
    }

    /// CUDA alone, loaded by the caller.
    pub fn of_cuda(cuda: &Cuda) -> Result<Machine, Error> {
        let reason = "CUDA's own calls to the kernel driver were not seen, so its address space cannot be entered";
        let context = cuda.device(0)?.primary_context()?;
        Ok(Machine { own: Err(Unavailable::new(reason)), cuda: Ok(context), index: 0, engines: OnceLock::new() })
    }

    /// CUDA and our own channels in its address space, both opened by the caller.
    pub fn beside(context: Context, space: Arc<AddressSpace>) -> Machine {
        Machine { own: Ok(space), cuda: Ok(context), index: 0, engines: OnceLock::new() }
    }

    /// Numbers of the copy engines that there are; `None` where there is no way to them, or the driver does not tell.
    pub(crate) fn copy_engines(&self) -> Option<&[u32]> {
        let ask = || {
            let engines = self.own.as_ref().ok()?.device().engines().ok()?;
            Some(engines.iter().map(|engine| engine.number).collect())
        };
        self.engines.get_or_init(ask).as_deref()
    }

    /// Makes CUDA's context that of the calling thread, which each thread that uses a route has to do once.
    pub fn enter(&self) -> Result<(), Error> {
        match &self.cuda {
            Ok(context) => Ok(context.make_current()?),
            Err(_) => Ok(()),
        }
    }

    /// The number of the GPU in the names of routes.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// CUDA's primary context, or why there is none.
    pub fn context(&self) -> Result<&Context, Unavailable> {
        self.cuda.as_ref().map_err(Unavailable::clone)
    }

    /// The address space of our own channels, or why there is none: CUDA's where there is CUDA.
    pub fn space(&self) -> Result<&Arc<AddressSpace>, Unavailable> {
        self.own.as_ref().map_err(Unavailable::clone)
    }
}
