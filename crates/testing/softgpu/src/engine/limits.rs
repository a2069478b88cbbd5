//! What the compute scheduler refuses to start: its checks (open-gpu-doc, `pri_sked` of GA100, register HWW_ESR), which end in Xid 13.
//!
//! The limits are those of compute capability 9.0 (CUDA Programming Guide, "Technical Specifications per Compute Capability"). It is assumed that
//! the hardware checks when a QMD starts, and not when it is copied. QMDs without blocks are not checked. Checks without a number have no number in
//! that manual either.

use super::Fault;
use pushbuf::qmd::Qmd;

const THREADS: u64 = 1024;
const THREADS_Z: u32 = 64;
/// Blocks of a cluster.
const CLUSTER: u64 = 16;
const REGISTERS: u64 = 65536;
const REGISTERS_OF_THREAD: u64 = 255;
/// Per block, including the 1 KiB that the system takes.
const SHARED_BYTES: u64 = 228 << 10;
const BANK_BYTES: u32 = 64 << 10;
const BARRIERS: u64 = 16;

/// Why a QMD of version 4 cannot start.
pub(super) fn check(qmd: &Qmd, address: u64) -> Result<(), Fault> {
    if qmd.grid().contains(&0) {
        return Ok(());
    }
    let wrong = block(qmd).or_else(|| memory(qmd)).or_else(|| cluster(qmd));
    wrong.map_or(Ok(()), |what| Err(Fault::engine(what, address)))
}

fn field(qmd: &Qmd, name: &str) -> u64 {
    qmd.field(name).unwrap_or(0)
}

/// Threads, and the registers that they need.
fn block(qmd: &Qmd) -> Option<&'static str> {
    let [_, _, z] = qmd.block();
    let threads: u64 = qmd.block().iter().map(|n| u64::from(*n)).product();
    let registers = u64::from(qmd.registers());
    match () {
        () if threads == 0 => Some("SKEDCHECK16_CTA_THREAD_DIMENSION_ZERO"),
        () if threads > THREADS || z > THREADS_Z => Some("SKEDCHECK11_TOTAL_THREADS"),
        () if !(1..=REGISTERS_OF_THREAD).contains(&registers) => Some("SKEDCHECK06_REGISTER_COUNT"),
        // They are given to warps, in eights for each thread.
        () if threads.next_multiple_of(32) * registers.next_multiple_of(8) > REGISTERS => {
            Some("SKEDCHECK19_CTA_REGISTER_CONSUMPTION")
        }
        () if field(qmd, "BARRIER_COUNT") > BARRIERS => Some("SKED, BARRIER_COUNT"),
        () => None,
    }
}

/// Shared and local memory, and constant banks.
fn memory(qmd: &Qmd) -> Option<&'static str> {
    // MAX_SM_CONFIG_SHARED_MEM_SIZE: units of 4 KiB, plus one (0: not set).
    let configured = match field(qmd, "MAX_SM_CONFIG_SHARED_MEM_SIZE") {
        0 => SHARED_BYTES,
        most => (most - 1) << 12,
    };
    let shared = field(qmd, "SHARED_MEMORY_SIZE");
    let bank = |i| qmd.constant_buffer(i).is_some_and(|bank| bank.bytes == 0 || bank.bytes > BANK_BYTES);
    match () {
        () if shared > SHARED_BYTES => Some("SKEDCHECK14_SHARED_MEMORY_SIZE"),
        () if shared > configured => Some("SKEDCHECK18_L1_CONFIG_TOO_SMALL"),
        () if !field(qmd, "SHADER_LOCAL_MEMORY_LOW_SIZE").is_multiple_of(16) => {
            Some("SKEDCHECK02_LOCAL_MEMORY_LOW_SIZE")
        }
        () if !field(qmd, "SHADER_LOCAL_MEMORY_HIGH_SIZE").is_multiple_of(16) => {
            Some("SKEDCHECK03_LOCAL_MEMORY_HIGH_SIZE")
        }
        () if (0..8).any(bank) => Some("SKEDCHECK23_CONSTANT_BUFFER_SIZE"),
        () => None,
    }
}

fn cluster(qmd: &Qmd) -> Option<&'static str> {
    // GRID_NULL, GRID_CTA, GRID_GPC_CGA; queues and grids over several GPUs are not modelled.
    if !matches!(field(qmd, "QMD_TYPE"), 1..=3) {
        return Some("SKED, QMD_TYPE");
    }
    let cluster = qmd.cluster()?;
    // (GRID_WIDTH and so on count clusters.)
    let blocks: u64 = cluster.iter().map(|n| u64::from(*n)).product();
    (!(1..=CLUSTER).contains(&blocks)).then_some("SKED, GPC_CGA_WIDTH, HEIGHT or DEPTH")
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_graph::words::{Kernel, Places};

    /// The reason why a kernel as CUDA writes it, with these fields, is refused.
    fn refused(fields: &[(&'static str, u64)]) -> Option<&'static str> {
        let kernel = Kernel { fields: fields.to_vec(), ..Kernel::default() };
        check(&kernel.qmd(0, false, None, &Places::RECORDED), 0x100).err().map(|fault| fault.what)
    }

    #[test]
    fn each_check_has_its_name_and_its_limit() {
        let (threads, registers) = ("CTA_THREAD_DIMENSION0", "REGISTER_COUNT");
        let (shared, most) = ("SHARED_MEMORY_SIZE", "MAX_SM_CONFIG_SHARED_MEM_SIZE");
        let good: [&[(&str, u64)]; 8] = [
            &[],
            &[(threads, 1024), (registers, 64)],
            &[(threads, 256), (registers, 255)],
            &[("BARRIER_COUNT", 16)],
            &[(shared, 228 << 10)],
            &[(shared, 32 << 10), (most, 9)],
            &[("CONSTANT_BUFFER_SIZE_SHIFTED4", 0x1000)],
            &[("QMD_TYPE", 3), ("GPC_CGA_WIDTH", 8), ("GPC_CGA_HEIGHT", 1), ("GPC_CGA_DEPTH", 1)],
        ];
        for fields in good {
            assert_eq!(refused(fields), None, "{fields:?}");
        }
        let wrong: [(&str, &[(&str, u64)]); 18] = [
            ("SKEDCHECK16_CTA_THREAD_DIMENSION_ZERO", &[("CTA_THREAD_DIMENSION1", 0)]),
            ("SKEDCHECK11_TOTAL_THREADS", &[(threads, 1025)]),
            ("SKEDCHECK11_TOTAL_THREADS", &[(threads, 8), ("CTA_THREAD_DIMENSION2", 65)]),
            ("SKEDCHECK06_REGISTER_COUNT", &[(registers, 0)]),
            ("SKEDCHECK06_REGISTER_COUNT", &[(registers, 256)]),
            ("SKEDCHECK19_CTA_REGISTER_CONSUMPTION", &[(threads, 1024), (registers, 65)]),
            ("SKEDCHECK19_CTA_REGISTER_CONSUMPTION", &[(threads, 257), (registers, 255)]),
            ("SKED, BARRIER_COUNT", &[("BARRIER_COUNT", 17)]),
            ("SKEDCHECK14_SHARED_MEMORY_SIZE", &[(shared, (228 << 10) + 128)]),
            ("SKEDCHECK18_L1_CONFIG_TOO_SMALL", &[(shared, (32 << 10) + 128), (most, 9)]),
            ("SKEDCHECK02_LOCAL_MEMORY_LOW_SIZE", &[("SHADER_LOCAL_MEMORY_LOW_SIZE", 8)]),
            ("SKEDCHECK03_LOCAL_MEMORY_HIGH_SIZE", &[("SHADER_LOCAL_MEMORY_HIGH_SIZE", 8)]),
            ("SKEDCHECK23_CONSTANT_BUFFER_SIZE", &[("CONSTANT_BUFFER_SIZE_SHIFTED4", 0)]),
            ("SKEDCHECK23_CONSTANT_BUFFER_SIZE", &[("CONSTANT_BUFFER_SIZE_SHIFTED4", 0x1001)]),
            ("SKED, QMD_TYPE", &[("QMD_TYPE", 0)]),
            ("SKED, QMD_TYPE", &[("QMD_TYPE", 4)]),
            ("SKED, GPC_CGA_WIDTH, HEIGHT or DEPTH", &[("QMD_TYPE", 3), ("GPC_CGA_WIDTH", 3)]),
            (
                "SKED, GPC_CGA_WIDTH, HEIGHT or DEPTH",
                &[
                    ("QMD_TYPE", 3),
                    ("GRID_WIDTH", 32),
                    ("GPC_CGA_WIDTH", 32),
                    ("GPC_CGA_HEIGHT", 1),
                    ("GPC_CGA_DEPTH", 1),
                ],
            ),
        ];
        for (what, fields) in wrong {
            assert_eq!(refused(fields), Some(what), "{fields:?}");
        }
    }

    #[test]
    fn qmds_without_blocks_are_not_checked() {
        assert_eq!(refused(&[("GRID_WIDTH", 0), ("CTA_THREAD_DIMENSION0", 0), ("QMD_TYPE", 0)]), None);
    }
}
