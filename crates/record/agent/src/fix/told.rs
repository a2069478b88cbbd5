//! Questions about memory for which CUDA's answer differs between its own memory and the agent's.
//!
//! All other answers are the same: docs/results/fix/pinned.py.

use super::driver::{Driver, INVALID_VALUE, SUCCESS};
use super::gpu_memory;
use super::table::{self, Kind, Row};
use tape::call::Told;

/// CU_POINTER_ATTRIBUTE_CONTEXT, BUFFER_ID, RANGE_SIZE
const CONTEXT: i32 = 1;
const BUFFER_ID: i32 = 7;
const RANGE_SIZE: i32 = 12;
/// P2P_TOKENS, IS_LEGACY_CUDA_IPC_CAPABLE: asked by who is about to share the memory. CUDA's answer is right: it cannot be shared.
const OF_SHARING: [i32; 2] = [5, 10];
/// CU_MEMHOSTALLOC_DEVICEMAP, which CUDA adds where addresses are the same for CPU and GPU.
const DEVICEMAP: u32 = 2;

/// The agent's memory at this address, unless it has ended for the program.
fn row_at(d: &Driver, address: usize) -> Option<Row> {
    let row = table::lock()?.containing(address)?;
    (!row.context.has_ended(d)).then_some(row)
}

fn attribute(d: &Driver, row: &Row, number: i32) -> Option<usize> {
    match number {
        CONTEXT => Some(row.context.handle),
        RANGE_SIZE => Some(row.bytes),
        // (The block's: a number that CUDA gives to one allocation, and to no later one.)
        BUFFER_ID => {
            let mut id = 0u64;
            // SAFETY: a place for the number.
            let asked = unsafe { (d.pointer)(1, &BUFFER_ID, &&raw mut id, row.kind.block()?) };
            (asked == SUCCESS).then_some(id as usize)
        }
        asked => {
            if OF_SHARING.contains(&asked) {
                gpu_memory::shared(row.memory.at);
            }
            None
        }
    }
}

/// The first address and the bytes of the allocation around an address, as CUDA has it.
pub fn range(d: &Driver, at: usize) -> Option<(usize, usize)> {
    if let Some(row) = table::lock().and_then(|table| table.containing(at)) {
        return Some((row.memory.at, row.bytes));
    }
    let (mut first, mut bytes) = (0, 0);
    // SAFETY: places for the results.
    let found = unsafe { (d.range)(&raw mut first, &raw mut bytes, at) };
    (found == SUCCESS).then_some((first, bytes))
}

/// The answer; `None`: CUDA's is right.
///
/// # Safety
/// The arguments are a caller's of that function.
pub unsafe fn tell(what: Told, a: &[usize; 11]) -> Option<i32> {
    let (address, d) = (a[what.address()], Driver::here()?);
    let row = row_at(&d, address)?;
    let [first, second, third, ..] = *a;
    // SAFETY: the caller's places for the answers, where they are not null.
    unsafe {
        let put = |to: usize, value: usize| {
            if to != 0 {
                (to as *mut usize).write_unaligned(value);
            }
        };
        match what {
            Told::Flags if first != 0 => {
                let Kind::Pinned { flags } = row.kind else { return Some(INVALID_VALUE) };
                (first as *mut u32).write_unaligned(flags | DEVICEMAP);
                Some(SUCCESS)
            }
            // (It has none.)
            Told::Handle if first != 0 => Some(INVALID_VALUE),
            Told::Range => {
                put(first, row.memory.at);
                put(second, row.bytes);
                Some(SUCCESS)
            }
            Told::Attribute if first != 0 => {
                put(first, attribute(&d, &row, second as i32)?);
                Some(SUCCESS)
            }
            Told::Attributes if second != 0 && third != 0 => {
                let (asked, places) = (second as *const i32, third as *const *mut u64);
                let result = (d.pointer)(first as u32, asked, places, address);
                for i in (0..first as u32 as usize).filter(|_| result == SUCCESS) {
                    if let Some(value) = attribute(&d, &row, asked.add(i).read_unaligned()) {
                        put(places.add(i).read_unaligned() as usize, value);
                    }
                }
                Some(result)
            }
            _ => None,
        }
    }
}
