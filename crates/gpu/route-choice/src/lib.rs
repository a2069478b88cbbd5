//! Which route is the best for a transfer on this machine.
//!
//! [`Profile`] is what a calibration found: for each direction, memory kind, batch length, metric and load an ordered list of
//! ranges of sizes, each with its best route, and the figures that decided. [`Profile::choose`] picks by it and says why.
//! [`decide`] is the rule by which the best of several measured routes is chosen; calibration and profile share it.
//!
//! Pure: nothing is measured here, and a file is read or written only by [`Profile::load`] and [`Profile::save`]. No size is
//! a threshold in this crate: all of them come from a profile. The invariant: the ranges of a plan hold every size exactly
//! once, so a choice exists for each size.

mod choose;
pub mod decide;
mod facts;
mod file;
mod model;
mod own;
mod place;
mod text;

pub use choose::{Ask, Choice, NoPlan};

pub use facts::{Change, Facts, Stale};
pub use file::{LoadError, Refused, VERSION};
pub use model::{Border, Direction, Figure, Key, Metric, Places, Plan, Point, Profile, Range, Undecided};
pub use own::{Without, at, own};
pub use place::{FOLDER, VARIABLE, default_path};
pub use settings::{Error, Place};
