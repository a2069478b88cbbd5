//! The addresses of a graph's memory.

/// Addresses of all memory that a graph has. QMDs must be below 2^40 and at multiples of 256, banks at multiples of 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// QMDs, one every [`Places::QMD_BYTES`].
    pub qmds: u64,
    /// Constant banks 0, one every [`Places::BANK_BYTES`].
    pub banks: u64,
    /// Banks that all kernels share and that CUDA filled earlier: bank 7, and bank 1 after it at [`Places::BANK_1`]. `None`: kernels have bank 0
    /// alone.
    pub shared_banks: Option<u64>,
    /// Counters of groups, one every 8 bytes.
    pub counters: u64,
    /// Trackers of channels, one every 16 bytes.
    pub trackers: u64,
    /// Code of kernels that give no address.
    pub code: u64,
}

impl Places {
    /// As in a recording of an H200.
    pub const RECORDED: Places = Places {
        qmds: 0x2_04c0_0000,
        banks: 0x7f63_da01_0000,
        shared_banks: Some(0x7f63_d9ff_0000),
        counters: 0x2_0462_7000,
        trackers: 0x2_0460_ffe0,
        code: 0x7f63_db7a_0000,
    };
    pub const QMD_BYTES: u64 = 0x200;
    pub const BANK_BYTES: u64 = 0x700;
    pub const BANK_1: u64 = 0x10000;

    pub fn qmd(&self, kernel: usize) -> u64 {
        self.qmds + Places::QMD_BYTES * kernel as u64
    }

    pub fn bank(&self, kernel: usize) -> u64 {
        self.banks + Places::BANK_BYTES * kernel as u64
    }

    pub fn counter(&self, group: usize) -> u64 {
        self.counters + 8 * group as u64
    }

    pub fn tracker(&self, channel: usize) -> u64 {
        self.trackers + 16 * channel as u64
    }
}

impl Default for Places {
    fn default() -> Places {
        Places::RECORDED
    }
}
