//! Functions of a host whose IOMMU is off or passes through: BARs and configuration space by the files of /sys, memory in huge pages.
//!
//! Only this module keeps the device from writing anywhere: a bus address is a physical one. So memory consists of huge pages, which the kernel
//! neither swaps nor moves by itself. If this process dies, the restorer holds them until the function was stopped and reset.

mod checks;
mod huge;
mod pagemap;
mod pool;
pub(crate) mod resource;

pub use checks::refusal;

use crate::address::Address;
use crate::bar::Bar;
use crate::bind;
use crate::error::Error;
use crate::function::{Function, Identity};
use crate::identity::{self, COMMAND, MASTER, MEMORY};
use crate::mapped::Mapped;
use crate::memory::{Memory, Peer, Place, Run};
use crate::peers;
use crate::restorer::{Deed, Restorer, Step};
use crate::tree::{self, Tree};
use pool::Pool;
use resource::Resource;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Opens a function without a kernel driver.
///
/// # Errors
/// [`Error::Refused`] with the obstacle and the remedy; [`Error::System`].
pub fn open(address: Address) -> Result<Device, Error> {
    let tree = Tree::default();
    if let Some(refused) = refusal(&tree, address) {
        return Err(refused);
    }
    Device::open(&tree, address)
}

/// A function, opened through /sys.
pub struct Device {
    address: Address,
    identity: Identity,
    functional: bool,
    folder: PathBuf,
    config: File,
    resources: Vec<Resource>,
    pool: Arc<Pool>,
    /// What the command register was before.
    command: u16,
    /// The driver could not stop the function.
    stuck: AtomicBool,
    /// Dismissed last, after the fields above are restored. None if it is to act at the end of this process.
    restorer: Option<Restorer>,
}

impl Device {
    fn open(tree: &Tree, address: Address) -> Result<Device, Error> {
        let folder = tree.function(address);
        let path = folder.join("config");
        let config = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|why| Error::system(format!("open {}", path.display()), why))?;
        alone(address, &config)?;
        let mut head = [0; 64];
        config.read_exact_at(&mut head, 0).map_err(|why| Error::system(format!("read {}", path.display()), why))?;
        let identity = identity::parse(address, &head).ok_or(Error::Gone { address })?;
        let command = u16::from_le_bytes([head[4], head[5]]);
        let resources = resource::read(&folder)?;
        let pool = Pool::new(huge::file(tree)?);

        // The restorer first, so that there is no moment without it.
        let stop = Step::Stop { folder: folder.clone(), command: (command & !MASTER) as u8 };
        // If this process took it from a driver, that driver gets it back only after the function has stopped.
        let delay = bind::delay(address);
        let files = [pool.file().as_fd(), config.as_fd()];
        let hold: Vec<BorrowedFd<'_>> = files.into_iter().chain(delay.as_ref().map(AsFd::as_fd)).collect();
        let restorer = Restorer::start(&[stop], &hold)
            .map_err(|why| Error::system("start the process that restores the device if this one dies", why))?;
        // Powers the function up and lets it decode memory; counted by the kernel.
        Deed::new(folder.join("enable"), "1").run().map_err(|why| Error::system(format!("enable {address}"), why))?;
        let functional = identity::is_emulated(&head);
        let (stuck, restorer) = (AtomicBool::new(false), Some(restorer));
        let device =
            Device { address, identity, functional, folder, config, resources, pool, command, stuck, restorer };
        device.set_command(command & !MASTER | MEMORY)?;
        Ok(device)
    }

    fn set_command(&self, command: u16) -> Result<(), Error> {
        self.write_config(COMMAND, &command.to_le_bytes())
    }

    fn resource(&self, index: u8) -> Result<&Resource, Error> {
        let no = |why: String| Error::NoBar { address: self.address, index, why };
        let resource = self.resources.get(usize::from(index)).ok_or_else(|| no("there are BARs 0 to 5".into()))?;
        resource.usable().map_err(|why| no(why.into()))?;
        Ok(resource)
    }
}

impl Function for Device {
    fn identity(&self) -> Identity {
        self.identity
    }

    fn is_functional(&self) -> bool {
        self.functional
    }

    fn read_config(&self, offset: u16, into: &mut [u8]) -> Result<(), Error> {
        match self.config.read_exact_at(into, u64::from(offset)) {
            Ok(()) => Ok(()),
            // The file ends with the function's space. A function that is gone has no file.
            Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => {
                let length = fs::metadata(self.folder.join("config")).map_or(0, |file| file.len());
                let end = u64::from(offset) + into.len() as u64;
                Err(Error::OutOfBounds { what: "configuration space", at: offset.into(), end, length })
            }
            Err(why) if why.raw_os_error() == Some(libc::ENODEV) => {
                into.fill(0xff);
                Ok(())
            }
            Err(why) => Err(Error::system(format!("read {}'s configuration", self.address), why)),
        }
    }

    fn write_config(&self, offset: u16, from: &[u8]) -> Result<(), Error> {
        let written = self.config.write_all_at(from, u64::from(offset));
        written.map_err(|why| Error::system(format!("write {}'s configuration", self.address), why))
    }

    fn bar(&self, index: u8) -> Result<Bar, Error> {
        let resource = self.resource(index)?;
        let path = self.folder.join(format!("resource{index}"));
        let failed = |why| Error::system(format!("map {}", path.display()), why);
        let opened = File::options().read(true).write(true).custom_flags(libc::O_SYNC).open(&path).map_err(failed)?;
        // A BAR smaller than a page may begin within one: the kernel maps the page.
        let within = resource.start % 4096;
        let mapping = Mapped::part(&opened, 0, within + resource.length).map_err(failed)?;
        // SAFETY: the BAR begins `within` bytes into the mapping.
        let at = unsafe { mapping.at.add(within as usize) };
        // SAFETY: `length` bytes from there on are mapped as long as the mapping lives.
        Ok(unsafe { Bar::mapped(at, resource.length, resource.start, Arc::new(mapping)) })
    }

    fn allocate(&self, bytes: u64) -> Result<Memory, Error> {
        self.pool.allocate(bytes)
    }

    fn reach(&self, peer: &Peer) -> Result<Memory, Error> {
        if let Some(refused) = peer.device.and_then(|target| peers::refusal(&Tree::default(), self.address, target)) {
            return Err(refused);
        }
        // Without translation the function reaches a BAR at its own address.
        let run = Run { offset: 0, bus: peer.bus, length: peer.length };
        // SAFETY: `keep` keeps the BAR's memory at its address, which every peer guarantees.
        Ok(unsafe { Memory::new(Place::Peer, vec![run], None::<NonNull<u8>>, peer.keep.clone()) })
    }

    fn reset(&self) -> Result<(), Error> {
        let path = self.folder.join("reset");
        if !path.exists() {
            let why = "it has no reset (no FLR, no power states, not alone on its bus)".into();
            let hint = "reset it by its own registers".into();
            return Err(Error::Refused { address: self.address, why, hint });
        }
        Deed::new(path, "1").run().map_err(|why| Error::system(format!("reset {}", self.address), why))
    }

    fn is_stuck(&self) {
        self.stuck.store(true, Ordering::Relaxed);
    }

    fn is_present(&self) -> bool {
        let mut vendor = [0; 2];
        // The file stays open after the function is gone; its folder does not stay.
        self.folder.exists() && self.read_config(0, &mut vendor).is_ok() && vendor != [0xff; 2]
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // It has a driver again, which then sets the register.
        if self.folder.join("driver").exists() {
            return;
        }
        // If it was removed by software, it may still be in its slot and write: it can no longer be stopped, so its memory stays.
        if !self.folder.exists() {
            std::mem::forget(Arc::clone(&self.pool));
            return;
        }
        if self.stuck.load(Ordering::Relaxed) {
            // When this process ends, the pipe closes, and the restorer stops the function before its pages are freed.
            std::mem::forget(self.restorer.take());
        }
        // Bus mastering ends before anything else is given back. If this write fails, the kernel clears the bit when "0" is written.
        let _ = self.set_command(self.command & !MASTER);
        let _ = Deed::new(self.folder.join("enable"), "0").run();
        // It stays off, even if it was on: no driver has the function, and the addresses in its registers have other owners now.
        let _ = self.set_command(self.command & !MASTER);
    }
}

/// How long to wait for a function that another process still has: the restorer of a killed process may be working.
const PUTTING_BACK: Duration = Duration::from_secs(2);

/// The kernel does not keep two programs from driving one function. A lock on its file does, if both programs take it.
fn alone(address: Address, config: &File) -> Result<(), Error> {
    let until = Instant::now() + PUTTING_BACK;
    loop {
        // SAFETY: a lock on a file that this process has open.
        if unsafe { libc::flock(config.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            why if why.kind() != io::ErrorKind::WouldBlock => {
                return Err(Error::system(format!("lock {address}"), why));
            }
            _ if Instant::now() > until => {
                let why = "a program drives it already".into();
                return Err(Error::Refused { address, why, hint: "end that one first".into() });
            }
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// The kernel's parameters, for hints.
pub(crate) fn command_line(tree: &Tree) -> String {
    tree.text("proc/cmdline").unwrap_or_default()
}

/// The type of the IOMMU domain, if the function's folder shows an IOMMU that translates.
pub(crate) fn translation(tree: &Tree, address: Address) -> Option<String> {
    let group = tree.iommu_group(address)?;
    let kind = tree::text(&tree.path(format!("sys/kernel/iommu_groups/{group}/type")));
    let kind = kind.unwrap_or_else(|| "unknown".into());
    (kind != "identity").then_some(kind)
}
