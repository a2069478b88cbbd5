//! The thread that looks at queues with a descriptor while no thread of the program does: one for a session, from the first descriptor to the close.
//!
//! It has nothing of the session but the cores of queues, takes no lane and calls no driver, so neither a close nor a submission waits for it, and the session may
//! be moved. It sleeps where nothing is under way, or where everybody has been told of what is.

use crate::error::Error;
use crate::promises::without_signals;
use crate::queue::Core;
use crate::wait::{LATE, Slack};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// The queues of a session, and who looks at them.
pub(crate) struct Watch(Mutex<Watched>);

struct Watched {
    queues: Vec<Weak<Core>>,
    thread: Option<(Arc<Shared>, JoinHandle<()>)>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queues: Vec<Weak<Core>>,
    /// Something was added or taken.
    changed: bool,
    /// It sleeps for longer than anybody may be told late.
    sleeps: bool,
    over: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread.
    fn run(&self) {
        // Its own, to the end.
        std::mem::forget(Slack::least());
        let mut queues = Vec::new();
        let mut state = self.state();
        while !state.over {
            state.changed = false;
            queues.clone_from(&state.queues);
            drop(state);
            let next = queues.iter().filter_map(|queue| queue.upgrade()?.watch()).min();
            state = self.state();
            if state.over || state.changed {
                continue;
            }
            state.sleeps = next.is_none_or(|next| next > LATE);
            state = match next {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(next) => {
                    let waited = self.changed.wait_timeout(state, Duration::from_nanos(next));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            state.sleeps = false;
        }
    }
}

impl Watch {
    pub const fn new() -> Watch {
        Watch(Mutex::new(Watched { queues: Vec::new(), thread: None }))
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, core: &Arc<Core>) {
        let mut watched = self.watched();
        watched.queues.retain(|queue| queue.strong_count() > 0);
        watched.queues.push(Arc::downgrade(core));
        if let Some((shared, _)) = &watched.thread {
            shared.state().queues.clone_from(&watched.queues);
        }
    }

    /// Makes sure that there is a thread.
    pub fn ensure(&self) -> Result<(), Error> {
        let mut watched = self.watched();
        if watched.thread.is_none() {
            let shared = Arc::new(Shared::default());
            shared.state().queues.clone_from(&watched.queues);
            let its = shared.clone();
            let thread =
                without_signals(|| std::thread::Builder::new().name("doorbell-waits".into()).spawn(move || its.run()));
            let thread = thread.map_err(|error| {
                Error::Unavailable(format!("no thread that watches queues with a descriptor: {error}"))
            })?;
            watched.thread = Some((shared, thread));
        }
        Ok(())
    }

    /// Something was added or taken.
    pub fn wake(&self) {
        if let Some((shared, _)) = &self.watched().thread {
            let mut state = shared.state();
            state.changed = true;
            if state.sleeps {
                shared.changed.notify_one();
            }
        }
    }

    /// The session is not open any more: threads that wait see it at once.
    pub fn closing(&self) {
        self.watched().queues.iter().filter_map(Weak::upgrade).for_each(|core| core.wake_all());
    }

    /// The lanes have gone.
    pub fn closed(&self) {
        let mut watched = self.watched();
        if let Some((shared, thread)) = watched.thread.take() {
            shared.state().over = true;
            shared.changed.notify_one();
            let _ = thread.join();
        }
        watched.queues.iter().filter_map(Weak::upgrade).for_each(|core| core.closed());
    }

    /// In a fork's child the thread is not there, and its handle is the parent's.
    pub fn forget(&mut self) {
        std::mem::forget(self.0.get_mut().unwrap_or_else(PoisonError::into_inner).thread.take());
    }
}
