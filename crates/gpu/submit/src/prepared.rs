//! What is prepared on a lane: transfers, and frames that rotate.

use crate::choose::Executor;
use crate::handle::Copy;
use gpu::{Prepared, Region};

/// What a transfer's handle stands for.
pub(crate) enum Ready {
    /// By the copy engine.
    Copy(Prepared),
    /// By the graphics engine, bytes that the CPU reads from a buffer at each submission.
    Read { prepared: Prepared, source: Region, ends: Ends },
    /// By stores or loads of the CPU.
    ByCpu(ByCpu),
    /// By the graphics engine, bytes that the caller gives.
    Given(Prepared),
}

/// A copy that stores or loads of the CPU make.
#[derive(Clone, Copy)]
pub(crate) struct ByCpu {
    pub executor: Executor,
    pub ends: Ends,
}

/// A copy, by where its ends lie among the buffers.
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
    /// Addresses of the first frame, for the GPU.
    pub to: u64,
    pub from: u64,
    /// Where the first frame is in the source buffer, and where the CPU sees it, if it does.
    pub from_at: u64,
    pub pointer: Option<u64>,
    pub bytes: u64,
    /// The last copy of each frame.
    pub copies: Vec<Option<Copy>>,
    pub next: usize,
    /// The producer has it.
    pub taken: bool,
}
