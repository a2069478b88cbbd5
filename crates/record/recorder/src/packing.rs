//! Threads that pack pieces. The pieces are returned in their original order.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex};
use tape::file::Packer;

/// One thread packs some 600 MB/s, and eight threads of a program write 900 (seen on an H200's host).
fn threads() -> usize {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= MANY_CPUS) { 3 } else { 2 }
}

const MANY_CPUS: usize = 8;
/// Maximum number of batches that are being packed. Each has 64 KiB, or as much as a ring held at one time.
pub const AT_ONCE: usize = 16;

/// Whole events of one thread, and their packed form; `None`: they stay as they are.
pub struct Packed {
    pub process: u32,
    pub tid: i32,
    pub events: Vec<u8>,
    pub packed: Option<Vec<u8>>,
}

/// Pieces that one thread packs, one after the other. To hand over each thread's few events separately takes longer than to pack
/// them.
#[derive(Default)]
struct Batch {
    pieces: Vec<Packed>,
    bytes: usize,
}

/// A batch is handed over when it has this many bytes.
const BATCH: usize = 64 << 10;

struct Job {
    batch: Vec<Packed>,
    done: SyncSender<Vec<Packed>>,
}

/// Pieces that are on their way.
enum Coming {
    Here(Vec<Packed>),
    From(Receiver<Vec<Packed>>),
}

pub struct Packing {
    to: SyncSender<Job>,
    /// Not yet handed over: after everything in `coming`.
    batch: Batch,
    coming: VecDeque<Coming>,
    /// Before everything in `coming`.
    here: VecDeque<Packed>,
    at_once: usize,
}

impl Packing {
    /// Starts threads for `at_once` batches. `None` if no thread can be started.
    pub fn start(at_once: usize) -> Option<Packing> {
        let (to, from) = sync_channel::<Job>(at_once);
        let from = Arc::new(Mutex::new(from));
        let start = |_: &usize| {
            let from = from.clone();
            std::thread::Builder::new().name("pack".into()).spawn(move || run(&from)).is_ok()
        };
        // (They end when this struct is dropped.)
        let started = (0..threads()).filter(start).count();
        let (batch, coming, here) = Default::default();
        (started > 0).then_some(Packing { to, batch, coming, here, at_once })
    }

    /// True if all pieces were returned.
    pub fn is_empty(&self) -> bool {
        self.batch.pieces.is_empty() && self.coming.is_empty() && self.here.is_empty()
    }

    /// True if one more piece would wait for the threads.
    pub fn is_full(&self) -> bool {
        self.coming.len() + 1 >= self.at_once
    }

    /// Packs a piece, or lets it through.
    pub fn give(&mut self, piece: Packed, packs: bool) {
        if packs {
            self.batch.bytes += piece.events.len();
            self.batch.pieces.push(piece);
            if self.batch.bytes >= BATCH {
                self.hand_over();
            }
        } else {
            self.hand_over();
            self.coming.push_back(Coming::Here(vec![piece]));
        }
    }

    fn hand_over(&mut self) {
        let batch = std::mem::take(&mut self.batch).pieces;
        if batch.is_empty() {
            return;
        }
        let (done, from) = sync_channel(1);
        self.coming.push_back(match self.to.send(Job { batch, done }) {
            Ok(()) => Coming::From(from),
            Err(job) => Coming::Here(job.0.batch),
        });
    }

    /// The next piece, if it is ready. Waits for it if `all`, or if too many are on their way.
    pub fn next(&mut self, all: bool) -> Option<Packed> {
        if all {
            self.hand_over();
        }
        loop {
            if let Some(piece) = self.here.pop_front() {
                return Some(piece);
            }
            let waits = all || self.coming.len() >= self.at_once;
            let from = match self.coming.pop_front()? {
                Coming::Here(batch) => {
                    self.here = batch.into();
                    continue;
                }
                Coming::From(from) => from,
            };
            let batch = if waits { from.recv().map_err(TryRecvError::from) } else { from.try_recv() };
            match batch {
                Ok(batch) => self.here = batch.into(),
                Err(TryRecvError::Empty) => {
                    self.coming.push_front(Coming::From(from));
                    return None;
                }
                // Its thread panicked, and the batch was lost with it.
                Err(TryRecvError::Disconnected) => {}
            }
        }
    }
}

fn run(from: &Mutex<Receiver<Job>>) {
    let mut packer = Packer::default();
    loop {
        let job = poison::ignore(from.lock()).recv();
        let Ok(Job { mut batch, done }) = job else { return };
        for piece in &mut batch {
            piece.packed = packer.pack(&piece.events).map(<[u8]>::to_vec);
        }
        let _ = done.send(batch);
    }
}
