//! Memory of prepared transfers that is gone while the channel might still read it.

use crate::memory::Memory;
use crate::tracker::{Ticket, Tracker};
use std::sync::{Arc, Mutex, PoisonError};

/// Segments of prepared transfers that were dropped while the channel might still read them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grave(Arc<Mutex<Vec<Buried>>>);

type Buried = (Arc<Memory>, Ticket);

impl Grave {
    pub fn put(&self, memory: Arc<Memory>, last: Ticket) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((memory, last));
    }

    pub fn bury(&self, tracker: &Tracker) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(_, last)| !tracker.done(*last));
    }
}
