//! What a walk knows at one place of a tape, as bytes: to go on there later without all that comes before.

use super::stream::Stream;
use super::{Outcome, Walk};
use crate::merge::Position;
use crate::recording::Source;
use crate::state::Call;
use pushbuf::snapshot::Snapshot;
use schema::channel::Channel;
use tape::event::{Body, Event};

impl Walk<'_> {
    /// Writes what is known but the driver's objects. False: the walk is in the middle of something.
    pub fn save(&self, to: &mut Vec<u8>) -> bool {
        let Outcome { channels, doorbells, strangers, unknown_events, first_ring, last_ring, .. } = &self.out;
        let Ok(channels) = serde_json::to_string(channels) else { return false };
        if !self.ready.is_empty() {
            return false;
        }
        channels.save(to);
        (*doorbells, *strangers, *unknown_events, *first_ring, *last_ring).save(to);
        (self.out.lock_layout, self.out.call_layout, self.out.nvtx).save(to);
        self.gaps.save(to);
        self.texts.save(to);
        (self.given, self.newest_given).save(to);
        self.decoders.save(to);
        self.streams.len().save(to);
        if !self.streams.iter().all(|stream| stream.save(to)) {
            return false;
        }
        self.images.len().save(to);
        for (process, state) in &self.images {
            process.save(to);
            state.save(to);
        }
        self.times.save(to);
        true
    }

    /// Takes back what was written, after the driver's calls up to there. `None`: the bytes are not that.
    pub fn load(&mut self, calls: &[u8], mut from: &[u8]) -> Option<()> {
        self.learn(calls)?;
        let from = &mut from;
        let out = &mut self.out;
        out.channels = serde_json::from_str::<Vec<Channel>>(&String::load(from)?).ok()?;
        (out.doorbells, out.strangers, out.unknown_events, out.first_ring, out.last_ring) = Snapshot::load(from)?;
        (out.lock_layout, out.call_layout, out.nvtx) = Snapshot::load(from)?;
        self.gaps = Snapshot::load(from)?;
        self.texts = Snapshot::load(from)?;
        (self.given, self.newest_given) = Snapshot::load(from)?;
        self.decoders = Snapshot::load(from)?;
        for _ in 0..usize::load(from)? {
            self.streams.push(Stream::load(from)?);
        }
        for _ in 0..usize::load(from)? {
            let process = u32::load(from)?;
            self.state(process).load(from)?;
        }
        self.times.load(self.recording, from)?;
        let has = |i: &usize| *i < self.streams.len();
        let fits = self.streams.len() == self.out.channels.len()
            && self.decoders.iter().all(has)
            && self.images.values().all(|state| state.live.values().all(has));
        (from.is_empty() && fits).then_some(())
    }

    /// The driver's objects, from its calls.
    fn learn(&mut self, mut calls: &[u8]) -> Option<()> {
        while !calls.is_empty() {
            let process = u32::load(&mut calls)?;
            let (e, n) = Event::parse(calls)?;
            calls = &calls[n..];
            self.state(process).learn(&call_of(&e.body)?);
        }
        Some(())
    }
}

/// The driver's call that an event is.
pub fn call_of<'e>(body: &'e Body<'e>) -> Option<Call<'e>> {
    use rm::call::FileKind;
    Some(match body {
        Body::Ioctl(body, arg, nested) => Call::Ioctl { body, arg, nested },
        Body::Mmap(m) => Call::Mmap(m),
        Body::Munmap(m) => Call::Munmap { addr: m.addr, len: m.len },
        Body::Mremap(m) => Call::Mremap { old: m.old, old_len: m.old_len, new: m.new, new_len: m.new_len },
        Body::Open(f, path) => Call::Open { fd: f.fd, file: FileKind::from_raw(f.file), path },
        Body::Close(f) => Call::Close { fd: f.fd, file: FileKind::from_raw(f.file) },
        Body::Dup(f) => Call::Dup { fd: f.fd, new: f.other, file: FileKind::from_raw(f.file) },
        _ => return None,
    })
}

/// Gathers places while a walk goes on.
pub trait Places {
    /// Bytes of events between places that can be asked for, about; `None`: none is wanted.
    fn apart(&self) -> Option<usize>;

    /// A driver's call.
    fn call(&mut self, source: Source, bytes: &[u8]);
    /// Whether a place is wanted here, after so many submissions.
    fn is_due(&self, given: u64) -> bool;
    /// A place. `newest`: the latest time stamp of a submission before it. `state` writes what is known, or says that it cannot be said here.
    fn place(&mut self, given: u64, newest: u64, position: &Position, state: &mut dyn FnMut(&mut Vec<u8>) -> bool);
}

/// None is wanted.
pub struct Nowhere;

impl Places for Nowhere {
    fn apart(&self) -> Option<usize> {
        None
    }

    fn call(&mut self, _: Source, _: &[u8]) {}
    fn is_due(&self, _: u64) -> bool {
        false
    }
    fn place(&mut self, _: u64, _: u64, _: &Position, _: &mut dyn FnMut(&mut Vec<u8>) -> bool) {}
}
