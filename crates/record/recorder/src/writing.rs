//! The thread that writes the tape. It gathers each thread's events into pieces that are large enough to pack well, and writes them.

use crate::beside::Beside;
use crate::control::messages::Written;
use crate::last::Newest;
use crate::limits;
use crate::output::{Dropped, describe};
use crate::packing::{self, Packed, Packing};
use crate::parts::Parts;
use crate::saving::Request;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tape::file::Writer;
use tape::ring::whole_events;

/// A thread's events are written when there are this many bytes of them,
const ENOUGH: usize = 64 << 10;
/// or after this time, which is what a killed recorder loses,
const LATEST: Duration = Duration::from_millis(100);
/// or when this many bytes of all threads wait.
const MOST: usize = 16 << 20;
/// The same if memory is bounded, and the number of batches that are packed at a time: two threads pack, and a piece has up
/// to 1 MiB.
const MOST_IN_MEMORY: usize = 4 << 20;
const AT_ONCE_IN_MEMORY: usize = 4;
/// If this many bytes were handed over and not taken, while the maximum is being packed, packing is too slow. It is then left out until there are fewer
/// bytes. (Eight threads of a program may write 900 MB/s.)
const BEHIND: usize = 32 << 20;
/// Maximum bytes of a chunk in the file in addition to its events.
const CHUNK_COST: u64 = 56;

/// An item that the other thread hands over.
pub enum Piece {
    /// The given number of bytes of each of these threads, in order.
    Events {
        process: u32,
        threads: Vec<(i32, usize)>,
        bytes: Vec<u8>,
    },
    Beside(Box<Beside>),
    /// Save the events in memory.
    Save(Box<Request>),
    /// Write everything so far, and call this, which must not wait.
    OnceWritten(Box<dyn FnOnce(Written) + Send>),
    /// Write a process's events so far, and return what was dropped of them.
    Settle {
        process: u32,
        to: SyncSender<Dropped>,
    },
}

/// State that both threads can read at any time.
#[derive(Default)]
pub struct Progress {
    stopped: OnceLock<String>,
    /// Bytes that were handed over and not yet taken, and their memory.
    waiting: AtomicUsize,
    memory: AtomicUsize,
    /// Since it was last taken: how long rings were not emptied because too much waited here.
    pub held_up: Time,
    /// The same: the longest write to the file.
    pub longest_write: Time,
}

/// A time that one thread adds to and another takes.
#[derive(Default)]
pub struct Time(AtomicU64);

impl Time {
    pub fn take(&self) -> Duration {
        Duration::from_nanos(self.0.swap(0, Ordering::Relaxed))
    }

    pub fn add(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    pub fn raise(&self, time: Duration) {
        self.0.fetch_max(time.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Progress {
    /// Waits until earlier events are packed and written.
    pub fn hold<T>(&self, wait: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let waited = wait();
        self.held_up.add(begun.elapsed());
        waited
    }

    /// These bytes are about to be handed over.
    pub fn wait(&self, bytes: &Vec<u8>) {
        self.waiting.fetch_add(bytes.len(), Ordering::Relaxed);
        self.memory.fetch_add(bytes.capacity(), Ordering::Relaxed);
    }

    fn take(&self, bytes: &Vec<u8>) {
        self.waiting.fetch_sub(bytes.len(), Ordering::Relaxed);
        self.memory.fetch_sub(bytes.capacity(), Ordering::Relaxed);
    }

    /// Memory of the bytes that were handed over and not yet taken.
    pub fn memory(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    /// Why no more events are written.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.get().map(String::as_str)
    }
}

/// Where everything is written.
pub enum Store {
    File(Box<Writer>),
    /// Files of a bounded size. The newest stay.
    Parts(Box<Parts>),
    /// Only the newest part is kept, in memory.
    Memory(Box<Newest>),
}

impl Store {
    /// The bytes and chunks in the file.
    fn written(&self) -> Written {
        match self {
            Store::File(w) => Written { bytes: w.bytes(), chunks: w.chunks() },
            Store::Parts(_) | Store::Memory(_) => Written { bytes: 0, chunks: 0 },
        }
    }

    /// Bytes of the file, or of the newest part.
    pub fn bytes(&self) -> u64 {
        match self {
            Store::File(w) => w.bytes(),
            Store::Parts(parts) => parts.len(),
            Store::Memory(_) => 0,
        }
    }

    fn events(&mut self, process: u32, tid: i32, events: &[u8]) -> io::Result<()> {
        match self {
            Store::File(w) => w.events(process, tid, events),
            Store::Parts(parts) => parts.events(process, tid, events, None),
            Store::Memory(newest) => {
                newest.events(process, tid, events, None);
                Ok(())
            }
        }
    }

    fn packed(&mut self, p: &Packed) -> io::Result<()> {
        match self {
            Store::File(w) => w.packed_events(p.process, p.tid, &p.events, p.packed.as_deref()),
            Store::Parts(parts) => parts.events(p.process, p.tid, &p.events, p.packed.as_deref()),
            Store::Memory(newest) => {
                newest.events(p.process, p.tid, &p.events, p.packed.as_deref());
                Ok(())
            }
        }
    }

    fn beside(&mut self, what: Beside) -> io::Result<()> {
        match self {
            Store::File(w) => what.write(w),
            Store::Parts(parts) => parts.beside(what),
            Store::Memory(newest) => {
                newest.beside(what);
                Ok(())
            }
        }
    }

    /// Maximum bytes of gathered events.
    fn most(&self) -> usize {
        match self {
            Store::File(_) | Store::Parts(_) => limits::at_most(MOST, 64),
            Store::Memory(newest) => MOST_IN_MEMORY.min(newest.bound() / 4),
        }
    }

    /// Maximum number of batches that are packed at a time.
    fn at_once(&self) -> usize {
        match self {
            Store::File(_) | Store::Parts(_) => (limits::at_most(packing::AT_ONCE << 20, 32) >> 20).max(1),
            Store::Memory(_) => AT_ONCE_IN_MEMORY,
        }
    }
}

/// Events of one thread that are not yet written.
struct Gathered {
    events: Vec<u8>,
    /// The number of the first of them, in order of arrival.
    came: u64,
}

pub struct Writing {
    store: Store,
    most: usize,
    limit: Option<u64>,
    progress: Arc<Progress>,
    /// None until there is a thread to write, and if the size is limited: then a piece's size must be known before the next
    /// piece.
    packing: Option<Packing>,
    /// For memory that can be used again.
    back: Option<SyncSender<Vec<u8>>>,
    gathered: BTreeMap<(u32, i32), Gathered>,
    /// Bytes of all of them, and when the first arrived.
    bytes: usize,
    since: Instant,
    came: u64,
    dropped: BTreeMap<u32, Dropped>,
}

impl Writing {
    pub fn new(store: Store, limit: Option<u64>, progress: Arc<Progress>) -> Writing {
        let (gathered, dropped) = Default::default();
        Writing {
            most: store.most(),
            store,
            limit,
            progress,
            packing: None,
            back: None,
            gathered,
            bytes: 0,
            since: Instant::now(),
            came: 0,
            dropped,
        }
    }

    pub fn is_in_memory(&self) -> bool {
        matches!(self.store, Store::Memory(_))
    }

    pub fn give_back(&mut self, to: SyncSender<Vec<u8>>) {
        self.back = Some(to);
        self.packing = if self.limit.is_none() { Packing::start(self.store.at_once()) } else { None };
    }

    /// Runs until the other side is gone.
    pub fn run(mut self, from: &Receiver<Piece>) -> Store {
        loop {
            let is_idle = self.bytes == 0 && self.packing.as_ref().is_none_or(Packing::is_empty);
            let piece = if is_idle {
                from.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                from.recv_timeout(LATEST.saturating_sub(self.since.elapsed()))
            };
            match piece {
                Ok(piece) => self.take(piece),
                Err(RecvTimeoutError::Timeout) => self.write_all(),
                Err(RecvTimeoutError::Disconnected) => return self.end(),
            }
        }
    }

    pub fn take(&mut self, piece: Piece) {
        match piece {
            Piece::Events { process, threads, bytes } => self.events(process, &threads, bytes),
            Piece::Beside(what) => self.beside(*what),
            Piece::Save(request) => {
                self.write_all();
                match &mut self.store {
                    Store::Memory(newest) => newest.save(*request),
                    Store::Parts(parts) => {
                        if let Err(e) = parts.cut(*request) {
                            self.stop(&describe(&e));
                        }
                    }
                    Store::File(_) => {}
                }
            }
            Piece::OnceWritten(f) => {
                self.write_all();
                f(self.store.written());
            }
            Piece::Settle { process, to } => {
                self.write_all();
                // (The other side may no longer wait for it.)
                let _ = to.send(self.dropped.remove(&process).unwrap_or_default());
            }
        }
        if self.bytes >= self.most || self.bytes > 0 && self.since.elapsed() >= LATEST {
            self.write_all();
        }
    }

    /// Writes everything that is left.
    pub fn end(mut self) -> Store {
        self.write_all();
        self.store
    }

    fn events(&mut self, process: u32, threads: &[(i32, usize)], bytes: Vec<u8>) {
        self.progress.take(&bytes);
        // (The usual case at a high rate: no bytes are copied.)
        if let [(tid, n)] = threads
            && *n >= ENOUGH
            && self.gathered.get(&(process, *tid)).is_none_or(|of| of.events.is_empty())
        {
            return self.write(process, *tid, bytes);
        }
        let mut rest = bytes.as_slice();
        for (tid, n) in threads {
            let (of_thread, later) = rest.split_at((*n).min(rest.len()));
            self.gather(process, *tid, of_thread);
            rest = later;
        }
        use_again(self.back.as_ref(), bytes);
    }

    fn gather(&mut self, process: u32, tid: i32, events: &[u8]) {
        if self.bytes == 0 {
            self.since = Instant::now();
        }
        let of = self.gathered.entry((process, tid)).or_insert_with(|| Gathered { events: Vec::new(), came: 0 });
        if of.events.is_empty() {
            self.came += 1;
            of.came = self.came;
        }
        of.events.extend_from_slice(events);
        self.bytes += events.len();
        if of.events.len() >= ENOUGH {
            let events = std::mem::take(&mut of.events);
            self.bytes -= events.len();
            self.write(process, tid, events);
        }
    }

    /// Writes everything, in the order of arrival.
    fn write_all(&mut self) {
        let mut all: Vec<_> = std::mem::take(&mut self.gathered).into_iter().collect();
        all.sort_by_key(|(_, of)| of.came);
        for ((process, tid), of) in all {
            if !of.events.is_empty() {
                self.write(process, tid, of.events);
            }
        }
        self.bytes = 0;
        self.write_packed(true);
    }

    fn write(&mut self, process: u32, tid: i32, events: Vec<u8>) {
        let is_behind = self.progress.waiting.load(Ordering::Relaxed) >= BEHIND;
        match &mut self.packing {
            Some(packing) => {
                // (If the thread is late for another reason, such as the removal of data, unpacked events would take even longer to
                // write.)
                let packs = !(is_behind && packing.is_full());
                packing.give(Packed { process, tid, events, packed: None }, packs);
                self.write_packed(false);
            }
            None => {
                self.write_within(process, tid, &events);
                use_again(self.back.as_ref(), events);
            }
        }
    }

    /// Writes the pieces that are packed by now, or `all`.
    fn write_packed(&mut self, all: bool) {
        while let Some(p) = self.packing.as_mut().and_then(|packing| packing.next(all)) {
            let written = match self.progress.stopped() {
                None => self.timed(|store| store.packed(&p)),
                Some(_) => Ok(()),
            };
            if let Err(e) = &written {
                self.stop(&describe(e));
            }
            if self.progress.stopped().is_some() {
                self.dropped.entry(p.process).or_default().count(&p.events);
            }
            use_again(self.back.as_ref(), p.events);
        }
    }

    /// Writes, and notes how long the file took.
    fn timed(&mut self, write: impl FnOnce(&mut Store) -> io::Result<()>) -> io::Result<()> {
        if self.is_in_memory() {
            return write(&mut self.store);
        }
        let begun = Instant::now();
        let written = write(&mut self.store);
        self.progress.longest_write.raise(begun.elapsed());
        written
    }

    fn write_within(&mut self, process: u32, tid: i32, events: &[u8]) {
        let mut rest = events;
        while !rest.is_empty() && self.progress.stopped().is_none() {
            let n = match self.limit {
                None => rest.len(),
                // (Packed they take less, so the next time round there is room again.)
                Some(limit) => {
                    let room = limit.saturating_sub(self.store.bytes() + CHUNK_COST);
                    whole_events(rest, usize::try_from(room).unwrap_or(usize::MAX))
                }
            };
            let (part, later) = rest.split_at(n);
            if part.is_empty() {
                self.stop("the size limit was reached");
                break;
            }
            if let Err(e) = self.timed(|store| store.events(process, tid, part)) {
                self.stop(&describe(&e));
                break;
            }
            rest = later;
        }
        if !rest.is_empty() {
            self.dropped.entry(process).or_default().count(rest);
        }
    }

    fn beside(&mut self, what: Beside) {
        let anyway = what.is_end();
        if anyway {
            self.write_all();
        }
        if (anyway || self.progress.stopped().is_none())
            && let Err(e) = self.store.beside(what)
        {
            self.stop(&describe(&e));
        }
    }

    fn stop(&mut self, why: &str) {
        let _ = self.progress.stopped.set(why.to_owned());
    }
}

/// Memory of events that were copied or written returns to the thread that empties the rings. (If that has enough, the memory is freed.)
fn use_again(back: Option<&SyncSender<Vec<u8>>>, memory: Vec<u8>) {
    let _ = back.map(|back| back.try_send(memory));
}
