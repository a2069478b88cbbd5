//! Threads that pack pieces. They come back in the order in which they were given.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use tape::file::Packer;

/// One packs some 600 MB/s, and eight threads of a program write 900 (seen on an H200's host).
fn threads() -> usize {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= MANY_CPUS) { 3 } else { 2 }
}

const MANY_CPUS: usize = 8;
/// Pieces that are being packed, at most; each has 64 KiB, or what a ring held at once.
pub const AT_ONCE: usize = 16;

/// Whole events of one thread, and what they are packed; `None`: they stay as they are.
pub struct Packed {
    pub process: u32,
    pub tid: i32,
    pub events: Vec<u8>,
    pub packed: Option<Vec<u8>>,
}

struct Job {
    piece: Packed,
    done: SyncSender<Packed>,
}

/// A piece on its way.
enum Coming {
    Here(Packed),
    From(Receiver<Packed>),
}

pub struct Packing {
    to: SyncSender<Job>,
    coming: VecDeque<Coming>,
    at_once: usize,
}

impl Packing {
    /// So many pieces at once. `None` if no thread can be started.
    pub fn start(at_once: usize) -> Option<Packing> {
        let (to, from) = sync_channel::<Job>(at_once);
        let from = Arc::new(Mutex::new(from));
        let start = |_: &usize| {
            let from = from.clone();
            std::thread::Builder::new().name("pack".into()).spawn(move || run(&from)).is_ok()
        };
        // (They end when this does.)
        let started = (0..threads()).filter(start).count();
        (started > 0).then_some(Packing { to, coming: VecDeque::new(), at_once })
    }

    /// True if all pieces have come back.
    pub fn is_empty(&self) -> bool {
        self.coming.is_empty()
    }

    /// Packs a piece, or lets it through.
    pub fn give(&mut self, piece: Packed, packs: bool) {
        self.coming.push_back(if packs {
            let (done, from) = sync_channel(1);
            match self.to.send(Job { piece, done }) {
                Ok(()) => Coming::From(from),
                Err(job) => Coming::Here(job.0.piece),
            }
        } else {
            Coming::Here(piece)
        });
    }

    /// The next piece, if it is ready; waits for it if `all`, or if too many are on their way.
    pub fn next(&mut self, all: bool) -> Option<Packed> {
        let waits = all || self.coming.len() >= self.at_once;
        loop {
            let from = match self.coming.pop_front()? {
                Coming::Here(piece) => return Some(piece),
                Coming::From(from) => from,
            };
            let piece = if waits { from.recv().map_err(TryRecvError::from) } else { from.try_recv() };
            match piece {
                Ok(piece) => return Some(piece),
                Err(TryRecvError::Empty) => {
                    self.coming.push_front(Coming::From(from));
                    return None;
                }
                // Its thread has panicked, and the piece went with it.
                Err(TryRecvError::Disconnected) => {}
            }
        }
    }
}

fn run(from: &Mutex<Receiver<Job>>) {
    let mut packer = Packer::default();
    loop {
        let job = from.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { mut piece, done }) = job else { return };
        piece.packed = packer.pack(&piece.events).map(<[u8]>::to_vec);
        let _ = done.send(piece);
    }
}
