//! A queue of pending submissions: threads add tickets, each with a number of the caller, and take the finished ones, from any lanes.
//!
//! Each take reads the trackers itself. One of the waiting threads looks for all. The others sleep until it has found something. While no thread looks, a
//! descriptor for epoll needs another thread: [`crate::watch`].
//!
//! In the watching thread, the core of a queue outlives the borrow of its session, so it contains no part of the session. An entry has an observer of its lane,
//! and a close stores the result there.

use crate::by_cpu::DONE;
use crate::error::Error;
use crate::handle::{COPY, Copy};
use crate::session::{Now, Session};
use crate::sleepers::Sleepers;
use crate::wait::{LATE, Pace, Paused, nap, now};
use gpu::{Observer, Ticket};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// Maximum number of entries of a queue.
const MOST: usize = 1 << 16;
/// How long a waiting thread sleeps for the one that looks, which may have ended or got no CPU.
const FOLLOW: Duration = Duration::from_millis(10);
/// Nanoseconds without a change before the next take checks the lanes for errors; twice as many each time, up to a second more.
const DOUBT: u64 = 10_000_000;
const MOST_DOUBT: u64 = 1_000_000_000;

/// A submission that is done, or never will be.
#[derive(Debug)]
pub struct Done {
    pub copy: Copy,
    /// The number that was given to [`Queue::add`].
    pub user: u64,
    /// [`Error::Killed`], [`Error::Stopped`] or [`Error::Closed`] if its lane ended first.
    pub result: Result<(), Error>,
}

impl Default for Done {
    /// For an array that [`Queue::take`] fills.
    fn default() -> Done {
        Done { copy: Copy(0), user: 0, result: Ok(()) }
    }
}

/// Submissions of one session that any number of threads wait for together.
///
/// `S` is the reference to the session: `&Session`, `Arc<Session>`. The queue stays valid when the session is closed and opened again: its old entries return
/// with their result or [`Error::Closed`], and new tickets may be added.
///
/// ```no_run
/// # use submit::{Done, Options, Queue, Session, Transfer};
/// # use std::{sync::Arc, time::Duration};
/// # fn example(session: Arc<Session>, transfers: &[Transfer]) -> Result<(), submit::Error> {
/// let queue = Queue::new(session.clone(), 64)?;
/// for (n, transfer) in transfers.iter().enumerate() {
///     queue.add(session.submit(*transfer)?, n as u64)?;
/// }
/// let mut done: [Done; 16] = Default::default();
/// while !queue.is_empty() {
///     queue.wait(Duration::from_secs(1))?;
///     let count = queue.take(&mut done)?;
///     for done in &mut done[..count] {
///         println!("{}: {:?}", done.user, done.result);
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Queue<S: Deref<Target = Session>> {
    session: S,
    core: Arc<Core>,
}

impl<S: Deref<Target = Session>> std::fmt::Debug for Queue<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("size", &self.core.size).finish_non_exhaustive()
    }
}

/// The part of a queue that the watching thread and a close use.
pub(crate) struct Core {
    size: usize,
    state: Mutex<State>,
    /// An entry is ready, there is a new one, or no thread looks any more.
    changed: Condvar,
    descriptor: OnceLock<OwnedFd>,
    /// For the thread that looks; the others sleep elsewhere.
    sleepers: Sleepers,
}

struct State {
    /// In the order in which they were added; no more than its capacity.
    entries: Vec<Entry>,
    /// The descriptor is readable.
    signalled: bool,
    /// The watching thread's next look is late if something ends before it.
    long: bool,
    /// A waiting thread looks for all of them.
    looker: bool,
    /// Number of threads that wait now, and how often they were woken.
    waiting: usize,
    woken: u64,
    /// Time of the last change, and how long after it the next take checks the lanes.
    since: u64,
    doubt: u64,
    /// Time of the last such check by a take.
    saw: u64,
}

struct Entry {
    copy: Copy,
    user: u64,
    seen: Seen,
}

enum Seen {
    /// By its lane.
    Lane(Observer, Ticket),
    /// The lane has gone, or there was none.
    Over(Result<(), Error>),
}

impl Entry {
    /// Whether the entry has a result. Never in a fork's child.
    fn is_ready(&self) -> bool {
        match &self.seen {
            Seen::Lane(observer, ticket) => {
                observer.done(*ticket) || observer.is_stopped() || observer.error().is_some()
            }
            Seen::Over(_) => true,
        }
    }
}

impl Core {
    /// (A panic in another thread leaves the state consistent.)
    fn state(&self) -> MutexGuard<'_, State> {
        poison::ignore(self.state.lock())
    }

    pub fn has_descriptor(&self) -> bool {
        self.descriptor.get().is_some()
    }

    /// Makes the descriptor readable, and wakes one of the threads that wait.
    fn signal(&self, state: &mut State) {
        if state.waiting > 0 {
            self.changed.notify_one();
        }
        let Some(descriptor) = self.descriptor.get() else { return };
        if !state.signalled {
            let one = 1u64.to_ne_bytes();
            // SAFETY: eight bytes from the stack into the queue's descriptor, which does not block.
            let written = unsafe { libc::write(descriptor.as_raw_fd(), one.as_ptr().cast(), one.len()) };
            state.signalled = written == one.len() as isize;
        }
    }

    /// A look by the watching thread. Returns nanoseconds until the next, or `None` if no look is needed until an entry is added or taken.
    pub fn watch(&self) -> Option<u64> {
        let mut state = self.state();
        if state.signalled || state.entries.is_empty() {
            return None;
        }
        let after = now().saturating_sub(state.since);
        if state.entries.iter().any(Entry::is_ready) {
            if state.long {
                self.sleepers.expected.overslept(after);
            } else {
                self.sleepers.expected.lasted(after);
            }
            self.signal(&mut state);
            return None;
        }
        if after > state.doubt {
            // The next take checks for a missed doorbell: that needs a lane, which this thread never has.
            state.doubt = after + after.min(MOST_DOUBT);
            self.signal(&mut state);
            return None;
        }
        let next = nap(after, self.sleepers.expected.get());
        state.long = next > LATE;
        Some(next)
    }

    /// The session is about to close, or has closed: waiting threads check that.
    pub fn wake_all(&self) {
        // Under the lock: a thread either has checked whether the session is open and sleeps, or checks after this.
        let _state = self.state();
        self.changed.notify_all();
    }

    /// The session's lanes have ended: the current result of each entry is final.
    pub fn closed(&self) {
        let mut state = self.state();
        for entry in &mut state.entries {
            if let Seen::Lane(observer, ticket) = &entry.seen {
                let result = match observer.error() {
                    _ if observer.done(*ticket) => Ok(()),
                    Some(code) => Err(Error::Killed(code)),
                    None => Err(Error::Closed),
                };
                entry.seen = Seen::Over(result);
            }
        }
        if !state.entries.is_empty() {
            self.signal(&mut state);
        }
        self.changed.notify_all();
    }
}

impl<S: Deref<Target = Session>> Queue<S> {
    /// A queue for this many submissions at a time.
    ///
    /// # Errors
    /// [`Error::Argument`] for none or more than 65,536, [`Error::Forked`].
    pub fn new(session: S, size: usize) -> Result<Queue<S>, Error> {
        Session::same_process()?;
        if !(1..=MOST).contains(&size) {
            return Err(Error::Argument("a queue has 1 to 65,536 entries"));
        }
        let state = State {
            entries: Vec::with_capacity(size),
            signalled: false,
            long: false,
            looker: false,
            waiting: 0,
            woken: 0,
            since: 0,
            doubt: DOUBT,
            saw: 0,
        };
        let core = Arc::new(Core {
            size,
            state: Mutex::new(state),
            changed: Condvar::new(),
            descriptor: OnceLock::new(),
            sleepers: Sleepers::new(),
        });
        session.watch.add(&core);
        Ok(Queue { session, core })
    }

    /// Adds a submission, with a number that is returned with it. One submission may be in several queues. It allocates no memory. With a descriptor it may
    /// make a system call, to wake the watching thread.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Handle`] if it is not a submission of this opening, [`Error::Closed`], [`Error::Forked`]; with a descriptor also
    /// [`Error::Unavailable`], if a thread cannot be started. The submission was not added. A dead lane is not an error here.
    pub fn add(&self, copy: Copy, user: u64) -> Result<(), Error> {
        Session::same_process()?;
        let opening = self.session.now()?;
        let seen = self.seen(opening, copy)?;
        if self.core.has_descriptor() {
            self.session.watch.ensure()?;
        }
        let mut state = self.core.state();
        if state.entries.len() == self.core.size {
            return Err(Error::Full(self.core.size as u32));
        }
        // A close ends all entries when it has the lock: either it gets the lock after this call, or this check sees the close.
        if self.session.now()? != opening {
            return Err(Error::Closed);
        }
        let entry = Entry { copy, user, seen };
        if entry.is_ready() {
            self.core.signal(&mut state);
        } else if state.waiting > 0 && !state.looker {
            self.core.changed.notify_one();
        }
        if state.entries.is_empty() {
            (state.since, state.doubt, state.long) = (now(), DOUBT, false);
        }
        state.entries.push(entry);
        drop(state);
        if self.core.has_descriptor() {
            self.session.watch.wake();
        }
        Ok(())
    }

    fn seen(&self, opening: Now, copy: Copy) -> Result<Seen, Error> {
        let (lane, number) = self.session.lane_of(opening, copy)?;
        if lane == DONE {
            return Ok(Seen::Over(Ok(())));
        }
        let lane = self.session.lanes.get(usize::from(lane)).ok_or_else(|| COPY.wrong())?;
        lane.observe(|observer| {
            let ticket = observer.ticket(number).ok_or_else(|| COPY.wrong())?;
            Ok(Seen::Lane(observer.clone(), ticket))
        })
    }

    /// Takes finished submissions, in the order in which they were added, as many as there is room for. Returns their number. Never waits; returns 0 if none is
    /// finished, or if another thread has taken them. The next call returns those that are left: the descriptor stays readable for them.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn take(&self, into: &mut [Done]) -> Result<usize, Error> {
        Session::same_process()?;
        let mut state = self.core.state();
        let count = self.take_now(&mut state, into);
        let pending = !state.entries.is_empty();
        let doubts = pending && count == 0 && {
            let now = now();
            // Not at each take, because it takes lanes.
            let due = now.saturating_sub(state.since.max(state.saw)) > DOUBT;
            state.saw = if due { now } else { state.saw };
            due
        };
        drop(state);
        if doubts {
            self.see_what_is_wrong();
        }
        if pending && self.core.has_descriptor() {
            self.session.watch.wake();
        }
        Ok(count)
    }

    fn take_now(&self, state: &mut State, into: &mut [Done]) -> usize {
        if state.signalled
            && let Some(descriptor) = self.core.descriptor.get()
        {
            let mut counter = [0u8; 8];
            // SAFETY: eight bytes on the stack, from the queue's descriptor, which does not block.
            unsafe { libc::read(descriptor.as_raw_fd(), counter.as_mut_ptr().cast(), counter.len()) };
            state.signalled = false;
        }
        let (mut count, mut more) = (0, false);
        state.entries.retain_mut(|entry| {
            if !entry.is_ready() {
                return true;
            }
            if count == into.len() {
                more = true;
                return true;
            }
            let Some(result) = self.result(entry) else { return true };
            into[count] = Done { copy: entry.copy, user: entry.user, result };
            count += 1;
            false
        });
        if count > 0 {
            (state.since, state.doubt, state.long) = (now(), DOUBT, false);
        }
        if more {
            self.core.signal(state);
        }
        count
    }

    /// The result of an entry that is ready; `None` while a launch's results must still be moved.
    fn result(&self, entry: &mut Entry) -> Option<Result<(), Error>> {
        let (observer, ticket) = match &mut entry.seen {
            Seen::Over(result) => return Some(std::mem::replace(result, Ok(()))),
            Seen::Lane(observer, ticket) => (observer, *ticket),
        };
        match self.session.query(entry.copy) {
            Ok(0) => Some(Ok(())),
            Ok(_) => None,
            // The session was closed in between, and may be open again.
            Err(_) if observer.done(ticket) => Some(Ok(())),
            Err(Error::Handle(_)) => Some(Err(Error::Closed)),
            Err(error) => Some(Err(error)),
        }
    }

    /// Waits until an entry can be taken, in the way that [`Session::set_wait`] has set. One of the threads that wait on a queue looks for all of them. It also
    /// waits for an empty queue, because another thread may add.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Forked`], and [`Error::Closed`] if no entry can be taken and the session is not open.
    pub fn wait(&self, limit: Duration) -> Result<(), Error> {
        Session::same_process()?;
        let mut pace = Pace::new(self.session.how(), limit, &self.core.sleepers, 0);
        let mut state = self.core.state();
        let woken = state.woken;
        state.waiting += 1;
        let found = loop {
            if state.woken != woken {
                break Ok(());
            }
            if state.entries.iter().any(Entry::is_ready) {
                pace.done();
                break Ok(());
            }
            if let Err(error) = self.session.now() {
                break Err(error);
            }
            let left = pace.left();
            if left.is_zero() {
                break Err(Error::Timeout(limit));
            }
            if state.looker || state.entries.is_empty() {
                let most = if state.looker { left.min(FOLLOW) } else { left };
                let waited = self.core.changed.wait_timeout(state, most);
                state = poison::ignore(waited).0;
                continue;
            }
            state.looker = true;
            drop(state);
            if pace.pause() == Paused::Doubt {
                self.see_what_is_wrong();
            }
            state = self.core.state();
            state.looker = false;
        };
        state.waiting -= 1;
        if state.waiting > 0 && !state.entries.is_empty() {
            // Another thread looks from now on.
            self.core.changed.notify_one();
        }
        found
    }

    /// Checks the lanes of pending submissions for errors. The entries then have the results.
    fn see_what_is_wrong(&self) {
        // Not under the lock: it may wait for the kernel driver.
        for from in (0..self.core.size).step_by(CHUNK) {
            let mut chunk = [Copy(0); CHUNK];
            let mut count = 0;
            for (to, entry) in chunk.iter_mut().zip(self.core.state().entries.iter().skip(from)) {
                (*to, count) = (entry.copy, count + 1);
            }
            let _ = self.session.look_at(chunk[..count].iter().copied());
            if count < CHUNK {
                return;
            }
        }
    }

    /// Removes a submission that was not taken yet. Returns whether it was there. The submission itself still runs: only its lane can end it.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn remove(&self, copy: Copy) -> Result<bool, Error> {
        Session::same_process()?;
        let mut state = self.core.state();
        let before = state.entries.len();
        state.entries.retain(|entry| entry.copy != copy);
        Ok(state.entries.len() < before)
    }

    /// Ends the current waits of all threads on this queue: they return as if an entry could be taken.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn wake(&self) -> Result<(), Error> {
        Session::same_process()?;
        self.core.state().woken += 1;
        self.core.changed.notify_all();
        Ok(())
    }

    /// A descriptor that poll, epoll and asyncio find readable when an entry can be taken, until [`Queue::take`] has left no finished one. Do not read from it.
    /// If no entry ends for 10 ms, and then less and less often, it becomes readable without a finished entry. The next take then returns 0 and checks for a
    /// missed doorbell.
    ///
    /// The first call starts the session's watching thread, `doorbell-waits`. It looks at the entries of queues with a descriptor after naps like those of
    /// [`crate::Wait::Sleep`], and sleeps if there are none. All signals are blocked in it, and a close ends it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the system gives no descriptor or no thread, [`Error::Closed`], [`Error::Forked`].
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>, Error> {
        Session::same_process()?;
        self.session.now()?;
        self.session.watch.ensure()?;
        let mut state = self.core.state();
        if !self.core.has_descriptor() {
            // SAFETY: takes no pointer.
            let made = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
            if made < 0 {
                let why = std::io::Error::last_os_error();
                return Err(Error::Unavailable(format!("no descriptor for a queue (eventfd): {why}")));
            }
            // SAFETY: just made, and only this call has it.
            let _ = self.core.descriptor.set(unsafe { OwnedFd::from_raw_fd(made) });
            if state.entries.iter().any(Entry::is_ready) {
                self.core.signal(&mut state);
            }
        }
        drop(state);
        self.session.watch.wake();
        match self.core.descriptor.get() {
            Some(descriptor) => Ok(descriptor.as_fd()),
            None => Err(Error::Closed),
        }
    }

    /// Number of its submissions, done or not; 0 in a fork's child.
    pub fn len(&self) -> usize {
        Session::same_process().map_or(0, |()| self.core.state().entries.len())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Number of tickets that are checked together.
const CHUNK: usize = 256;
