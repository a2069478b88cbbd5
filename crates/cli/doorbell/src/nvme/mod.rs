//! `doorbell nvme`: NVMe drives that doorbell drives itself. Their data are sent to host memory or directly to a GPU's.

mod device;
mod gpu;
mod hint;
mod identify;
mod list;
mod read;
mod target;
mod verify;
mod way;
mod write;

use crate::failure::Failure;
use crate::help::Page;
use drivers::nvme;
use std::process::ExitCode;

/// Drive an NVMe controller from user space: its data go to host memory, or to a GPU's without the CPU
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell nvme list", "the controllers of this machine, and whether they can be driven"),
        ("doorbell nvme identify qemu", "an emulated controller: needs QEMU, no drive and no rights"),
        ("doorbell nvme read 0000:04:00.0 --bytes 1MiB --into gpu0 -o first.bin", "from a drive into GPU memory"),
        ("doorbell nvme verify qemu --into peer --i-mean-to-overwrite qemu", "reads and writes at random, compared"),
    ])
    .text("A drive is driven only while no driver of the kernel's has it, or under vfio-pci; --bind takes it from the kernel unless it \
           is in use, and gives it back. Nothing is written without --i-mean-to-overwrite, and never to a device with partitions, LVM, \
           RAID or swap. An emulated controller shows that something works and never how fast.")
    .statuses(&[(0, "done"), (2, "an error, or wrong bytes"), (77, "not possible on this machine")])
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    List(list::Args),
    Identify(identify::Args),
    Read(read::Args),
    Write(write::Args),
    Verify(verify::Args),
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.what {
            What::List(list) => list.run(),
            What::Identify(identify) => identify.run(),
            What::Read(read) => read.run(),
            What::Write(write) => write.run(),
            What::Verify(verify) => verify.run(),
        }
    }
}

pub(crate) fn failed(error: nvme::Error) -> anyhow::Error {
    let (what, hint) = hint::of(&error);
    match error {
        nvme::Error::Bus(pcie::Error::Refused { .. } | pcie::Error::Unreachable { .. }) => {
            Failure::impossible(what, hint).into()
        }
        _ => Failure::new(what, hint).into(),
    }
}

fn of_bus(error: pcie::Error) -> anyhow::Error {
    failed(error.into())
}

/// The last line of every result of an emulated controller.
const EMULATED: &str = "emulated: this shows that it works, not how fast";
