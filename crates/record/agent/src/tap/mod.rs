//! The hot zone: the code between the program and its doorbells.
//!
//! The program's stores arrive as faults ([`answer`]) or from rewritten sites ([`site`]). [`submit`] records what they
//! submit and then makes them. [`page`], [`channel`], [`shadow`] and [`ranges`] are its tables, filled by driver calls
//! ([`crate::driver`]).

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

/// In a forked child: channels and memory are the parent's. The inherited doorbell pages stay as they are: doorbells
/// there are passed through.
pub fn renew(_: &Child) {
    page::renew();
    channel::renew();
    shadow::renew();
    ranges::renew();
    stamps::renew();
    segments::renew();
    graphs::renew();
}
