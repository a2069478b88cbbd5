//! Named places at which a test may hold a thread. They are empty in builds without debug assertions: what is shipped has none.

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// It is about to claim a lane.
    BeforeClaim,
    /// It has the lane, and has not looked whether the session is still open.
    AfterClaim,
    /// Its ticket is taken, and nothing was looked at.
    AfterTicket,
    /// The memory was found to be there.
    AfterLook,
    /// The words are written.
    AfterWords,
    /// The CPU is about to store or load bytes itself.
    BeforeStores,
    BeforeDoorbell,
    /// The submission is not finished for whoever waits for it.
    AfterDoorbell,
    /// A buffer cannot be found any more, and those that have found it still use it.
    AfterGone,
    /// The lease of a memory is over, and nobody was waited for.
    AfterLease,
    /// A channel takes nothing any more, and is still on the GPU.
    BeforeStop,
    /// The session is closed, and its lanes are still there.
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

    /// A thread is here now.
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

/// What each thread calls from now on at each point. The first call counts. False where this build has no points.
pub fn hold(hook: fn(Point)) -> bool {
    #[cfg(debug_assertions)]
    return HOOK.set(hook).is_ok();
    #[cfg(not(debug_assertions))]
    {
        let _ = hook;
        false
    }
}
