//! Where data are written to or read from: host memory, the memory that takes a GPU's place, or a GPU's memory.

use super::device::Opened;
use super::gpu::GpuMemory;
use super::way::Way;
use super::{failed, of_bus};
use crate::failure::Failure;
use crate::record::Gpu;
use drivers::nvme::Target;
use pcie::Memory;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use terminal::number;

// (As a doc comment it would become the text of the command it is part of.)
#[derive(Debug, clap::Args)]
pub struct Chosen {
    /// Whose memory: host, peer (in an emulated machine, in place of a GPU's) or a GPU, such as gpu0
    #[arg(long, value_name = "MEMORY", default_value = "host")]
    into: Into,
    /// Which GPU answers
    #[arg(long, value_enum, value_name = "GPU", default_value_t = Gpu::Real)]
    gpu: Gpu,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Into {
    Host,
    Peer,
    Gpu(u32),
}

impl FromStr for Into {
    type Err = String;

    fn from_str(text: &str) -> Result<Into, String> {
        match text {
            "host" => Ok(Into::Host),
            "peer" => Ok(Into::Peer),
            _ => {
                let number = text.strip_prefix("gpu").and_then(|n| n.parse().ok());
                number.map(Into::Gpu).ok_or_else(|| "memory is host, peer, gpu0, gpu1 and so on".to_owned())
            }
        }
    }
}

impl Chosen {
    /// Restarts this command with the software GPU preloaded if that is needed, before any device is opened or file
    /// claimed.
    pub fn ready(&self) -> anyhow::Result<()> {
        match (self.into, self.gpu) {
            (Into::Gpu(_), Gpu::Soft) => crate::sample::with_softgpu(),
            _ => Ok(()),
        }
    }

    /// Calls `work` with memory for so many bytes.
    pub fn with<T>(
        &self,
        opened: &Opened,
        bytes: u64,
        work: impl FnOnce(&dyn Target, &Way) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let way = |memory: &str, path| Way { memory: memory.into(), path, instead_of_c: None };
        match self.into {
            Into::Host => {
                let memory = opened.controller.allocate(bytes).map_err(failed)?;
                work(&memory, &way("host", 'A'))
            }
            Into::Peer => {
                let peer = peer(opened)?;
                peer.holds(0, bytes).map_err(of_bus)?;
                work(&peer, &way("peer", 'C'))
            }
            Into::Gpu(number) => {
                let machine = crate::bench::machine::open(self.gpu)?;
                let machine = machine.gpu(number)?;
                let memory = GpuMemory::new(machine, number, &opened.controller, bytes)?;
                work(&memory, memory.way())
            }
        }
    }
}

fn peer(opened: &Opened) -> anyhow::Result<Memory> {
    let machine = opened.machine.as_ref().ok_or_else(|| {
        Failure::new("this machine has no stand-in for a GPU's memory", "--into gpu0 names a GPU; `qemu` has a peer")
    })?;
    opened.controller.reach(&machine.peer().0).map_err(failed)
}

/// Exit status after Ctrl-C.
pub const INTERRUPTED: u8 = 130;

/// Calls `each` with (place, bytes) of pieces, one after the other. After Ctrl-C no further one begins, and the exit
/// status is returned.
pub fn pieces(
    bytes: u64,
    most: u64,
    heard: &AtomicU32,
    mut each: impl FnMut(u64, u64) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    let mut at = 0;
    while at < bytes {
        if heard.load(Ordering::Relaxed) > 0 {
            say!("stopped by a signal after {} of {}", number::bytes(at), number::bytes(bytes));
            return Ok(ExitCode::from(INTERRUPTED));
        }
        let part = most.min(bytes - at);
        each(at, part)?;
        at += part;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_named_and_nothing_begins_after_ctrl_c() {
        assert_eq!("gpu3".parse(), Ok(Into::Gpu(3)));
        assert_eq!(("host".parse(), "peer".parse()), (Ok(Into::Host), Ok(Into::Peer)));
        for wrong in ["", "gpu", "gpux", "GPU0", "hosts"] {
            assert!(wrong.parse::<Into>().is_err(), "{wrong}");
        }
        let heard = AtomicU32::new(0);
        let mut seen = Vec::new();
        let status = pieces(10, 4, &heard, |at, bytes| {
            seen.push((at, bytes));
            heard.store(u32::from(at == 4), Ordering::Relaxed);
            Ok(())
        });
        assert_eq!((status.unwrap(), seen), (ExitCode::from(INTERRUPTED), vec![(0, 4), (4, 4)]));
    }
}
