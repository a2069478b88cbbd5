//! A GPU and its kernel driver in software, with the same ioctls as the real ones.
//!
//! It can be used in two ways. As a preloaded library, [`interpose`] answers for `/dev/nvidiactl`, `/dev/nvidia0` and `/dev/nvidia-uvm`; it
//! represents the kernel, so it must be *after* every other preloaded library. In process, it is used through [`SoftDriver`].
//!
//! - [`kernel`]: clients, handles, memories, GPU page tables, channels: the effects of the ioctls.
//! - [`doorbell`] and [`signal`]: the doorbell pages. In strict mode every store to one is trapped. A channel runs only when its token was rung,
//!   and only up to the GP_PUT at that moment. So a lost ring leaves work undone forever, which a test notices.
//! - [`engine`]: one thread that is the GPU: runlists, PBDMA, host methods, copy engine, inline-to-memory, compute and its scheduler.
//! - [`standin`]: kernels that this GPU runs; other code has no effect.
//! - [`pool`]: GPU memory in one file, so that an emulated device of another program can access it by its bus address.
//! - [`counters`]: counts of consumed work, in a file that outlives the process.
//! - [`planted`]: faults that a test requests, to show that its checks find them.
//!
//! Environment of the preloaded library. `DOORBELL_SOFTGPU=strict|poll`; `DOORBELL_SOFTGPU_COUNTERS=path`; `DOORBELL_SOFTGPU_LOG=1` reports on
//! standard error which channel was killed and why; `DOORBELL_SOFTGPU_FAULT=NAME`. `DOORBELL_SOFTGPU_DRIVER=VERSION` selects another driver's
//! version and its branch's structs (or those of `DOORBELL_SOFTGPU_STRUCTS=BRANCH`). `DOORBELL_SOFTGPU_VIDEO=FILE@BUS` puts the GPU memory into a
//! file that other devices find at that bus address.
//!
//! The one invariant: only what a doorbell announced is executed (strict), and a failure on one channel never affects another.

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

/// The answer to CHECK_VERSION_STR.
pub const DRIVER_VERSION: &str = "580.159.04";

/// `dev_name` in CARD_INFO, which real drivers leave empty on Linux: by this a program recognises that the GPU is not real.
pub const MARKER: &[u8; 8] = b"softgpu0";
