//! This machine's own profile: where it lies, and whether it was taken here.
//!
//! A profile is tied to facts of the machine. [`facts`] asks for them, [`own`] and [`at`] read a profile that is to be followed, and refuse one
//! with other facts with what changed. Nothing is measured here.

pub mod facts;

use planner::{Profile, Refused};
use std::path::Path;

/// Why there is no profile to be followed, and what helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Without {
    /// None was written, or no place for one is known.
    #[error("{0}")]
    Missing(String),
    /// It is stale, of a software GPU, or no profile.
    #[error("{0}")]
    Refused(String),
}

/// The profile at the place that the environment says ([`planner::default_path`]), if it was taken on this machine.
///
/// # Errors
/// Why there is none, and what helps.
pub fn own(soft: bool, pci: Option<&str>) -> Result<Profile, Without> {
    match planner::default_path(soft, |name| std::env::var_os(name)) {
        Some(path) => at(&path, soft, pci),
        None => Err(Without::Missing(format!(
            "no place for a profile is known: neither $HOME nor ${} is set",
            planner::VARIABLE
        ))),
    }
}

/// The profile in this file, if it was taken on this machine and the GPU with this PCI address (none: the first).
///
/// # Errors
/// As [`own`].
pub fn at(path: &Path, soft: bool, pci: Option<&str>) -> Result<Profile, Without> {
    // Most programs have none: the facts, which take milliseconds, are asked for by those that have.
    if !path.exists() {
        return Err(Without::Missing(format!("there is no profile at {}; {}", path.display(), Refused::HINT)));
    }
    Profile::load_for(path, &facts::of_this_machine(soft, pci))
        .map_err(|refused| Without::Refused(format!("{refused}; {}", Refused::HINT)))
}
