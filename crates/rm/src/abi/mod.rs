//! Structs and numbers of the resource manager's ioctls that are the same in every driver version we know.
//!
//! Source: open-gpu-kernel-modules 580.105.08, `nvos.h`, `nv-unix-nvos-params-wrappers.h`, `alloc_channel.h`.

/// `_IOWR('F', nr, size)`.
pub const fn rm_request(nr: u32, size: usize) -> u64 {
    (3 << 30) | ((size as u64) << 16) | ((b'F' as u64) << 8) | nr as u64
}

/// Number of an RM ioctl, or `None` if the request is not one ('F' type).
pub const fn rm_nr(request: u64) -> Option<u32> {
    if (request >> 8) & 0xff == b'F' as u64 { Some((request & 0xff) as u32) } else { None }
}

/// Size that the request declares for its argument, bytes.
pub const fn request_size(request: u64) -> usize {
    ((request >> 16) & 0x3fff) as usize
}

/// RM ioctl numbers (`nv_escape.h`, `nv-ioctl-numbers.h`).
pub mod nr {
    pub const ALLOC_MEMORY: u32 = 0x27;
    pub const FREE: u32 = 0x29;
    pub const CONTROL: u32 = 0x2a;
    pub const ALLOC: u32 = 0x2b;
    pub const DUP_OBJECT: u32 = 0x34;
    pub const SHARE: u32 = 0x35;
    pub const VID_HEAP_CONTROL: u32 = 0x4a;
    pub const MAP_MEMORY: u32 = 0x4e;
    pub const UNMAP_MEMORY: u32 = 0x4f;
    pub const MAP_MEMORY_DMA: u32 = 0x57;
    pub const UNMAP_MEMORY_DMA: u32 = 0x58;
    pub const CARD_INFO: u32 = 200;
    pub const REGISTER_FD: u32 = 201;
    pub const CHECK_VERSION_STR: u32 = 210;
}

/// UVM ioctls: plain numbers without a size (`uvm_ioctl.h`).
pub mod uvm {
    pub const INITIALIZE: u64 = 0x3000_0001;
    pub const DEINITIALIZE: u64 = 0x3000_0002;
    pub const REGISTER_GPU_VASPACE: u64 = 25;
    pub const REGISTER_CHANNEL: u64 = 27;
    pub const UNREGISTER_CHANNEL: u64 = 28;
    pub const MAP_EXTERNAL_ALLOCATION: u64 = 33;
    pub const FREE: u64 = 34;
    pub const REGISTER_GPU: u64 = 37;
    pub const UNREGISTER_GPU: u64 = 38;
    pub const UNMAP_EXTERNAL: u64 = 66;
    pub const CREATE_EXTERNAL_RANGE: u64 = 73;
    pub const MM_INITIALIZE: u64 = 75;

    /// UVM_MAP_EXTERNAL_ALLOCATION_PARAMS, 9264 bytes: base@0, length@8, offset@16, perGpuAttributes[256] of 36 bytes@24,
    /// gpuAttributesCount@9240, rmCtrlFd@9248, hClient@9252, hMemory@9256, rmStatus@9260.
    pub const MAP_EXTERNAL_SIZE: usize = 9264;
}

/// NVOS00: RM_FREE.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Nvos00 {
    pub root: u32,
    pub parent: u32,
    pub old: u32,
    pub status: u32,
}

/// NVOS02 with fd: RM_ALLOC_MEMORY.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Nvos02Fd {
    pub root: u32,
    pub parent: u32,
    pub new: u32,
    pub class: u32,
    pub flags: u32,
    pub pad: u32,
    pub memory: u64,
    pub limit: u64,
    pub status: u32,
    pub pad2: u32,
    pub fd: i32,
    pub pad3: u32,
}

/// NVOS21: RM_ALLOC, short form.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Nvos21 {
    pub root: u32,
    pub parent: u32,
    pub new: u32,
    pub class: u32,
    pub params: u64,
    pub params_size: u32,
    pub status: u32,
}

/// NVOS64: RM_ALLOC, long form (the one libcuda uses).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Nvos64 {
    pub root: u32,
    pub parent: u32,
    pub new: u32,
    pub class: u32,
    pub params: u64,
    pub rights: u64,
    pub params_size: u32,
    pub flags: u32,
    pub status: u32,
    pub pad: u32,
}

/// NVOS33 with fd: RM_MAP_MEMORY.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Nvos33Fd {
    pub client: u32,
    pub device: u32,
    pub memory: u32,
    pub pad: u32,
    pub offset: u64,
    pub length: u64,
    /// Out: bus or kernel address.
    pub linear: u64,
    pub status: u32,
    pub flags: u32,
    pub fd: i32,
    pub pad2: u32,
}

/// NVOS34: RM_UNMAP_MEMORY.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Nvos34 {
    pub client: u32,
    pub device: u32,
    pub memory: u32,
    pub pad: u32,
    pub linear: u64,
    pub status: u32,
    pub flags: u32,
}

/// NVOS54: RM_CONTROL.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Nvos54 {
    pub client: u32,
    pub object: u32,
    pub cmd: u32,
    pub flags: u32,
    pub params: u64,
    pub params_size: u32,
    pub status: u32,
}

/// NVOS55: RM_DUP_OBJECT.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Nvos55 {
    pub client: u32,
    pub parent: u32,
    pub object: u32,
    pub client_src: u32,
    pub object_src: u32,
    pub flags: u32,
    pub status: u32,
}

/// The part of NV_CHANNEL_ALLOC_PARAMS (368 bytes in 570 and 580) that every version shares.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ChannelAlloc {
    pub error_object: u32,
    pub buffer_object: u32,
    /// GPU virtual address of the GPFIFO.
    pub gpfifo: u64,
    pub entries: u32,
    pub flags: u32,
    pub context_share: u32,
    pub va_space: u32,
    pub userd_memory: [u32; 8],
    pub userd_offset: [u64; 8],
    pub engine_type: u32,
    pub cid: u32,
}

/// NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN: out u32 token.
pub const CTRL_WORK_SUBMIT_TOKEN: u32 = 0xc36f_0108;

/// True for a GPFIFO channel class (KEPLER to BLACKWELL: 0x..6F with a channel-group interface).
pub const fn is_channel_class(class: u32) -> bool {
    matches!(class, 0xa06f | 0xa16f | 0xb06f | 0xc06f | 0xc36f | 0xc46f | 0xc56f | 0xc86f | 0xc96f | 0xca6f)
}

/// True for a usermode (doorbell) class.
pub const fn is_usermode_class(class: u32) -> bool {
    matches!(class, 0xc361 | 0xc461 | 0xc561 | 0xc661 | 0xc761)
}

/// KEPLER_CHANNEL_GROUP_A
pub const CLASS_CHANNEL_GROUP: u32 = 0xa06c;
