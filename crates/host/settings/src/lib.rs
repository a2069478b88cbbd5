//! Text that people write in files and options: the place of a mistake, the allowed values, and sizes.
//!
//! Invariant: no text makes a parser panic.

mod mistake;
pub mod sizes;

pub use mistake::{Error, Lines, Place, Wrong, nearest};
