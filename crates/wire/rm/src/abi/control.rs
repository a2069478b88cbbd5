//! RM_CONTROL commands and what their `params` point to.
//!
//! Source: `ctrl0000*.h`, `ctrl0080gpu.h`, `ctrl2080gpu.h`, `ctrl2080fb.h`, `ctrl2080ce.h`, `ctrla06c.h`, `ctrla06fgpfifo.h`, `ctrlc36f.h`.

use super::plain_struct;

/// NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN: out u32 token.
pub const CTRL_WORK_SUBMIT_TOKEN: u32 = 0xc36f_0108;
/// NVC36F_CTRL_CMD_GPFIFO_SET_WORK_SUBMIT_TOKEN_NOTIF_INDEX
pub const SET_TOKEN_NOTIF_INDEX: u32 = 0xc36f_010a;
/// NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2
pub const BUILD_VERSION_V2: u32 = 0x13e;
/// NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS
pub const GPU_ATTACHED_IDS: u32 = 0x201;
/// NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO
pub const HANDLE_INFO: u32 = 0xd02;
/// NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2
pub const GPU_ID_INFO_V2: u32 = 0x205;
/// NV0000_CTRL_CMD_GPU_GET_PROBED_IDS; its struct differs by version.
pub const GPU_PROBED_IDS: u32 = 0x214;
/// NV0000_CTRL_CMD_GPU_ATTACH_IDS
pub const GPU_ATTACH_IDS: u32 = 0x215;
/// NV0080_CTRL_CMD_GPU_GET_CLASSLIST
pub const CLASS_LIST: u32 = 0x80_0201;
/// NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2; its struct differs by version.
pub const CLASS_LIST_V2: u32 = 0x80_0292;
/// NV2080_CTRL_CMD_GPU_GET_ID: its parameter is the GPU's number, 4 bytes.
pub const GPU_ID: u32 = 0x2080_0142;
/// NV2080_CTRL_CMD_GPU_GET_GID_INFO
pub const GID_INFO: u32 = 0x2080_014a;
/// NV2080_CTRL_CMD_FB_GET_STATIC_BAR1_INFO
pub const STATIC_BAR1_INFO: u32 = 0x2080_1354;
/// NV2080_CTRL_CMD_CE_GET_CE_PCE_MASK
pub const CE_PCE_MASK: u32 = 0x2080_2a02;
/// NV2080_CTRL_CMD_CE_GET_ALL_CAPS
pub const CE_ALL_CAPS: u32 = 0x2080_2a0a;
/// NVA06C_CTRL_CMD_GPFIFO_SCHEDULE: a channel group.
pub const GROUP_SCHEDULE: u32 = 0xa06c_0101;
/// NVA06F_CTRL_CMD_GPFIFO_SCHEDULE: a channel.
pub const CHANNEL_SCHEDULE: u32 = 0xa06f_0103;
/// NVA06F_CTRL_CMD_BIND
pub const CHANNEL_BIND: u32 = 0xa06f_0104;

/// NV_CONF_COMPUTE_CTRL_CMD_SYSTEM_GET_CAPABILITIES, of an NV_CONFIDENTIAL_COMPUTE.
pub const CONFIDENTIAL_CAPABILITIES: u32 = 0xcb33_0101;

plain_struct! {
    /// NV_CONF_COMPUTE_CTRL_CMD_SYSTEM_GET_CAPABILITIES_PARAMS
    pub struct ConfidentialCapabilities = 6 {
        pub cpu: u8,
        pub gpus: u8,
        pub environment: u8,
        /// 0: off.
        pub feature: u8,
        pub dev_tools: u8,
        pub multi_gpu: u8,
    }

    /// NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS
    pub struct WorkSubmitToken = 4 {
        pub token: u32,
    }

    /// NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS, for channels and groups.
    pub struct Schedule = 3 {
        pub enable: u8,
        pub skip_submit: u8,
        pub skip_enable: u8,
    }

    /// NVA06F_CTRL_BIND_PARAMS
    pub struct Bind = 4 {
        pub engine_type: u32,
    }

    /// NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS: unused slots hold 0xFFFFFFFF.
    pub struct AttachedIds = 128 {
        pub gpu_ids: [u32; 32],
    }

    /// NV0000_CTRL_GPU_ATTACH_IDS_PARAMS: ends at 0xFFFFFFFF; 0xFFFF as the first id attaches all.
    pub struct AttachIds = 132 {
        pub gpu_ids: [u32; 32],
        pub failed_id: u32,
    }

    /// NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS
    pub struct GpuIdInfo = 32 {
        /// In.
        pub gpu_id: u32,
        pub gpu_flags: u32,
        pub device_instance: u32,
        pub subdevice_instance: u32,
        pub sli_status: u32,
        pub board_id: u32,
        pub gpu_instance: u32,
        pub numa_id: i32,
    }

    /// NV0000_CTRL_CLIENT_GET_HANDLE_INFO_PARAMS
    pub struct HandleInfo = 16 {
        /// In.
        pub object: u32,
        /// In: [`HandleInfo::PARENT`] or [`HandleInfo::CLASS`].
        pub index: u32,
        pub result: u64,
    }

    /// NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_V2_PARAMS
    pub struct BuildVersion = 1032 {
        pub driver_version: [u8; 256],
        pub version: [u8; 256],
        pub branch: [u8; 256],
        pub title: [u8; 256],
        pub changelist: u32,
        pub official_changelist: u32,
    }

    /// NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS
    pub struct ProbedIds = 384 {
        pub gpu_ids: [u32; 32],
        pub excluded: [u32; 32],
        pub gpu_flags: [u32; 32],
    }

    /// NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS
    pub struct ClassListV2 = 804 {
        pub count: u32,
        pub classes: [u32; 200],
    }

    /// NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS: first called with no list to learn the count.
    pub struct ClassList = 16 {
        pub count: u32,
        pub pad: u32,
        /// Address of `count` u32.
        pub list: u64,
    }

    /// NV2080_CTRL_GPU_GET_GID_INFO_PARAMS
    pub struct GidInfo = 268 {
        pub index: u32,
        /// [`GidInfo::BINARY`] or 0 for text.
        pub flags: u32,
        pub length: u32,
        pub data: [u8; 256],
    }

    /// NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS
    pub struct CeAllCaps = 136 {
        /// Two bytes a copy engine: [`ce_caps`], the first byte in the low bits.
        pub caps: [[u8; 2]; 64],
        /// Bit n: engine n is there.
        pub present: u64,
    }

    /// NV2080_CTRL_CE_GET_CE_PCE_MASK_PARAMS
    pub struct CePceMask = 8 {
        /// In: NV2080_ENGINE_TYPE_COPYn.
        pub engine_type: u32,
        /// The physical copy engines of this copy engine, numbered within its shim.
        pub mask: u32,
    }

    /// NV2080_CTRL_FB_GET_STATIC_BAR1_INFO_PARAMS
    pub struct StaticBar1Info = 24 {
        /// All client-visible GPU memory is permanently mapped in BAR1, in physical order.
        pub enabled: u8,
        /// Branch 580 and later.
        pub write_combined: u8,
        pub pad: [u8; 6],
        pub start: u64,
        pub size: u64,
    }
}

/// Capabilities of a copy engine (NV2080_CTRL_CE_CAPS_CE_*), byte 1 shifted by eight.
pub mod ce_caps {
    /// It runs with graphics, on its runlist.
    pub const GRCE: u16 = 0x0001;
    /// It shares physical engines with another copy engine.
    pub const SHARED: u16 = 0x0002;
    /// Reads system memory better than others do.
    pub const SYSMEM_READ: u16 = 0x0004;
    /// Writes system memory better than others do.
    pub const SYSMEM_WRITE: u16 = 0x0008;
    pub const NVLINK_P2P: u16 = 0x0010;
    pub const SYSMEM: u16 = 0x0020;
    pub const P2P: u16 = 0x0040;
    pub const BL_SIZE_GT_64K_SUPPORTED: u16 = 0x0080;
    pub const SUPPORTS_NONPIPELINED_BL: u16 = 0x0100;
    pub const SUPPORTS_PIPELINED_BL: u16 = 0x0200;
    /// It encrypts (confidential computing).
    pub const CC_SECURE: u16 = 0x0400;
    /// It decompresses; then it is not for asynchronous copies.
    pub const DECOMP_SUPPORTED: u16 = 0x0800;

    /// Every bit by its name in `ctrl2080ce.h`, without NV2080_CTRL_CE_CAPS_CE_.
    pub const NAMES: [(u16, &str); 12] = [
        (GRCE, "GRCE"),
        (SHARED, "SHARED"),
        (SYSMEM_READ, "SYSMEM_READ"),
        (SYSMEM_WRITE, "SYSMEM_WRITE"),
        (NVLINK_P2P, "NVLINK_P2P"),
        (SYSMEM, "SYSMEM"),
        (P2P, "P2P"),
        (BL_SIZE_GT_64K_SUPPORTED, "BL_SIZE_GT_64K_SUPPORTED"),
        (SUPPORTS_NONPIPELINED_BL, "SUPPORTS_NONPIPELINED_BL"),
        (SUPPORTS_PIPELINED_BL, "SUPPORTS_PIPELINED_BL"),
        (CC_SECURE, "CC_SECURE"),
        (DECOMP_SUPPORTED, "DECOMP_SUPPORTED"),
    ];
}

impl HandleInfo {
    /// NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_PARENT
    pub const PARENT: u32 = 1;
    /// NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO_INDEX_CLASSID
    pub const CLASS: u32 = 2;
}

impl GidInfo {
    /// NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_BINARY
    pub const BINARY: u32 = 2;
}
