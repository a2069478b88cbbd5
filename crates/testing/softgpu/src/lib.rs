//! A GPU and its kernel driver in software, behind the same ioctls as the real ones.
//!
//! Two ways in: as a preloaded library, where [`interpose`] answers `/dev/nvidiactl`, `/dev/nvidia0` and `/dev/nvidia-uvm`
//! ("the kernel": it must stand *behind* every other preloaded library), and in process through [`SoftDriver`].
//!
//! - [`kernel`]: clients, handles, memories, GPU page tables, channels: what the ioctls do.
//! - [`doorbell`] and [`signal`]: the doorbell pages. In strict mode every store to one is trapped, and a channel runs
//!   only when its token was rung and only up to the GP_PUT that was there at that moment: a ring that is lost leaves
//!   work undone, for ever, where a test sees it.
//! - [`engine`]: one thread that is the GPU: runlists, PBDMA, host methods, copy engine, inline-to-memory, compute and its
//!   scheduler.
//! - [`standin`]: kernels that this GPU runs; all other code runs nothing.
//! - [`pool`]: video memory in one file, so that an emulated device of another program reaches it by its bus address.
//! - [`counters`]: what was consumed, in a file that outlives the process.
//! - [`planted`]: faults that a test asks for, to see that its checks find them.
//!
//! Environment of the preloaded library: `DOORBELL_SOFTGPU=strict|poll`, `DOORBELL_SOFTGPU_COUNTERS=path`,
//! `DOORBELL_SOFTGPU_LOG=1` to say on standard error which channel was killed and why, `DOORBELL_SOFTGPU_FAULT=NAME`, and
//! `DOORBELL_SOFTGPU_DRIVER=VERSION` for another driver's version and its branch's structs (or those of
//! `DOORBELL_SOFTGPU_STRUCTS=BRANCH`), `DOORBELL_SOFTGPU_VIDEO=FILE@BUS` for video memory in a file that other
//! devices find at that bus address.
//!
//! The one invariant: nothing is executed that a doorbell did not announce (strict), and nothing that goes wrong on one
//! channel is felt by another.

pub mod counters;
pub mod doorbell;
pub mod driver;
pub mod engine;
pub mod fault;
pub mod interpose;
pub mod kernel;
pub mod memory;
pub mod planted;
pub mod pool;
pub mod signal;
pub mod space;
pub mod standin;
pub mod status;
mod sys;

pub use counters::Counters;
pub use driver::SoftDriver;
pub use kernel::{Machine, Mode};
pub use planted::Planted;
pub use pool::Pool;
pub use standin::{MacroCount, StandIn, StandInMacro};

/// What CHECK_VERSION_STR answers.
pub const DRIVER_VERSION: &str = "580.159.04";

/// `dev_name` in CARD_INFO, which real drivers leave empty on Linux: how a program knows that no real GPU is there.
pub const MARKER: &[u8; 8] = b"softgpu0";
