//! A stream.

use super::{Calls, Measured};
use crate::entry::{Entry, PLAIN};
use cuda::Stream;

pub(crate) const STREAM: Entry = Entry {
    name: "stream",
    form: "stream",
    about: "cuStreamCreate; destroyed before the next, untimed",
    open: |machine, _, _| {
        let context = machine.context()?;
        Ok(Box::new(Measured::taking(Calls(|| Ok(Stream::new(context)?)), STREAM.about.into())))
    },
    ..PLAIN
};
