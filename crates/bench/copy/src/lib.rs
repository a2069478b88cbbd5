//! Every way to move bytes. An [`Executor`] moves them between any two memories ([`Buffer`]), a [`Route`] is an executor with its
//! own two memories, and a [`Transfer`] is one prepared movement.
//!
//! A route is written `source -> executor -> destination`: `host->ce0->gpu0`, `gpu0->ce2[pipelined]->host`,
//! `host[pageable]->cuda->gpu0` ([`spec`]). A [`Machine`] has the means to move bytes, [`names`] lists its routes, and [`open`]
//! opens one. A route that does not exist is [`Unavailable`], with the reason.
//!
//! The invariant: between [`Route::prepare`] and the drop of its result, [`Transfer::submit`] and [`Transfer::poll`] for
//! doorbell's own routes do not lock, allocate or make a system call. The exception is `aperture`, which moves a mapping. This
//! crate measures no times; `measure` does. (A card on the bus takes a lock that is never contended, because only one job at a
//! time is pending.)

mod buffer;
pub mod device;
mod ends;
mod entry;
mod error;
mod inspect;
mod machine;
mod pages;
mod places;
mod registry;
mod route;
mod routes;
pub mod spec;
mod verify;
mod view;

pub use crate::machine::Machine;
pub use ::machine::{Unavailable, Where};
pub use buffer::Buffer;
pub use ends::Ends;
pub use entry::{Found, Opened};
pub use error::Error;
pub use inspect::{GUARD, HostEnd, Inspect};
pub use places::Places;
pub use registry::{Listed, about, executor, names, open, parse};
pub use route::{Executor, Route, Transfer};
pub use spec::Spec;
pub use verify::{Checked, Difference, Wrong, verify};
pub use view::View;
