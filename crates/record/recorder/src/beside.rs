//! Everything on the tape except events, on its way from the thread that learns it to the thread that writes.

use std::io;
use tape::file::{Clock, Process, ProcessEnd, Unwatched, Writer};

#[derive(Clone, Debug)]
pub enum Beside {
    /// A note for readers.
    Note(String),
    Clock(Clock),
    Process(Process),
    /// Written after all events that arrived before it, and even after the recording has stopped: it is small, and lists what is missing.
    ProcessEnd(ProcessEnd),
    Unwatched(Unwatched),
}

impl Beside {
    pub fn is_end(&self) -> bool {
        matches!(self, Beside::ProcessEnd(_))
    }

    pub fn write(&self, to: &mut Writer) -> io::Result<()> {
        match self {
            Beside::Note(text) => to.note(text),
            Beside::Clock(c) => to.clock(c),
            Beside::Process(p) => to.process(p),
            Beside::ProcessEnd(e) => to.process_end(e),
            Beside::Unwatched(u) => to.unwatched(u),
        }
    }
}
