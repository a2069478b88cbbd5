//! Pictures as SVG: [`series`] of numbers, [`rounds`] in their order, and others, each as a part of a page and as a file.
//!
//! The invariant: a picture can be read without colour. Series also differ in dashes and markers, axes have units, and the head of a file names
//! the machine and the commit. The SVG is written by hand: a picture is a few hundred lines, and no library draws an axis of nines.

mod axis;
mod chart;
mod colours;
pub mod ranked;
pub mod rounds;
pub mod series;
mod shape;
mod svg;
pub mod waits;

pub use axis::Axis;
pub use chart::{Drawing, Entry, swatch};
pub use shape::{Shape, shapes};
