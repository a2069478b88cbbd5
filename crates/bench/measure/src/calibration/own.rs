//! This machine's profile, for route `auto`.

use std::sync::Arc;
use submit::route_choice::Profile;
use workload::Unavailable;

/// The profile at the path from the environment, if it was taken on this machine ([`submit::route_choice::own`]).
///
/// # Errors
/// Why there is none, and what to do.
pub fn profile(soft: bool) -> Result<Arc<Profile>, Unavailable> {
    let own = submit::route_choice::own(soft, None);
    own.map(Arc::new).map_err(|without| Unavailable::new(without.to_string()))
}
