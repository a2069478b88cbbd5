//! Finds what the hardware's scheduler would refuse in a QMD, before the QMD is submitted.
//!
//! A refused QMD kills the channel, and with it everything in the channel's group. Error numbers are those of open-gpu-doc's `pri_sked` (GA100);
//! limits are those of compute capability 9.0 (CUDA C++ Programming Guide, technical specifications). Only version 4.0 is checked.

use super::Qmd;

/// Why a QMD must not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value:#x}: {why} (error {error} of the hardware's scheduler)")]
pub struct Unfit {
    pub field: &'static str,
    pub value: u64,
    pub why: &'static str,
    /// As `pri_sked` numbers it.
    pub error: u8,
}

const LOCAL_MEMORY: u8 = 2;
const REGISTERS: u8 = 6;
const THREADS: u8 = 11;
const PROGRAM: u8 = 13;
const SHARED_MEMORY: u8 = 14;
const ZERO: u8 = 16;
const SHARED_CONFIGURATION: u8 = 18;
const CONSTANT_BANK: u8 = 23;

const MOST_THREADS: u64 = 1024;
const MOST_THREADS_Z: u32 = 64;
const MOST_REGISTERS: u32 = 255;
/// Registers of a multiprocessor; they are given out by 256 to a warp.
const ALL_REGISTERS: u64 = 64 << 10;
const REGISTER_UNIT: u64 = 256;
/// 227 KiB of the program's and 1 KiB of the system's.
const MOST_SHARED: u32 = 228 << 10;
const MOST_LOCAL: u64 = 512 << 10;
const MOST_BANK: u32 = 64 << 10;
const MOST_CLUSTER: u64 = 16;
/// Words of TPC_DISABLE_MASK that CUDA sets on an H200: 128 bits.
const TPC_MASKS: u32 = 4;
/// MIN_, MAX_ and TARGET_SM_CONFIG_SHARED_MEM_SIZE count by 4 KiB from 1 (as seen on an H200: 1 for none, 0x3a for 228 KiB).
const CONFIGURED: u64 = 4 << 10;

impl Qmd {
    /// Whether the scheduler of an H100 or H200 would take it.
    pub fn check(&self) -> Result<(), Unfit> {
        if (self.layout().major, self.layout().minor) != (4, 0) {
            let value = u64::from(self.layout().major) << 4 | u64::from(self.layout().minor);
            return Err(Unfit { field: "QMD_MAJOR_VERSION", value, why: "only version 4.0 is known", error: 0 });
        }
        self.check_threads()?;
        self.check_memory()?;
        // Without blocks it runs no kernel.
        if self.grid() == [0; 3] { Ok(()) } else { self.check_kernel() }
    }

    fn check_threads(&self) -> Result<(), Unfit> {
        let block = self.block();
        if block.contains(&0) {
            return unfit("CTA_THREAD_DIMENSION", 0, "a block without threads", ZERO);
        }
        let threads = block.iter().fold(1u64, |all, n| all.saturating_mul((*n).into()));
        if threads > MOST_THREADS || block[2] > MOST_THREADS_Z {
            return unfit("CTA_THREAD_DIMENSION", threads, "a block has 1,024 threads at most, 64 in z", THREADS);
        }
        let registers = self.registers();
        if registers == 0 || registers > MOST_REGISTERS {
            return unfit("REGISTER_COUNT", registers.into(), "a thread has 1 to 255 registers", REGISTERS);
        }
        let warp = (32 * u64::from(registers)).next_multiple_of(REGISTER_UNIT);
        if warp * threads.div_ceil(32) > ALL_REGISTERS {
            return unfit(
                "REGISTER_COUNT",
                registers.into(),
                "the block's threads need more than 65,536 registers",
                REGISTERS,
            );
        }
        Ok(())
    }

    fn check_memory(&self) -> Result<(), Unfit> {
        for field in ["SHADER_LOCAL_MEMORY_LOW_SIZE", "SHADER_LOCAL_MEMORY_HIGH_SIZE"] {
            let value = self.field(field).unwrap_or(0);
            if value > MOST_LOCAL || !value.is_multiple_of(16) {
                return unfit(
                    field,
                    value,
                    "local memory of a thread is at most 512 KiB, a multiple of 16 bytes",
                    LOCAL_MEMORY,
                );
            }
        }
        let shared = self.shared_memory();
        if shared > MOST_SHARED {
            return unfit("SHARED_MEMORY_SIZE", shared.into(), "a block has 228 KiB at most", SHARED_MEMORY);
        }
        let [least, target, most] =
            ["MIN_SM_CONFIG_SHARED_MEM_SIZE", "TARGET_SM_CONFIG_SHARED_MEM_SIZE", "MAX_SM_CONFIG_SHARED_MEM_SIZE"]
                .map(|name| self.field(name).unwrap_or(0));
        let configured = u64::from(MOST_SHARED) / CONFIGURED + 1;
        if least > target || target > most || most > configured {
            let why = "the smallest is above the wanted one, or that above the largest, or that above 228 KiB";
            return unfit("TARGET_SM_CONFIG_SHARED_MEM_SIZE", target, why, SHARED_CONFIGURATION);
        }
        if u64::from(shared) > most.saturating_sub(1) * CONFIGURED && shared > 0 {
            let why = "less than a block's shared memory";
            return unfit("MAX_SM_CONFIG_SHARED_MEM_SIZE", most, why, SHARED_CONFIGURATION);
        }
        for i in 0..8 {
            let Some(bank) = self.constant_buffer(i) else { continue };
            if bank.address == 0 || bank.bytes == 0 || bank.bytes > MOST_BANK {
                let value = if bank.address == 0 { 0 } else { bank.bytes.into() };
                return unfit("CONSTANT_BUFFER", value, "a bank has an address and 1 to 65,536 bytes", CONSTANT_BANK);
            }
        }
        Ok(())
    }

    fn check_kernel(&self) -> Result<(), Unfit> {
        let grid = self.grid();
        if grid.contains(&0) {
            return unfit("GRID_WIDTH, GRID_HEIGHT, GRID_DEPTH", 0, "a grid of which one dimension alone is 0", ZERO);
        }
        let program = self.program_address();
        if program == 0 || !program.is_multiple_of(16) {
            return unfit("PROGRAM_ADDRESS", program, "code has an address, a multiple of 16", PROGRAM);
        }
        let disabled = |i| self.element("TPC_DISABLE_MASK", i).is_none_or(|mask| mask == u64::from(u32::MAX));
        if self.field("TPC_DISABLE_MASK_VALID") == Some(1) && (0..TPC_MASKS).all(disabled) {
            return unfit("TPC_DISABLE_MASK", u32::MAX.into(), "no TPC is left for the kernel", 0);
        }
        if let Some(cluster) = self.cluster() {
            let blocks = cluster.iter().fold(1u64, |all, n| all.saturating_mul((*n).into()));
            // (The grid counts clusters, so it is always whole clusters.)
            if !(1..=MOST_CLUSTER).contains(&blocks) {
                let why = "a cluster has 1 to 16 blocks";
                return unfit("GPC_CGA_WIDTH, GPC_CGA_HEIGHT, GPC_CGA_DEPTH", blocks, why, ZERO);
            }
        }
        Ok(())
    }
}

fn unfit(field: &'static str, value: u64, why: &'static str, error: u8) -> Result<(), Unfit> {
    Err(Unfit { field, value, why, error })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qmd::Layout;

    /// As CUDA had it on an H200, of 8 blocks of 128 threads.
    fn seen() -> Qmd {
        let mut qmd = Qmd::new(Layout::of(4, 0).unwrap());
        let fields = [
            ("QMD_TYPE", 2),
            ("GRID_WIDTH", 8),
            ("GRID_HEIGHT", 1),
            ("GRID_DEPTH", 1),
            ("CTA_THREAD_DIMENSION0", 128),
            ("CTA_THREAD_DIMENSION1", 1),
            ("CTA_THREAD_DIMENSION2", 1),
            ("REGISTER_COUNT", 16),
            ("SHARED_MEMORY_SIZE", 0x400),
            ("SHADER_LOCAL_MEMORY_HIGH_SIZE", 0x640),
            ("MIN_SM_CONFIG_SHARED_MEM_SIZE", 5),
            ("TARGET_SM_CONFIG_SHARED_MEM_SIZE", 9),
            ("MAX_SM_CONFIG_SHARED_MEM_SIZE", 0x3a),
            ("PROGRAM_ADDRESS_LOWER", 0xdb7a_0000),
            ("PROGRAM_ADDRESS_UPPER", 0x7f63),
            ("CONSTANT_BUFFER_VALID", 1),
            ("CONSTANT_BUFFER_SIZE_SHIFTED4", 0x30),
            ("CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6", 0x8f68_0424),
        ];
        fields.iter().for_each(|(name, value)| qmd.set(name, *value).unwrap());
        qmd
    }

    #[test]
    fn qmds_of_cuda_pass_the_check() {
        assert_eq!(seen().check(), Ok(()));
        let mut order = seen();
        for name in ["GRID_WIDTH", "GRID_HEIGHT", "GRID_DEPTH", "PROGRAM_ADDRESS_LOWER", "PROGRAM_ADDRESS_UPPER"] {
            order.set(name, 0).unwrap();
        }
        assert_eq!(order.check(), Ok(()), "a QMD that only orders");
    }

    #[test]
    fn each_thing_that_the_scheduler_refuses_is_found() {
        let cases: [(&[(&str, u64)], u8); 18] = [
            (&[("GRID_HEIGHT", 0)], ZERO),
            (&[("CTA_THREAD_DIMENSION1", 0)], ZERO),
            (&[("CTA_THREAD_DIMENSION0", 1025)], THREADS),
            (&[("CTA_THREAD_DIMENSION0", 1), ("CTA_THREAD_DIMENSION2", 65)], THREADS),
            (&[("REGISTER_COUNT", 0)], REGISTERS),
            (&[("REGISTER_COUNT", 256)], REGISTERS),
            (&[("REGISTER_COUNT", 72), ("CTA_THREAD_DIMENSION0", 1024)], REGISTERS),
            (&[("SHADER_LOCAL_MEMORY_HIGH_SIZE", 0x641)], LOCAL_MEMORY),
            (&[("SHADER_LOCAL_MEMORY_LOW_SIZE", 0x8_0010)], LOCAL_MEMORY),
            (&[("SHARED_MEMORY_SIZE", 0x3_9400)], SHARED_MEMORY),
            (&[("MAX_SM_CONFIG_SHARED_MEM_SIZE", 8)], SHARED_CONFIGURATION),
            (&[("MAX_SM_CONFIG_SHARED_MEM_SIZE", 0x3b)], SHARED_CONFIGURATION),
            (&[("SHARED_MEMORY_SIZE", 0x2_0000), ("MAX_SM_CONFIG_SHARED_MEM_SIZE", 0x20)], SHARED_CONFIGURATION),
            (&[("CONSTANT_BUFFER_SIZE_SHIFTED4", 0)], CONSTANT_BANK),
            (&[("CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6", 0)], CONSTANT_BANK),
            (&[("PROGRAM_ADDRESS_LOWER", 0), ("PROGRAM_ADDRESS_UPPER", 0)], PROGRAM),
            (&[("QMD_TYPE", 3), ("GPC_CGA_WIDTH", 17), ("GPC_CGA_HEIGHT", 1), ("GPC_CGA_DEPTH", 1)], ZERO),
            (&[("QMD_TYPE", 3), ("GPC_CGA_WIDTH", 8), ("GPC_CGA_HEIGHT", 1), ("GPC_CGA_DEPTH", 0)], ZERO),
        ];
        for (fields, error) in cases {
            let mut qmd = seen();
            fields.iter().for_each(|(name, value)| qmd.set(name, *value).unwrap());
            let unfit = qmd.check().expect_err(&format!("{fields:?}"));
            assert_eq!(unfit.error, error, "{fields:?}: {unfit}");
        }
        // As CUDA had them on an H200: 4 blocks in clusters of 2, 16 in clusters of 8.
        for blocks in [2, 8] {
            let mut clusters = seen();
            let fields = [
                ("QMD_TYPE", 3),
                ("GRID_WIDTH", 2),
                ("GPC_CGA_WIDTH", blocks.into()),
                ("GPC_CGA_HEIGHT", 1),
                ("GPC_CGA_DEPTH", 1),
            ];
            fields.iter().for_each(|(name, value)| clusters.set(name, *value).unwrap());
            assert_eq!((clusters.check(), clusters.grid()), (Ok(()), [2 * blocks, 1, 1]));
        }
        assert!(Qmd::new(Layout::of(3, 0).unwrap()).check().is_err());
    }
}
