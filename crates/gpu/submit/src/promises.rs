//! Words that CUDA streams wait for, and that lanes have promised to write ([`crate::Session::stream_wait`]).
//!
//! A lane that dies (after an error, or because its memory was freed) does not write its words. The streams would wait forever, and so would
//! the program, which then makes no call that could find the error. So a thread checks the lanes ten times a second as long as words are
//! promised, ends those that wait for dead ones, and writes the words of dead lanes. A session that has promised no word has no such thread.
//! A promise wakes the thread only if it sleeps: a wake is a system call of 1.7 us (H100).

use crate::error::Error;
use crate::words::WORDS;
use gpu::Observer;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between two checks.
const LOOK: Duration = Duration::from_millis(100);
/// Promises that are remembered between two checks. No more than [`WORDS`] of them are not yet kept.
const MOST: usize = 2 * WORDS;

/// A word that a lane writes when its earlier work is done.
pub(crate) struct Promise {
    pub lane: Observer,
    pub index: usize,
    pub value: u32,
}

/// The promised words of one session.
pub(crate) struct Promises {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    words: Arc<cuda::Words>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    promised: Vec<Promise>,
    /// The thread waits for the next promise.
    asleep: bool,
    over: bool,
}

impl Promises {
    pub fn new(words: &Arc<cuda::Words>) -> Promises {
        let shared = Shared { words: words.clone(), state: Mutex::default(), changed: Condvar::new() };
        Promises { shared: Arc::new(shared), thread: Mutex::new(None) }
    }

    /// Starts the thread, if it does not run yet. Called before the first promise.
    pub fn start(&self) -> Result<(), Error> {
        let mut thread = poison::ignore(self.thread.lock());
        if thread.is_none() {
            let shared = self.shared.clone();
            shared.state().promised.reserve_exact(MOST);
            *thread = Some(
                without_signals(|| {
                    std::thread::Builder::new().name("doorbell-words".into()).spawn(move || shared.look())
                })
                .map_err(|error| {
                    Error::Unavailable(format!("no thread that looks after the words of streams: {error}"))
                })?,
            );
        }
        Ok(())
    }

    /// Does not allocate.
    pub fn add(&self, promise: Promise) {
        let mut state = self.shared.state();
        if state.promised.len() == MOST {
            state.promised.retain(|promise| !self.shared.is_kept(promise));
        }
        state.promised.push(promise);
        if std::mem::take(&mut state.asleep) {
            drop(state);
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Promises {
    /// All lanes have ended: this writes the words that they have not written.
    fn drop(&mut self) {
        self.shared.state().over = true;
        self.shared.changed.notify_one();
        if let Some(thread) = poison::ignore(self.thread.get_mut()).take() {
            let _ = thread.join();
        }
        self.shared.keep();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        poison::ignore(self.state.lock())
    }

    /// The body of the thread.
    fn look(&self) {
        let mut state = self.state();
        while !state.over {
            state.asleep = state.promised.is_empty();
            state = if state.asleep {
                poison::ignore(self.changed.wait(state))
            } else {
                let waited = poison::ignore(self.changed.wait_timeout(state, LOOK));
                drop(waited.0);
                self.keep();
                self.state()
            };
        }
    }

    /// Its word is written.
    fn is_kept(&self, promise: &Promise) -> bool {
        self.words.word(promise.index).load(Ordering::Acquire).wrapping_sub(promise.value) as i32 >= 0
    }

    /// Writes the words of dead lanes, and forgets promises whose words are written.
    fn keep(&self) {
        self.state().promised.retain(|promise| {
            if self.is_kept(promise) {
                return false;
            }
            // (A dead lane is off the GPU: it does not overwrite later values. One that waits for a dead lane ends here: the threads
            // of the program may all be in calls of CUDA that wait for its stream.)
            let dead = promise.lane.is_dead();
            if dead && !self.is_kept(promise) {
                self.words.word(promise.index).store(promise.value, Ordering::SeqCst);
            }
            !dead
        });
    }
}

/// Blocks all signals while `spawn` runs, so that the program's signal handlers do not run on doorbell's threads.
pub(crate) fn without_signals<T>(spawn: impl FnOnce() -> T) -> T {
    // SAFETY: sets of signals are plain bits; the calls read and write these two.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        let blocked = libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) == 0;
        let made = spawn();
        if blocked {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        }
        made
    }
}
