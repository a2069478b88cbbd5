//! Python's stacks on a tape: which file, function and line each number stands for.
//!
//! [`Stacks`] collects the events, [`lines`] reads CPython's line tables of each version. A number may be used before its
//! events come in the order of time, so they are collected first.
//!
//! Invariant: no tape makes this panic. A line that its table does not give is absent, not guessed.

pub mod lines;
mod stacks;

pub use stacks::{Code, Found, Frame, Interpreter, Stack, Stacks, is_of_a_library};
