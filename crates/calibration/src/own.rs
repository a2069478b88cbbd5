//! This machine's own profile, for route `auto`.

use crate::facts;
use copy::Unavailable;
use planner::{Profile, Refused};
use std::path::Path;
use std::sync::Arc;

/// The profile at the place that the environment says ([`planner::default_path`]), if it was taken on this machine.
///
/// # Errors
/// Why there is none, and what helps.
pub fn profile(soft: bool) -> Result<Arc<Profile>, Unavailable> {
    match planner::default_path(soft, |name| std::env::var_os(name)) {
        Some(path) => profile_at(&path, soft),
        None => Err(Unavailable::new("no place for a profile is known: neither $HOME nor $DOORBELL_PROFILE is set")),
    }
}

/// The profile in this file, if it was taken on this machine.
///
/// # Errors
/// As [`profile`].
pub fn profile_at(path: &Path, soft: bool) -> Result<Arc<Profile>, Unavailable> {
    let found = Profile::load_for(path, &facts::of_this_machine(soft));
    found.map(Arc::new).map_err(|refused| {
        let what = match &refused {
            Refused::Load(e) if e.is_missing() => format!("there is no profile at {}", path.display()),
            refused => refused.to_string(),
        };
        Unavailable::new(format!("{what}; {}", Refused::HINT))
    })
}
