//! Registers of the DMA/Bridge Subsystem for PCI Express, in DMA mode, as AMD's product guide PG195 has them ("Register Space"). The names of
//! tables below are the guide's. Offsets, bits and the count of adjacent descriptors agree with two public drivers, Linux's
//! (`drivers/dma/xilinx/xdma.c`) and Xilinx's own (`dma_ip_drivers`, `libxdma.h`). Neither shows which errors cause a write-back, so both cases are
//! handled here.

/// "PCIe to DMA Address Format": bits 15:12 of an offset in the DMA's BAR say which part, bits 11:8 which channel.
pub(crate) const fn part(target: u64, channel: u8) -> u64 {
    target << 12 | (channel as u64) << 8
}

pub(crate) mod target {
    pub const H2C: u64 = 0x0;
    pub const C2H: u64 = 0x1;
    pub const IRQ: u64 = 0x2;
    pub const CONFIG: u64 = 0x3;
    pub const H2C_SGDMA: u64 = 0x4;
    pub const C2H_SGDMA: u64 = 0x5;
    /// Bytes of the BAR that hold all of these.
    pub const END: u64 = 0x8000;
}

/// "H2C Channel Identifier (0x00)", "C2H Channel Identifier (0x00)", and of the other parts: the same fields.
pub(crate) mod identifier {
    /// Bits 31:20.
    pub const SUBSYSTEM: u32 = 0x1fc;
    pub const fn subsystem(word: u32) -> u32 {
        word >> 20
    }
    /// Bits 19:16: the part, by its number.
    pub const fn target(word: u32) -> u64 {
        (word >> 16 & 0xf) as u64
    }
    /// Bit 15: an AXI4-Stream interface (0: memory-mapped).
    pub const fn is_stream(word: u32) -> bool {
        word & 1 << 15 != 0
    }
    /// Bits 11:8.
    pub const fn channel(word: u32) -> u32 {
        word >> 8 & 0xf
    }
    /// Bits 7:0.
    pub const fn version(word: u32) -> u32 {
        word & 0xff
    }
}

/// Registers of a channel, H2C or C2H.
pub(crate) mod channel {
    pub const IDENTIFIER: u64 = 0x00;
    /// "Channel Control (0x04)".
    pub const CONTROL: u64 = 0x04;
    /// "Channel Status (0x40)"; writing ones clears bits 23:1.
    pub const STATUS: u64 = 0x40;
    /// "Channel Completed Descriptor Count (0x48)": 0 again when Run rises.
    pub const COMPLETED: u64 = 0x48;
    /// "Channel Alignments (0x4C)".
    pub const ALIGNMENTS: u64 = 0x4c;
    /// "Channel Poll Mode Low Write Back Address (0x88)", the upper half at 0x8C.
    pub const WRITE_BACK_LOW: u64 = 0x88;
    pub const WRITE_BACK_HIGH: u64 = 0x8c;
}

/// Bits of the control register.
pub(crate) mod control {
    pub const RUN: u32 = 1 << 0;
    /// The interrupt enables for each way to stop: without them the status bits are still set. None is used here.
    pub const POLL_WRITE_BACK: u32 = 1 << 26;
}

/// Bits of the status register.
pub(crate) mod status {
    pub const BUSY: u32 = 1 << 0;
    /// The bits of a normal end: a descriptor with Stop, one with Completed, and no work left.
    pub const DESCRIPTOR_STOPPED: u32 = 1 << 1;
    pub const DESCRIPTOR_COMPLETED: u32 = 1 << 2;
    pub const ALIGN_MISMATCH: u32 = 1 << 3;
    pub const MAGIC_STOPPED: u32 = 1 << 4;
    pub const INVALID_LENGTH: u32 = 1 << 5;
    pub const IDLE_STOPPED: u32 = 1 << 6;
    /// Bits 13:9: source; 18:14: destination (H2C); 23:19: fetching descriptors.
    pub const READ_ERROR: u32 = 0x1f << 9;
    pub const WRITE_ERROR: u32 = 0x1f << 14;
    pub const DESCRIPTOR_ERROR: u32 = 0x1f << 19;
    pub const ERRORS: u32 =
        ALIGN_MISMATCH | MAGIC_STOPPED | INVALID_LENGTH | READ_ERROR | WRITE_ERROR | DESCRIPTOR_ERROR;
    /// All that ones written to it clear.
    pub const CLEARED: u32 = ERRORS | DESCRIPTOR_STOPPED | DESCRIPTOR_COMPLETED | IDLE_STOPPED;

    /// The errors' names. The same bits have different meanings for reads from the host (H2C) and from the card (C2H).
    pub fn names(word: u32, from_host: bool) -> String {
        let always = [
            (ALIGN_MISMATCH, "source and destination are not aligned to each other"),
            (MAGIC_STOPPED, "a descriptor without the magic number"),
            (INVALID_LENGTH, "an invalid length"),
            (1 << 19, "unsupported request while a descriptor was read"),
            (1 << 20, "completer abort while a descriptor was read"),
            (1 << 21, "parity error in a descriptor"),
            (1 << 22, "poisoned descriptor (EP)"),
            (1 << 23, "unexpected completion while a descriptor was read"),
        ];
        let h2c = [
            (1 << 9, "unsupported request while host memory was read"),
            (1 << 10, "completer abort while host memory was read"),
            (1 << 11, "parity error in host memory's bytes"),
            (1 << 12, "poisoned bytes of host memory (EP)"),
            (1 << 13, "unexpected completion while host memory was read"),
            (1 << 14, "decode error: the card has no memory at the address that was written"),
            (1 << 15, "slave error of the card's memory that was written"),
        ];
        let c2h = [
            (1 << 9, "decode error: the card has no memory at the address that was read"),
            (1 << 10, "slave error of the card's memory that was read"),
        ];
        let of: &[(u32, &str)] = if from_host { &h2c } else { &c2h };
        let named: Vec<&str> =
            always.iter().chain(of).filter(|(bit, _)| word & bit != 0).map(|(_, name)| *name).collect();
        if named.is_empty() { "no error bit is set".into() } else { named.join(", ") }
    }
}

/// Registers of a channel's SGDMA part.
pub(crate) mod sgdma {
    /// "SGDMA Descriptor Low Address (0x80)", the upper half at 0x84.
    pub const FIRST_LOW: u64 = 0x80;
    pub const FIRST_HIGH: u64 = 0x84;
    /// "SGDMA Descriptor Adjacent (0x88)", bits 5:0: descriptors that follow the first one without a gap.
    pub const ADJACENT: u64 = 0x88;
}

/// "Descriptor Fields": 32 bytes.
pub(crate) mod descriptor {
    pub const BYTES: u64 = 32;
    pub const MAGIC: u32 = 0xad4b;
    /// Bits of Control.
    pub const STOP: u32 = 1 << 0;
    pub const COMPLETED: u32 = 1 << 1;
    /// Maximum of Nxt_adj and of the register: six bits.
    pub const MOST_ADJACENT: u64 = 63;
    /// A block of adjacent descriptors does not cross such a border.
    pub const BORDER: u64 = 4096;
    /// Len has 28 bits.
    pub const LENGTH_BITS: u32 = 28;
}

/// "Poll Mode Write Back": bits 23:0 are the count, bit 31 is any error of the status register.
pub(crate) mod write_back {
    pub const ERROR: u32 = 1 << 31;
    pub const COUNT: u32 = (1 << 24) - 1;
}
