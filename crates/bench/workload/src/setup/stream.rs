//! A stream.

use super::{Measured, Take};
use crate::Error;
use crate::entry::{Entry, PLAIN};
use cuda::{Context, Stream};

pub(crate) const STREAM: Entry = Entry {
    name: "stream",
    form: "stream",
    about: "cuStreamCreate; destroyed before the next, untimed",
    open: |machine, _, _| Ok(Box::new(Measured::taking(Streams { context: machine.context()? }))),
    ..PLAIN
};

struct Streams<'m> {
    context: &'m Context,
}

impl<'m> Take for Streams<'m> {
    type Held = Stream<'m>;

    fn about(&self) -> String {
        STREAM.about.into()
    }

    #[inline]
    fn take(&mut self) -> Result<Stream<'m>, Error> {
        Ok(Stream::new(self.context)?)
    }
}
