//! The thread that writes the tape. It gathers what each of the program's threads did into pieces large enough to pack well, and writes them.

use crate::beside::Beside;
use crate::control::messages::Written;
use crate::last::Newest;
use crate::output::{Dropped, describe};
use crate::packing::{self, Packed, Packing};
use crate::parts::Parts;
use crate::saving::Request;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tape::file::Writer;
use tape::ring::whole_events;

/// A thread's events are written once there are so many bytes of them,
const ENOUGH: usize = 64 << 10;
/// or after this long, which is what a recorder that is killed loses,
const LATEST: Duration = Duration::from_millis(100);
/// or when so many bytes of all threads wait.
const MOST: usize = 16 << 20;
/// The same, and the batches that are packed at once, where memory is bounded: two threads pack, and a piece has up to 1 MiB.
const MOST_IN_MEMORY: usize = 4 << 20;
const AT_ONCE_IN_MEMORY: usize = 4;
/// So many bytes that were handed over and not taken, while as much is being packed as may be, mean that packing is too slow: it is left out until there
/// are fewer. (Eight threads of a program may write 900 MB/s.)
const BEHIND: usize = 32 << 20;
/// Bytes that a chunk takes in the file beside its events, at most.
const CHUNK_COST: u64 = 56;

/// What the other thread hands over.
pub enum Piece {
    /// So many bytes of each of these threads, one after the other.
    Events {
        process: u32,
        threads: Vec<(i32, usize)>,
        bytes: Vec<u8>,
    },
    Beside(Box<Beside>),
    /// Save what is in memory.
    Save(Box<Request>),
    /// Write all that there is, and call this.
    OnceWritten(Box<dyn FnOnce(Written) + Send>),
    /// Write what there is of a process, and say what of it was dropped.
    Settle {
        process: u32,
        to: SyncSender<Dropped>,
    },
}

/// What both threads know at any time.
#[derive(Default)]
pub struct Progress {
    stopped: OnceLock<String>,
    /// Bytes that were handed over and not taken yet, and of how much memory.
    waiting: AtomicUsize,
    memory: AtomicUsize,
}

impl Progress {
    /// These are about to be handed over.
    pub fn wait(&self, bytes: &Vec<u8>) {
        self.waiting.fetch_add(bytes.len(), Ordering::Relaxed);
        self.memory.fetch_add(bytes.capacity(), Ordering::Relaxed);
    }

    fn take(&self, bytes: &Vec<u8>) {
        self.waiting.fetch_sub(bytes.len(), Ordering::Relaxed);
        self.memory.fetch_sub(bytes.capacity(), Ordering::Relaxed);
    }

    /// Memory of what was handed over and not taken yet.
    pub fn memory(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    /// Why nothing more is written.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.get().map(String::as_str)
    }
}

/// Where all goes.
pub enum Store {
    File(Box<Writer>),
    /// Files of a bounded size, of which the newest stay.
    Parts(Box<Parts>),
    /// Only the newest part is kept, in memory.
    Memory(Box<Newest>),
}

impl Store {
    /// What is in the file.
    fn written(&self) -> Written {
        match self {
            Store::File(w) => Written { bytes: w.bytes(), chunks: w.chunks() },
            Store::Parts(_) | Store::Memory(_) => Written { bytes: 0, chunks: 0 },
        }
    }

    fn bytes(&self) -> u64 {
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

    /// Bytes of gathered events, at most.
    fn most(&self) -> usize {
        match self {
            Store::File(_) | Store::Parts(_) => MOST,
            Store::Memory(newest) => MOST_IN_MEMORY.min(newest.bound() / 4),
        }
    }

    /// Batches that are packed at once, at most.
    fn at_once(&self) -> usize {
        match self {
            Store::File(_) | Store::Parts(_) => packing::AT_ONCE,
            Store::Memory(_) => AT_ONCE_IN_MEMORY,
        }
    }
}

/// Events of one thread, not written yet.
struct Gathered {
    events: Vec<u8>,
    /// The first of them came as so many'th.
    came: u64,
}

pub struct Writing {
    store: Store,
    most: usize,
    limit: Option<u64>,
    progress: Arc<Progress>,
    /// None until there is a thread to write, and where the size is limited: what a piece takes must be known before the next.
    packing: Option<Packing>,
    /// For memory that can be used again.
    back: Option<SyncSender<Vec<u8>>>,
    gathered: BTreeMap<(u32, i32), Gathered>,
    /// Bytes of all of them, and when the first came.
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

    /// Until the other side is gone.
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
                // (Nobody may wait for it any more.)
                let _ = to.send(self.dropped.remove(&process).unwrap_or_default());
            }
        }
        if self.bytes >= self.most || self.bytes > 0 && self.since.elapsed() >= LATEST {
            self.write_all();
        }
    }

    /// Writes all that is left.
    pub fn end(mut self) -> Store {
        self.write_all();
        self.store
    }

    fn events(&mut self, process: u32, threads: &[(i32, usize)], bytes: Vec<u8>) {
        self.progress.take(&bytes);
        // (As at a high rate: nothing is copied.)
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

    /// In the order in which they came.
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
                // (Behind for another reason, such as data that is taken out, what is not packed would take longer still to write.)
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

    /// Writes what is packed by now, or `all`.
    fn write_packed(&mut self, all: bool) {
        while let Some(p) = self.packing.as_mut().and_then(|packing| packing.next(all)) {
            let written = match self.progress.stopped() {
                None => self.store.packed(&p),
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

    fn write_within(&mut self, process: u32, tid: i32, events: &[u8]) {
        let mut rest = events;
        while !rest.is_empty() && self.progress.stopped().is_none() {
            let n = match self.limit {
                None => rest.len(),
                // (Packed they take less: the next time round there is room again.)
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
            if let Err(e) = self.store.events(process, tid, part) {
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

/// Memory of events that were copied or written goes to the thread that empties the rings. (Where there is enough of it already, it is freed.)
fn use_again(back: Option<&SyncSender<Vec<u8>>>, memory: Vec<u8>) {
    let _ = back.map(|back| back.try_send(memory));
}
