//! Machines on which launches were not seen yet: other chips, parts of a GPU, a GPU that is shared by the Multi-Process Service, encrypted ones.
//!
//! Nothing says that launches are wrong there; nothing says that they are right. `docs/reference/launch-chips.md` has what would have to be seen.

use crate::error::Error;
use gpu::AddressSpace;
use rm::class;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Compute classes from which a chip is known, but the one whose launches were seen.
const OTHER_CHIPS: [u32; 7] = [0xc3c0, 0xc5c0, 0xc6c0, 0xc7c0, 0xc9c0, 0xcdc0, 0xcec0];
/// Where the Multi-Process Service has its pipes, unless the environment says otherwise (CUDA's documentation of MPS).
const PIPES: &str = "/tmp/nvidia-mps";
const PIPES_BY: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// Refuses them by name.
pub(crate) fn check(space: &AddressSpace) -> Result<(), Error> {
    let device = space.device();
    let other = |what: String, hint| Err(Error::Machine { what, hint });
    if !device.has_class(class::HOPPER_COMPUTE_A) {
        let found = OTHER_CHIPS.into_iter().find(|class| device.has_class(*class));
        let name = found.map_or("no compute class that is known".into(), |class| {
            format!("compute class {} ({class:#x})", class::name(class).unwrap_or("without a name"))
        });
        return other(format!("this GPU has {name}"), "graphs are launched on an H100 or H200 (HOPPER_COMPUTE_A)");
    }
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

/// Whether CUDA goes through the Multi-Process Service, and how that is known.
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

    #[test]
    fn chips_have_names() {
        assert!(OTHER_CHIPS.iter().all(|chip| class::name(*chip).is_some()));
    }
}
