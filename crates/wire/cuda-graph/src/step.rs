//! One step of a launch: an action of the engine or the host.

use pushbuf::ops::{Copy, Fill};
use pushbuf::qmd::PcasAction;
use pushbuf::semaphore::Execute;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The host waits for a semaphore.
    Acquire {
        address: u64,
        payload: u64,
        execute: Execute,
    },
    /// The compute class writes bytes that are in the stream.
    Write {
        address: u64,
        bytes: u32,
        data: Vec<u32>,
        launch: u32,
    },
    /// INVALIDATE_SHADER_CACHES_NO_WFI.
    Invalidate {
        caches: u32,
    },
    /// Something is done to a QMD.
    Pcas {
        qmd: u64,
        action: PcasAction,
    },
    /// An engine releases a semaphore after its earlier work.
    Report {
        address: u64,
        payload: u32,
        by: By,
    },
    /// A macro of the engine fills memory.
    Memset(Memset),
    /// The copy engine fills memory, or copies.
    Fill {
        subch: u8,
        fill: Fill,
    },
    Copy {
        subch: u8,
        copy: Copy,
    },
}

/// How an engine releases a semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// SET_REPORT_SEMAPHORE_A to D of the compute class; the word of D.
    Compute { control: u32 },
    /// LAUNCH_DMA of the copy engine without a transfer; its word.
    Copy { subch: u8, launch: u32 },
}

impl Step {
    /// A short name, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Step::Acquire { .. } => "an acquire",
            Step::Write { .. } => "an inline write",
            Step::Invalidate { .. } => "an invalidation of caches",
            Step::Pcas { .. } => "a PCAS",
            Step::Report { .. } => "a release",
            Step::Memset(_) => "a fill by a macro",
            Step::Fill { .. } => "a fill",
            Step::Copy { .. } => "a copy",
        }
    }

    /// The address that the step is for, if it has one.
    pub fn address(&self) -> Option<u64> {
        match self {
            Step::Acquire { address, .. } | Step::Write { address, .. } | Step::Report { address, .. } => {
                Some(*address)
            }
            Step::Pcas { qmd, .. } => Some(*qmd),
            Step::Memset(memset) => Some(memset.address),
            Step::Fill { fill, .. } => Some(fill.dst),
            Step::Copy { copy, .. } => Some(copy.dst),
            Step::Invalidate { .. } => None,
        }
    }
}

/// Memory that is filled with one word again and again. If the length is not a multiple of 4, only the first bytes of the last word are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memset {
    pub address: u64,
    pub bytes: u32,
    pub value: u32,
    /// The LAUNCH_DMA word of the inline write.
    pub launch: u32,
    /// The macro's arguments, in CUDA's order.
    pub arguments: [u32; 2],
}

/// A step on its channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Index of the channel.
    pub channel: usize,
    pub step: Step,
}
