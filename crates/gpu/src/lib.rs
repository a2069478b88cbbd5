//! A GPU without libcuda: [`Device`], [`AddressSpace`], [`Channel`], [`Pushbuffer`], [`Semaphore`], [`Clock`].
//!
//! Built on [`rm::driver::Driver`] alone. Everything is laid out as CUDA lays it out (rings and USERD in one block of video
//! memory, pushbuffers in host memory below 2^40, CPU address = GPU address), so that what sees CUDA's submissions sees these.
//!
//! The one invariant: nothing is submitted that [`Pushbuffer::validate`] has not passed. Every address lies in memory of
//! this address space, every length is bounded, no physical address is named, and only methods on a short list are used.
//! A bad request is an error before submission, never a fault on the GPU. Everything is freed on drop.

mod channel;
mod device;
mod doorbell;
mod error;
mod memory;
mod pushbuffer;
mod semaphore;
mod validate;

pub use channel::{Channel, ChannelOptions, Engine};
pub use device::{Bar, Clock, Device, DeviceOptions, SOFTGPU_MARKER};
pub use doorbell::Site;
pub use error::Error;
pub use memory::{AddressSpace, Memory, Place};
pub use pushbuffer::{Pushbuffer, Validated};
pub use semaphore::{Semaphore, Semaphores};
pub use validate::{Invalid, Ranges, Rules, check};
