//! Reading ahead: one thread reads a tape and merges its threads while another decodes the events.
//!
//! The steps are those of [`Merge`], in its order. The two threads pass the same batches back and forth. Memory is therefore
//! bounded, and nothing is allocated once the batches have grown.

use crate::merge::{Merge, Position, Raw, Step, Submission};
use crate::recording::{InsightError, Recording, Source};
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use tape::event::Event;

/// Approximate size of a batch: bytes of events and words of submissions.
const BATCH: usize = 64 << 10;
/// Maximum number of batches that wait for the other thread.
const WAITING: usize = 2;

#[derive(Default)]
struct Batch {
    items: VecDeque<Item>,
    /// The events' bytes.
    bytes: Vec<u8>,
    /// Decoded submissions, whose memory is reused.
    spare: Vec<Submission>,
    stray: usize,
    /// The position of the next step, if positions are requested.
    position: Option<Position>,
    /// Set in the last batch.
    end: Option<Result<(), InsightError>>,
}

enum Item {
    /// An event of so many bytes.
    Event(Source, usize),
    /// An event that is not in the bytes of the tape.
    Made(Source, Event<'static>),
    Submission(Submission),
}

/// The source of batches.
enum From<'r> {
    Thread {
        full: Receiver<Batch>,
        empty: Sender<Batch>,
    },
    /// Reads in this thread, because a second one could not be started.
    Here(Merge<'r>),
}

/// The steps of a tape, read ahead.
pub struct Steps<'r> {
    from: From<'r>,
    positions: Option<usize>,
    batch: Batch,
    at: usize,
    stray: usize,
}

/// Calls `f` with all threads' events in the order of their time. The reading ends when `f` returns.
pub fn read_ahead<T>(recording: &Recording, f: impl FnOnce(&mut Steps<'_>) -> T) -> T {
    read_ahead_from(Merge::new(recording), None, f)
}

/// The same from where `merge` is. `positions`: requests [`Steps::position`], about once in so many bytes.
pub(crate) fn read_ahead_from<T>(merge: Merge<'_>, positions: Option<usize>, f: impl FnOnce(&mut Steps<'_>) -> T) -> T {
    let (to_full, full) = sync_channel(WAITING);
    let (empty, from_empty) = channel();
    let (give, take) = sync_channel::<Merge<'_>>(1);
    thread::scope(|scope| {
        let reader = thread::Builder::new().name("read ahead".into());
        let read = move || take.recv().map(|merge| read(merge, positions, &to_full, &from_empty));
        let from = match reader.spawn_scoped(scope, read) {
            Ok(_) => {
                // (The thread waits for it.)
                let _ = give.send(merge);
                From::Thread { full, empty }
            }
            Err(_) => From::Here(merge),
        };
        f(&mut Steps { from, positions, batch: Batch::default(), at: 0, stray: 0 })
    })
}

fn read(mut merge: Merge<'_>, positions: Option<usize>, full: &SyncSender<Batch>, empty: &Receiver<Batch>) {
    loop {
        let mut batch = empty.try_recv().unwrap_or_default();
        fill(&mut batch, &mut merge, positions);
        let last = batch.end.is_some();
        // The send fails if the other half has stopped early.
        if full.send(batch).is_err() || last {
            return;
        }
    }
}

fn fill(batch: &mut Batch, merge: &mut Merge<'_>, positions: Option<usize>) {
    batch.spare.drain(..).for_each(|s| merge.recycle(s));
    batch.bytes.clear();
    batch.items.clear();
    let mut words = 0;
    let most = positions.map_or(BATCH, |bytes| bytes.min(BATCH));
    while batch.end.is_none() && batch.bytes.len() + words < most {
        match merge.next_raw() {
            Ok(Some(Raw::Event(source, bytes))) => {
                batch.items.push_back(Item::Event(source, bytes.len()));
                batch.bytes.extend_from_slice(bytes);
            }
            Ok(Some(Raw::Made(source, e))) => batch.items.push_back(Item::Made(source, e)),
            Ok(Some(Raw::Submission(s))) => {
                words += size_of::<Submission>() + s.word_count() * 4;
                batch.items.push_back(Item::Submission(s));
            }
            Ok(None) => batch.end = Some(Ok(())),
            Err(e) => batch.end = Some(Err(e)),
        }
    }
    batch.stray = merge.stray_bytes();
    batch.position = positions.and_then(|_| merge.position());
}

impl Steps<'_> {
    /// The next step in time; `None` at the end of the tape.
    pub fn next_step(&mut self) -> Result<Option<Step<'_>>, InsightError> {
        loop {
            match self.batch.items.pop_front() {
                Some(Item::Submission(s)) => return Ok(Some(Step::Submission(s))),
                Some(Item::Made(source, e)) => return Ok(Some(Step::Event(source, e, &[]))),
                Some(Item::Event(source, n)) => {
                    let from = self.at;
                    self.at += n;
                    // These bytes were parsed as an event before.
                    let bytes = self.batch.bytes.get(from..self.at).unwrap_or(&[]);
                    let Some((e, _)) = Event::parse(bytes) else { return Ok(None) };
                    return Ok(Some(Step::Event(source, e, bytes)));
                }
                None => {
                    if let Some(end) = self.batch.end.take() {
                        self.batch.end = Some(Ok(()));
                        return end.map(|()| None);
                    }
                    self.turn();
                }
            }
        }
    }

    /// Exchanges this batch for the next one.
    fn turn(&mut self) {
        match &mut self.from {
            From::Thread { full, empty } => {
                let next = full.recv().unwrap_or_else(|_| Batch { end: Some(Ok(())), ..Batch::default() });
                let done = std::mem::replace(&mut self.batch, next);
                // The send fails at the end of the tape, where the reading thread has ended.
                let _ = empty.send(done);
            }
            From::Here(merge) => fill(&mut self.batch, merge, self.positions),
        }
        (self.at, self.stray) = (0, self.batch.stray);
    }

    /// The position of the next step, if it is known at this step.
    pub(crate) fn position(&self) -> Option<&Position> {
        self.batch.position.as_ref().filter(|_| self.batch.items.is_empty() && self.batch.end.is_none())
    }

    /// Takes a submission back so that its memory is used again.
    pub fn recycle(&mut self, s: Submission) {
        self.batch.spare.push(s);
    }

    /// Bytes inside checked chunks that are no events, so far.
    pub fn stray_bytes(&self) -> usize {
        self.stray
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn steps(s: &mut Steps<'_>) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(step) = s.next_step().unwrap() {
            all.push(format!("{step:?}"));
            if let Step::Submission(taken) = step {
                s.recycle(taken);
            }
        }
        assert!(s.next_step().unwrap().is_none(), "the end stays the end");
        all
    }

    #[test]
    fn without_a_second_thread_the_same_comes() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/h200-launches.doorbell");
        let r = Recording::open(&path).unwrap();
        let here = From::Here(Merge::new(&r));
        let here = steps(&mut Steps { from: here, positions: None, batch: Batch::default(), at: 0, stray: 0 });
        assert!(here.len() > 1000);
        assert!(here == read_ahead(&r, steps));
    }

    #[test]
    fn reading_may_stop_anywhere() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/h200-launches.doorbell");
        let r = Recording::open(&path).unwrap();
        assert!(read_ahead(&r, |s| s.next_step().unwrap().is_some()));
    }
}
