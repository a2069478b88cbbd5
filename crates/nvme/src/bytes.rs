//! The CPU's own accesses to memory that a device reaches, too.

use crate::error::Error;
use pcie::Memory;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

fn place(memory: &Memory, offset: u64, bytes: u64) -> Result<NonNull<u8>, Error> {
    memory.holds(offset, bytes)?;
    let base = memory.as_ptr().ok_or_else(|| {
        Error::refused("the memory", "the CPU does not reach it", "read it through the device that has it")
    })?;
    // SAFETY: within the memory, as was just checked.
    Ok(unsafe { base.add(offset as usize) })
}

/// Copies bytes out of the memory. What a device writes meanwhile may be old or new.
///
/// # Errors
/// [`pcie::Error::OutOfBounds`]; [`Error::Refused`] where only devices reach it.
pub fn load(memory: &Memory, offset: u64, into: &mut [u8]) -> Result<(), Error> {
    let from = place(memory, offset, into.len() as u64)?;
    // ORDERING: what a completion said to be there is read after the completion.
    fence(Ordering::Acquire);
    // SAFETY: both are as long, as was checked, and do not overlap: `into` is a Rust slice, the memory is none.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
    Ok(())
}

/// Copies bytes into the memory.
///
/// # Errors
/// As [`load`].
pub fn store(memory: &Memory, offset: u64, from: &[u8]) -> Result<(), Error> {
    let to = place(memory, offset, from.len() as u64)?;
    // SAFETY: as in `load`.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
    // ORDERING: the bytes are in memory before a doorbell announces the command that reads them.
    fence(Ordering::Release);
    Ok(())
}

/// Sets bytes of the memory.
///
/// # Errors
/// As [`load`].
pub fn fill(memory: &Memory, offset: u64, bytes: u64, value: u8) -> Result<(), Error> {
    let to = place(memory, offset, bytes)?;
    // SAFETY: within the memory, as was checked.
    unsafe { std::ptr::write_bytes(to.as_ptr(), value, bytes as usize) };
    // ORDERING: as in `store`.
    fence(Ordering::Release);
    Ok(())
}
