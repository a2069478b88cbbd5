//! Lock protocols on futexes, to be used before or in place of the pthread locks of other people's programs.
//!
//! * [`ticket`] is a FIFO mutex, and [`phase_fair`] a phase-fair reader-writer gate. Both are 16 bytes, all zero when
//!   free. They are meant as gates before the real lock. A thread that bypasses the gate loses fairness, never
//!   exclusion.
//! * [`room`]: where a gate fits inside the lock that it guards.
//! * [`held`]: which gates a thread holds, so that recursion passes.
//! * [`pi`]: converts free glibc mutexes to priority inheritance, and back when another thread unlocks them.
//! * [`boost`] raises holders to their waiters' priority, only under contention, and [`guard`] is one real-time mutex.
//! * [`leaving`]: threads that jump out of a wait.
//! * [`old_rwlock`]: the unlock rule of glibc 2.4 to 2.24, to show which threads it starves.
//!
//! Invariants: this crate does not allocate, take a lock of std, read the environment or change `errno`. It calls no
//! pthread function, except in [`cancel`], [`leaving`], and the probes of [`layout`] and [`room`], through pointers
//! that the caller gives.
#![cfg_attr(not(loom), no_std)]

pub mod deadline;
pub mod fork;
mod latch;
pub mod outcome;
pub mod phase_fair;
mod queue;
mod sync;
pub mod ticket;
pub mod tid;

#[cfg(not(loom))]
pub mod boost;
pub mod cancel;
#[cfg(not(loom))]
pub mod futex;
#[cfg(not(loom))]
pub mod guard;
#[cfg(not(loom))]
pub mod held;
#[cfg(not(loom))]
pub mod layout;
#[cfg(not(loom))]
pub mod leaving;
#[cfg(not(loom))]
pub mod old_rwlock;
#[cfg(not(loom))]
pub mod pi;
#[cfg(not(loom))]
pub mod room;

pub use deadline::{Clock, Deadline};
pub use outcome::{NotHeld, Outcome};
pub use queue::{Kind, Node};
pub use tid::Tid;
