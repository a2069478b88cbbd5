//! This machine's profile, for route `auto`.

use std::path::Path;
use std::sync::Arc;
use submit::route_choice::Profile;
use workload::Unavailable;

/// The profile at the path from the environment, if it was taken on this machine ([`submit::route_choice::own`]).
///
/// # Errors
/// Why there is none, and what to do.
pub fn profile(soft: bool) -> Result<Arc<Profile>, Unavailable> {
    found(submit::route_choice::own(soft, None))
}

/// The profile in this file, if it was taken on this machine.
///
/// # Errors
/// As [`profile`].
pub fn profile_at(path: &Path, soft: bool) -> Result<Arc<Profile>, Unavailable> {
    found(submit::route_choice::at(path, soft, None))
}

fn found(profile: Result<Profile, submit::route_choice::Without>) -> Result<Arc<Profile>, Unavailable> {
    profile.map(Arc::new).map_err(|without| Unavailable::new(without.to_string()))
}
