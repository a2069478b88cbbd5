//! How an attempt to take a lock ended.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Outcome {
    /// The caller holds it. `waited`: it was not free immediately.
    Acquired {
        waited: bool,
    },
    /// A `try` found it taken, or others waiting for it.
    Busy,
    TimedOut,
    /// It was taken, and the deadline has a `tv_nsec` outside 0..1,000,000,000.
    InvalidDeadline,
}

impl Outcome {
    pub fn is_acquired(self) -> bool {
        matches!(self, Outcome::Acquired { .. })
    }

    /// The return value of the pthread functions.
    pub fn code(self) -> i32 {
        match self {
            Outcome::Acquired { .. } => 0,
            Outcome::Busy => libc::EBUSY,
            Outcome::TimedOut => libc::ETIMEDOUT,
            Outcome::InvalidDeadline => libc::EINVAL,
        }
    }
}

/// An unlock of a lock that was not held in that mode. The call had no effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotHeld;
