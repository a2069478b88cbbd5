//! The program's interface of a loop.

use crate::error::{Ended, Error, Reason, State, Status};
use crate::memory::Memory;
use crate::options::{LoopOptions, Pace, Part};
use crate::scheduling;
use crate::sink::Results;
use crate::source::{self, Producer};
use crate::statistics::Statistics;
use crate::sys;
use crate::turn::Turns;
use std::any::Any;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use submit::Session;

const MOST_SLOTS: u32 = 1 << 16;

/// A thread that launches a chain for each frame. A drop stops it.
pub struct Loop {
    memory: Arc<Memory>,
    take: crate::options::Take,
    refused: Vec<String>,
    thread_id: i32,
    thread: Mutex<ManuallyDrop<Option<JoinHandle<()>>>>,
    /// So that the thread is not the last owner: dropping a session waits for its pending work.
    _session: Box<dyn Any + Send + Sync>,
}

impl Loop {
    /// Starts a loop on a session: `&'static Session` or `Arc<Session>`. It returns when the kernel has answered the thread's requests.
    ///
    /// # Errors
    /// [`Error::Argument`] with the reason, [`Error::Session`] for an invalid chain or buffer, [`Error::Refused`] if the kernel refused a required request,
    /// [`Error::System`].
    pub fn start<S>(session: S, options: LoopOptions) -> Result<Loop, Error>
    where
        S: Deref<Target = Session> + Clone + Send + Sync + 'static,
    {
        check(&options)?;
        // Checks that the graph exists.
        session.graph_kernels(options.graph)?;
        let held = |part: Option<Part>| part.map(|part| session.hold((part.buffer, part.at), part.bytes)).transpose();
        let (input, output) = (held(options.input)?, held(options.output)?);
        let bytes = |part: Option<Part>| part.map_or(0, |part| part.bytes);
        let memory =
            Arc::new(Memory::new((options.slots, bytes(options.input)), (options.results, bytes(options.output)))?);
        let (answer, answered) = sync_channel(1);
        let (its, of_thread) = (session.clone(), memory.clone());
        let take = options.take;
        let builder = std::thread::Builder::new().name(options.name.clone());
        let work = move || run(&its, &of_thread, &options, (input, output), answer);
        let thread = scheduling::without_signals(|| builder.spawn(work))
            .map_err(|error| Error::System("no thread for the loop", error))?;
        let (thread_id, refused) = match answered.recv() {
            Ok(Ok(started)) => started,
            Ok(Err(refused)) => {
                let _ = thread.join();
                return Err(Error::Refused(refused));
            }
            Err(_) => return Err(Error::Ended(Reason::Panicked)),
        };
        let thread = Mutex::new(ManuallyDrop::new(Some(thread)));
        Ok(Loop { memory, take, refused, thread_id, thread, _session: Box::new(session) })
    }

    /// Stops the loop and waits until its thread has ended: immediately while it waits for a tick or an input, and within a tenth of a second while it waits
    /// for a result, which is abandoned then. Any thread may call it, repeatedly.
    pub fn stop(&self) -> Status {
        if self.memory.forked() {
            return self.status();
        }
        let source = &self.memory.header().source;
        source.stop.store(1, Ordering::SeqCst);
        source.bell.fetch_add(1, Ordering::SeqCst);
        sys::wake(&source.bell);
        if let Some(thread) = poison::ignore(self.thread.lock()).take() {
            // (The status has its error.)
            let _ = thread.join();
        }
        self.status()
    }

    /// Whether it runs, or why it has ended.
    pub fn status(&self) -> Status {
        if self.memory.forked() {
            return Status { state: State::Ended, reason: Reason::Forked, code: 0 };
        }
        let progress = &self.memory.header().progress;
        // ORDERING: the reason is written before the state.
        let state = match progress.state.load(Ordering::Acquire) {
            0 => State::Starts,
            1 => State::Runs,
            _ => State::Ended,
        };
        let reason = if state == State::Ended { progress.reason.load(Ordering::Relaxed) } else { 0 };
        Status { state, reason: Reason::of(reason), code: progress.code.load(Ordering::Relaxed) }
    }

    /// Why it has ended, if it has: the text of the error, or of the reason.
    pub fn why(&self) -> Option<String> {
        let status = self.status();
        let ended = || (status.state == State::Ended).then(|| status.reason.to_string());
        self.memory.why.get().cloned().or_else(ended)
    }

    /// Its statistics so far.
    pub fn statistics(&self) -> Statistics {
        Statistics::of(&self.memory)
    }

    /// The requests of [`LoopOptions::scheduling`] that the kernel refused.
    pub fn refused(&self) -> &[String] {
        &self.refused
    }

    /// The producer, unless it exists already.
    pub fn producer(&self) -> Option<Producer> {
        Producer::new(&self.memory, self.take)
    }

    /// The reader of results, unless it exists already.
    pub fn results(&self) -> Option<Results> {
        Results::new(&self.memory)
    }

    /// For producers that write into the memory themselves ([`crate::layout`]): call it after a commit. It makes a system call only if the loop sleeps.
    pub fn wake(&self) {
        if !self.memory.forked() {
            source::wake_if_it_sleeps(&self.memory);
        }
    }

    /// The loop's memory, with the layout of [`crate::layout`], and its length in bytes. It stays until the loop, its producer and its results are dropped.
    pub fn memory(&self) -> (NonNull<u8>, usize) {
        (self.memory.base(), self.memory.total)
    }

    /// The eventfd that is signalled for results and when the loop ends: for poll, epoll and asyncio. It belongs to the loop.
    pub fn event_fd(&self) -> i32 {
        self.memory.event.number()
    }

    /// The kernel's number of the thread.
    pub fn thread_id(&self) -> i32 {
        self.thread_id
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // (In a fork's child there is no thread to join or to detach, so its handle is left alone.)
        self.stop();
    }
}

impl std::fmt::Debug for Loop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loop").field("status", &self.status()).field("thread", &self.thread_id).finish_non_exhaustive()
    }
}

fn check(options: &LoopOptions) -> Result<(), Error> {
    let wrong = |why| Err(Error::Argument(why));
    if !(2..=MOST_SLOTS).contains(&options.slots) || !(2..=MOST_SLOTS).contains(&options.results) {
        return wrong("a loop has 2 to 65,536 slots, and as many results");
    }
    if options.scheduling.alone && options.scheduling.cpu.is_none() {
        return wrong("a loop that is alone on its CPU names the CPU");
    }
    if options.name.len() > 15 || options.name.contains('\0') {
        return wrong("the name of a thread has at most 15 bytes, and no zero");
    }
    match options.pace {
        Pace::Period(period) if period.as_nanos() < 1000 => wrong("a period is at least 1 us"),
        Pace::Period(period) if period.as_secs() > 3600 => wrong("a period is at most an hour"),
        Pace::Frames if options.input.is_none() => wrong("frames that come have inputs: say where the chain reads"),
        _ => Ok(()),
    }
}

type Started = Result<(i32, Vec<String>), Vec<String>>;

/// The body of the thread.
fn run(
    session: &Session,
    memory: &Arc<Memory>,
    options: &LoopOptions,
    (input, output): (Option<submit::Hold>, Option<submit::Hold>),
    answer: SyncSender<Started>,
) {
    let mut end = End { memory: memory.clone(), ended: Reason::Panicked.into() };
    let (_placed, refused) = scheduling::take(&options.scheduling, memory);
    if options.scheduling.required && !refused.is_empty() {
        end.ended = Reason::Refused.into();
        let _ = answer.send(Err(refused));
        return;
    }
    let mut turns = Turns::new(options, input, output);
    memory.header().progress.state.store(State::Runs as u32, Ordering::SeqCst);
    // SAFETY: has no arguments.
    let number = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
    let _ = answer.send(Ok((number, refused)));
    drop(answer);
    end.ended = loop {
        if let Err(ended) = turns.turn(memory, session) {
            break ended;
        }
    };
}

/// Stores why the loop has ended, in all cases.
struct End {
    memory: Arc<Memory>,
    ended: Ended,
}

impl Drop for End {
    fn drop(&mut self) {
        let progress = &self.memory.header().progress;
        let set = |to: &std::sync::atomic::AtomicU32, value: u32| to.store(value, Ordering::SeqCst);
        if let Some(text) = self.ended.text.take() {
            let _ = self.memory.why.set(text);
        }
        set(&progress.reason, self.ended.reason as u32);
        set(&progress.code, self.ended.code);
        // ORDERING: the state after its reason.
        set(&progress.state, State::Ended as u32);
        self.memory.event.signal();
    }
}
