//! Waiting for words, and for the end of a stream.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Whether a stream was destroyed: whatever it does is to end then.
#[derive(Default)]
pub(crate) struct Ended(AtomicBool);

impl Ended {
    pub fn end(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub fn has_ended(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Waits, on the stream's thread, until the word at `at` has reached `value`, counting up.
    ///
    /// # Safety
    /// A word of memory that lives until then.
    pub unsafe fn wait_for(&self, at: u64, value: u32) {
        // SAFETY: the caller's.
        let word = unsafe { AtomicU32::from_ptr(at as *mut u32) };
        wait_until(|| has_come(word, value) || self.has_ended());
    }
}

/// Whether a word that counts up has reached a value.
pub(crate) fn has_come(word: &AtomicU32, value: u32) -> bool {
    word.load(Ordering::SeqCst).wrapping_sub(value) as i32 >= 0
}

pub(crate) fn wait_until(done: impl Fn() -> bool) {
    for turn in 0u32.. {
        if done() {
            return;
        }
        match turn {
            0..200 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(20)),
        }
    }
}
