//! What a kind of executor says of itself.

use crate::error::{Error, Unavailable};
use crate::machine::Machine;
use crate::route::{Executor, Route};
use crate::spec::{Spec, SyntaxError, Word};

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
