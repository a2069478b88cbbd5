//! How CUDA is made to launch a graph that is being learnt.

use cuda::{Context, Words};
use std::ffi::c_void;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Launches of one graph on one stream, the same each time. A closure that launches and waits does not keep the stream busy.
pub trait Launches {
    type Error: Display;

    /// Keeps the stream busy until [`Launches::finish`]. CUDA omits each wait that is already over when it writes the commands; on a busy stream none is
    /// over. False if the stream cannot be kept busy.
    fn hold(&mut self) -> bool {
        false
    }

    /// Launches the graph once.
    ///
    /// # Errors
    /// CUDA's error.
    fn launch(&mut self) -> Result<(), Self::Error>;

    /// Releases the stream and waits until the launch is done. Returns whether the stream was busy until now.
    ///
    /// # Errors
    /// CUDA's error.
    fn finish(&mut self) -> Result<bool, Self::Error> {
        Ok(false)
    }
}

impl<E: Display, F: FnMut() -> Result<(), E>> Launches for F {
    type Error = E;

    fn launch(&mut self) -> Result<(), E> {
        self()
    }
}

/// A stream is released after this time even if CUDA has not returned from the launch: CUDA may be waiting for the stream (memcpy nodes of pageable
/// memory).
const LAUNCH: Duration = Duration::from_millis(20);
/// And after this time if no launch follows.
const HOLD: Duration = Duration::from_secs(1);

/// Launches by the handles of an executable graph and a stream. While the stream is held, it waits for a word in pinned memory (`cuStreamWaitValue32`).
#[derive(Debug)]
pub struct OnStream<'c> {
    context: &'c Context,
    exec: *mut c_void,
    stream: *mut c_void,
    word: Option<Arc<Words>>,
    /// The value of the word that releases the stream.
    holds: u32,
    keeper: Option<Keeper>,
    launched: u64,
    refused: Option<cuda::Error>,
}

/// The thread that releases the stream.
#[derive(Debug)]
struct Keeper {
    /// Gets a message when the launch begins, and is dropped to release the stream.
    tell: mpsc::Sender<()>,
    /// Whether the stream was held until the sender was dropped.
    thread: JoinHandle<bool>,
}

impl<'c> OnStream<'c> {
    /// # Safety
    /// `exec` and `stream` are handles of this context's GPU (`CUgraphExec`, `CUstream`; a null stream: the default one). They and the memory of the
    /// graph's nodes live as long as this. The context is current on the threads that use this.
    pub unsafe fn new(context: &'c Context, exec: *mut c_void, stream: *mut c_void) -> OnStream<'c> {
        OnStream { context, exec, stream, word: None, holds: 0, keeper: None, launched: 0, refused: None }
    }

    /// How often the graph was launched.
    pub fn launched(&self) -> u64 {
        self.launched
    }

    /// CUDA's error for the last launch, if that failed.
    pub fn refused(self) -> Option<cuda::Error> {
        self.refused.clone()
    }

    fn try_hold(&mut self) -> Option<()> {
        let word = match &self.word {
            Some(word) => word.clone(),
            None => self.word.insert(Arc::new(Words::new(self.context, 1).ok()?)).clone(),
        };
        self.holds += 1;
        let (holds, keeps) = (self.holds, word.clone());
        let (tell, told) = mpsc::channel();
        let keep = move || {
            let ended = told.recv_timeout(HOLD).and_then(|()| told.recv_timeout(LAUNCH));
            let kept = ended == Err(RecvTimeoutError::Disconnected);
            // ORDERING: the GPU orders only its own work by it.
            keeps.word(0).store(holds, Ordering::SeqCst);
            kept
        };
        let thread = std::thread::Builder::new().name("doorbell-hold".into()).spawn(keep).ok()?;
        self.keeper = Some(Keeper { tell, thread });
        // SAFETY: the stream is the caller's of `new`; the word lives until the stream has been waited for.
        let held = unsafe { word.hold_until(self.stream, 0, holds) };
        if held.is_err() {
            self.let_go();
        }
        held.ok()
    }

    /// Whether it was held until now.
    fn let_go(&mut self) -> bool {
        let Some(Keeper { tell, thread }) = self.keeper.take() else { return false };
        drop(tell);
        thread.join().unwrap_or(false)
    }
}

impl Launches for OnStream<'_> {
    type Error = cuda::Error;

    fn hold(&mut self) -> bool {
        self.try_hold().is_some()
    }

    fn launch(&mut self) -> Result<(), cuda::Error> {
        self.launched += 1;
        if let Some(keeper) = &self.keeper {
            // (If the thread has already released the stream, [`Launches::finish`] returns that.)
            let _ = keeper.tell.send(());
        }
        // SAFETY: the contract of `new`.
        let launched = unsafe { self.context.launch_by_handle(self.exec, self.stream) };
        self.refused = launched.as_ref().err().cloned();
        launched
    }

    fn finish(&mut self) -> Result<bool, cuda::Error> {
        let held = self.let_go();
        // SAFETY: the contract of `new`.
        let waited = unsafe { self.context.wait_for(self.stream) };
        if let Err(error) = &waited {
            self.refused.get_or_insert(error.clone());
        }
        waited.map(|()| held)
    }
}

impl Drop for OnStream<'_> {
    fn drop(&mut self) {
        if self.keeper.is_some() {
            // The stream reads the word until it is released. (The caller that launched already got any error.)
            let _ = self.finish();
        }
    }
}
