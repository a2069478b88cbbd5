//! Events: how far a stream had come when it was recorded last.

use crate::wait::{Ended, wait_until};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Default)]
pub(crate) struct Event {
    recorded: AtomicU64,
    done: AtomicU64,
}

static EVENTS: Mutex<BTreeMap<u64, Arc<Event>>> = Mutex::new(BTreeMap::new());

impl Event {
    /// A new one's handle.
    pub fn create() -> u64 {
        let event = Arc::new(Event::default());
        let handle = Arc::as_ptr(&event) as u64;
        poison::ignore(EVENTS.lock()).insert(handle, event);
        handle
    }

    pub fn find(handle: u64) -> Option<Arc<Event>> {
        poison::ignore(EVENTS.lock()).get(&handle).cloned()
    }

    pub fn destroy(handle: u64) -> bool {
        poison::ignore(EVENTS.lock()).remove(&handle).is_some()
    }

    /// What the stream does to record it.
    pub fn record(self: &Arc<Event>) -> impl FnOnce(&Ended) + Send + use<> {
        let (event, number) = (self.clone(), self.recorded.fetch_add(1, Ordering::SeqCst) + 1);
        move |_| {
            event.done.fetch_max(number, Ordering::SeqCst);
        }
    }

    /// Returns the function with which a stream waits for the work that is recorded now.
    pub fn wait(self: &Arc<Event>) -> impl FnOnce(&Ended) + Send + use<> {
        let (event, number) = (self.clone(), self.recorded.load(Ordering::SeqCst));
        move |ended| wait_until(|| event.done.load(Ordering::SeqCst) >= number || ended.has_ended())
    }

    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::SeqCst) >= self.recorded.load(Ordering::SeqCst)
    }

    pub fn synchronize(&self) {
        let number = self.recorded.load(Ordering::SeqCst);
        wait_until(|| self.done.load(Ordering::SeqCst) >= number);
    }
}
