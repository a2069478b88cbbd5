//! The thread that looks at queues with a descriptor while no thread of the program does: one for a session, from the first descriptor to the close.
//!
//! It uses only the cores of queues, takes no lane and calls no driver. So no close and no submission waits for it, and the session may be moved. It
//! sleeps if no submission is pending, or if the descriptors of all finished ones are readable.

use crate::error::Error;
use crate::promises::without_signals;
use crate::queue::Core;
use crate::wait::{LATE, Slack};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// The queues of a session, and the thread that looks at them.
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
    /// An entry was added or taken.
    changed: bool,
    /// It sleeps for longer than the permitted lateness.
    sleeps: bool,
    over: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        poison::ignore(self.state.lock())
    }

    /// The body of the thread.
    fn run(&self) {
        // For this thread, until it ends.
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
                None => poison::ignore(self.changed.wait(state)),
                Some(next) => {
                    let waited = self.changed.wait_timeout(state, Duration::from_nanos(next));
                    poison::ignore(waited).0
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
        poison::ignore(self.0.lock())
    }

    pub fn add(&self, core: &Arc<Core>) {
        let mut watched = self.watched();
        watched.queues.retain(|queue| queue.strong_count() > 0);
        watched.queues.push(Arc::downgrade(core));
        if let Some((shared, _)) = &watched.thread {
            shared.state().queues.clone_from(&watched.queues);
        }
    }

    /// Starts the thread, if it does not run yet.
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

    /// An entry was added or taken.
    pub fn wake(&self) {
        if let Some((shared, _)) = &self.watched().thread {
            let mut state = shared.state();
            state.changed = true;
            if state.sleeps {
                shared.changed.notify_one();
            }
        }
    }

    /// The session is not open any more: waiting threads see it immediately.
    pub fn closing(&self) {
        self.watched().queues.iter().filter_map(Weak::upgrade).for_each(|core| core.wake_all());
    }

    /// The lanes have ended.
    pub fn closed(&self) {
        let mut watched = self.watched();
        if let Some((shared, thread)) = watched.thread.take() {
            shared.state().over = true;
            shared.changed.notify_one();
            let _ = thread.join();
        }
        watched.queues.iter().filter_map(Weak::upgrade).for_each(|core| core.closed());
    }

    /// In a fork's child the thread does not exist, and its handle is the parent's.
    pub fn forget(&mut self) {
        std::mem::forget(poison::ignore(self.0.get_mut()).thread.take());
    }
}
