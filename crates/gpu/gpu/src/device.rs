//! A device: files, client, device and sub-device objects, usermode pages, UVM.

use crate::architecture::Architecture;
use crate::error::Error;
use crate::fork;
use rm::abi::{Abi, CardInfo, DeviceAlloc, Standing, SubdeviceAlloc, UNVERIFIED_DRIVER, UsermodeAlloc, uvm};
use rm::class;
use rm::driver::{self, Driver};
use std::ffi::CString;
use std::os::fd::RawFd;
use std::sync::Arc;

/// The software GPU's value of CARD_INFO's `dev_name`, which real drivers leave empty.
pub const SOFTGPU_MARKER: &[u8] = b"softgpu";

/// `va_mode` of a device whose channels are in several VA spaces, like CUDA's device.
const MULTIPLE_VASPACES: u32 = 2;
/// Length of a usermode mapping.
const USERMODE_SIZE: usize = 0x10000;

/// The usermode mapping that a channel rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bar {
    /// Class 0xC661 without parameters.
    #[default]
    Bar0,
    /// With `bBar1Mapping`: the one that libcuda rings on Hopper.
    Bar1,
}

/// How a device is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceOptions {
    allow_real: bool,
    driver: Accepted,
}

/// The drivers on which a device is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Accepted {
    /// Those in the table, or all that [`UNVERIFIED_DRIVER`] accepts.
    #[default]
    Known,
    /// Any whose kernel structs are those of its branch.
    Unverified,
    /// Any; the kernel's structs are not checked.
    Unasked,
}

/// Whether [`UNVERIFIED_DRIVER`] is set.
pub fn accepts_unverified() -> bool {
    std::env::var_os(UNVERIFIED_DRIVER).is_some_and(|value| !value.is_empty() && value != "0")
}

impl DeviceOptions {
    /// Real hardware is refused unless `allow` is true: a GPU may be in use by others.
    pub fn allow_real(mut self, allow: bool) -> Self {
        self.allow_real = allow;
        self
    }

    /// Also accepts a driver whose version is not in the table. [`UNVERIFIED_DRIVER`] does the same.
    pub fn unverified_driver(mut self) -> Self {
        self.driver = Accepted::Unverified;
        self
    }

    /// For a stand-in for CUDA, which brings its own driver: accepts any driver, without a check of the kernel's structs.
    pub fn as_cuda(mut self) -> Self {
        self.driver = Accepted::Unasked;
        self
    }

    pub fn open(self, driver: Arc<dyn Driver>, index: usize) -> Result<Arc<Device>, Error> {
        Device::open_with(driver, index, self)
    }
}

/// The mapping of a usermode object, and its file; both are released on drop.
struct Usermode {
    driver: Arc<dyn Driver>,
    page: *mut u8,
    fd: RawFd,
    /// The process that made it.
    opener: u32,
}

impl Drop for Usermode {
    fn drop(&mut self) {
        if fork::forked(self.opener) {
            return;
        }
        if !self.page.is_null() {
            // SAFETY: this struct's own mapping; channels that ring it keep the device alive.
            let _ = unsafe { self.driver.munmap(self.page.cast(), USERMODE_SIZE) };
        }
        let _ = self.driver.close(self.fd);
    }
}

/// One GPU, opened. Address spaces and channels keep it open.
pub struct Device {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) abi: Abi,
    version: String,
    pub(crate) ctl: RawFd,
    pub(crate) uvm: RawFd,
    pub(crate) client: u32,
    pub(crate) device: u32,
    pub(crate) subdevice: u32,
    pub(crate) uuid: [u8; 16],
    card: CardInfo,
    /// The usermode pages, by [`Bar`], and their mappings.
    pages: [*mut u8; 2],
    usermode: Vec<Usermode>,
    architecture: &'static Architecture,
    soft: bool,
    /// Files to close, last opened first.
    files: Vec<RawFd>,
    /// Client, device and sub-device belong to CUDA, and are not freed here.
    pub(crate) borrowed: bool,
    /// The process that opened it.
    opener: u32,
}

// SAFETY: the raw pointers are usermode pages that live as long as the device. They are only touched by volatile
// accesses, which the hardware accepts from any thread.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("gpu_id", &self.card.gpu_id).field("soft", &self.soft).finish_non_exhaustive()
    }
}

impl Device {
    /// Opens GPU `index`; a real one is refused.
    pub fn open(driver: Arc<dyn Driver>, index: usize) -> Result<Arc<Device>, Error> {
        DeviceOptions::default().open(driver, index)
    }

    fn open_with(driver: Arc<dyn Driver>, index: usize, options: DeviceOptions) -> Result<Arc<Device>, Error> {
        let mut own = Own::open(driver, options.driver, |cards, _| match cards.get(index) {
            Some(&card) => Ok(card),
            None => Err(Error::NoDevice { index, count: cards.len() }),
        })?;
        if !own.soft() && !options.allow_real {
            return Err(Error::RealHardware { index });
        }
        let uvm = own.files.open("/dev/nvidia-uvm")?;
        let uuid = own.add_device()?;
        // Without a second file, which represents the process's memory, no VA space can be registered
        // (NV_ERR_PAGE_TABLE_NOT_AVAIL).
        let memory = own.files.open("/dev/nvidia-uvm")?;
        register_with_uvm(&*own.files.driver, &own.abi, uvm, memory, uuid)?;
        own.finish(uvm, uuid, None)
    }

    /// Opens the GPU of `theirs`. With doorbell's own client, its objects are freed with its own file. With CUDA's
    /// client, its objects are in CUDA's tree.
    pub(crate) fn beside(driver: Arc<dyn Driver>, theirs: &Theirs, entry: Entry) -> Result<Arc<Device>, Error> {
        let mut own = Own::open(driver, Accepted::Known, |cards, instance| {
            for card in cards {
                if instance(card.gpu_id)? == theirs.instance {
                    return Ok(*card);
                }
            }
            Err(Error::NoDevice { index: theirs.instance as usize, count: cards.len() })
        })?;
        match entry {
            Entry::OwnClient => {
                let uuid = own.add_device()?;
                own.finish(theirs.uvm, uuid, None)
            }
            Entry::CudasClient => own.finish(theirs.uvm, theirs.uuid, Some(theirs)),
        }
    }

    /// True for the software GPU.
    pub fn is_soft(&self) -> bool {
        self.soft
    }

    /// True in a fork's child of the process that opened it: the child must not use it.
    #[inline]
    pub fn forked(&self) -> bool {
        fork::forked(self.opener)
    }

    pub fn card(&self) -> &CardInfo {
        &self.card
    }

    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    pub fn driver_version(&self) -> &str {
        &self.version
    }

    pub fn architecture(&self) -> &'static Architecture {
        self.architecture
    }

    /// The usermode page of a BAR; its doorbell is at +0x90.
    pub(crate) fn usermode(&self, bar: Bar) -> *mut u8 {
        self.pages[bar as usize]
    }

    /// Opens one of the device's nodes again: each mapping needs its own file.
    pub(crate) fn open_node(&self, video: bool) -> Result<RawFd, Error> {
        let path = if video { format!("/dev/nvidia{}", self.card.minor) } else { "/dev/nvidiactl".into() };
        let fd = open(&*self.driver, &path)?;
        if video && let Err(error) = driver::register_fd(&*self.driver, fd, self.ctl) {
            let _ = self.driver.close(fd);
            return Err(error.into());
        }
        Ok(fd)
    }

    pub(crate) fn alloc<T: rm::abi::Plain>(&self, parent: u32, class: u32, params: &mut T) -> Result<u32, Error> {
        Ok(driver::alloc(&*self.driver, self.ctl, self.client, parent, 0, class, params)?)
    }

    pub(crate) fn alloc_shaped<T: rm::abi::Plain>(
        &self,
        parent: u32,
        class: u32,
        shape: &rm::abi::Shape<T>,
        params: &mut T,
    ) -> Result<u32, Error> {
        Ok(driver::alloc_shaped(&*self.driver, self.ctl, self.client, parent, 0, class, shape, params)?)
    }

    /// Frees an object. If that fails, the rest of the tree stays.
    pub(crate) fn free(&self, parent: u32, object: u32) {
        if self.forked() {
            return;
        }
        let _ = driver::free(&*self.driver, self.ctl, self.client, parent, object);
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.forked() {
            return;
        }
        self.usermode.clear();
        if !self.borrowed {
            self.free(self.device, self.subdevice);
            self.free(self.client, self.client);
        }
        for fd in self.files.drain(..).rev() {
            let _ = self.driver.close(fd);
        }
    }
}

/// How doorbell's objects enter CUDA's address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Entry {
    /// doorbell's own client, with a duplicate of CUDA's VA space: its frees and faults affect only doorbell.
    #[default]
    OwnClient,
    /// CUDA's client, which a channel in CUDA's channel group needs.
    CudasClient,
}

/// CUDA's handles and descriptors, found in its driver calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theirs {
    pub ctl: RawFd,
    pub uvm: RawFd,
    pub client: u32,
    pub device: u32,
    pub subdevice: u32,
    pub va_space: u32,
    pub uuid: [u8; 16],
    /// RM's device instance of the GPU.
    pub instance: u32,
}

/// A device in the making. Everything made so far is freed unless [`Own::finish`] is reached.
struct Own {
    files: Files,
    abi: Abi,
    version: String,
    card: CardInfo,
    ctl: RawFd,
    client: u32,
    device: u32,
    subdevice: u32,
    opener: u32,
}

impl Own {
    fn open(
        driver: Arc<dyn Driver>,
        accepted: Accepted,
        choose: impl FnOnce(&[CardInfo], &dyn Fn(u32) -> Result<u32, Error>) -> Result<CardInfo, Error>,
    ) -> Result<Own, Error> {
        let opener = fork::watch();
        let mut files = Files { driver: driver.clone(), open: Vec::new() };
        let ctl = files.open("/dev/nvidiactl")?;
        let version = driver::driver_version(&*driver, ctl)?;
        let abi = Abi::for_own_channels(&version, accepted != Accepted::Known || accepts_unverified())?;
        if abi.standing() != Standing::Known && accepted != Accepted::Unasked {
            let branch = abi.branch();
            let cause = |cause| Error::Open { path: "/dev/nvidia-uvm".into(), cause };
            let report = driver::self_check(&*driver, branch).map_err(cause)?;
            if report.failed != 0 {
                let parts = rm::check::names(report.failed);
                return Err(Error::Structs { version, branch: branch.number, parts });
            }
        }
        // From here on closing the control file frees the client and everything in it.
        let client = driver::alloc_client(&*driver, ctl)?;
        let cards = driver::card_info(&*driver, ctl)?;
        let card = choose(&cards, &|gpu_id| Ok(driver::device_instance(&*driver, ctl, client, gpu_id)?))?;
        let gpu = files.open(&node(&card))?;
        driver::register_fd(&*driver, gpu, ctl)?;
        Ok(Own { files, abi, version, card, ctl, client, device: 0, subdevice: 0, opener })
    }

    fn soft(&self) -> bool {
        self.card.dev_name.starts_with(SOFTGPU_MARKER)
    }

    /// Makes doorbell's own device and sub-device. Returns the GPU's UUID.
    fn add_device(&mut self) -> Result<[u8; 16], Error> {
        let (driver, ctl, client) = (&*self.files.driver, self.ctl, self.client);
        let device_id = driver::device_instance(driver, ctl, client, self.card.gpu_id)?;
        let mut params =
            DeviceAlloc { device_id, client_share: client, va_mode: MULTIPLE_VASPACES, ..Default::default() };
        self.device = driver::alloc(driver, ctl, client, client, 0, class::NV01_DEVICE_0, &mut params)?;
        let mut params = SubdeviceAlloc::default();
        self.subdevice = driver::alloc(driver, ctl, client, self.device, 0, class::NV20_SUBDEVICE_0, &mut params)?;
        Ok(driver::gpu_uuid(driver, ctl, client, self.subdevice)?)
    }

    /// With `theirs`, objects are made through CUDA's file in CUDA's client.
    fn finish(mut self, uvm: RawFd, uuid: [u8; 16], theirs: Option<&Theirs>) -> Result<Arc<Device>, Error> {
        let driver = self.files.driver.clone();
        let (ctl, client, device, subdevice) = match theirs {
            Some(t) => (t.ctl, t.client, t.device, t.subdevice),
            None => (self.ctl, self.client, self.device, self.subdevice),
        };
        let classes = driver::class_list(&*driver, ctl, client, device)?;
        let architecture = Architecture::seen(&classes)?;
        let node = node(&self.card);
        let map =
            |bar| map_usermode(&driver, &node, (ctl, client, subdevice), (architecture.usermode, bar), self.opener);
        let usermode = vec![map(Bar::Bar0)?, map(Bar::Bar1)?];
        let soft = self.soft();
        Ok(Arc::new(Device {
            driver,
            abi: self.abi,
            version: self.version,
            ctl,
            uvm,
            client,
            device,
            subdevice,
            uuid,
            card: self.card,
            pages: [usermode[0].page, usermode[1].page],
            usermode,
            architecture,
            soft,
            files: std::mem::take(&mut self.files.open),
            borrowed: theirs.is_some(),
            opener: self.opener,
        }))
    }
}

fn node(card: &CardInfo) -> String {
    format!("/dev/nvidia{}", card.minor)
}

/// Files that are closed unless a device takes ownership.
struct Files {
    driver: Arc<dyn Driver>,
    open: Vec<RawFd>,
}

impl Files {
    fn open(&mut self, path: &str) -> Result<RawFd, Error> {
        let fd = open(&*self.driver, path)?;
        self.open.push(fd);
        Ok(fd)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for fd in self.open.drain(..).rev() {
            let _ = self.driver.close(fd);
        }
    }
}

fn open(driver: &dyn Driver, path: &str) -> Result<RawFd, Error> {
    let c = CString::new(path).map_err(|e| Error::Open { path: path.into(), cause: e.into() })?;
    driver.open(&c).map_err(|cause| Error::Open { path: path.into(), cause })
}

fn register_with_uvm(driver: &dyn Driver, abi: &Abi, fd: RawFd, memory: RawFd, uuid: [u8; 16]) -> Result<(), Error> {
    // SAFETY: each struct belongs to its request.
    unsafe {
        driver::uvm_call(driver, abi, fd, uvm::INITIALIZE, &mut uvm::Initialize::default())?;
        let mut mm = uvm::MmInitialize { uvm_fd: fd, ..Default::default() };
        driver::uvm_call(driver, abi, memory, uvm::MM_INITIALIZE, &mut mm)?;
        let mut gpu = uvm::RegisterGpu { uuid, ctl_fd: -1, ..Default::default() };
        driver::uvm_call(driver, abi, fd, uvm::REGISTER_GPU, &mut gpu)?;
    }
    Ok(())
}

fn map_usermode(
    driver: &Arc<dyn Driver>,
    node: &str,
    (ctl, client, subdevice): (RawFd, u32, u32),
    (class, bar): (u32, Bar),
    opener: u32,
) -> Result<Usermode, Error> {
    let object = match bar {
        Bar::Bar0 => driver::alloc_bytes(&**driver, ctl, client, subdevice, 0, class, &mut [])?,
        Bar::Bar1 => {
            let mut params = UsermodeAlloc { bar1: 1, privileged: 0 };
            driver::alloc(&**driver, ctl, client, subdevice, 0, class, &mut params)?
        }
    };
    let fd = open(&**driver, node)?;
    let mut usermode = Usermode { driver: driver.clone(), page: std::ptr::null_mut(), fd, opener };
    driver::register_fd(&**driver, fd, ctl)?;
    driver::map_memory(&**driver, ctl, client, subdevice, object, 0, USERMODE_SIZE as u64, 0, fd)?;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let page = unsafe { driver.mmap(std::ptr::null_mut(), USERMODE_SIZE, prot, libc::MAP_SHARED, fd, 0) };
    let (what, length) = ("a usermode page", USERMODE_SIZE as u64);
    usermode.page = page.map_err(|cause| Error::Map { what, length, cause })?.cast();
    Ok(usermode)
}
