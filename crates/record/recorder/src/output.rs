//! The tape, and when it is no longer written: at its size limit, or when the disk is full.
//!
//! A separate thread writes ([`crate::writing`]). The thread that empties the rings waits for it only when the queue between them is
//! full.

use crate::beside::Beside;
use crate::limits;
use crate::scrubbing::Scrubbing;
use crate::writing::{Piece, Progress, Store, Writing};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tape::event::{Body, Events, entry_flags};
use tape::file::{End, Writer};

/// Maximum number of notes about damaged rings on one tape.
const NOTES: u32 = 64;
/// Maximum number of pieces between the two threads. Each is a chunk of a ring, of up to 1 MiB. At a million doorbells a second a chunk has
/// some 100 KiB.
const BETWEEN: usize = 1024;
/// The same if memory is bounded.
const BETWEEN_IN_MEMORY: usize = 4;
/// Maximum memory of these pieces, or one in `PART` of the control group's. They bridge a disk that stalls for 100 ms. Only then do
/// rings fill.
const MOST_BETWEEN: usize = 128 << 20;
const PART: u64 = 16;
/// Memory of this many pieces of up to 1 MiB is kept for reuse.
const SPARE: usize = 32;
/// When there is no room between the threads, it is looked for this often.
const A_MOMENT: Duration = Duration::from_micros(200);

/// Events that arrived after the recording had stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    pub events: u64,
    /// GPFIFO entries among them.
    pub entries: u64,
    pub bytes: u64,
}

pub struct Output {
    by: By,
    pub progress: Arc<Progress>,
    most_between: usize,
    notes: u32,
    /// Unused room.
    room: Vec<u8>,
    /// Removes the data here, if no thread does.
    scrubbing: Option<Scrubbing>,
}

/// What writes.
enum By {
    Us(Box<Writing>),
    Thread {
        to: SyncSender<Piece>,
        /// Memory of pieces that were written.
        spare: Receiver<Vec<u8>>,
        thread: JoinHandle<Option<Store>>,
        /// The thread before it, which removes the data.
        scrubs: Option<JoinHandle<()>>,
    },
    /// While one takes over from the other.
    Nobody,
}

impl Output {
    /// `no_data`: the data that the program sends within its commands is left out.
    pub fn new(store: Store, limit: Option<u64>, no_data: bool) -> Output {
        let progress = Arc::new(Progress::default());
        let by = By::Us(Box::new(Writing::new(store, limit, progress.clone())));
        let scrubbing = no_data.then(Scrubbing::default);
        let most_between = limits::at_most(MOST_BETWEEN, PART);
        Output { by, progress, most_between, notes: 0, room: Vec::new(), scrubbing }
    }

    /// From here on a thread writes. Without a thread, writing continues as before. (Not before the program is started: with the first thread glibc
    /// takes a signal for its own use, and the program would find it changed.)
    pub fn start_thread(&mut self) {
        let By::Us(mut writing) = std::mem::replace(&mut self.by, By::Nobody) else { return };
        let between = if writing.is_in_memory() { BETWEEN_IN_MEMORY } else { BETWEEN };
        let (give, take) = sync_channel::<(Box<Writing>, Receiver<Piece>)>(1);
        let run = move || take.recv().ok().map(|(writing, from)| writing.run(&from));
        self.by = match std::thread::Builder::new().name("tape".into()).spawn(run) {
            Ok(thread) => {
                let (to, from) = sync_channel(between);
                let spare = limits::at_most(SPARE << 20, PART) >> 20;
                let (back, spare) = sync_channel(between.min(spare));
                writing.give_back(back);
                // (The thread waits for this.)
                let _ = give.send((writing, from));
                let (to, scrubs) = self.start_scrubbing(to, between);
                By::Thread { to, spare, thread, scrubs }
            }
            Err(_) => By::Us(writing),
        };
    }

    /// Starts a thread that removes the data, if it is to be removed. Returns the channel to send to, and the thread.
    fn start_scrubbing(
        &mut self,
        to: SyncSender<Piece>,
        between: usize,
    ) -> (SyncSender<Piece>, Option<JoinHandle<()>>) {
        let Some(scrubbing) = self.scrubbing.take() else { return (to, None) };
        let ((first, from), second) = (sync_channel(between), to.clone());
        match std::thread::Builder::new().name("scrub".into()).spawn(move || scrubbing.run(&from, &second)) {
            Ok(thread) => (first, Some(thread)),
            Err(_) => {
                // (No event has arrived yet that it would need.)
                self.scrubbing = Some(Scrubbing::default());
                (to, None)
            }
        }
    }

    /// Empty memory for events, from a piece that was written, if there is one.
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

    /// Takes unused room back.
    pub fn keep(&mut self, room: Vec<u8>) {
        self.room = room;
    }

    /// Writes whole events, as many as the limit allows: the given number of bytes of each of these threads, in order.
    pub fn events(&mut self, process: u32, threads: Vec<(i32, usize)>, bytes: Vec<u8>) {
        if let By::Thread { thread, .. } = &self.by
            && self.progress.memory() >= self.most_between
        {
            self.progress.hold(|| {
                while self.progress.memory() >= self.most_between && !thread.is_finished() {
                    std::thread::sleep(A_MOMENT);
                }
            });
        }
        self.progress.wait(&bytes);
        self.send(Piece::Events { process, threads, bytes });
    }

    /// The events of a process that were not written. Waits until all its events so far are written.
    pub fn dropped(&mut self, process: u32) -> Dropped {
        let (to, from) = sync_channel(1);
        self.send(Piece::Settle { process, to });
        self.progress.hold(|| from.recv()).unwrap_or_default()
    }

    /// Writes a note for readers; a few on each tape.
    pub fn note(&mut self, text: &str) {
        if self.notes < NOTES {
            self.notes += 1;
            self.beside(Beside::Note(text.to_owned()));
        }
    }

    pub fn beside(&mut self, what: Beside) {
        self.send(Piece::Beside(Box::new(what)));
    }

    /// Hands a piece over, after all earlier ones.
    pub fn send(&mut self, mut piece: Piece) {
        if let Some(scrubbing) = &mut self.scrubbing {
            scrubbing.clean(&mut piece);
        }
        match &mut self.by {
            By::Us(writing) => writing.take(piece),
            // (The thread ends only after this side.)
            By::Thread { to, .. } => {
                if let Err(TrySendError::Full(piece)) = to.try_send(piece) {
                    self.progress.hold(|| drop(to.send(piece)));
                }
            }
            By::Nobody => {}
        }
    }

    /// Writes everything that is left, then the end, which `end` makes from why the recording stopped early.
    ///
    /// # Errors
    /// The thread never got its work, or the end cannot be written.
    pub fn close(self, end: impl FnOnce(Option<&str>) -> End) -> io::Result<(Store, End)> {
        let store = match self.by {
            By::Us(writing) => Some(writing.end()),
            By::Thread { to, thread, scrubs, .. } => {
                drop(to);
                let scrubbed = scrubs.map_or(Ok(()), JoinHandle::join);
                scrubbed.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }
            By::Nobody => None,
        };
        let mut store = store.ok_or_else(|| io::Error::other("the thread that writes it never began"))?;
        let stopped = self.progress.stopped().map(str::to_owned);
        let mut end = end(stopped.as_deref());
        match &mut store {
            Store::Memory(_) => {}
            Store::File(writer) => write_end(writer, stopped, &mut end)?,
            Store::Parts(parts) => {
                let finished = parts.finish();
                let stopped = stopped.or_else(|| finished.err().map(|e| describe(&e)));
                // (The part's own seconds. The recording's are reported at its end.)
                let whole = std::mem::replace(&mut end.seconds, parts.seconds(crate::clock::tsc()));
                let written = write_end(parts.writer(), stopped, &mut end);
                end.seconds = whole;
                written?;
            }
        }
        Ok((store, end))
    }
}

/// On a full disk the last chunks make room for the end, which reports the full disk.
fn write_end(writer: &mut Writer, mut stopped: Option<String>, end: &mut End) -> io::Result<()> {
    while let Err(e) = writer.end(end) {
        if stopped.is_none() {
            end.how = format!("recording stopped early: {}", describe(&e));
            stopped = Some(describe(&e));
            end.complete = false;
            end.incomplete_because.insert(0, end.how.clone());
        }
        // The end is some hundred bytes and a line a channel.
        // (Into a pipe nothing can be written again.)
        match writer.give_up(64 << 10) {
            Ok(true) => {}
            Ok(false) => return writer.end(end),
            Err(_) => return Err(e),
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;
    use tape::event::{EntryBody, Head, bytes_of, kind};
    use tape::file::{Header, Item, Reader};

    const MIB: usize = 1 << 20;
    const SECRET: u32 = 0x5ec2_e700;

    /// Entries of one thread, numbered from `first` on, each with 100 words of data.
    fn entries(first: u64, n: u64) -> Vec<u8> {
        let one = |seq: u64| {
            // LOAD_INLINE_DATA of the compute class, and its words.
            let words: Vec<u32> = std::iter::once(0x6063_206d).chain([SECRET; 99]).collect();
            let body = EntryBody { gp: 100 << 42, seq, words: 100, ..EntryBody::default() };
            let len = 16 + size_of::<EntryBody>() as u32 + 400;
            let head = Head { kind: kind::ENTRY, flags: 0, len, tsc: seq };
            let words = words.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<_>>();
            [bytes_of(&head), bytes_of(&body), &words].concat()
        };
        (first..first + n).flat_map(one).collect()
    }

    /// Large pieces are handed on as they are, small ones are gathered. In both cases a thread's events keep their order, and with `no_data` no data is on
    /// the tape, with doorbell's threads and without them.
    #[test]
    fn large_and_small_pieces_keep_their_order() {
        let dir = tempfile::tempdir().unwrap();
        for (threads, no_data, limit) in
            [(true, false, None), (true, true, None), (false, true, None), (true, true, Some(1 << 30))]
        {
            let path = dir.path().join(format!("{threads}-{no_data}-{limit:?}"));
            let writer = Writer::create(&path, &Header { tsc_hz: 1e9, ..Header::default() }).unwrap();
            let mut out = Output::new(Store::File(Box::new(writer)), limit, no_data);
            if threads {
                out.start_thread();
            }
            let mut next = [0; 2];
            for n in [1, 400, 3, 3, 200, 150, 2000, 10] {
                for (tid, next) in (7..).zip(next.iter_mut()) {
                    let bytes = entries(*next, n);
                    out.events(0, vec![(tid, bytes.len())], bytes);
                    *next += n;
                }
            }
            if threads {
                let mut room = || {
                    (0..1000).find_map(|_| {
                        Some(out.room()).filter(|room| room.capacity() > 0).or_else(|| {
                            std::thread::sleep(A_MOMENT);
                            None
                        })
                    })
                };
                assert!(room().is_some(), "memory is used again");
            }
            out.close(|_| End::default()).unwrap();
            let mut seen = [0; 2];
            let mut reader = Reader::open(&path).unwrap();
            while let Ok(Some(item)) = reader.item() {
                let Item::Events { tid, bytes, .. } = item else { continue };
                for event in Events::new(&bytes) {
                    assert_eq!(event.head.tsc, seen[tid as usize - 7]);
                    seen[tid as usize - 7] += 1;
                }
                assert_eq!(bytes.windows(4).any(|w| w == SECRET.to_ne_bytes()), !no_data);
            }
            assert_eq!(seen, next);
        }
    }

    /// A disk that stalls: the rings are still emptied, up to a bound of memory, and everything is written when the
    /// disk continues.
    #[test]
    fn a_writer_that_stalls_is_waited_for_in_memory_up_to_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let writer = Writer::create(&path, &Header { tsc_hz: 1e9, ..Header::default() }).unwrap();
        let mut out = Output::new(Store::File(Box::new(writer)), None, false);
        out.start_thread();
        let (go, stalls) = sync_channel::<()>(1);
        out.send(Piece::OnceWritten(Box::new(move |_| stalls.recv().unwrap_or_default())));
        let handed = Arc::new(AtomicUsize::new(0));
        let (more, count) = (200, handed.clone());
        let empties = std::thread::spawn(move || {
            for _ in 0..more {
                out.events(0, vec![(1, MIB)], vec![0; MIB]);
                count.fetch_add(1, Ordering::Relaxed);
            }
            out
        });
        let begun = Instant::now();
        while handed.load(Ordering::Relaxed) < MOST_BETWEEN / MIB && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(A_MOMENT);
        }
        std::thread::sleep(100 * A_MOMENT);
        assert_eq!(handed.load(Ordering::Relaxed), MOST_BETWEEN / MIB, "so much is handed over, and no more");
        go.send(()).unwrap();
        let out = empties.join().unwrap();
        let held_up = out.progress.held_up.take();
        assert!(held_up >= 90 * A_MOMENT, "{held_up:?}");
        out.close(|_| End::default()).unwrap();
        assert_eq!(handed.load(Ordering::Relaxed), more);
    }
}
