//! The code of stand-in kernels, as the software GPU recognises them.

use gpu::{AddressSpace, Error, Memory};
use std::sync::Arc;

/// Operations of the software GPU's stand-ins, counted from 0, and bytes from one's code to that of the next.
const OPERATIONS: u32 = 7;
const CODE: u64 = 0x100;
/// Minimum turns of the GPU's thread for which a kernel is active, so that a missing wait in a graph's words is noticed.
const TURNS: u32 = 2;

/// Memory with the code of all stand-ins, as the software GPU recognises them.
pub(crate) fn write(space: &Arc<AddressSpace>) -> Result<Arc<Memory>, Error> {
    let memory = space.alloc_video(CODE * u64::from(OPERATIONS))?;
    for operation in 0..OPERATIONS {
        let at = address(0, operation);
        memory.write(at, b"soft kernel code");
        memory.write(at + 16, &operation.to_le_bytes());
        memory.write(at + 20, &TURNS.to_le_bytes());
    }
    Ok(memory)
}

/// The address of an operation's code.
pub(crate) fn address(code: u64, operation: u32) -> u64 {
    code + CODE * u64::from(operation)
}
