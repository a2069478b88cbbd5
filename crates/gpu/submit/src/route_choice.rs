//! Which route is the best for a transfer on this machine.
//!
//! [`Profile`] is the result of a calibration. For each direction, memory kind, batch length, metric and load it has an
//! ordered list of ranges of sizes, each with its best route, and the figures that decided. [`Profile::choose`] picks a route
//! and returns the reason. [`decide`] is the rule that chooses the best of several measured routes; calibration and profile
//! share it.
//!
//! Pure: this crate does not measure, and only [`Profile::load`] and [`Profile::save`] read or write a file. No size is a
//! threshold in this crate: all of them come from a profile. The invariant: the ranges of a plan contain every size exactly
//! once, so each size has a choice.

mod choose;
pub mod decide;
mod facts;
mod file;
mod model;
mod own;
mod place;

pub use choose::{Ask, Choice, NoPlan};

pub use facts::{Change, Facts, Stale};
pub use file::{LoadError, Refused, VERSION};
pub use model::{Border, Direction, Figure, Key, Metric, Places, Plan, Point, Profile, Range, Undecided};
pub use own::{Without, at, own};
pub use place::{FOLDER, VARIABLE, default_path};
pub use settings::{Error, Place};
