//! Resources of dropped transfers and launches that the channel might still use.

use crate::tracker::{Ticket, Tracker};
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

/// Memory and pins that the GPU may still use after their owner was dropped. They are freed once the channel is done with them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grave(Arc<Mutex<Vec<Buried>>>);

type Buried = (Arc<dyn Any + Send + Sync>, Ticket);

impl Grave {
    pub fn put(&self, what: Arc<dyn Any + Send + Sync>, last: Ticket) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((what, last));
    }

    pub fn bury(&self, tracker: &Tracker) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(_, last)| !tracker.done(*last));
    }
}
