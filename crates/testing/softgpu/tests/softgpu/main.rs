//! The software GPU alone, in process: every supported opcode has a test here that fails without it.
// Every unsafe block here accesses memory that the rig has mapped and holds for the whole test.
#![allow(clippy::undocumented_unsafe_blocks)]

mod compute;
mod copy;
mod doorbell;
mod fifo;
mod host;
mod inline;
mod kernel;
mod launch;
mod launch_faults;
mod launch_rig;
mod planted;
mod recorded;
mod rig;
