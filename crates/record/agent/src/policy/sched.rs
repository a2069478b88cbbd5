//! What a program does to priorities while we have raised a thread: its own will counts, and no new thread is born high.

use super::boost;
use super::state::{Me, on};
use crate::process::sys;
use locks::Tid;
use locks::boost::Policy;

/// The thread with this number (0: the calling one; negative: not known) has been given a policy by the program. It is the program's from
/// here on, also where it is the one that we had raised the thread to.
#[cold]
pub fn was_set(tid: i32) {
    let Some(me) = on() else { return };
    let Some(tid) = (if tid == 0 { Some(me.tid) } else { u32::try_from(tid).ok().map(Tid::from_raw) }) else { return };
    if let (Some(seat), Ok(now)) = (boost::seat_of(tid), Policy::of(tid)) {
        // (Made already: whether it should have waited is no question any more.)
        let _ = boost::ALL.policy_wanted(seat, me.tid, now);
    }
}

/// A thread that we have raised puts that down before it makes another, which would inherit it.
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

/// Before the calling thread makes another.
pub fn before_create() {
    if let Some(me) = on() {
        put_down(me);
    }
}
