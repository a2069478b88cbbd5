//! Resources of dropped transfers and launches that the channel might still use.

use crate::tracker::{Ticket, Tracker};
use std::any::Any;
use std::sync::{Arc, Mutex};

/// Memory and pins that the GPU may still use after their owner was dropped. They are freed once the channel is done with them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grave(Arc<Mutex<Vec<Buried>>>);

type Buried = (Arc<dyn Any + Send + Sync>, Ticket);

impl Grave {
    pub fn put(&self, what: Arc<dyn Any + Send + Sync>, last: Ticket) {
        poison::ignore(self.0.lock()).push((what, last));
    }

    pub fn bury(&self, tracker: &Tracker) {
        poison::ignore(self.0.lock()).retain(|(_, last)| !tracker.done(*last));
    }
}
