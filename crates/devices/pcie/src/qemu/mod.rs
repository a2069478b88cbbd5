//! QEMU's emulated devices as functions: this process starts QEMU without a guest and drives the devices itself.
//!
//! Registers are accessed over a socket (qtest). The machine's memory is shared with this process. So the devices' own DMA is visible here, and so
//! are their writes to the BAR of `ivshmem-plain`, which simulates GPU memory. Needs no KVM, no disk image and no root. The emulated processor
//! executes `hlt`; the clock runs, so device timers work. The invariant: QEMU ends with its [`Machine`] and with this process.

mod bus;
mod function;
mod monitor;
mod process;
mod ram;
mod wire;

pub use crate::memory::Pages;

use crate::address::Address;
use crate::error::Error;
use crate::function::Function;
use crate::mapped::{Mapped, memory_file};
use crate::memory::Peer;
use bus::Bus;
use function::Emulated;
use monitor::Monitor;
use process::Process;
use ram::Ram;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The program, looked up in PATH.
pub const PROGRAM: &str = "qemu-system-x86_64";

/// Whether it is there.
pub fn is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(PROGRAM).is_file())
}

/// 2 GiB: what fits below the PCI hole.
const MOST_RAM: u64 = 2 << 30;
/// Time limit for an answer during the start: a busy computer may have to load QEMU from disk first.
const START: Duration = Duration::from_secs(60);
/// QEMU id of the peer.
const PEER: &str = "doorbell-peer";

/// Memory that simulates GPU memory: a new memory file of this size, or a shared file.
pub enum PeerMemory {
    Bytes(u64),
    File(OwnedFd),
}

impl From<u64> for PeerMemory {
    fn from(bytes: u64) -> PeerMemory {
        PeerMemory::Bytes(bytes)
    }
}

impl From<OwnedFd> for PeerMemory {
    fn from(file: OwnedFd) -> PeerMemory {
        PeerMemory::File(file)
    }
}

impl From<File> for PeerMemory {
    fn from(file: File) -> PeerMemory {
        PeerMemory::File(file.into())
    }
}

/// Which function of a machine.
#[derive(Clone, Debug)]
pub enum Which {
    /// The n-th call of [`Builder::device`], from 0.
    Device(usize),
    /// The `id=` of its text.
    Id(String),
    Address(Address),
}

impl From<usize> for Which {
    fn from(device: usize) -> Which {
        Which::Device(device)
    }
}

impl From<&str> for Which {
    fn from(id: &str) -> Which {
        Which::Id(id.into())
    }
}

impl From<Address> for Which {
    fn from(address: Address) -> Which {
        Which::Address(address)
    }
}

/// Options of a machine.
pub struct Builder {
    ram: u64,
    pages: Pages,
    paused: bool,
    patience: Duration,
    peer: Option<PeerMemory>,
    devices: Vec<(String, String)>,
    drives: Vec<String>,
    arguments: Vec<String>,
}

impl Builder {
    /// Bytes of RAM, whole MiB; at most 2 GiB. Default 64 MiB. Untouched memory takes no space.
    pub fn ram(mut self, bytes: u64) -> Builder {
        self.ram = bytes;
        self
    }

    /// How [`Function::allocate`] chooses pages.
    pub fn pages(mut self, pages: Pages) -> Builder {
        self.pages = pages;
        self
    }

    /// Stops the clock, so no device timer expires (edu's DMA needs one).
    pub fn paused(mut self) -> Builder {
        self.paused = true;
        self
    }

    /// Time limit for an answer after the start. Default 30 s.
    pub fn patience(mut self, patience: Duration) -> Builder {
        self.patience = patience;
        self
    }

    /// Adds a device whose BAR other devices can write to. Its size is a power of two, at least 1 MiB.
    pub fn peer_memory(mut self, memory: impl Into<PeerMemory>) -> Builder {
        self.peer = Some(memory.into());
        self
    }

    /// A device, as QEMU's `-device` takes it: `nvme,drive=d0,serial=x`.
    pub fn device(mut self, text: impl Into<String>) -> Builder {
        let mut text = text.into();
        let id = match text.split(',').find_map(|part| part.strip_prefix("id=")) {
            Some(id) => id.to_string(),
            None => {
                let id = format!("device{}", self.devices.len());
                text.push_str(&format!(",id={id}"));
                id
            }
        };
        self.devices.push((id, text));
        self
    }

    /// A drive, as QEMU's `-drive` takes it: `file=disk.img,if=none,id=d0,format=raw`.
    pub fn drive(mut self, text: impl Into<String>) -> Builder {
        self.drives.push(text.into());
        self
    }

    /// Further arguments for QEMU, placed before the drives and devices.
    pub fn args<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Builder {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Starts QEMU and assigns every BAR.
    ///
    /// # Errors
    /// [`Error::Qemu`] where it is not installed, rejects its arguments (the message has its stderr) or does not answer; [`Error::System`].
    pub fn start(self) -> Result<Machine, Error> {
        if self.ram > MOST_RAM || self.ram < 2 << 20 || !self.ram.is_multiple_of(1 << 20) {
            return Err(Error::Qemu(format!("{} bytes of RAM: whole MiB from 2 to 2048 it takes", self.ram)));
        }
        let ram = Arc::new(Ram::new(self.ram, self.pages)?);
        let peer = self.peer.as_ref().map(PeerFile::open).transpose()?;
        let pair = || UnixStream::pair().map_err(|e| Error::system("a pair of sockets for QEMU", e));
        let ((wire, wire_far), (monitor, monitor_far)) = (pair()?, pair()?);
        let again = |file: &OwnedFd| file.try_clone().map_err(|e| Error::system("a descriptor for QEMU", e));
        let firmware = firmware()?;
        let given = Inherited {
            ram: again(&ram.file)?,
            firmware,
            wire: wire_far.into(),
            monitor: monitor_far.into(),
            peer: peer.as_ref().map(|peer| Ok((again(&peer.file)?, peer.length))).transpose()?,
        };
        let arguments = self.command_line(&given);
        let process = Arc::new(Process::start(PROGRAM, &arguments, given.all())?);
        let mut monitor = Monitor::connect(monitor, Arc::clone(&process), START)?;
        let wire = Arc::new(wire::Wire::new(wire, Arc::clone(&process), START)?);
        let bus = Bus::assign(Arc::clone(&wire))?;
        let peer = match peer {
            Some(file) => Some(Arc::new(file.behind(find(&mut monitor, PEER)?, &bus)?)),
            None => None,
        };
        monitor.set_patience(self.patience)?;
        wire.set_patience(self.patience)?;
        let ids = self.devices.into_iter().map(|(id, _)| id).collect();
        let inner = Inner {
            wire,
            process,
            monitor: Mutex::new(monitor),
            bus: Mutex::new(bus),
            ram,
            peer,
            opened: Mutex::new(BTreeMap::new()),
        };
        Ok(Machine { inner: Arc::new(inner), ids })
    }

    fn command_line(&self, given: &Inherited) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        let mut add = |name: &str, value: String| all.extend([name.to_string(), value]);
        let path = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
        let backend = |id: &str, bytes: u64, fd: &OwnedFd| {
            format!("memory-backend-file,id={id},size={bytes},mem-path={},share=on", path(fd))
        };
        add("-machine", "q35,memory-backend=ram".into());
        add("-m", format!("{}M", self.ram >> 20));
        add("-accel", "tcg".into());
        add("-display", "none".into());
        add("-bios", path(&given.firmware));
        add("-chardev", format!("socket,id=doorbell-wire,fd={}", given.wire.as_raw_fd()));
        add("-object", "qtest,id=doorbell-qtest,chardev=doorbell-wire,log=/dev/null".into());
        add("-chardev", format!("socket,id=doorbell-monitor,fd={}", given.monitor.as_raw_fd()));
        add("-mon", "chardev=doorbell-monitor,mode=control".into());
        // Without this, hot removal from a root port waits for a guest's ACPI.
        add("-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off".into());
        add("-object", backend("ram", self.ram, &given.ram));
        if let Some((fd, bytes)) = &given.peer {
            add("-object", backend("doorbell-peer-memory", *bytes, fd));
            add("-device", format!("ivshmem-plain,memdev=doorbell-peer-memory,id={PEER}"));
        }
        all.extend(["-nodefaults".into(), "-no-user-config".into()]);
        if self.paused {
            all.push("-S".into());
        }
        all.extend(self.arguments.iter().cloned());
        all.extend(self.drives.iter().flat_map(|text| ["-drive".into(), text.clone()]));
        all.extend(self.devices.iter().flat_map(|(_, text)| ["-device".into(), text.clone()]));
        all
    }
}

/// The descriptors that QEMU inherits.
struct Inherited {
    ram: OwnedFd,
    firmware: OwnedFd,
    wire: OwnedFd,
    monitor: OwnedFd,
    peer: Option<(OwnedFd, u64)>,
}

impl Inherited {
    fn all(self) -> Vec<OwnedFd> {
        let mut all = vec![self.ram, self.firmware, self.wire, self.monitor];
        all.extend(self.peer.map(|(fd, _)| fd));
        all
    }
}

/// A ROM that stops the processor in `hlt` with interrupts off. Nothing else then uses the bus, and the clock still runs.
fn firmware() -> Result<OwnedFd, Error> {
    const CLI_HLT_AGAIN: [u8; 4] = [0xfa, 0xf4, 0xeb, 0xfd];
    let mut rom = vec![0xf4; 64 << 10];
    rom[0xfff0..0xfff4].copy_from_slice(&CLI_HLT_AGAIN);
    let mut file = File::from(memory_file(c"qemu-rom", 0)?);
    file.write_all(&rom).map_err(|e| Error::system("the machine's ROM", e))?;
    Ok(file.into())
}

struct PeerFile {
    file: OwnedFd,
    length: u64,
}

impl PeerFile {
    fn open(memory: &PeerMemory) -> Result<PeerFile, Error> {
        let (file, length) = match memory {
            PeerMemory::Bytes(bytes) => (memory_file(c"qemu-peer", *bytes)?, *bytes),
            PeerMemory::File(file) => {
                let again = file.try_clone().map_err(|e| Error::system("the peer's memory", e))?;
                let file = File::from(again);
                let length = file.metadata().map_err(|e| Error::system("the peer's memory", e))?.len();
                (file.into(), length)
            }
        };
        if !length.is_power_of_two() || length < 1 << 20 {
            return Err(Error::Qemu(format!("{length} bytes behind a BAR: a power of two from 1 MiB up it takes")));
        }
        Ok(PeerFile { file, length })
    }

    fn behind(self, address: Address, bus: &Bus) -> Result<PeerBar, Error> {
        let bar = bus.placed(address).iter().find(|bar| bar.layout.index == 2 && bar.layout.length == self.length);
        let bar =
            bar.ok_or_else(|| Error::Qemu(format!("the peer {address} has no BAR 2 of {} bytes", self.length)))?;
        Ok(PeerBar { address, bus: bar.bus, length: self.length, mapped: Mapped::of(&self.file, self.length)? })
    }
}

/// The peer's BAR: its bus address and its mapping in this process.
struct PeerBar {
    address: Address,
    bus: u64,
    length: u64,
    mapped: Mapped,
}

struct Inner {
    wire: Arc<wire::Wire>,
    process: Arc<Process>,
    monitor: Mutex<Monitor>,
    bus: Mutex<Bus>,
    ram: Arc<Ram>,
    peer: Option<Arc<PeerBar>>,
    /// Open functions, each with a flag that its device was removed.
    opened: Mutex<BTreeMap<Address, Arc<AtomicBool>>>,
}

impl Inner {
    fn config(&self) -> bus::ConfigAccess {
        poison::ignore(self.bus.lock()).config()
    }
}

/// A running QEMU. Drop kills it: its functions then read as ones, and allocated memory stays valid.
pub struct Machine {
    inner: Arc<Inner>,
    ids: Vec<String>,
}

impl Machine {
    pub fn builder() -> Builder {
        Builder {
            ram: 64 << 20,
            pages: Pages::Together,
            paused: false,
            patience: Duration::from_secs(30),
            peer: None,
            devices: Vec::new(),
            drives: Vec::new(),
            arguments: Vec::new(),
        }
    }

    /// Opens a function and enables memory decoding. `0` is the builder's first device, `"id"` the device with that id.
    ///
    /// # Errors
    /// [`Error::Refused`] where it is open already, [`Error::Gone`], [`Error::Qemu`].
    pub fn function(&self, which: impl Into<Which>) -> Result<Box<dyn Function>, Error> {
        let address = self.address(which)?;
        Ok(Box::new(Emulated::open(Arc::clone(&self.inner), address)?))
    }

    /// The address of a device.
    ///
    /// # Errors
    /// [`Error::Qemu`] where there is none.
    pub fn address(&self, which: impl Into<Which>) -> Result<Address, Error> {
        let id = match which.into() {
            Which::Address(address) => return Ok(address),
            Which::Id(id) => id,
            Which::Device(index) => {
                let there = self.ids.len();
                self.ids
                    .get(index)
                    .cloned()
                    .ok_or_else(|| Error::Qemu(format!("no device {index}: there are {there}")))?
            }
        };
        let mut monitor = poison::ignore(self.inner.monitor.lock());
        find(&mut monitor, &id)
    }

    /// The peer's memory for [`Function::reach`], and its mapping in this process.
    ///
    /// # Panics
    /// Without [`Builder::peer_memory`].
    pub fn peer(&self) -> (Peer, NonNull<u8>) {
        let peer = self.inner.peer.as_ref().expect("a machine that was built with peer_memory");
        let what = format!("the memory behind {}", peer.address);
        let keep: Arc<PeerBar> = Arc::clone(peer);
        (Peer { what, device: Some(peer.address), bus: peer.bus, length: peer.length, keep }, peer.mapped.at)
    }

    /// Runs a command of QEMU's human monitor (`info pci`) and returns its output.
    ///
    /// # Errors
    /// [`Error::Qemu`] with QEMU's message.
    pub fn monitor(&self, line: &str) -> Result<String, Error> {
        let answer = self.qmp("human-monitor-command", &json!({ "command-line": line }))?;
        let text = answer.as_str().unwrap_or_default().to_string();
        if text.starts_with("Error") || text.contains("unknown command") {
            return Err(Error::Qemu(format!("{line}: {}", text.trim_end())));
        }
        Ok(text)
    }

    /// Runs a QMP command and returns its result.
    ///
    /// # Errors
    /// [`Error::Qemu`] with QEMU's message.
    pub fn qmp(&self, command: &str, arguments: &Value) -> Result<Value, Error> {
        poison::ignore(self.inner.monitor.lock()).execute(command, arguments)
    }

    /// Plugs in a device, described as for `-device`, with an `id=` and, as `bus=`, a `pcie-root-port`. QEMU deletes a `-drive` with its
    /// device, so a later device needs a new drive.
    ///
    /// # Errors
    /// [`Error::Qemu`] with QEMU's message.
    pub fn plug(&self, text: &str) -> Result<(), Error> {
        if let Some(port) = text.split(',').find_map(|part| part.strip_prefix("bus=")) {
            poison::ignore(self.inner.bus.lock()).give_power(self.address(port)?)?;
        }
        let answer = self.monitor(&format!("device_add {text}"))?;
        if answer.trim().is_empty() {
            return Ok(());
        }
        Err(Error::Qemu(format!("device_add {text}: {}", answer.trim())))
    }

    /// Removes a device by surprise. It is below a `pcie-root-port`, and gone when this returns.
    ///
    /// # Errors
    /// [`Error::Qemu`] where it is unknown, or cannot be pulled.
    pub fn pull(&self, which: impl Into<Which>) -> Result<(), Error> {
        let id = match which.into() {
            Which::Id(id) => id,
            Which::Device(index) => self.ids.get(index).cloned().unwrap_or_default(),
            Which::Address(address) => {
                return Err(Error::Qemu(format!("{address}: a device is pulled by its id")));
            }
        };
        let address = self.address(id.as_str())?;
        let port = poison::ignore(self.inner.bus.lock()).bridge_of(address.bus)?;
        // A bridge without a number yet has bus 0, too.
        let port = port.filter(|_| address.bus != 0);
        let port = port.ok_or_else(|| Error::Qemu(format!("{id} is below no port: it cannot be pulled")))?;
        // QEMU returns zeros where no device answers, a real bus returns ones. The open function checks this flag instead.
        if let Some(gone) = poison::ignore(self.inner.opened.lock()).get(&address) {
            // ORDERING: Relaxed is enough: the flag orders no other memory.
            gone.store(true, Ordering::Relaxed);
        }
        poison::ignore(self.inner.bus.lock()).cut_power(port)?;
        poison::ignore(self.inner.monitor.lock()).wait_until_deleted(&id)
    }

    /// QEMU's process id.
    pub fn process(&self) -> u32 {
        self.inner.process.id()
    }

    /// The failure that ended the connection to QEMU.
    pub fn failure(&self) -> Option<&str> {
        self.inner.wire.failure()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.inner.wire.close("its machine was dropped");
        self.inner.process.kill();
    }
}

/// The address of the device with this id.
fn find(monitor: &mut Monitor, id: &str) -> Result<Address, Error> {
    let buses = monitor.execute("query-pci", &json!({}))?;
    let devices = buses.as_array().into_iter().flatten().filter_map(|bus| bus["devices"].as_array()).flatten();
    let mut open: Vec<&Value> = devices.collect();
    while let Some(device) = open.pop() {
        if device["qdev_id"] == id {
            let number = |name: &str| device[name].as_u64().and_then(|n| u8::try_from(n).ok());
            if let (Some(bus), Some(slot), Some(function)) = (number("bus"), number("slot"), number("function")) {
                return Ok(Address { domain: 0, bus, device: slot, function });
            }
        }
        open.extend(device["pci_bridge"]["devices"].as_array().into_iter().flatten());
    }
    Err(Error::Qemu(format!("no PCI function has the id {id}")))
}
