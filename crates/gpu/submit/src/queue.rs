//! A queue of submissions under way: threads add tickets with a number of theirs, and take what is done, in any order of lanes.
//!
//! Who takes looks at the trackers itself. One of the threads that wait looks for all; the others sleep until it has found something. A descriptor for epoll
//! needs somebody who looks while no thread is here: [`crate::watch`].
//!
//! The core of a queue outlives the borrow of its session in the watching thread, so it has nothing of the session: an entry has an observer of its lane, and a
//! close leaves the result there.

use crate::by_cpu::DONE;
use crate::error::Error;
use crate::handle::{COPY, Copy};
use crate::session::{Now, Session};
use crate::sleepers::Sleepers;
use crate::wait::{LATE, Pace, Paused, nap, now};
use gpu::{Observer, Ticket};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Most entries of a queue.
const MOST: usize = 1 << 16;
/// So long a thread sleeps that waits for the one that looks: that one may have ended, or got no CPU.
const FOLLOW: Duration = Duration::from_millis(10);
/// Nanoseconds without a change before whoever takes is asked to see what is wrong; twice as many each time, up to a second more.
const DOUBT: u64 = 10_000_000;
const MOST_DOUBT: u64 = 1_000_000_000;

/// A submission that is done, or never will be.
#[derive(Debug)]
pub struct Done {
    pub copy: Copy,
    /// What was given to [`Queue::add`].
    pub user: u64,
    /// [`Error::Killed`], [`Error::Stopped`] or [`Error::Closed`] where its lane ended before.
    pub result: Result<(), Error>,
}

impl Default for Done {
    /// For an array to take into.
    fn default() -> Done {
        Done { copy: Copy(0), user: 0, result: Ok(()) }
    }
}

/// Submissions of one session that are waited for together, by any number of threads.
///
/// `S` is how it has the session: `&Session`, `Arc<Session>`. It stays good when the session is closed and opened again: what was in it comes out with its
/// result or [`Error::Closed`], and new tickets may be added.
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

/// What the watching thread and a close see of a queue.
pub(crate) struct Core {
    size: usize,
    state: Mutex<State>,
    /// There is something to take or to look at, or nobody looks any more.
    changed: Condvar,
    descriptor: OnceLock<OwnedFd>,
    /// Of the one that looks; the others sleep elsewhere.
    sleepers: Sleepers,
}

struct State {
    /// In the order in which they were added; no more than its capacity.
    entries: Vec<Entry>,
    /// The descriptor is readable.
    signalled: bool,
    /// The watching thread's next look is late, if something ends before it.
    long: bool,
    /// A thread that waits looks for all of them.
    looker: bool,
    /// Threads that wait now, and how often they were woken.
    waiting: usize,
    woken: u64,
    /// When something changed last, and how long after that whoever takes is asked to see what is wrong.
    since: u64,
    doubt: u64,
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
    /// Whether there is something to say of it. Never in a fork's child.
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
    /// (A panic of another thread leaves nothing half done here.)
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
            // SAFETY: eight bytes of ours into a descriptor of ours, which does not block.
            let written = unsafe { libc::write(descriptor.as_raw_fd(), one.as_ptr().cast(), one.len()) };
            state.signalled = written == one.len() as isize;
        }
    }

    /// The watching thread's look: nanoseconds until the next, `None` where there is nothing to look at until something is added or taken.
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
            // Whoever takes sees whether a doorbell was missed: that needs a lane, which this thread never has.
            state.doubt = after + after.min(MOST_DOUBT);
            self.signal(&mut state);
            return None;
        }
        let next = nap(after, self.sleepers.expected.get());
        state.long = next > LATE;
        Some(next)
    }

    /// The session is about to close, or has closed: threads that wait look at that.
    pub fn wake_all(&self) {
        // Under the lock: a thread has looked whether the session is open, and sleeps; or it looks after this.
        let _state = self.state();
        self.changed.notify_all();
    }

    /// The session's lanes have gone: what is known of each entry now is what will ever be known.
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
    /// For up to so many submissions at a time.
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

    /// Adds a submission, with a number that comes out with it. The same one may be in several queues. It allocates nothing; with a descriptor it may make a
    /// system call, to wake who watches.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Handle`] for what is no submission of this opening, [`Error::Closed`], [`Error::Forked`]; with a descriptor also
    /// [`Error::Unavailable`], where a thread cannot be started. Nothing was added. That its lane is dead is no error here.
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
        // A close ends what is here when it has the lock: it has it after this, or is seen here.
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

    /// Takes what is done, in the order in which it was added, as much as there is room for; how many. Never waits; 0 where nothing is done, or another thread
    /// has taken it. What is left comes next time: then the descriptor stays readable.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn take(&self, into: &mut [Done]) -> Result<usize, Error> {
        Session::same_process()?;
        let mut state = self.core.state();
        let count = self.take_now(&mut state, into);
        let pending = !state.entries.is_empty();
        let doubts = pending && count == 0 && now().saturating_sub(state.since) > DOUBT;
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
            // SAFETY: eight bytes of ours, from a descriptor of ours that does not block.
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

    /// What there is to say of an entry that is ready; `None` while results of a launch have still to be moved.
    fn result(&self, entry: &mut Entry) -> Option<Result<(), Error>> {
        let (observer, ticket) = match &mut entry.seen {
            Seen::Over(result) => return Some(std::mem::replace(result, Ok(()))),
            Seen::Lane(observer, ticket) => (observer, *ticket),
        };
        match self.session.query(entry.copy) {
            Ok(0) => Some(Ok(())),
            Ok(_) => None,
            // Closed meanwhile, and maybe open again.
            Err(_) if observer.done(ticket) => Some(Ok(())),
            Err(Error::Handle(_)) => Some(Err(Error::Closed)),
            Err(error) => Some(Err(error)),
        }
    }

    /// Waits until something can be taken, as [`Session::set_wait`] has it. Threads that wait on one queue share the looks: one of them looks for all. An empty
    /// queue is waited for, too: somebody may add.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Forked`], and [`Error::Closed`] where nothing can be taken and the session is not open.
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
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
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
            // Somebody else looks from now on.
            self.core.changed.notify_one();
        }
        found
    }

    /// Sees whether something is wrong with the lanes of what is under way. What is found is said by the entries.
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

    /// Takes a submission out that was not taken yet; whether it was there. It goes on: nothing ends a submission but its lane.
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

    /// Ends the waits of all threads that wait on this queue now: they return as if something could be taken.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn wake(&self) -> Result<(), Error> {
        Session::same_process()?;
        self.core.state().woken += 1;
        self.core.changed.notify_all();
        Ok(())
    }

    /// A descriptor that poll, epoll and asyncio find readable when something can be taken, until [`Queue::take`] has left nothing that is done. Do not read
    /// from it. Where nothing moves for 10 ms, and less and less often then, it is readable without: the take, which answers 0, sees whether a doorbell was missed.
    ///
    /// The first call starts the session's watching thread, `doorbell-waits`. It looks at what is in queues with a descriptor after naps as those of
    /// [`crate::Wait::Sleep`], and sleeps where there is nothing. All signals are blocked in it, and a close ends it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where there is no descriptor or no thread to be had, [`Error::Closed`], [`Error::Forked`].
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
            // SAFETY: just made, and nobody else's.
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

    /// Submissions in it, done or not; none in a fork's child.
    pub fn len(&self) -> usize {
        Session::same_process().map_or(0, |()| self.core.state().entries.len())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Tickets that are looked at together.
const CHUNK: usize = 256;
