//! What RM_ALLOC's `params` point to, for the classes that a program needs to submit work.
//!
//! Source: `nvos.h`, `alloc_channel.h`, `cl0005.h`, `cl0080.h`, `cl2080.h`, `clb0b5sw.h`, `clc661.h`, `nvgputypes.h`; see
//! [`super::BRANCHES`] for which branch lacks what.

use super::plain_struct;

plain_struct! {
    /// NV0080_ALLOC_PARAMETERS: NV01_DEVICE_0 (0x80).
    pub struct DeviceAlloc = 56 {
        /// `deviceInstance` of NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2.
        pub device_id: u32,
        pub client_share: u32,
        pub target_client: u32,
        pub target_device: u32,
        pub flags: u32,
        pub pad: u32,
        pub va_space_size: u64,
        pub va_start_internal: u64,
        pub va_limit_internal: u64,
        /// 0 OPTIONAL_MULTIPLE_VASPACES, 1 SINGLE_VASPACE, 2 MULTIPLE_VASPACES.
        pub va_mode: u32,
        pub pad2: u32,
    }

    /// NV0005_ALLOC_PARAMETERS: NV01_EVENT_OS_EVENT (0x79).
    pub struct EventAlloc = 24 {
        pub parent_client: u32,
        pub source: u32,
        pub class: u32,
        /// [`super::event`].
        pub notify_index: u32,
        /// The descriptor.
        pub data: u64,
    }

    /// NV2080_ALLOC_PARAMETERS: NV20_SUBDEVICE_0 (0x2080).
    pub struct SubdeviceAlloc = 4 {
        pub subdevice_id: u32,
    }

    /// NV_MEMORY_ALLOCATION_PARAMS: NV01_MEMORY_LOCAL_USER (0x40), NV01_MEMORY_SYSTEM (0x3E), NV50_MEMORY_VIRTUAL (0x50A0).
    pub struct MemoryAlloc = 128 {
        pub owner: u32,
        /// NVOS32_TYPE, 0 = IMAGE.
        pub kind: u32,
        /// [`super::alloc_flags`].
        pub flags: u32,
        pub width: u32,
        pub height: u32,
        pub pitch: i32,
        /// [`super::attr`].
        pub attr: u32,
        pub attr2: u32,
        pub format: u32,
        pub compression_coverage: u32,
        pub zcull_coverage: u32,
        pub pad: u32,
        pub range_lo: u64,
        pub range_hi: u64,
        pub size: u64,
        pub alignment: u64,
        pub offset: u64,
        pub limit: u64,
        pub address: u64,
        pub ctag_offset: u32,
        pub va_space: u32,
        pub internal_flags: u32,
        pub tag: u32,
        pub numa_node: i32,
        pub pad2: u32,
    }

    /// NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS: KEPLER_CHANNEL_GROUP_A (0xA06C).
    pub struct ChannelGroupAlloc = 20 {
        pub error_object: u32,
        pub ecc_error_object: u32,
        pub va_space: u32,
        /// NV2080_ENGINE_TYPE; must be valid since Ampere.
        pub engine_type: u32,
        pub vgpu_plugin: u8,
        pub pad: [u8; 3],
    }

    /// NV_CTXSHARE_ALLOCATION_PARAMETERS: FERMI_CONTEXT_SHARE_A (0x9067).
    pub struct ContextShareAlloc = 12 {
        pub va_space: u32,
        /// [`ContextShareAlloc::ASYNC`] and its neighbours.
        pub flags: u32,
        pub subcontext: u32,
    }

    /// NV_MEMORY_DESC_PARAMS.
    pub struct MemoryDesc = 24 {
        pub base: u64,
        pub size: u64,
        pub address_space: u32,
        pub cache_attrib: u32,
    }

    /// The part of NV_CHANNEL_ALLOC_PARAMS that a client sets: its begin. See [`ChannelAllocFull`].
    pub struct ChannelAlloc = 144 {
        /// Memory of at least three [`Notification`]s: error, work-submit token, key rotation.
        pub error_object: u32,
        pub buffer_object: u32,
        /// GPU virtual address of the GPFIFO.
        pub gpfifo: u64,
        pub entries: u32,
        /// [`channel_flags`].
        pub flags: u32,
        pub context_share: u32,
        /// 0 for a channel in a group.
        pub va_space: u32,
        pub handle_va_space: u32,
        pub userd_memory: [u32; 8],
        pub pad: u32,
        pub userd_offset: [u64; 8],
        pub engine_type: u32,
        /// Out: channel number, unique for the session.
        pub cid: u32,
    }

    /// NV_CHANNEL_ALLOC_PARAMS (class 0x906F to 0xCA6F).
    pub struct ChannelAllocFull = 376 {
        pub client: ChannelAlloc,
        pub subdevice_mask: u32,
        pub ecc_error_object: u32,
        pub instance: MemoryDesc,
        pub userd: MemoryDesc,
        pub ramfc: MemoryDesc,
        pub method_buffer: MemoryDesc,
        pub phys_channel_group: u32,
        pub internal_flags: u32,
        pub error_notifier: MemoryDesc,
        pub ecc_error_notifier: MemoryDesc,
        pub process_id: u32,
        pub sub_process_id: u32,
        pub encrypt_iv: [u32; 3],
        pub decrypt_iv: [u32; 3],
        pub hmac_nonce: [u32; 8],
        pub tpc_config_id: u32,
        pub pad: u32,
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

    /// NVB0B5_ALLOCATION_PARAMETERS: every *_DMA_COPY_* class from 0xB0B5 on.
    pub struct CopyAlloc = 8 {
        /// 1: `engine_type` is an NV2080_ENGINE_TYPE_COPYn.
        pub version: u32,
        pub engine_type: u32,
    }

    /// NV_HOPPER_USERMODE_A_PARAMS: optional for HOPPER_USERMODE_A (0xC661) and BLACKWELL_USERMODE_A (0xC761).
    pub struct UsermodeAlloc = 2 {
        /// 1: the page is reached through BAR1, 0 (or no parameters): through BAR0.
        pub bar1: u8,
        /// Kernel only.
        pub privileged: u8,
    }

    /// NvNotification: what the error notifier and the work-submit token slot hold, in memory.
    pub struct Notification = 16 {
        /// Nanoseconds, low word first.
        pub time: [u32; 2],
        /// Error: the Xid's value. Work-submit token: the token.
        pub info32: u32,
        pub info16: u16,
        /// 0xFFFF when the error slot was written.
        pub status: u16,
    }
}

impl ContextShareAlloc {
    /// Synchronous graphics and compute subcontext (VEID 0).
    pub const SYNC: u32 = 0;
    /// Asynchronous compute subcontext.
    pub const ASYNC: u32 = 1;
    /// VEID given by `subcontext`.
    pub const SPECIFIED: u32 = 2;
}

/// Slots of the error notifier of a GPFIFO channel (NV_CHANNELGPFIFO_NOTIFICATION_TYPE).
pub mod notifier {
    pub const ERROR: usize = 0;
    pub const WORK_SUBMIT_TOKEN: usize = 1;
    pub const KEY_ROTATION: usize = 2;
    /// Slots that the memory object hObjectError must hold.
    pub const SLOTS: usize = 3;
}

/// NVOS04 flags of a channel, already shifted.
pub mod channel_flags {
    /// Runqueue 1 within the group (bit 4).
    pub const RUNQUEUE_ONE: u32 = 1 << 4;
    /// Set by libcuda on every channel; RM ignores it for ordinary clients (bit 5).
    pub const PRIVILEGED: u32 = 1 << 5;
    /// Not scheduled with its group until asked for (bit 6).
    pub const DELAY_SCHEDULING: u32 = 1 << 6;
    /// No physical addresses in copies, whoever the client is (bit 7).
    pub const DENY_PHYSICAL_MODE_CE: u32 = 1 << 7;
    /// No privileged host methods (bit 22).
    pub const DENY_AUTH_LEVEL_PRIV: u32 = 1 << 22;
    pub const CLIENT_MAP_FIFO: u32 = 1 << 24;
    /// A host semaphore acquire that takes longer than about 2 s is an error (bit 27).
    pub const PBDMA_ACQUIRE_TIMEOUT: u32 = 1 << 27;
}

/// FERMI_VASPACE_A flags.
pub mod va_flags {
    pub const SHARED_MANAGEMENT: u32 = 1 << 2;
    /// Page tables are UVM's.
    pub const IS_EXTERNALLY_OWNED: u32 = 1 << 3;
    pub const ENABLE_PAGE_FAULTING: u32 = 1 << 6;
    pub const ALLOW_ZERO_ADDRESS: u32 = 1 << 8;
}

/// NV_VASPACE_ALLOCATION_INDEX_GPU_NEW
pub const VA_INDEX_NEW: u32 = 0;

/// Offsets in a usermode page (class 0xC361 to 0xC761).
pub mod usermode {
    /// Bytes that RM_MAP_MEMORY must map.
    pub const LENGTH: u64 = 0x10000;
    /// The GPU's nanosecond clock: TIME_0 (31:5 valid) and TIME_1.
    pub const TIME_0: u64 = 0x80;
    pub const TIME_1: u64 = 0x84;
    /// NOTIFY_CHANNEL_PENDING: the doorbell, write a work-submit token.
    pub const DOORBELL: u64 = 0x90;
}
