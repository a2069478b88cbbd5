//! When kernels ended, and copies began and ended, by the GPU's own clock (`record --gpu-times`).
//!
//! The agent numbers the kernels that it stamps, from 0. The GPU writes the end of number `n` into slot `n % SLOTS` of an area of the
//! region. The recorder takes it from there before the slot is used again. The number is on the tape in the QMD, whose release has the
//! slot's address and [`payload`].

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The thread number of the recorder's events here, which no thread has.
pub const WRITER: i32 = -3;

/// Layout of the bodies here.
pub const LAYOUT: u32 = 1;

/// Ends that may be awaited at a time.
pub const SLOTS: u64 = 1 << 18;

/// What the GPU writes: a release of four words.
#[repr(C, align(16))]
pub struct Slot {
    pub payload: AtomicU32,
    _reserved: AtomicU32,
    /// Nanoseconds of the GPU's clock; 0 when the recorder has taken it.
    pub ns: AtomicU64,
}

const _: () = assert!(size_of::<Slot>() == 16);

/// What kernel `number` writes into its slot. Never 0.
pub const fn payload(number: u64) -> u32 {
    number as u32 | 1 << 31
}

/// The number of the kernel that writes a payload, as long as there are fewer than 2^31.
pub const fn number(payload: u32) -> u64 {
    (payload & !(1 << 31)) as u64
}

/// Event kinds, in addition to those of [`crate::event::kind`].
pub mod kind {
    /// Ends are recorded of this process, or why not: [`super::StampsBody`].
    pub const STAMPS: u16 = 80;
    /// The GPU's clock and the CPU's: [`super::ClockBody`].
    pub const CLOCK: u16 = 81;
    /// Ends, by the recorder: [`super::EndsBody`].
    pub const ENDS: u16 = 82;
    /// A launch of an uploaded graph, whose kernels got new numbers: [`super::LaunchedBody`].
    pub const LAUNCHED: u16 = 83;
    /// An entry of a copy engine, whose transfers store their times: [`super::CopiedBody`].
    pub const COPIED: u16 = 84;
}

/// Whether ends are recorded of a process.
pub mod state {
    pub const ON: u32 = 1;
    /// CUDA did not map the area: [`super::StampsBody::result`].
    pub const REFUSED: u32 = 2;
    /// This libcuda lacks the functions that map it.
    pub const NO_FUNCTION: u32 = 3;
    /// The context in which the area was mapped has ended.
    pub const CONTEXT_GONE: u32 = 5;
    /// The program uses CUPTI to take times: doorbell records none until that ends. Then [`ON`] follows, if the area is mapped.
    pub const CUPTI: u32 = 6;
    /// The program has a part of a divided GPU (MIG).
    pub const DIVIDED: u32 = 7;
    /// Confidential computing is on.
    pub const CONFIDENTIAL: u32 = 8;
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StampsBody {
    /// [`LAYOUT`]
    pub layout: u32,
    /// One of [`state`].
    pub state: u32,
    /// The GPU's address of slot 0.
    pub area: u64,
    /// CUDA's result (CUresult).
    pub result: u32,
    pub pad: u32,
}

/// A GPU's number that means 'the one of the process'.
pub const OWN_GPU: u32 = u32::MAX;

/// One moment by both clocks. The event's time stamp was read before the GPU's clock.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockBody {
    /// Time stamp counter after the reading.
    pub after: u64,
    /// Nanoseconds.
    pub gpu_ns: u64,
    /// The GPU's instance, as the driver counts them; [`OWN_GPU`] where the process read it.
    pub gpu: u32,
    pub pad: u32,
}

/// `count` times [`End`] follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndsBody {
    pub count: u32,
    pub pad: u32,
    /// Ends of kernels below this number that are not on the tape yet will never be: their slots were given up.
    pub settled: u64,
}

/// A kernel ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    pub number: u64,
    /// Nanoseconds of the GPU's clock.
    pub ns: u64,
}

/// An entry that launches an uploaded graph. `runs` times [`Run`] follow. The entry's event follows in the same ring.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchedBody {
    /// [`crate::event::EntryBody::seq`] and `slot`
    pub entry: u64,
    /// The number of the first kernel. The others follow in the order of the runs. [`AS_BEFORE`] if they got none.
    pub number: u64,
    pub slot: u32,
    pub runs: u32,
}

/// Kernels of a graph that were launched again with the numbers that they had: their ends are written where those of the launch before are.
pub const AS_BEFORE: u64 = u64::MAX;

/// An entry that moves data by a copy engine. The entry's event follows in the same ring.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopiedBody {
    /// [`crate::event::EntryBody::seq`] and `slot`
    pub entry: u64,
    /// The number under which the first transfer's begin is stored. Its end follows, then the next transfer's begin.
    pub number: u64,
    pub slot: u32,
    pub transfers: u32,
}

/// QMDs of kernels at every 512th byte.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The first one's address.
    pub qmd: u64,
    pub count: u32,
    /// The word of each QMD at which it stores its end. (0 on tapes of before.)
    pub slot_at: u32,
}

/// Bytes from one QMD of a run to the next: CUDA 13 has those of a graph so (seen on an H200).
pub const STRIDE: u64 = 0x200;
