//! What is particular to driver branch 570 (checked against 570.133.20).

use super::plain_struct;

plain_struct! {
    /// NVOS46: RM_MAP_MEMORY_DMA.
    pub struct Nvos46 = 56 {
        pub client: u32,
        pub device: u32,
        pub dma: u32,
        pub memory: u32,
        pub offset: u64,
        pub length: u64,
        pub flags: u32,
        pub pad: u32,
        pub dma_offset: u64,
        pub status: u32,
        pub pad2: u32,
    }

    /// NV_VASPACE_ALLOCATION_PARAMETERS: FERMI_VASPACE_A (0x90F1).
    pub struct VaspaceAlloc = 48 {
        pub index: u32,
        pub flags: u32,
        pub va_size: u64,
        pub va_start_internal: u64,
        pub va_limit_internal: u64,
        pub big_page_size: u32,
        pub pad: u32,
        pub va_base: u64,
    }

    /// NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS: a byte shorter than in 580.
    pub struct Schedule = 2 {
        pub enable: u8,
        pub skip_submit: u8,
    }

    /// NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS
    pub struct ClassListV2 = 404 {
        pub count: u32,
        pub classes: [u32; 100],
    }

    /// NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS
    pub struct ProbedIds = 256 {
        pub gpu_ids: [u32; 32],
        pub excluded: [u32; 32],
    }
}
