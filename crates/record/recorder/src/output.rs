//! The tape, and when nothing more is written to it: at its size limit, or when the disk is full.
//!
//! A separate thread writes ([`crate::writing`]). The one that empties the rings waits for it only when the queue between them is full.

use crate::control::messages::Written;
use crate::counters::Counters;
use crate::writing::{Piece, Progress, Writing};
use redact::Scrubber;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use tape::event::{Body, Events, entry_flags};
use tape::file::{Clock, End, Process, ProcessEnd, Unwatched, Writer};

/// Notes of damaged rings on one tape, at most.
const NOTES: u32 = 64;
/// Pieces between the two threads, at most; each is a chunk of a ring, of 1 MiB at most.
const BETWEEN: usize = 32;

/// Events that came after the recording had stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    pub events: u64,
    /// GPFIFO entries among them.
    pub entries: u64,
    pub bytes: u64,
}

pub struct Output {
    by: By,
    progress: Arc<Progress>,
    notes: u32,
    /// What passes, for who looks on.
    pub counters: Counters,
    /// Room that was not used.
    room: Vec<u8>,
}

/// Who writes.
enum By {
    Us(Box<Writing>),
    Thread {
        to: SyncSender<Piece>,
        /// Memory of pieces that were written.
        spare: Receiver<Vec<u8>>,
        thread: JoinHandle<Option<Writer>>,
    },
    /// While one takes over from the other.
    Nobody,
}

impl Output {
    pub fn new(writer: Writer, limit: Option<u64>, tsc_hz: f64) -> Output {
        let progress = Arc::new(Progress::default());
        let by = By::Us(Box::new(Writing::new(writer, limit, progress.clone())));
        Output { by, progress, notes: 0, counters: Counters::new(tsc_hz), room: Vec::new() }
    }

    /// From here on a thread writes; without one, all goes on as before. (Not before the program is started: glibc takes a signal for its own use with
    /// the first thread, and the program would find it changed.)
    pub fn start_thread(&mut self) {
        let By::Us(mut writing) = std::mem::replace(&mut self.by, By::Nobody) else { return };
        let (give, take) = sync_channel::<(Box<Writing>, Receiver<Piece>)>(1);
        let run = move || take.recv().ok().map(|(writing, from)| writing.run(&from));
        self.by = match std::thread::Builder::new().name("tape".into()).spawn(run) {
            Ok(thread) => {
                let (to, from) = sync_channel(BETWEEN);
                let (back, spare) = sync_channel(BETWEEN);
                writing.give_back(back);
                // (It waits for this.)
                let _ = give.send((writing, from));
                By::Thread { to, spare, thread }
            }
            Err(_) => By::Us(writing),
        };
    }

    /// Why nothing more is written.
    pub fn stopped(&self) -> Option<&str> {
        self.progress.stopped()
    }

    /// Empty memory for the events in hand, from a piece that was written, if there is one.
    pub fn room(&mut self) -> Vec<u8> {
        let mut room = std::mem::take(&mut self.room);
        if room.capacity() == 0
            && let By::Thread { spare, .. } = &self.by
        {
            room = spare.try_recv().unwrap_or_default();
        }
        room.clear();
        room
    }

    /// Takes room back that was not used.
    pub fn keep(&mut self, room: Vec<u8>) {
        self.room = room;
    }

    /// Writes whole events of one thread, as much of them as the limit allows.
    pub fn events(&mut self, process: u32, tid: i32, mut bytes: Vec<u8>, scrub: Option<&mut Scrubber>) {
        if let Some(scrub) = scrub {
            let clean = scrub.clean(&bytes).to_vec();
            self.keep(std::mem::replace(&mut bytes, clean));
        }
        self.progress.wait(bytes.len());
        self.send(Piece::Events { process, tid, bytes });
    }

    /// What of a process's events was not written. Waits until all that it has so far is written.
    pub fn dropped(&mut self, process: u32) -> Dropped {
        let (to, from) = sync_channel(1);
        self.send(Piece::Settle { process, to });
        from.recv().unwrap_or_default()
    }

    /// Something that a reader should know; a few on each tape.
    pub fn note(&mut self, text: &str) {
        if self.notes < NOTES {
            self.notes += 1;
            let text = text.to_owned();
            self.write(move |w| w.note(&text));
        }
    }

    pub fn clock(&mut self, c: &Clock) {
        let c = *c;
        self.write(move |w| w.clock(&c));
    }

    pub fn process(&mut self, p: &Process) {
        let p = p.clone();
        self.write(move |w| w.process(&p));
    }

    /// Also after the recording has stopped: it is small, and names what is missing. It is written after all events of the process.
    pub fn process_end(&mut self, e: &ProcessEnd) {
        let e = e.clone();
        self.send(Piece::Other { anyway: true, write: Box::new(move |w| w.process_end(&e)) });
    }

    pub fn unwatched(&mut self, u: &Unwatched) {
        let u = u.clone();
        self.write(move |w| w.unwatched(&u));
    }

    /// Calls `f` once all that was handed over so far is in the file. On the thread that writes: it waits for nothing.
    pub fn once_written(&mut self, f: impl FnOnce(Written) + Send + 'static) {
        let write = move |w: &mut Writer| {
            f(Written { bytes: w.bytes(), chunks: w.chunks() });
            Ok(())
        };
        self.send(Piece::Other { anyway: true, write: Box::new(write) });
    }

    fn write(&mut self, write: impl FnOnce(&mut Writer) -> io::Result<()> + Send + 'static) {
        self.send(Piece::Other { anyway: false, write: Box::new(write) });
    }

    fn send(&mut self, piece: Piece) {
        match &mut self.by {
            By::Us(writing) => writing.take(piece),
            // (The thread ends only after this side.)
            By::Thread { to, .. } => drop(to.send(piece)),
            By::Nobody => {}
        }
    }

    /// Writes all that is left.
    ///
    /// # Errors
    /// The thread never got its work.
    pub fn close(self) -> io::Result<Closing> {
        let writer = match self.by {
            By::Us(writing) => Some(writing.end()),
            By::Thread { to, thread, .. } => {
                drop(to);
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
            By::Nobody => None,
        };
        let writer = writer.ok_or_else(|| io::Error::other("the thread that writes it never began"))?;
        Ok(Closing { writer, stopped: self.progress.stopped().map(str::to_owned) })
    }
}

/// A tape that lacks nothing but its end.
pub struct Closing {
    writer: Writer,
    stopped: Option<String>,
}

impl Closing {
    /// Why not all was written.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    /// Closes the tape; says how long it became. On a full disk the last chunks make room for the end, which then says so.
    pub fn end(mut self, end: &mut End) -> io::Result<u64> {
        while let Err(e) = self.writer.end(end) {
            if self.stopped.is_none() {
                end.how = format!("recording stopped early: {}", describe(&e));
                self.stopped = Some(describe(&e));
                end.complete = false;
                end.incomplete_because.insert(0, end.how.clone());
            }
            // The end is some hundred bytes and a line a channel.
            if !self.writer.give_up(64 << 10)? {
                self.writer.end(end)?;
                break;
            }
        }
        Ok(self.writer.bytes())
    }
}

impl Dropped {
    pub fn count(&mut self, events: &[u8]) {
        for e in Events::new(events) {
            let first = matches!(e.body, Body::Entry(..)) && e.head.flags & entry_flags::CONTINUED == 0;
            self.events += 1;
            self.entries += u64::from(first);
        }
        self.bytes += events.len() as u64;
    }
}

pub fn describe(e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(libc::ENOSPC) => "the disk is full".into(),
        Some(libc::EDQUOT) => "the disk quota is used up".into(),
        Some(libc::EFBIG) => "the file size limit was reached".into(),
        _ => format!("the tape could not be written: {e}"),
    }
}
