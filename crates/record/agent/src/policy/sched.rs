//! The program's changes of priorities while a thread is raised: its own setting counts, and no new thread inherits a
//! raised priority.

use super::boost;
use super::state::{Me, on};
use crate::process::sys;
use locks::Tid;
use locks::boost::Policy;

/// The program has given a policy to the thread with this number (0: the calling one; negative: unknown). From here on
/// the policy is the program's, even if it equals the one that the agent had raised the thread to.
#[cold]
pub fn was_set(tid: i32) {
    let Some(me) = on() else { return };
    let Some(tid) = (if tid == 0 { Some(me.tid) } else { u32::try_from(tid).ok().map(Tid::from_raw) }) else { return };
    if let (Some(seat), Ok(now)) = (boost::seat_of(tid), Policy::of(tid)) {
        // (The change is already made, so it need not wait.)
        let _ = boost::ALL.policy_wanted(seat, me.tid, now);
    }
}

/// Restores a raised thread before it makes another, which would inherit the raise.
#[cold]
fn put_down(me: Me) {
    let _keep = sys::Errno::keep();
    if let Some(seat) = boost::taken(me.t)
        && seat.raised_to() != 0
        && let Some(own) = boost::ALL.own_policy(seat, me.tid)
    {
        let _ = own.set(me.tid);
    }
}

/// Called before the calling thread makes another.
pub fn before_create() {
    if let Some(me) = on() {
        put_down(me);
    }
}
