//! The controller that a command line names: one of this machine, or QEMU's.

use super::{failed, of_bus};
use crate::failure::Failure;
use anyhow::Context;
use drivers::nvme::{Controller, Namespace, Queue, Word};
use pcie::bind::{self, Bound, To};
use pcie::{Address, Tree, qemu};
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use tempfile::TempPath;

/// The word for an emulated controller.
pub const QEMU: &str = "qemu";
/// Size of an emulated controller without an image.
const EMPTY: u64 = 64 << 20;
/// Memory of the emulated machine, and of the peer's BAR in it.
const RAM: u64 = 256 << 20;
const PEER: u64 = 64 << 20;

// (As a doc comment it would become the text of the command it is part of.)
#[derive(Debug, clap::Args)]
pub struct Device {
    /// The controller: its address as `doorbell nvme list` shows it (for example 0000:04:00.0), or qemu for an emulated one
    #[arg(value_name = "DEVICE")]
    pub device: String,
    /// Its namespace
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub namespace: u32,
    /// Take it from the kernel's driver if nothing of it is in use; the driver gets it back at the end
    #[arg(long)]
    bind: bool,
    /// Drive it although no IOMMU keeps it from other programs' memory
    #[arg(long)]
    without_iommu: bool,
    /// The raw image that the emulated controller has, for example disk.img; without it 64 MiB of zeroes
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Bytes of an emulated block
    #[arg(long, value_enum, value_name = "BYTES", default_value_t = Format::B512)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    #[value(name = "512")]
    B512,
    #[value(name = "4096")]
    B4096,
}

/// A controller, and the objects that must outlive it.
pub struct Opened {
    // Declared first, so that it is dropped before the objects that it uses.
    pub controller: Controller,
    pub machine: Option<qemu::Machine>,
    /// Number of Ctrl-C and SIGTERM signals received.
    pub interrupts: &'static AtomicU32,
    _bound: Option<Bound>,
    _image: Option<TempPath>,
}

impl Device {
    pub fn is_emulated(&self) -> bool {
        self.device == QEMU
    }

    /// `writes`: the image may change.
    pub fn open(&self, writes: bool) -> anyhow::Result<Opened> {
        // A device must not be left with commands in flight for memory that is freed with this process.
        let interrupts = crate::signals::count_interrupts();
        if self.is_emulated() { self.emulated(writes, interrupts) } else { self.real(interrupts) }
    }

    fn emulated(&self, writes: bool, interrupts: &'static AtomicU32) -> anyhow::Result<Opened> {
        let (path, image) = match &self.image {
            Some(path) => {
                let missing = |error| {
                    let hint = "`truncate -s 64M disk.img` makes one; without --image the drive has 64 MiB of zeroes";
                    Failure::new(format!("the image {}: {error}", path.display()), hint)
                };
                let path = path.canonicalize().map_err(missing)?;
                (path, None)
            }
            None => {
                let file = tempfile::NamedTempFile::new().context("an image of zeroes")?;
                file.as_file().set_len(EMPTY).context("an image of zeroes")?;
                let image = file.into_temp_path();
                (image.to_path_buf(), Some(image))
            }
        };
        not_raw(&path)?;
        let block = if self.format == Format::B512 { 512 } else { 4096 };
        // QEMU ends a value at a comma unless it is doubled.
        let path = path.display().to_string().replace(',', ",,");
        // Without writes, everything that a device might write is sent to a file that QEMU discards.
        let snapshot = if writes { "off" } else { "on" };
        let machine = qemu::Machine::builder()
            .ram(RAM)
            .peer_memory(PEER)
            .drive(format!("file={path},if=none,id=d0,format=raw,snapshot={snapshot}"))
            .device(format!("nvme,drive=d0,serial=emulated,logical_block_size={block},physical_block_size={block}"))
            .start()
            .map_err(|error| {
                let hint = "Debian and Ubuntu have it in qemu-system-x86; --image names a file that exists";
                Failure::impossible(format!("no emulated controller: {error}"), hint)
            })?;
        let function = machine.function(0).map_err(of_bus)?;
        let controller = Controller::open(function).map_err(failed)?;
        Ok(Opened { controller, machine: Some(machine), interrupts, _bound: None, _image: image })
    }

    fn real(&self, interrupts: &'static AtomicU32) -> anyhow::Result<Opened> {
        let address: Address = self.device.parse().map_err(|error: pcie::NoAddress| {
            Failure::new(error.to_string(), "`doorbell nvme list` shows the controllers; `qemu` is an emulated one")
        })?;
        let tree = Tree::default();
        if let Some(refused) = pcie::unguarded(&tree, address).filter(|_| !self.without_iommu) {
            return Err(of_bus(refused));
        }
        let bound = match self.bind {
            true => {
                let to = To::fitting(&tree, address);
                Some(bind::take(&tree, address, to, bind::Word::None).map_err(of_bus)?)
            }
            false => None,
        };
        let function = pcie::open(&address.to_string(), self.without_iommu).map_err(of_bus)?;
        let controller = Controller::open(function).map_err(failed)?;
        Ok(Opened { controller, machine: None, interrupts, _bound: bound, _image: None })
    }

    /// The user's permission to write to it.
    pub fn word(&self, device: Option<String>, destroy: Vec<String>) -> Word {
        Word { given: self.device.clone(), device, destroy }
    }
}

/// An image in another format would lose its header to the first write, and its contents are not the disk's.
fn not_raw(path: &std::path::Path) -> anyhow::Result<()> {
    use std::io::Read;
    let mut head = Vec::new();
    std::fs::File::open(path)?.take(0x44).read_to_end(&mut head).with_context(|| path.display().to_string())?;
    // From QEMU's block drivers: the place of each format's magic number.
    const FORMATS: [(&str, usize, &[u8]); 8] = [
        ("qcow2", 0, b"QFI\xfb"),
        ("vmdk", 0, b"KDMV"),
        ("vmdk", 0, b"COWD"),
        ("vhdx", 0, b"vhdxfile"),
        ("vpc", 0, b"conectix"),
        ("qed", 0, b"QED\0"),
        ("parallels", 0, b"WithoutFreeSpace"),
        ("vdi", 0x40, &0xbeda_107fu32.to_le_bytes()),
    ];
    let has = |at: usize, magic: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(magic));
    let Some((name, ..)) = FORMATS.iter().find(|(_, at, magic)| has(*at, magic)) else { return Ok(()) };
    let hint = format!("`qemu-img convert -O raw {} disk.raw` makes one", path.display());
    Err(Failure::new(format!("the image {} is {name}, not raw", path.display()), hint).into())
}

impl Opened {
    pub fn namespace(&self, device: &Device) -> anyhow::Result<Namespace> {
        self.controller.namespace(device.namespace).map_err(failed)
    }

    pub fn queue(&self, slots: u16) -> anyhow::Result<Queue> {
        self.controller.queue(&self.controller.depth(slots)).map_err(failed)
    }
}
