//! NVMe controllers driven from user space, over [`pcie::Function`] (NVM Express Base 1.4 and 2.0, NVM command set).
//!
//! A [`Controller`] is enabled and identified. A [`Queue`] has one submitter and moves blocks to and from host memory or another device's. The
//! invariants: every address in a command comes from a [`pcie::Memory`], which stays until the command has ended or the device was stopped. Values
//! from a device are checked before they are used. A write needs an [`Overwrite`], which needs the user's explicit word.

mod admin;
mod command;
mod completion;
mod controller;
mod data;
mod error;
mod identify;
mod namespace;
mod overwrite;
mod queue;
mod registers;
mod ring;
mod shared;
mod signature;
mod status;
pub mod transfer;
mod verify;
mod wait;

pub use completion::{Completion, Lie};
pub use controller::{CLASS, Controller};
pub use data::Piece;
pub use error::{Error, SlotError, Unfit};
pub use identify::{ControllerPage, NamespacePage, Unusable};
pub use namespace::{Io, Namespace};
pub use overwrite::{Overwrite, Word, signatures};
pub use queue::{Depth, Done, Expiry, Lost, Outcome, Queue};
pub use registers::{Capabilities, Version};
pub use signature::Signature;
pub use status::{Kind, Status};
pub use verify::{Broken, Mix, Target, Verified, verify};
