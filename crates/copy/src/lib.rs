//! Every way to move bytes: [`Route`] opens a way, [`Transfer`] is one movement that is ready to go.
//!
//! A route is written `source -> executor -> destination`: `host->ce0->gpu0`, `gpu0->inline->host`, `host[pageable]->cuda->gpu0`.
//! The invariant: between [`Route::prepare`] and the drop of what it returns, [`Transfer::submit`] and [`Transfer::poll`] of
//! our own routes take no lock, allocate nothing and make no system call. Nothing here is timed; that is `lab`'s.

mod error;
mod route;

pub use error::{Error, Unavailable};
pub use route::{Route, Transfer};
