//! What can go wrong with the card, by name.

use crate::xdma::Direction;
use pcie::Address;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Pcie(#[from] pcie::Error),
    #[error(
        "{address} has no BAR with XDMA's registers (identifiers 0x1fc2.. at 0x2000 and 0x1fc3.. at 0x3000); is its design loaded?"
    )]
    NotXdma { address: Address },
    #[error(
        "the card has no {direction} channel for memory: {why}; build the design with AXI memory-mapped channels both ways"
    )]
    NoChannel { direction: Direction, why: String },
    #[error("a transfer is in progress; poll it or wait for it before the next one")]
    Busy,
    #[error("no transfer was started; start one first")]
    Idle,
    #[error("0 bytes are no transfer")]
    Empty,
    #[error("{bytes} bytes at {at:#x} of the card's memory, which has {length:#x} from {begin:#x} on")]
    Card { at: u64, bytes: u64, begin: u64, length: u64 },
    #[error("{what} {value:#x} is no multiple of {multiple}, which the channel requires (its alignments register)")]
    Unaligned { what: &'static str, value: u64, multiple: u64 },
    #[error(
        "{pieces} descriptors for {bytes} bytes of scattered memory: the list has room for {room}; take huge pages, or move less at once"
    )]
    TooScattered { pieces: u64, bytes: u64, room: u64 },
    #[error(
        "the {direction} channel stopped after {done} of {descriptors} descriptors: {names} (status {status:#x}); the next start clears it"
    )]
    Stopped { direction: Direction, done: u32, descriptors: u32, status: u32, names: String },
    #[error("{done} of {descriptors} descriptors ({bytes} bytes) are done after {after:?}; the channel is {state}")]
    Late { done: u32, descriptors: u32, bytes: u64, after: Duration, state: &'static str },
    #[error(
        "the {direction} channel does not stop (status {status:#x}); reset the card: until then its memory is kept and no transfer is started"
    )]
    Stuck { direction: Direction, status: u32 },
}
