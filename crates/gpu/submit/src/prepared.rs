//! Objects that are prepared on a lane: transfers, and frames that rotate.

use crate::choose::Executor;
use crate::handle::Copy;
use gpu::{Prepared, Region};

/// The object that a transfer's handle names.
pub(crate) enum Ready {
    /// By the copy engine.
    Copy(Prepared),
    /// By the graphics engine; the CPU reads the bytes from a buffer at each submission.
    Read { prepared: Prepared, source: Region, ends: Ends },
    /// By the CPU's stores or loads.
    ByCpu(ByCpu),
    /// By the graphics engine; the caller gives the bytes.
    Given(Prepared),
}

/// A copy by the CPU's stores or loads.
#[derive(Clone, Copy)]
pub(crate) struct ByCpu {
    pub executor: Executor,
    pub ends: Ends,
}

/// A copy, by the places of its ends among the buffers.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    pub to: (u32, u32),
    pub to_at: u64,
    pub from: (u32, u32),
    pub from_at: u64,
    pub bytes: u64,
}

/// Frames of one buffer that rotate.
pub(crate) struct Rotating {
    pub prepared: Prepared,
    /// GPU addresses of the first frame.
    pub to: u64,
    pub from: u64,
    /// Offset of the first frame in the source buffer, and its address for the CPU, if the CPU sees it.
    pub from_at: u64,
    pub pointer: Option<u64>,
    pub bytes: u64,
    /// The last copy of each frame.
    pub copies: Vec<Option<Copy>>,
    pub next: usize,
    /// The producer has it.
    pub taken: bool,
}
