//! Checks that GPU memory has the bytes of a file: reads the file again through the page cache, and copies the memory back.

use crate::error::Error;
use crate::extents::Extents;
use crate::memory::{Slots, Target};
use crate::source::Source;
use gpu::{Channel, ChannelOptions, Copies, Engine};
use machine::Machine;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

const PIECE: u64 = 4 << 20;
const LATE: Duration = Duration::from_secs(10);

/// Compares every byte that has a place, and returns how many there are.
///
/// # Errors
/// [`Error::Differs`], [`Error::Truncated`], [`Error::Read`], or the channel's error.
pub fn verify(
    machine: &Machine,
    source: &Source,
    (memory, places): (&Target<'_>, &Arc<Extents>),
) -> Result<u64, Error> {
    let again = source.again()?;
    let mut back = Back::new(machine, memory)?;
    let mut expected = vec![0; PIECE as usize];
    let mut differs: Option<Difference> = None;
    for extent in places.iter() {
        let mut at = 0;
        while at < extent.bytes {
            let bytes = PIECE.min(extent.bytes - at);
            let wanted = &mut expected[..bytes as usize];
            let offset = extent.offset + at;
            source.read_at(&again, wanted, offset)?;
            let found = back.bytes(extent.at + at, bytes)?;
            if found != wanted {
                note(&mut differs, wanted, found, offset, memory.va() + extent.at + at);
            }
            at += bytes;
        }
    }
    match differs {
        None => Ok(places.bytes()),
        Some(Difference { wrong, offset, va, expected, found }) => {
            let (path, bytes) = (source.path().to_owned(), places.bytes());
            Err(Error::Differs { path, wrong, bytes, offset, va, expected, found })
        }
    }
}

/// The first difference, and the number of wrong bytes.
struct Difference {
    wrong: u64,
    offset: u64,
    va: u64,
    expected: u8,
    found: u8,
}

#[cold]
fn note(differs: &mut Option<Difference>, wanted: &[u8], found: &[u8], offset: u64, va: u64) {
    let pairs = || wanted.iter().zip(found).enumerate().filter(|(_, (a, b))| a != b);
    let Some((n, (&expected, &found))) = pairs().next() else { return };
    let first = Difference { wrong: 0, offset: offset + n as u64, va: va + n as u64, expected, found };
    differs.get_or_insert(first).wrong += pairs().count() as u64;
}

impl Source {
    /// The same file through the page cache, even if it has no name yet.
    fn again(&self) -> Result<File, Error> {
        let failed = |cause| Error::Open { path: self.path().to_owned(), cause };
        File::open(format!("/proc/self/fd/{}", self.fd())).map_err(failed)
    }

    fn read_at(&self, again: &File, into: &mut [u8], offset: u64) -> Result<(), Error> {
        let path = || self.path().to_owned();
        again.read_exact_at(into, offset).map_err(|e| match e.raw_os_error() {
            Some(errno) => {
                let (bytes, cause) = (into.len() as u64, crate::error::Errno(errno));
                Error::Read { path: path(), offset, bytes, cause }
            }
            None => Error::Truncated {
                path: path(),
                end: self.file.metadata().map_or(0, |m| m.len()),
                expected: self.length(),
            },
        })
    }
}

/// Copies GPU memory back.
struct Back<'m> {
    // Before its channel.
    copies: Copies,
    channel: Channel,
    memory: gpu::Region,
    slots: Slots<'m>,
    room: gpu::Region,
}

impl<'m> Back<'m> {
    fn new(machine: &'m Machine, memory: &Target<'_>) -> Result<Back<'m>, Error> {
        let space = machine.space()?;
        let slots = Slots::pinned(machine, PIECE as usize, 1)?;
        let engine = machine.asynchronous_engines().first().map_or(0, |engine| engine.number);
        let mut channel = Channel::new(space, Engine::Copy(engine), ChannelOptions::default())?;
        let copies = Copies::new(&mut channel)?;
        let room = slots.region()?;
        Ok(Back { copies, channel, memory: memory.region()?, slots, room })
    }

    fn bytes(&mut self, at: u64, bytes: u64) -> Result<&[u8], Error> {
        self.memory.ask_where_wanted()?;
        let mut written = self.copies.begin(&mut self.channel)?;
        written.copy((&self.room, 0), (&self.memory, at), bytes)?;
        let ticket = written.submit()?;
        self.channel.wait(ticket, LATE)?;
        // SAFETY: the copy is done, and the next copy needs the end of this borrow.
        Ok(unsafe { self.slots.slice(0, bytes as usize) })
    }
}
