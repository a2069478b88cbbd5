//! Named places at which a test may hold a thread. They are empty in builds without debug assertions, so releases have none.

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// It is about to claim a lane.
    BeforeClaim,
    /// It has the lane, and has not checked whether the session is still open.
    AfterClaim,
    /// Its ticket is taken, and no memory was checked yet.
    AfterTicket,
    /// The memory was found to be live.
    AfterLook,
    /// The words are written.
    AfterWords,
    /// The CPU is about to store or load bytes itself.
    BeforeStores,
    BeforeDoorbell,
    /// The submission is not finished yet for threads that wait for it.
    AfterDoorbell,
    /// A buffer can no longer be found, and threads that found it before still use it.
    AfterGone,
    /// The lease of a memory is over, and the wait for its users has not begun.
    AfterLease,
    /// A channel accepts no more work, and is still on the GPU.
    BeforeStop,
    /// The session is closed, and its lanes still exist.
    AfterClose,
}

impl Point {
    pub const ALL: [Point; 12] = [
        Point::BeforeClaim,
        Point::AfterClaim,
        Point::AfterTicket,
        Point::AfterLook,
        Point::AfterWords,
        Point::BeforeStores,
        Point::BeforeDoorbell,
        Point::AfterDoorbell,
        Point::AfterGone,
        Point::AfterLease,
        Point::BeforeStop,
        Point::AfterClose,
    ];

    /// Marks that a thread is here now.
    #[inline(always)]
    pub fn reached(self) {
        #[cfg(debug_assertions)]
        if let Some(hook) = HOOK.get() {
            hook(self);
        }
    }
}

#[cfg(debug_assertions)]
static HOOK: std::sync::OnceLock<fn(Point)> = std::sync::OnceLock::new();

/// Sets the function that each thread calls at each point from now on. Only the first call counts. False if this build
/// has no points.
pub fn hold(hook: fn(Point)) -> bool {
    #[cfg(debug_assertions)]
    return HOOK.set(hook).is_ok();
    #[cfg(not(debug_assertions))]
    {
        let _ = hook;
        false
    }
}
