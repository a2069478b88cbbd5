//! What the compute scheduler refuses to start: SKED exceptions, Xid 13, with the numbers of open-gpu-doc's `pri_sked` (GA100) where it has one.
//!
//! The limits are those of compute capability 9.0 (CUDA Programming Guide, "Technical Specifications per Compute Capability"). That the hardware looks
//! when a QMD starts, and not when it is copied, is assumed. QMDs without blocks are not looked at.

use super::Fault;
use pushbuf::qmd::Qmd;

const THREADS: u64 = 1024;
const THREADS_Z: u32 = 64;
/// Of a cluster, and more only where a kernel asks for it: 8 are portable.
const CLUSTER: u64 = 16;
const REGISTERS: u64 = 65536;
const REGISTERS_OF_THREAD: u64 = 255;
/// Of a block, with the 1 KiB that the system has of it.
const SHARED_BYTES: u64 = 228 << 10;
const BANK_BYTES: u32 = 64 << 10;
const BARRIERS: u64 = 16;

/// Why a QMD of version 4 cannot start.
pub(super) fn check(qmd: &Qmd, address: u64) -> Result<(), Fault> {
    let field = |name: &str| qmd.field(name).unwrap_or(0);
    let refused = |what| Err(Fault::engine(what, address));
    if qmd.grid().contains(&0) {
        return Ok(());
    }
    // GRID_NULL, GRID_CTA, GRID_GPC_CGA; queues and grids over several GPUs are not modelled.
    if !matches!(field("QMD_TYPE"), 1..=3) {
        return refused("SKED, QMD_TYPE of the QMD");
    }
    let [_, _, z] = qmd.block();
    let threads: u64 = qmd.block().iter().map(|n| u64::from(*n)).product();
    let registers = u64::from(qmd.registers());
    if threads == 0 {
        return refused("SKED error 16, CTA_THREAD_DIMENSION_ZERO of the QMD");
    }
    if threads > THREADS || z > THREADS_Z {
        return refused("SKED error 11, TOTAL_THREADS of the QMD");
    }
    // Registers are given to warps in eights a thread.
    if !(1..=REGISTERS_OF_THREAD).contains(&registers)
        || threads.next_multiple_of(32) * registers.next_multiple_of(8) > REGISTERS
    {
        return refused("SKED error 6, REGISTER_COUNT of the QMD");
    }
    // MAX_SM_CONFIG_SHARED_MEM_SIZE: units of 4 KiB, and one.
    let most = field("MAX_SM_CONFIG_SHARED_MEM_SIZE");
    let most = if most == 0 { SHARED_BYTES } else { SHARED_BYTES.min((most - 1) << 12) };
    if field("SHARED_MEMORY_SIZE") > most {
        return refused("SKED error 14, SHARED_MEMORY_SIZE of the QMD");
    }
    if field("BARRIER_COUNT") > BARRIERS {
        return refused("SKED, BARRIER_COUNT of the QMD");
    }
    if (field("SHADER_LOCAL_MEMORY_LOW_SIZE") | field("SHADER_LOCAL_MEMORY_HIGH_SIZE")) % 16 != 0 {
        return refused("SKED error 2, LOCAL_MEMORY_SIZE of the QMD");
    }
    if (0..8).filter_map(|i| qmd.constant_buffer(i)).any(|bank| bank.bytes == 0 || bank.bytes > BANK_BYTES) {
        return refused("SKED error 23, CONSTANT_BUFFER_SIZE of the QMD");
    }
    if let Some(cluster) = qmd.cluster() {
        let whole = qmd.grid().iter().zip(&cluster).all(|(grid, blocks)| *blocks > 0 && grid.is_multiple_of(*blocks));
        if !whole || cluster.iter().map(|n| u64::from(*n)).product::<u64>() > CLUSTER {
            return refused("SKED, GPC_CGA_WIDTH, HEIGHT or DEPTH of the QMD");
        }
    }
    Ok(())
}
