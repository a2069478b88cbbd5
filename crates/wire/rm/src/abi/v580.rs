//! What is particular to driver branch 580 (checked against 580.105.08).

use super::plain_struct;

plain_struct! {
    /// NVOS46: RM_MAP_MEMORY_DMA.
    pub struct Nvos46 = 64 {
        pub client: u32,
        pub device: u32,
        pub dma: u32,
        pub memory: u32,
        pub offset: u64,
        pub length: u64,
        pub flags: u32,
        pub flags2: u32,
        pub kind_override: u32,
        pub pad: u32,
        pub dma_offset: u64,
        pub status: u32,
        pub pad2: u32,
    }

    /// NV_VASPACE_ALLOCATION_PARAMETERS: FERMI_VASPACE_A (0x90F1).
    pub struct VaspaceAlloc = 56 {
        pub index: u32,
        pub flags: u32,
        pub va_size: u64,
        pub va_start_internal: u64,
        pub va_limit_internal: u64,
        pub big_page_size: u32,
        pub pad: u32,
        pub va_base: u64,
        pub pasid: u32,
        pub pad2: u32,
    }

    /// NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS
    pub struct ClassListV2 = 804 {
        pub count: u32,
        pub classes: [u32; 200],
    }

    /// NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS
    pub struct ProbedIds = 384 {
        pub gpu_ids: [u32; 32],
        pub excluded: [u32; 32],
        pub gpu_flags: [u32; 32],
    }
}
