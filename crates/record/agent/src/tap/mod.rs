//! The hot zone: what stands between the program and its doorbells.
//!
//! The program's accesses reach us as faults ([`answer`]) or from sites that were rewritten ([`site`]); [`submit`] records
//! what they submit and makes them. [`page`], [`channel`], [`shadow`] and [`ranges`] are the tables that it needs, filled by
//! the driver's calls ([`crate::driver`]).

pub mod access;
pub mod answer;
pub mod channel;
mod copies;
mod graphs;
pub mod hole;
pub mod page;
pub mod ranges;
mod segments;
pub mod shadow;
pub mod site;
pub mod stamps;
pub mod submit;

use crate::process::renewal::Child;

/// In a forked child: channels and memory are the parent's. The doorbell pages that it inherits stay as they are: what is
/// rung there is passed through.
pub fn renew(_: &Child) {
    page::renew();
    channel::renew();
    shadow::renew();
    ranges::renew();
    stamps::renew();
    segments::renew();
    graphs::renew();
}
