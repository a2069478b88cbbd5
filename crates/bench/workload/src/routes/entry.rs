//! The properties of a kind of executor.

use crate::error::Error;
use crate::executor::{Executor, Route};
use crate::machine::Machine;
use crate::spec::{self, Spec, Word};
use machine::Unavailable;
use std::ops::RangeInclusive;

/// One kind of executor.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    /// Its name in routes.
    pub(crate) word: Word,
    /// One line of description.
    pub(crate) about: fn(&Machine, &Spec) -> String,
    /// The routes worth listing, whether they can be opened or not.
    pub(crate) list: fn(&Machine) -> Vec<String>,
    /// Why this machine has no such route, as far as that is known without an attempt.
    pub(crate) check: fn(&Machine, &Spec) -> Result<(), Unavailable>,
    /// Opens a route that `check` has passed: its executor, for any memories.
    pub(crate) open: for<'m> fn(&'m Machine, &Spec) -> Found<'m>,
}

/// An executor: it borrows the machine.
pub type Found<'m> = Result<Box<dyn Executor + 'm>, Error>;

/// An opened route: it borrows the machine.
pub type Opened<'m> = Result<Route<'m>, Error>;

/// The number that an option of an executor has, if the option is present.
///
/// # Errors
/// `why` if it has several numbers, or one that is not allowed.
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
