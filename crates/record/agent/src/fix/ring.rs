//! Pinned pieces through which pageable memory is copied.
//!
//! A piece is free if no thread has claimed it, and if the GPU has written the number that was written behind its last copy. So a
//! piece behind work that does not end is lost to the others, but keeps none of them waiting.

use super::driver::{Driver, SUCCESS};
use super::node;
use super::pins::{self, Memory};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Bytes of a piece: what the CPU has copied is still in its cache when the GPU reads it.
pub const PIECE: usize = 1 << 20;
pub const PIECES: usize = 16;

struct State {
    is_claimed: AtomicBool,
    /// What the GPU writes behind the last copy of the piece.
    expected: AtomicU32,
}

static STATES: [State; PIECES] =
    [const { State { is_claimed: AtomicBool::new(false), expected: AtomicU32::new(0) } }; PIECES];
/// The first piece; 0 before there are pieces. The words that the GPU writes are behind the last one.
static FIRST: AtomicUsize = AtomicUsize::new(0);
static IS_MAKING: AtomicBool = AtomicBool::new(false);

/// A piece that the calling thread has claimed.
pub struct Piece(usize);

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
    let made = if at == 0 { d.relaxed(|| pins::make(d, PIECES * PIECE + 4096, node::of_thread()?).ok()) } else { None };
    if let Some(Memory { at, .. }) = made {
        FIRST.store(at, Ordering::Release);
    }
    IS_MAKING.store(false, Ordering::Release);
    match FIRST.load(Ordering::Relaxed) {
        0 => None,
        at => Some(at),
    }
}

impl Piece {
    /// A free piece.
    pub fn take(d: &Driver) -> Option<Piece> {
        first(d)?;
        let is_free = |i: usize, state: &State| {
            // ORDERING: Acquire: the piece is used after the thread before it has let it go.
            if state.is_claimed.swap(true, Ordering::Acquire) {
                return false;
            }
            let is_free = Piece(i).is_done();
            if !is_free {
                state.is_claimed.store(false, Ordering::Release);
            }
            is_free
        };
        STATES.iter().enumerate().position(|(i, state)| is_free(i, state)).map(Piece)
    }

    pub fn at(&self) -> usize {
        FIRST.load(Ordering::Relaxed) + self.0 * PIECE
    }

    fn word(&self) -> usize {
        FIRST.load(Ordering::Relaxed) + PIECES * PIECE + self.0 * 64
    }

    fn state(&self) -> &'static State {
        // (In range: `take` made it.)
        STATES.get(self.0).unwrap_or(&STATES[0])
    }

    /// The GPU has done all that was asked for with [`Piece::marks`].
    pub fn is_done(&self) -> bool {
        // SAFETY: a word of the pieces' memory, which is never freed.
        let word = unsafe { AtomicU32::from_ptr(self.word() as *mut u32) };
        // ORDERING: Acquire: what the GPU wrote before the word is read after it.
        word.load(Ordering::Acquire) == self.state().expected.load(Ordering::Relaxed)
    }

    /// The GPU marks the piece when the stream has done what it has so far. The driver's answer.
    pub fn marks(&self, d: &Driver, stream: usize) -> i32 {
        let next = self.state().expected.load(Ordering::Relaxed).wrapping_add(1);
        // SAFETY: a word of pinned memory.
        let result = unsafe { (d.write)(stream, self.word(), next, 0) };
        if result == SUCCESS {
            self.state().expected.store(next, Ordering::Relaxed);
        }
        result
    }

    /// Others may have it, once it is done.
    pub fn let_go(self) {
        self.state().is_claimed.store(false, Ordering::Release);
    }
}
