//! UVM ioctls: plain numbers without a size, so a wrong struct is not noticed by the kernel.
//!
//! Source: `uvm_ioctl.h`, `uvm_linux_ioctl.h`, `uvm_types.h`; see [`super::BRANCHES`] for the fields that each branch lacks.

use super::{Branch, Plain, plain_struct};

pub const INITIALIZE: u64 = 0x3000_0001;
pub const DEINITIALIZE: u64 = 0x3000_0002;
pub const REGISTER_GPU_VASPACE: u64 = 25;
pub const UNREGISTER_GPU_VASPACE: u64 = 26;
pub const REGISTER_CHANNEL: u64 = 27;
pub const UNREGISTER_CHANNEL: u64 = 28;
pub const ENABLE_PEER_ACCESS: u64 = 29;
pub const DISABLE_PEER_ACCESS: u64 = 30;
pub const MAP_EXTERNAL_ALLOCATION: u64 = 33;
pub const FREE: u64 = 34;
pub const REGISTER_GPU: u64 = 37;
pub const UNREGISTER_GPU: u64 = 38;
pub const PAGEABLE_MEM_ACCESS: u64 = 39;
pub const MIGRATE: u64 = 51;
pub const MAP_DYNAMIC_PARALLELISM_REGION: u64 = 65;
pub const UNMAP_EXTERNAL: u64 = 66;
pub const ALLOC_SEMAPHORE_POOL: u64 = 68;
pub const VALIDATE_VA_RANGE: u64 = 72;
pub const CREATE_EXTERNAL_RANGE: u64 = 73;
pub const MAP_EXTERNAL_SPARSE: u64 = 74;
pub const MM_INITIALIZE: u64 = 75;

/// Bytes of the last fields of UVM_MAP_EXTERNAL_ALLOCATION_PARAMS: [`MapExternalTail`].
const TAIL: usize = size_of::<MapExternalTail>();
/// Bytes of its first fields, one GPU's attributes included, and of one GPU's attributes.
const HEAD: usize = 60;
const ATTRIBUTES: usize = size_of::<GpuMapping>();
/// In a recording: its first 60 and its last 24 bytes.
pub const MAP_EXTERNAL_SHORT_SIZE: usize = HEAD + TAIL;

/// What a recording keeps of a UVM_MAP_EXTERNAL_ALLOCATION argument. `None` if it is not there as a whole.
pub fn map_external_short(branch: &Branch, arg: &[u8]) -> Option<[u8; MAP_EXTERNAL_SHORT_SIZE]> {
    let size = branch.layouts.uvm_map_external.size();
    let mut short = [0; MAP_EXTERNAL_SHORT_SIZE];
    let (head, tail) = short.split_at_mut(HEAD);
    head.copy_from_slice(arg.get(..HEAD)?);
    tail.copy_from_slice(arg.get(size - TAIL..size)?);
    Some(short)
}

/// UUID of the n-th GPU of UVM_MAP_EXTERNAL_ALLOCATION, counted from 0; `None` where the struct is not there as a whole.
pub fn map_external_gpu(arg: &[u8], n: usize) -> Option<[u8; 16]> {
    let gpus = arg.len().checked_sub(HEAD - ATTRIBUTES + TAIL)? / ATTRIBUTES;
    // A short form has room for one.
    if n >= gpus || gpus < 2 {
        return None;
    }
    arg.get(HEAD - ATTRIBUTES + ATTRIBUTES * n..)?.first_chunk().copied()
}

/// The call's name, as `UVM_REGISTER_GPU`.
pub const fn name(request: u64) -> Option<&'static str> {
    Some(match request {
        INITIALIZE => "UVM_INITIALIZE",
        DEINITIALIZE => "UVM_DEINITIALIZE",
        REGISTER_GPU_VASPACE => "UVM_REGISTER_GPU_VASPACE",
        UNREGISTER_GPU_VASPACE => "UVM_UNREGISTER_GPU_VASPACE",
        REGISTER_CHANNEL => "UVM_REGISTER_CHANNEL",
        UNREGISTER_CHANNEL => "UVM_UNREGISTER_CHANNEL",
        ENABLE_PEER_ACCESS => "UVM_ENABLE_PEER_ACCESS",
        DISABLE_PEER_ACCESS => "UVM_DISABLE_PEER_ACCESS",
        MAP_EXTERNAL_ALLOCATION => "UVM_MAP_EXTERNAL_ALLOCATION",
        FREE => "UVM_FREE",
        REGISTER_GPU => "UVM_REGISTER_GPU",
        UNREGISTER_GPU => "UVM_UNREGISTER_GPU",
        PAGEABLE_MEM_ACCESS => "UVM_PAGEABLE_MEM_ACCESS",
        MIGRATE => "UVM_MIGRATE",
        MAP_DYNAMIC_PARALLELISM_REGION => "UVM_MAP_DYNAMIC_PARALLELISM_REGION",
        UNMAP_EXTERNAL => "UVM_UNMAP_EXTERNAL",
        ALLOC_SEMAPHORE_POOL => "UVM_ALLOC_SEMAPHORE_POOL",
        VALIDATE_VA_RANGE => "UVM_VALIDATE_VA_RANGE",
        CREATE_EXTERNAL_RANGE => "UVM_CREATE_EXTERNAL_RANGE",
        MAP_EXTERNAL_SPARSE => "UVM_MAP_EXTERNAL_SPARSE",
        MM_INITIALIZE => "UVM_MM_INITIALIZE",
        _ => return None,
    })
}

/// Where a request's struct has its status, for those that take something away.
pub const fn status_offset(branch: &Branch, request: u64) -> Option<usize> {
    match request {
        FREE => branch.layouts.uvm_free.offset(16),
        UNMAP_EXTERNAL => Some(32),
        UNREGISTER_GPU_VASPACE => Some(16),
        _ => None,
    }
}

/// Bytes of a request's struct, which its number does not carry; 0 for requests whose arguments are not looked at.
pub const fn size(branch: &Branch, request: u64) -> usize {
    match request {
        INITIALIZE => size_of::<Initialize>(),
        MM_INITIALIZE => size_of::<MmInitialize>(),
        REGISTER_GPU => size_of::<RegisterGpu>(),
        UNREGISTER_GPU | UNREGISTER_GPU_VASPACE => size_of::<UnregisterGpu>(),
        REGISTER_GPU_VASPACE => size_of::<RegisterGpuVaspace>(),
        REGISTER_CHANNEL => size_of::<RegisterChannel>(),
        UNREGISTER_CHANNEL => branch.layouts.uvm_unregister_channel.size(),
        FREE => branch.layouts.uvm_free.size(),
        CREATE_EXTERNAL_RANGE => size_of::<Range>(),
        UNMAP_EXTERNAL => size_of::<GpuRange>(),
        MAP_EXTERNAL_ALLOCATION => branch.layouts.uvm_map_external.size(),
        ALLOC_SEMAPHORE_POOL => branch.layouts.uvm_semaphore_pool.size(),
        _ => 0,
    }
}

/// The call's name, or `UVM call` where it has none here.
pub const fn full_name(request: u64) -> &'static str {
    match name(request) {
        Some(n) => n,
        None => "UVM call",
    }
}

plain_struct! {
    /// UVM_INITIALIZE_PARAMS
    pub struct Initialize = 16 {
        /// [`Initialize::DISABLE_HMM`], [`Initialize::MULTI_PROCESS_SHARING`].
        pub flags: u64,
        pub status: u32,
        pub pad: u32,
    }

    /// UVM_MM_INITIALIZE_PARAMS
    pub struct MmInitialize = 8 {
        pub uvm_fd: i32,
        pub status: u32,
    }

    /// UVM_REGISTER_GPU_PARAMS
    pub struct RegisterGpu = 40 {
        pub uuid: [u8; 16],
        pub numa_enabled: u8,
        pub pad: [u8; 3],
        pub numa_node: i32,
        /// -1 unless the GPU is partitioned.
        pub ctl_fd: i32,
        pub client: u32,
        pub partition: u32,
        pub status: u32,
    }

    /// UVM_UNREGISTER_GPU_PARAMS and UVM_UNREGISTER_GPU_VASPACE_PARAMS
    pub struct UnregisterGpu = 20 {
        pub uuid: [u8; 16],
        pub status: u32,
    }

    /// UVM_REGISTER_GPU_VASPACE_PARAMS
    pub struct RegisterGpuVaspace = 32 {
        pub uuid: [u8; 16],
        pub ctl_fd: i32,
        pub client: u32,
        pub va_space: u32,
        pub status: u32,
    }

    /// UVM_REGISTER_CHANNEL_PARAMS
    pub struct RegisterChannel = 56 {
        pub uuid: [u8; 16],
        pub ctl_fd: i32,
        pub client: u32,
        pub channel: u32,
        pub pad: u32,
        /// A free window of GPU addresses for the channel's context buffers; unused for copy channels.
        pub base: u64,
        pub length: u64,
        pub status: u32,
        pub pad2: u32,
    }

    /// UVM_UNREGISTER_CHANNEL_PARAMS
    pub struct UnregisterChannel = 28 {
        pub uuid: [u8; 16],
        pub client: u32,
        pub channel: u32,
        pub status: u32,
    }

    /// UVM_CREATE_EXTERNAL_RANGE_PARAMS, and UVM_FREE_PARAMS
    pub struct Range = 24 {
        pub base: u64,
        pub length: u64,
        pub status: u32,
        pub pad: u32,
    }

    /// UVM_UNMAP_EXTERNAL_PARAMS, UVM_MAP_EXTERNAL_SPARSE_PARAMS, UVM_MAP_DYNAMIC_PARALLELISM_REGION_PARAMS
    pub struct GpuRange = 40 {
        pub base: u64,
        pub length: u64,
        pub uuid: [u8; 16],
        pub status: u32,
        pub pad: u32,
    }

    /// UvmGpuMappingAttributes
    pub struct GpuMapping = 36 {
        pub uuid: [u8; 16],
        /// [`GpuMapping::READ_WRITE_ATOMIC`] and its neighbours.
        pub mapping: u32,
        pub caching: u32,
        pub format: u32,
        pub element_bits: u32,
        pub compression: u32,
    }

    /// UVM_MAP_EXTERNAL_ALLOCATION_PARAMS
    pub struct MapExternal = 9264 {
        pub base: u64,
        pub length: u64,
        /// In the memory object.
        pub offset: u64,
        pub gpus: [GpuMapping; 256],
        pub gpu_count: u64,
        pub ctl_fd: i32,
        pub client: u32,
        pub memory: u32,
        pub status: u32,
    }

    /// UVM_ALLOC_SEMAPHORE_POOL_PARAMS
    pub struct SemaphorePool = 9248 {
        pub base: u64,
        pub length: u64,
        pub gpus: [GpuMapping; 256],
        pub gpu_count: u64,
        pub status: u32,
        pub pad: u32,
    }

    /// The first 60 bytes of UVM_MAP_EXTERNAL_ALLOCATION_PARAMS: up to the first GPU's attributes.
    pub struct MapExternalHead = 64 {
        pub base: u64,
        pub length: u64,
        pub offset: u64,
        pub gpu: GpuMapping,
        /// Not the kernel's: keeps the words aligned.
        pub pad: u32,
    }

    /// The last 24 bytes of UVM_MAP_EXTERNAL_ALLOCATION_PARAMS.
    pub struct MapExternalTail = 24 {
        pub gpu_count: u64,
        pub ctl_fd: i32,
        pub client: u32,
        pub memory: u32,
        pub status: u32,
    }
}

impl Initialize {
    pub const DISABLE_HMM: u64 = 1;
    pub const MULTI_PROCESS_SHARING: u64 = 2;
}

impl GpuMapping {
    pub const DEFAULT: u32 = 0;
    pub const READ_WRITE_ATOMIC: u32 = 1;
    pub const READ_WRITE: u32 = 2;
    pub const READ_ONLY: u32 = 3;
}

/// Splits a recorded UVM_MAP_EXTERNAL_ALLOCATION argument, whole or in short form. `None` if it is neither.
pub fn map_external(branch: &Branch, arg: &[u8]) -> Option<(MapExternalHead, MapExternalTail)> {
    let whole = branch.layouts.uvm_map_external.size();
    let tail_at = match arg.len() {
        n if n >= whole => whole - TAIL,
        MAP_EXTERNAL_SHORT_SIZE => HEAD,
        _ => return None,
    };
    Some((MapExternalHead::read_short(arg.get(..HEAD)?), MapExternalTail::read(arg.get(tail_at..)?)?))
}
