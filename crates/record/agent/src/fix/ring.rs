//! Pinned pieces through which pageable memory is copied.
//!
//! A piece is free if no thread has claimed it, and if the GPU has written the number that was asked for after its last copy. A
//! copy claims all the pieces that it will use before it begins. So no copy waits for another one's, whose stream may never go on.

use super::driver::{Driver, SUCCESS};
use super::memory::{self, Memory};
use super::node;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Bytes of a piece.
const PIECE: usize = 1 << 20;
const PIECES: usize = 16;
/// Least bytes of a part of a copy: to ask for its copy takes about as long as the CPU takes to copy a quarter of it.
const LEAST: usize = 128 << 10;

struct State {
    is_claimed: AtomicBool,
    /// What the GPU writes after the last copy of the piece.
    expected: AtomicU32,
}

static STATES: [State; PIECES] =
    [const { State { is_claimed: AtomicBool::new(false), expected: AtomicU32::new(0) } }; PIECES];
/// The first piece; 0 before there are pieces. The words that the GPU writes follow the last one.
static FIRST: AtomicUsize = AtomicUsize::new(0);
static IS_MAKING: AtomicBool = AtomicBool::new(false);

/// Most pieces of one copy: the next ones are filled while the first ones are in progress, and other threads have some, too.
const MOST: usize = 4;

/// A piece of this module's memory.
#[derive(Clone, Copy)]
pub struct Piece(usize);

/// Those that the calling thread has claimed for one copy. Dropped, others may have them as soon as the GPU has marked them.
pub struct Pieces {
    all: [Piece; MOST],
    n: usize,
    /// Bytes of each part of the copy but the last one.
    part: usize,
}

/// The pieces, made at the first use. `None`: the driver has no such memory, or another thread is making them.
fn first(d: &Driver) -> Option<usize> {
    match FIRST.load(Ordering::Acquire) {
        0 => {}
        at => return Some(at),
    }
    if IS_MAKING.swap(true, Ordering::Acquire) {
        return None;
    }
    let at = FIRST.load(Ordering::Relaxed);
    let made =
        if at == 0 { d.relaxed(|| memory::on_host(d, PIECES * PIECE + 4096, node::of_thread()?).ok()) } else { None };
    if let Some(Memory { at, .. }) = made {
        FIRST.store(at, Ordering::Release);
    }
    IS_MAKING.store(false, Ordering::Release);
    match FIRST.load(Ordering::Relaxed) {
        0 => None,
        at => Some(at),
    }
}

impl Pieces {
    /// Up to `most` for a copy of so many bytes, and at least two if it has several parts, so that the CPU and the GPU copy at the
    /// same time.
    pub fn take(d: &Driver, bytes: usize, most: usize) -> Option<Pieces> {
        first(d)?;
        let part = (bytes / MOST).next_multiple_of(4096).clamp(LEAST, PIECE);
        let needed = bytes.div_ceil(part).min(most).min(MOST);
        let mut taken = Pieces { all: [Piece(0); MOST], n: 0, part };
        for piece in (0..PIECES).map(Piece).filter(|piece| piece.claim()) {
            if let Some(to) = taken.all.get_mut(taken.n) {
                *to = piece;
            }
            taken.n += 1;
            if taken.n == needed {
                break;
            }
        }
        (taken.n >= needed.min(2)).then_some(taken)
    }

    pub fn part(&self) -> usize {
        self.part
    }

    pub fn count(&self) -> usize {
        self.n
    }

    /// The piece of part `i` of the copy.
    pub fn of(&self, i: usize) -> Piece {
        self.all.get(i % self.n).copied().unwrap_or(Piece(0))
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        for piece in self.all.iter().take(self.n) {
            piece.state().is_claimed.store(false, Ordering::Release);
        }
    }
}

impl Piece {
    fn claim(self) -> bool {
        // ORDERING: Acquire: the piece is used after the thread before it has let it go.
        if self.state().is_claimed.swap(true, Ordering::Acquire) {
            return false;
        }
        let is_free = self.is_done();
        if !is_free {
            self.state().is_claimed.store(false, Ordering::Release);
        }
        is_free
    }

    pub fn at(self) -> usize {
        FIRST.load(Ordering::Relaxed) + self.0 * PIECE
    }

    fn word(self) -> usize {
        FIRST.load(Ordering::Relaxed) + PIECES * PIECE + self.0 * 64
    }

    fn state(self) -> &'static State {
        // (In range: `take` made it.)
        STATES.get(self.0).unwrap_or(&STATES[0])
    }

    /// The GPU has done all that was asked for with [`Piece::marks`].
    pub fn is_done(self) -> bool {
        // SAFETY: a word of the pieces' memory, which is never freed.
        let word = unsafe { AtomicU32::from_ptr(self.word() as *mut u32) };
        // ORDERING: Acquire: what the GPU wrote before the word is read after it.
        word.load(Ordering::Acquire) == self.state().expected.load(Ordering::Relaxed)
    }

    /// The GPU marks the piece when the stream has done what it has so far. The driver's answer.
    pub fn marks(self, d: &Driver, stream: usize) -> i32 {
        let next = self.state().expected.load(Ordering::Relaxed).wrapping_add(1);
        // SAFETY: a word of pinned memory.
        let result = unsafe { (d.write)(stream, self.word(), next, 0) };
        if result == SUCCESS {
            self.state().expected.store(next, Ordering::Relaxed);
        }
        result
    }
}
