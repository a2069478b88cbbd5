//! The software GPU by itself, in process: every opcode that it knows has a test here that fails without it.

mod compute;
mod copy;
mod doorbell;
mod fifo;
mod host;
mod inline;
mod kernel;
mod rig;
