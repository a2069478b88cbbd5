//! What people write in files and options: where a mistake is and what would be right there, and sizes.
//!
//! Invariant: no text makes a parser panic.

mod mistake;
pub mod sizes;

pub use mistake::{Error, Lines, Place, Wrong, nearest};
