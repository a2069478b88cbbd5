//! What a kind of executor says of itself.

use crate::error::{Error, Unavailable};
use crate::machine::Machine;
use crate::route::{Executor, Route};
use crate::spec::{self, Spec, SyntaxError, Word};
use std::ops::RangeInclusive;

/// One kind of executor.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    /// How it is written.
    pub(crate) word: Word,
    /// One line for people.
    pub(crate) about: fn(&Machine, &Spec) -> String,
    /// The routes worth listing, whether they can be opened or not.
    pub(crate) list: fn(&Machine) -> Vec<String>,
    /// Why there is no such route on this machine, as far as that is known without trying.
    pub(crate) check: fn(&Machine, &Spec) -> Result<(), Unavailable>,
    /// Opens one that `check` has passed: what moves the bytes, between whichever memories.
    pub(crate) open: for<'m> fn(&'m Machine, &Spec) -> Found<'m>,
}

/// The other executors, for one that is made of them. The registry hands it to those, and they do not know the registry.
#[derive(Clone, Copy)]
pub(crate) struct Others {
    pub(crate) parse: fn(&str) -> Result<Spec, SyntaxError>,
    pub(crate) check: fn(&Machine, &Spec) -> Result<(), Unavailable>,
    pub(crate) open: for<'m> fn(&'m Machine, &Spec) -> Found<'m>,
}

/// An executor: it borrows the machine.
pub type Found<'m> = Result<Box<dyn Executor + 'm>, Error>;

/// What opening a route gives: it borrows the machine.
pub type Opened<'m> = Result<Route<'m>, Error>;

/// The number that an option of an executor gives, if it is written.
///
/// # Errors
/// `why` where it gives several numbers, or one that is not allowed.
pub(crate) fn number(
    executor: &spec::Executor,
    option: &str,
    allowed: RangeInclusive<u32>,
    why: &str,
) -> Result<Option<u32>, Unavailable> {
    match executor.numbers(option) {
        None => Ok(None),
        Some(&[number]) if allowed.contains(&number) => Ok(Some(number)),
        Some(_) => Err(Unavailable::new(why)),
    }
}
