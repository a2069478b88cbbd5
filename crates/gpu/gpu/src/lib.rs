//! A GPU without libcuda: [`Device`], [`AddressSpace`], [`Channel`], [`Pushbuffer`], [`Semaphore`], [`Clock`].
//!
//! Built on [`rm::driver::Driver`] alone. Memory is laid out as in CUDA (rings and USERD in one block of GPU memory,
//! pushbuffers in host memory below 2^40, CPU address = GPU address), so a tap that sees CUDA's submissions sees these.
//!
//! The one invariant: every submission has passed [`Pushbuffer::validate`]. Every address is in memory of this address
//! space, every length is bounded, no physical address is named, and only methods on a short list are used. A bad request is
//! an error before submission, never a fault on the GPU. The only exception is kernels: they are started only by QMDs that
//! an unsafe call has granted ([`Channel::grant_launches`], [`Launch::prepare`]). Everything is freed on drop.

mod aperture;
mod architecture;
mod armed;
mod awaited;
mod bar1;
mod batch;
mod burst;
mod channel;
mod clock;
mod copies;
mod device;
mod doorbell;
mod elf;
mod engine;
mod engines;
mod enter;
mod errno;
mod error;
mod exports;
pub mod fork;
mod given;
mod imports;
mod late;
mod launch;
mod lease;
mod libcuda;
mod memory;
pub mod message;
mod observer;
pub mod pages;
mod patience;
mod pin;
mod pins;
mod place;
#[doc(hidden)]
pub mod points;
mod prepared;
mod pushbuffer;
mod region;
mod ring;
mod semaphore;
mod slots;
mod space;
pub mod stores;
mod surroundings;
mod tracker;
mod transfer;
mod validate;
mod watched;
mod watching;

pub use aperture::Aperture;
pub use architecture::{ARCHITECTURES, Architecture, HOPPER};
pub use armed::Armed;
pub use bar1::{Bar1Map, BusRange};
pub use batch::{Batch, Piece};
pub use burst::Burst;
pub use channel::{Channel, ChannelOptions, Group};
pub use clock::{Clock, Correlation, Drift};
pub use copies::{Copies, Written};
pub use device::{Bar, Device, DeviceOptions, Entry, SOFTGPU_MARKER, accepts_unverified};
pub use doorbell::Site;
pub use engine::Engine;
pub use engines::{CopyCaps, CopyEngine, asynchronous};
pub use error::Error;
pub use given::{Given, GivenChannel, Mark};
pub use launch::{ChainWords, Counter, Launch, LaunchWords, NewParameters, Source, Stores};
pub use libcuda::Libcuda;
pub use memory::{MAX_LENGTH, Memory};
pub use observer::Observer;
pub use patience::Patience;
pub use pin::Pin;
pub use pins::Witness;
pub use place::Place;
pub use prepared::Prepared;
pub use pushbuffer::{Pushbuffer, Validated};
pub use region::{Owner, Region};
pub use semaphore::{Semaphore, Semaphores};
pub use space::AddressSpace;
pub use tracker::{InFlight, Ticket};
pub use transfer::{CopyFlush, CopyMode, CopyRelease, Form, InlineMode, InlineRelease, Told};
pub use validate::{Invalid, Ranges, Rules, check};
pub use watched::Watched;
pub use watching::Watching;
