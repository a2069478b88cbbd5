//! What a kind of route says of itself.

use crate::error::{Error, Unavailable};
use crate::machine::Machine;
use crate::route::Route;
use crate::spec::{Spec, Word};

/// One kind of route.
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
    /// Opens one that `check` has passed.
    pub(crate) open: Open,
}

/// What opening a route gives: it borrows the machine.
pub type Opened<'m> = Result<Box<dyn Route + 'm>, Error>;
type Open = for<'m> fn(&'m Machine, &Spec, u64) -> Opened<'m>;
