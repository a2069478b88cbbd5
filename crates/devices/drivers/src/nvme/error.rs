//! What can go wrong with a controller, each with what to do about it.

use crate::nvme::completion::{Completion, Lie};
use crate::nvme::identify::Unusable;
use crate::nvme::registers::State;
use crate::nvme::status::Status;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Bus(#[from] pcie::Error),
    #[error(transparent)]
    Data(#[from] Unfit),
    #[error("{what}: {why}; {hint}")]
    Refused { what: String, why: String, hint: String },
    #[error(
        "{what} did not happen within {limit:?} (CSTS {csts:#010x}); reset the device, or look at it with its manufacturer's tool"
    )]
    TimedOut { what: &'static str, limit: Duration, csts: u32 },
    #[error("{} (CSTS {csts:#010x}); reset it: its commands in flight are lost", unwell(*csts))]
    Fatal { csts: u32 },
    #[error("{command}: {status}; {}", .status.hint())]
    Failed { command: &'static str, status: Status },
    #[error("{command} of blocks {first} to {last}: {status}; {}", .status.hint())]
    FailedAt { command: &'static str, first: u64, last: u64, status: Status },
    #[error(
        "queue {queue}: completion entry {index} ({entry:?}) cannot be true: {lie}; the queue is closed, reset the controller"
    )]
    Lied { queue: u16, index: u32, lie: Lie, entry: Completion },
    #[error("identify: {0}; the device is defective or its firmware is")]
    Page(&'static str),
    #[error("queue {queue} is closed: the controller was stopped; reap the lost commands and create another queue")]
    Stopped { queue: u16 },
    #[error("the admin queue is closed after an earlier failure; reset the controller")]
    AdminClosed,
    #[error("slot {slot}: {why}")]
    Slot { slot: u16, why: SlotError },
    #[error("blocks {block} to {} are not within the {of} blocks of namespace {namespace}; name others", .end - 1)]
    Range { namespace: u32, block: u64, end: u64, of: u64 },
    #[error("{0} blocks in one command; a command has 1 to 65536, split")]
    Count(u64),
    #[error(
        "namespace {number} cannot be used: {why}; format it without metadata and with blocks of 512 B or 4096 B (nvme format)"
    )]
    Namespace { number: u32, why: Unusable },
    #[error("{bytes} B are not whole blocks; name a multiple of {block_bytes} B")]
    Bytes { bytes: u64, block_bytes: u64 },
    #[error("namespace {number} is not active here; it has {active:?}")]
    NoNamespace { number: u32, active: Vec<u32> },
    #[error(
        "the device does not stop (CSTS {csts:#010x}): its memory stays reserved until this program ends; reset or power off the device"
    )]
    Wedged { csts: u32 },
}

/// Why a slot does not take a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotError {
    #[error("its command is in flight; reap it first")]
    InFlight,
    #[error("the queue has only {0} slots; name one of them")]
    None(u16),
    #[error("it is prepared for {prepared} B, the command moves {moved}; prepare it for as many")]
    OtherSize { prepared: u64, moved: u64 },
    #[error("the command is for another controller's namespace; make it from a namespace of this controller")]
    OtherController,
}

/// Data that no command can move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("there are no data; name at least one block")]
    Nothing,
    #[error(
        "{bytes} B exceed the {most} B that one command of this queue can move (MDTS, or the queue's own limit); split them"
    )]
    TooLong { bytes: u64, most: u64 },
    #[error("bus address {bus:#x} is no multiple of 4; place the data at such a multiple")]
    Misaligned { bus: u64 },
    #[error(
        "byte {at:#x} of the data continues in the middle of another page, which PRPs cannot describe; let pieces begin and end at multiples of 4096"
    )]
    Broken { at: u64 },
    #[error(
        "the data is in more pieces than the {0} list pages of a slot can describe; use memory with fewer runs, or split the data"
    )]
    TooManyPieces(usize),
}

/// A controller that someone else has reset reports no error.
fn unwell(csts: u32) -> &'static str {
    if State(csts).is_fatal() {
        "the controller reports a fatal error"
    } else {
        "the controller is not ready: somebody else has stopped or reset it"
    }
}

impl Error {
    /// The device is no longer there.
    pub fn is_gone(&self) -> bool {
        matches!(self, Error::Bus(error) if error.is_gone())
    }

    pub(crate) fn refused(what: impl Into<String>, why: impl Into<String>, hint: impl Into<String>) -> Error {
        Error::Refused { what: what.into(), why: why.into(), hint: hint.into() }
    }
}
