//! This machine's own profile: whether there is one, and whether it was taken here.

use crate::route_choice::{Facts, Profile, Refused, VARIABLE, default_path};
use environment::{Environment, Gpu};
use std::path::Path;

const UNKNOWN: &str = "not known";

impl Facts {
    /// The facts of this machine and its GPU with this PCI address (none: the first).
    pub fn of_this_machine(soft: bool, pci: Option<&str>) -> Facts {
        let gpu = if soft { Gpu::Soft } else { Gpu::Real { pci } };
        let all = Environment::gather(gpu, None, Vec::new());
        let text = |name: &str| all.text(name).filter(|text| !text.is_empty()).unwrap_or(UNKNOWN).to_owned();
        let of_gpu = |name: &str| if soft { "none".to_owned() } else { text(name) };
        let nodes = std::fs::read_to_string("/sys/devices/system/node/online");
        Facts {
            doorbell: text("run.doorbell"),
            gpu: text("gpu.name"),
            uuid: of_gpu("gpu.uuid"),
            driver: of_gpu("gpu.driver"),
            cpu: text("cpu.model"),
            nodes: nodes.map_or_else(|_| UNKNOWN.to_owned(), |text| text.trim().to_owned()),
            kernel: text("kernel.release"),
        }
    }
}

/// Why there is no profile to use, and advice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Without {
    /// No file was written, or no place for one is known.
    #[error("{0}")]
    Missing(String),
    /// It is stale, of a software GPU, or not a profile.
    #[error("{0}")]
    Refused(String),
}

/// The profile at the place that the environment sets ([`default_path`]), if it was taken on this machine.
///
/// # Errors
/// Why there is none, with advice.
pub fn own(soft: bool, pci: Option<&str>) -> Result<Profile, Without> {
    match default_path(soft, |name| std::env::var_os(name)) {
        Some(path) => at(&path, soft, pci),
        None => {
            Err(Without::Missing(format!("no place for a profile is known: neither $HOME nor ${} is set", VARIABLE)))
        }
    }
}

/// The profile in this file, if it was taken on this machine and the GPU with this PCI address (none: the first).
///
/// # Errors
/// As [`own`].
pub fn at(path: &Path, soft: bool, pci: Option<&str>) -> Result<Profile, Without> {
    // Most programs have no profile: only the others collect the facts, which takes milliseconds.
    if !path.exists() {
        return Err(Without::Missing(format!("there is no profile at {}; {}", path.display(), Refused::HINT)));
    }
    Profile::load_for(path, &Facts::of_this_machine(soft, pci))
        .map_err(|refused| Without::Refused(format!("{refused}; {}", Refused::HINT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_the_same_as_a_moment_ago() {
        let facts = Facts::of_this_machine(true, None);
        assert_eq!((facts.gpu.as_str(), facts.driver.as_str()), ("software GPU", "none"));
        assert!(facts.each().iter().all(|(_, value)| !value.is_empty()), "{facts:?}");
        assert_eq!(facts.still(&Facts::of_this_machine(true, None)), Ok(()));
    }
}
