//! What the GPU counts of its link, looked at beside the I/Os that are done.

use std::time::Duration;

/// Bytes that have crossed the link since some moment, as the GPU counts them: to it, and from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub to_gpu: u64,
    pub from_gpu: u64,
}

/// Counters of a link. They are looked at from a thread that submits nothing.
pub trait Wire {
    /// As they are now; `None` where nothing counts.
    fn look(&mut self) -> Option<Counted>;
}

/// Nothing counts: the software GPU, an emulated device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uncounted;

impl Wire for Uncounted {
    fn look(&mut self) -> Option<Counted> {
        None
    }
}

/// One look.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Since the first.
    pub at: Duration,
    /// I/Os that were done by then.
    pub ios: u64,
    pub counted: Option<Counted>,
}
