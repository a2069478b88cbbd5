//! A CUDA that was initialised before doorbell watched it: its objects are queried from the kernel driver.
//!
//! The driver answers for a client only through the file that made it, so the queries use CUDA's own control file. They
//! find the clients that it made (their handles count up from a fixed one), the devices and VA spaces of these
//! (libcuda's handles count up, too), and the GPU of each. No call returns which VA space UVM manages. But UVM refuses
//! a channel in any other (NV_ERR_INVALID_CHANNEL), before any submission. So doorbell tries each with its own channel,
//! and drops that again.
//!
//! Two things stay unknown. CUDA's channels: so no channel can join their group. The memory object of an address: so
//! memory that was allocated before has no BAR1 map. Its addresses are taken on CUDA's word ([`Watched::believe`]).

use crate::channel::{Channel, ChannelOptions};
use crate::device::{Device, Entry, Theirs};
use crate::engine::Engine;
use crate::error::Error;
use crate::space::AddressSpace;
use crate::watched::Watched;
use rm::call::ExternalGpus;
use rm::driver::{self, Driver};
use rm::fact::{Created, Fact, MappedExternal, What};
use rm::graph::FileKind;
use rm::{abi, class};
use std::os::fd::RawFd;
use std::sync::Arc;

/// The part of a client's handle that counts (RS_CLIENT_HANDLE_MAX).
const CLIENTS: u32 = 0x10_0000;
/// Where handles of objects begin: those that libcuda chooses (seen with 570 and 580), and those that the driver
/// chooses (RS_UNIQUE_HANDLE_BASE).
const OBJECTS: [u32; 2] = [0x5c00_0000, 0xcaf0_0000];
/// Handles count up: the search ends after this many that do not exist.
const MISSES: u32 = 4096;

/// A VA space of CUDA, and the objects that it belongs to.
#[derive(Clone, Copy, Debug)]
struct Space {
    ctl: RawFd,
    client: u32,
    device: u32,
    subdevice: u32,
    handle: u32,
    uuid: [u8; 16],
    instance: u32,
}

/// doorbell's own client, made after all clients of CUDA, and closed on drop.
struct Newest<'d> {
    driver: &'d dyn Driver,
    ctl: RawFd,
    client: u32,
}

impl Newest<'_> {
    fn new(driver: &dyn Driver) -> Result<Newest<'_>, Error> {
        let path = c"/dev/nvidiactl";
        let open = |cause| Error::Open { path: path.to_string_lossy().into_owned(), cause };
        let mut newest = Newest { driver, ctl: driver.open(path).map_err(open)?, client: 0 };
        // The driver needs the program's version before it makes a client.
        driver::driver_version(driver, newest.ctl)?;
        newest.client = driver::alloc_client(driver, newest.ctl)?;
        Ok(newest)
    }

    fn instance(&self, gpu_id: u32) -> Result<u32, Error> {
        let mut id = abi::control::GpuIdInfo { gpu_id, ..Default::default() };
        // SAFETY: the parameters have no pointers.
        unsafe {
            driver::control(self.driver, self.ctl, self.client, self.client, abi::control::GPU_ID_INFO_V2, &mut id)?;
        }
        Ok(id.device_instance)
    }
}

impl Drop for Newest<'_> {
    fn drop(&mut self) {
        let _ = self.driver.close(self.ctl);
    }
}

impl Watched {
    /// Finds CUDA's objects on the GPU with that UUID through its own files: control files `ctl` and UVM files `uvm`,
    /// the oldest first. For a CUDA that was initialised before it was watched.
    ///
    /// # Errors
    /// If CUDA has no VA space there that accepts doorbell's channel.
    pub fn catch_up(
        &'static self,
        driver: &Arc<dyn Driver>,
        ctl: &[RawFd],
        uvm: &[RawFd],
        uuid: [u8; 16],
    ) -> Result<(), Error> {
        let newest = Newest::new(&**driver)?;
        let (mut seen, mut why) = (0, None);
        for &ctl in ctl {
            let clients = clients(&newest, ctl);
            seen += clients.len();
            for space in clients.into_iter().flat_map(|client| spaces(&newest, ctl, client, uuid)) {
                for &uvm in uvm {
                    match self.try_out(driver, space, uvm) {
                        Ok(()) => {
                            self.learn(space, uvm);
                            return Ok(());
                        }
                        Err(error) => why = Some(error),
                    }
                }
            }
        }
        let none = || Error::Libcuda(format!("none of its {seen} clients has an address space on this GPU"));
        Err(why.unwrap_or_else(none))
    }

    /// Makes a channel in this VA space, and drops it again.
    fn try_out(&'static self, driver: &Arc<dyn Driver>, space: Space, uvm: RawFd) -> Result<(), Error> {
        let Space { ctl, client, device, subdevice, handle, uuid, instance } = space;
        let theirs = Theirs { ctl, uvm, client, device, subdevice, va_space: handle, uuid, instance };
        let device = Device::beside(driver.clone(), &theirs, Entry::OwnClient)?;
        let handle =
            driver::dup_object(&**driver, device.ctl, device.client, device.device, theirs.client, theirs.va_space)?;
        let space = AddressSpace::beside(&device, handle, self, (theirs.client, theirs.va_space));
        let engine = device.engines()?.first().map_or(0, |engine| engine.number);
        Channel::new(&space, Engine::Copy(engine), ChannelOptions::default()).map(drop)
    }

    fn learn(&self, space: Space, uvm: RawFd) {
        let Space { ctl, client, device, subdevice, handle, uuid, instance } = space;
        let mut graph = self.graph();
        let mut made = |parent, handle, class, what| {
            graph.told(ctl, FileKind::Ctl, Fact::Created(Created { client, parent, handle, class, what }));
        };
        made(client, client, class::NV01_ROOT_CLIENT, What::Client);
        made(client, device, class::NV01_DEVICE_0, What::Device { instance });
        made(device, subdevice, class::NV20_SUBDEVICE_0, What::Subdevice { index: 0 });
        made(device, handle, class::FERMI_VASPACE_A, What::VaSpace);
        graph.told(uvm, FileKind::Uvm, Fact::GpuRegistered(uuid));
        graph.told(uvm, FileKind::Uvm, Fact::SpaceRegistered { client, space: handle, gpu: uuid });
    }

    /// Takes CUDA's word that `length` bytes at `base` are one of its allocations, mapped for that GPU. doorbell has no
    /// record of it, because CUDA was initialised first.
    pub(crate) fn believe(&self, base: u64, length: u64, gpu: [u8; 16]) {
        let mut graph = self.graph();
        if length == 0 || base.checked_add(length).is_none() || graph.place_of(base).is_some() {
            return;
        }
        let gpus = ExternalGpus::one(gpu);
        let mapped = MappedExternal { base, length, offset: 0, client: 0, memory: 0, gpus };
        let uvm = graph.uvm_fd().unwrap_or(-1);
        graph.told(uvm, FileKind::Uvm, Fact::MappedExternal(mapped));
        drop(graph);
        self.believed().push((base, length));
    }

    /// UVM is about to free the range at `base`, whose length was not seen. Small blocks share a range. So those that
    /// begin within the largest shared range seen from CUDA are removed with it, at worst too early.
    pub(crate) fn freed_unseen(&self, base: u64) {
        let goes = |&(start, length): &(u64, u64)| {
            start == base || length < SMALL && (base..base.saturating_add(SHARED)).contains(&start)
        };
        let gone: Vec<_> = {
            let mut believed = self.believed();
            let gone = believed.iter().copied().filter(goes).collect();
            believed.retain(|range| !goes(range));
            gone
        };
        let mut graph = self.graph();
        for (base, length) in gone {
            graph.told(-1, FileKind::Uvm, Fact::RangeFreed { base, length });
        }
    }
}

/// Blocks below this size share a mapping.
const SMALL: u64 = 2 << 20;
const SHARED: u64 = 64 << 20;

/// The clients that were made through a control file, the latest first.
fn clients(newest: &Newest<'_>, ctl: RawFd) -> Vec<u32> {
    let last = newest.client % CLIENTS;
    let all = (0..=last).rev().map(|n| newest.client - last + n).filter(|&client| client != newest.client);
    all.filter(|&client| driver::class_of(newest.driver, ctl, client, client).is_ok()).collect()
}

/// A client's VA spaces on that GPU.
fn spaces(newest: &Newest<'_>, ctl: RawFd, client: u32, uuid: [u8; 16]) -> Vec<Space> {
    let driver = newest.driver;
    let objects = objects(driver, ctl, client);
    let of = |wanted: u32| objects.iter().filter(move |object| object.class == wanted);
    let on_gpu = |space: &Object| {
        let (device, handle) = (space.parent, space.handle);
        let subdevice = of(class::NV20_SUBDEVICE_0).find(|subdevice| subdevice.parent == device)?.handle;
        driver::gpu_uuid(driver, ctl, client, subdevice).ok().filter(|gpu| *gpu == uuid)?;
        let instance = newest.instance(driver::gpu_id(driver, ctl, client, subdevice).ok()?).ok()?;
        Some(Space { ctl, client, device, subdevice, handle, uuid, instance })
    };
    of(class::FERMI_VASPACE_A).filter_map(on_gpu).collect()
}

struct Object {
    handle: u32,
    class: u32,
    parent: u32,
}

/// Devices, subdevices and VA spaces of a client.
fn objects(driver: &dyn Driver, ctl: RawFd, client: u32) -> Vec<Object> {
    let mut objects = Vec::new();
    for first in OBJECTS {
        let mut misses = 0;
        for handle in (first..=u32::MAX).take_while(|handle| handle >> 20 == first >> 20) {
            match driver::class_of(driver, ctl, client, handle) {
                Ok(class @ (class::NV01_DEVICE_0 | class::NV20_SUBDEVICE_0 | class::FERMI_VASPACE_A)) => {
                    misses = 0;
                    let parent = driver::parent_of(driver, ctl, client, handle);
                    objects.extend(parent.ok().map(|parent| Object { handle, class, parent }));
                }
                Ok(_) => misses = 0,
                Err(_) => misses += 1,
            }
            if misses > MISSES {
                break;
            }
        }
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepared::Prepared;
    use crate::transfer::CopyMode;
    use crate::watching::Watching;
    use doorbell_softgpu::{Mode, SoftDriver};
    use rm::abi::{VaspaceAlloc, va_flags};
    use rm::driver::Layer;
    use std::ffi::{CStr, c_void};
    use std::io;
    use std::sync::{Mutex, OnceLock};
    use std::time::Duration;

    /// Addresses are per process: another test's memory could get the same addresses.
    static ONE: Mutex<()> = Mutex::new(());

    /// A driver that is watched from a later moment on.
    struct Later(SoftDriver, OnceLock<&'static Watched>);

    impl Layer for Later {
        fn below(&self) -> &dyn Driver {
            &self.0
        }

        fn open(&self, path: &CStr) -> io::Result<RawFd> {
            self.1.get().map_or_else(|| self.0.open(path), |watched| Watching(self.0, watched).open(path))
        }

        unsafe fn ioctl(&self, fd: RawFd, request: u64, arg: *mut c_void) -> io::Result<()> {
            // SAFETY: the caller's contract.
            unsafe {
                match self.1.get() {
                    None => self.0.ioctl(fd, request, arg),
                    Some(watched) => Watching(self.0, watched).ioctl(fd, request, arg),
                }
            }
        }
    }

    fn raw_space(device: &Device) -> u32 {
        let flags = va_flags::IS_EXTERNALLY_OWNED | va_flags::ENABLE_PAGE_FAULTING;
        let mut params = VaspaceAlloc { flags, va_base: 0x1000, va_size: 1 << 40, ..Default::default() };
        let shape = &device.abi.branch().layouts.vaspace_alloc;
        device.alloc_shaped(device.device, class::FERMI_VASPACE_A, shape, &mut params).unwrap()
    }

    #[test]
    fn what_cuda_had_before_is_found_and_its_frees_are_seen() {
        let _one = poison::ignore(ONE.lock());
        let soft = SoftDriver::new(Mode::Strict);
        let later = Arc::new(Later(soft, OnceLock::new()));
        let device = Device::open(later.clone(), 0).unwrap();
        // The first space is one that UVM does not manage, like libcuda's second one.
        let other = raw_space(&device);
        let cuda = AddressSpace::new(&device).unwrap();
        let memories = [cuda.alloc_host(1 << 16).unwrap(), cuda.alloc_video(1 << 16).unwrap()];

        let watched: &'static Watched = Box::leak(Box::default());
        watched.begin_late();
        later.1.set(watched).unwrap();
        let ours: Arc<dyn Driver> = Arc::new(soft);
        let nothing = watched.catch_up(&ours, &[device.ctl], &[device.uvm], [7; 16]).unwrap_err();
        assert!(nothing.to_string().contains("no") && watched.gpus().is_empty(), "{nothing}");
        // A UVM file without this GPU does not hide the right one.
        let stranger = soft.open(c"/dev/nvidia-uvm").unwrap();
        watched.catch_up(&ours, &[device.ctl], &[stranger, device.uvm], device.uuid()).unwrap();
        assert_eq!(watched.graph().va_spaces(), [(device.client, cuda.handle, device.uuid())]);
        assert_ne!(other, cuda.handle);

        let space = watched.address_space(ours, device.uuid(), Entry::OwnClient).unwrap();
        let [source, target] = &memories;
        assert!(matches!(space.pin(source.va(), 8), Err(Error::NotPinnable { .. })), "nobody has said anything of it");
        for memory in &memories {
            space.believe(memory.va(), memory.length());
        }
        let pins = memories.each_ref().map(|memory| space.pin(memory.va(), memory.length()).unwrap());
        let mut channel = Channel::new(&space, Engine::Copy(1), ChannelOptions::default()).unwrap();
        let mut copy =
            Prepared::copy(&mut channel, pins[1].region(), pins[0].region(), 1 << 16, CopyMode::Plain).unwrap();
        let data: Vec<u8> = (0..1 << 16).map(|n: u32| ((n * 7) ^ (n >> 8)) as u8).collect();
        source.write(0, &data);
        let ticket = copy.submit(&mut channel).unwrap();
        channel.wait(ticket, Duration::from_secs(10)).unwrap();
        let mut back = vec![0; data.len()];
        target.read(0, &mut back);
        assert!(back == data);
        let [source, target] = memories;
        drop(target);
        assert!(matches!(copy.submit(&mut channel), Err(Error::Stale)));
        assert!(space.pin(source.va(), 1 << 16).is_ok(), "the other is still there");
        assert_eq!(soft.counters().faults.load(std::sync::atomic::Ordering::Relaxed), 0);
    }

    #[test]
    fn a_free_of_unknown_length_takes_small_blocks_behind_it_along() {
        let watched: &'static Watched = Box::leak(Box::default());
        let all = [(1 << 30, 4096), (1 << 30 | 8192, 4096), (1 << 32, 8 << 20), (3 << 30, 4096)];
        all.iter().for_each(|&(base, length)| watched.believe(base, length, [1; 16]));
        watched.freed_unseen(1 << 30);
        assert_eq!(*watched.believed(), all[2..]);
        assert!(watched.graph().place_of(1 << 30 | 8192).is_none() && watched.graph().place_of(3 << 30).is_some());
        watched.freed_unseen(1 << 32);
        assert!(watched.graph().place_of((1 << 32) + 12345).is_none());
        assert_eq!(*watched.believed(), all[3..]);
    }

    #[test]
    fn who_watched_from_the_start_believes_nothing() {
        let _one = poison::ignore(ONE.lock());
        let watched: &'static Watched = Box::leak(Box::default());
        let soft = SoftDriver::new(Mode::Strict);
        let device = Device::open(Arc::new(Watching(soft, watched)), 0).unwrap();
        let _cuda = AddressSpace::new(&device).unwrap();
        let space = watched.address_space(Arc::new(soft), device.uuid(), Entry::OwnClient).unwrap();
        space.believe(0x12_3456_0000, 4096);
        assert!(matches!(space.pin(0x12_3456_0000, 8), Err(Error::NotPinnable { .. })));
    }
}
