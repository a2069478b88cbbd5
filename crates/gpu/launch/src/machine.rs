//! Machines on which launches were not tested yet: parts of a GPU, a GPU that the Multi-Process Service shares, encrypted ones. (Other chips are refused
//! earlier: [`gpu::Architecture::seen`].)
//!
//! Launches there may be right or wrong. `docs/reference/launch-chips.md` lists the tests that are missing.

use crate::error::Error;
use gpu::AddressSpace;
use rm::class;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The default directory of the Multi-Process Service's pipes, unless the environment sets another (CUDA's documentation of MPS).
const PIPES: &str = "/tmp/nvidia-mps";
const PIPES_BY: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// Refuses such machines, with the reason.
pub(crate) fn check(space: &AddressSpace) -> Result<(), Error> {
    let device = space.device();
    let other = |what: String, hint| Err(Error::Machine { what, hint });
    if space.cuda_has(class::AMPERE_SMC_PARTITION_REF) {
        return other("the GPU is divided (MIG)".into(), "use a whole GPU");
    }
    if let Some(why) = shared(space) {
        return other(why, "end the service (`echo quit | nvidia-cuda-mps-control`) and start the program again");
    }
    if device.is_confidential()? {
        return other("confidential computing is on".into(), "use a GPU without it");
    }
    Ok(())
}

/// Whether CUDA uses the Multi-Process Service, and how doorbell found out.
fn shared(space: &AddressSpace) -> Option<String> {
    if space.cuda_has(class::MPS_COMPUTE) {
        return Some("CUDA has an object of the Multi-Process Service (MPS_COMPUTE)".into());
    }
    let pipe = pipe(std::env::var_os(PIPES_BY));
    pipe.exists().then(|| format!("the Multi-Process Service has its pipe at {}", pipe.display()))
}

/// The daemon's pipe, which CUDA looks for when it is initialised.
fn pipe(directory: Option<OsString>) -> PathBuf {
    let directory = directory.filter(|directory| !directory.is_empty());
    Path::new(&directory.unwrap_or_else(|| PIPES.into())).join("control")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_services_pipe_is_where_cuda_looks_for_it() {
        assert_eq!(pipe(None), Path::new("/tmp/nvidia-mps/control"));
        assert_eq!(pipe(Some(OsString::new())), Path::new("/tmp/nvidia-mps/control"));
        assert_eq!(pipe(Some("/run/mps".into())), Path::new("/run/mps/control"));
    }
}
