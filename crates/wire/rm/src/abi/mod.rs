//! The kernel driver's ABI: ioctl numbers and their structs. No code, no state, no std.
//!
//! Each struct is declared once, with every field that any driver branch has; which of them a branch lacks is in
//! [`BRANCHES`], chosen by [`Abi`]. Source: open-gpu-kernel-modules (`nvos.h`, `nv_escape.h`,
//! `nv-unix-nvos-params-wrappers.h`, `nv-ioctl.h`). Sizes and offsets are checked against `tests/abi.tsv`.

mod branch;
pub mod control;
mod params;
mod plain;
mod shape;
pub mod uvm;
mod version;

pub use branch::{BRANCHES, Branch, Layouts, Source, USUAL};
pub use control::CTRL_WORK_SUBMIT_TOKEN;
pub use params::*;
pub use plain::Plain;
pub(crate) use plain::plain_struct;
pub use shape::{Cuts, Shape};
#[cfg(feature = "std")]
pub(crate) use shape::{compact, expand};
pub use version::{Abi, Standing, UNVERIFIED_DRIVER, UnknownDriver};

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

/// Bytes of allocation parameters: the declared size or, if the caller declared 0 (libcuda does), the size that the driver uses for the class.
pub const fn alloc_params_size(branch: &Branch, class: u32, declared: u32) -> u32 {
    if declared != 0 {
        return declared;
    }
    match class {
        0x0 | 0x1 | 0x41 => 4,
        0x80 => 56,
        0x2080 => 4,
        0x90f1 => 48,
        0x40 | 0x3e => branch.layouts.memory_alloc.size() as u32,
        CLASS_CHANNEL_GROUP => 32,
        c if is_channel_class(c) => 168,
        0xc661 | 0xc761 => 2,
        _ => 0,
    }
}

/// `notify_index` of an event object. Source: `nvos.h` (flags), `cl2080_notification.h` (numbers).
pub mod event {
    /// Of the non-stall interrupts of all engines' channels.
    pub const FIFO_EVENT_MTHD: u32 = 35;
    /// By the non-stall interrupt alone. The event's parent is a sub-device.
    pub const NONSTALL_INTR: u32 = 0x0800_0000;
    /// Nothing is kept to be read.
    pub const WITHOUT_EVENT_DATA: u32 = 0x1000_0000;
}

/// RM ioctl numbers (`nv_escape.h`, `nv-ioctl-numbers.h`).
pub mod nr {
    pub const ALLOC_MEMORY: u32 = 0x27;
    pub const FREE: u32 = 0x29;
    pub const CONTROL: u32 = 0x2a;
    pub const ALLOC: u32 = 0x2b;
    pub const DUP_OBJECT: u32 = 0x34;
    pub const SHARE: u32 = 0x35;
    pub const IDLE_CHANNELS: u32 = 0x41;
    pub const VID_HEAP_CONTROL: u32 = 0x4a;
    pub const ACCESS_REGISTRY: u32 = 0x4d;
    pub const MAP_MEMORY: u32 = 0x4e;
    pub const UNMAP_MEMORY: u32 = 0x4f;
    pub const GET_EVENT_DATA: u32 = 0x52;
    pub const ALLOC_CONTEXT_DMA2: u32 = 0x54;
    pub const MAP_MEMORY_DMA: u32 = 0x57;
    pub const UNMAP_MEMORY_DMA: u32 = 0x58;
    pub const BIND_CONTEXT_DMA: u32 = 0x59;
    pub const EXPORT_OBJECT_TO_FD: u32 = 0x5c;
    pub const IMPORT_OBJECT_FROM_FD: u32 = 0x5d;
    pub const UPDATE_DEVICE_MAPPING_INFO: u32 = 0x5e;
    pub const CARD_INFO: u32 = 200;
    pub const REGISTER_FD: u32 = 201;
    pub const ALLOC_OS_EVENT: u32 = 206;
    pub const FREE_OS_EVENT: u32 = 207;
    pub const STATUS_CODE: u32 = 209;
    pub const CHECK_VERSION_STR: u32 = 210;
    pub const IOCTL_XFER_CMD: u32 = 211;
    pub const ATTACH_GPUS_TO_FD: u32 = 212;
    pub const QUERY_DEVICE_INTR: u32 = 213;
    pub const SYS_PARAMS: u32 = 214;
    pub const EXPORT_TO_DMABUF_FD: u32 = 217;
    pub const WAIT_OPEN_COMPLETE: u32 = 218;

    /// The call's name, as in the driver without its `NV_ESC_`.
    pub const fn name(nr: u32) -> Option<&'static str> {
        Some(match nr {
            ALLOC_MEMORY => "RM_ALLOC_MEMORY",
            FREE => "RM_FREE",
            CONTROL => "RM_CONTROL",
            ALLOC => "RM_ALLOC",
            DUP_OBJECT => "RM_DUP_OBJECT",
            SHARE => "RM_SHARE",
            IDLE_CHANNELS => "RM_IDLE_CHANNELS",
            VID_HEAP_CONTROL => "RM_VID_HEAP_CONTROL",
            ACCESS_REGISTRY => "RM_ACCESS_REGISTRY",
            MAP_MEMORY => "RM_MAP_MEMORY",
            UNMAP_MEMORY => "RM_UNMAP_MEMORY",
            GET_EVENT_DATA => "RM_GET_EVENT_DATA",
            ALLOC_CONTEXT_DMA2 => "RM_ALLOC_CONTEXT_DMA2",
            MAP_MEMORY_DMA => "RM_MAP_MEMORY_DMA",
            UNMAP_MEMORY_DMA => "RM_UNMAP_MEMORY_DMA",
            BIND_CONTEXT_DMA => "RM_BIND_CONTEXT_DMA",
            EXPORT_OBJECT_TO_FD => "RM_EXPORT_OBJECT_TO_FD",
            IMPORT_OBJECT_FROM_FD => "RM_IMPORT_OBJECT_FROM_FD",
            UPDATE_DEVICE_MAPPING_INFO => "RM_UPDATE_DEVICE_MAPPING_INFO",
            CARD_INFO => "CARD_INFO",
            REGISTER_FD => "REGISTER_FD",
            ALLOC_OS_EVENT => "ALLOC_OS_EVENT",
            FREE_OS_EVENT => "FREE_OS_EVENT",
            STATUS_CODE => "STATUS_CODE",
            CHECK_VERSION_STR => "CHECK_VERSION_STR",
            IOCTL_XFER_CMD => "IOCTL_XFER_CMD",
            ATTACH_GPUS_TO_FD => "ATTACH_GPUS_TO_FD",
            QUERY_DEVICE_INTR => "QUERY_DEVICE_INTR",
            SYS_PARAMS => "SYS_PARAMS",
            EXPORT_TO_DMABUF_FD => "EXPORT_TO_DMABUF_FD",
            WAIT_OPEN_COMPLETE => "WAIT_OPEN_COMPLETE",
            _ => return None,
        })
    }
}

plain_struct! {
    /// NVOS00: RM_FREE.
    pub struct Nvos00 = 16 {
        pub root: u32,
        pub parent: u32,
        pub old: u32,
        pub status: u32,
    }

    /// NVOS02 with fd: RM_ALLOC_MEMORY.
    pub struct Nvos02Fd = 56 {
        pub root: u32,
        pub parent: u32,
        pub new: u32,
        pub class: u32,
        /// [`nvos02`] flags.
        pub flags: u32,
        pub pad: u32,
        /// In for class 0x71: address of the user pages to pin. Out else.
        pub memory: u64,
        /// Size minus one.
        pub limit: u64,
        pub status: u32,
        pub pad2: u32,
        pub fd: i32,
        pub pad3: u32,
    }

    /// NVOS21: RM_ALLOC, short form.
    pub struct Nvos21 = 32 {
        pub root: u32,
        pub parent: u32,
        pub new: u32,
        pub class: u32,
        pub params: u64,
        pub params_size: u32,
        pub status: u32,
    }

    /// NVOS64: RM_ALLOC, long form (the one libcuda uses).
    pub struct Nvos64 = 48 {
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

    /// NVOS32: RM_VID_HEAP_CONTROL. `data` is a union by `function`: [`HeapAlloc`], [`HeapOsDescriptor`], [`HeapFree`].
    pub struct Nvos32 = 184 {
        pub root: u32,
        pub parent: u32,
        /// One of [`heap`].
        pub function: u32,
        pub va_space: u32,
        pub ivc_heap: i16,
        pub pad: u16,
        pub status: u32,
        pub total: u64,
        pub free: u64,
        pub data: [u64; 18],
    }

    /// NVOS32 `data` for [`heap::ALLOC_SIZE`].
    pub struct HeapAlloc = 120 {
        pub owner: u32,
        pub memory: u32,
        pub kind: u32,
        pub flags: u32,
        /// [`attr`] fields.
        pub attr: u32,
        pub format: u32,
        pub compression_coverage: u32,
        pub zcull_coverage: u32,
        pub partition_stride: u32,
        pub width: u32,
        pub height: u32,
        pub pad: u32,
        pub size: u64,
        pub alignment: u64,
        pub offset: u64,
        pub limit: u64,
        pub address: u64,
        pub range_begin: u64,
        pub range_end: u64,
        pub attr2: u32,
        pub ctag_offset: u32,
        pub numa_node: i32,
        pub pad2: u32,
    }

    /// NVOS32 `data` for [`heap::ALLOC_OS_DESCRIPTOR`].
    pub struct HeapOsDescriptor = 48 {
        pub memory: u32,
        pub kind: u32,
        pub flags: u32,
        pub attr: u32,
        pub attr2: u32,
        pub pad: u32,
        pub descriptor: u64,
        /// Size minus one.
        pub limit: u64,
        pub descriptor_type: u32,
        pub pad2: u32,
    }

    /// NVOS32 `data` for [`heap::FREE`].
    pub struct HeapFree = 12 {
        pub owner: u32,
        pub memory: u32,
        pub flags: u32,
    }

    /// NVOS33 with fd: RM_MAP_MEMORY.
    pub struct Nvos33Fd = 56 {
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
    pub struct Nvos34 = 32 {
        pub client: u32,
        pub device: u32,
        pub memory: u32,
        pub pad: u32,
        pub linear: u64,
        pub status: u32,
        pub flags: u32,
    }

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

    /// NVOS47: RM_UNMAP_MEMORY_DMA.
    pub struct Nvos47 = 48 {
        pub client: u32,
        pub device: u32,
        pub dma: u32,
        pub memory: u32,
        pub flags: u32,
        pub pad: u32,
        pub dma_offset: u64,
        /// 0 unmaps the whole mapping.
        pub size: u64,
        pub status: u32,
        pub pad2: u32,
    }

    /// NVOS54: RM_CONTROL.
    pub struct Nvos54 = 32 {
        pub client: u32,
        pub object: u32,
        pub cmd: u32,
        pub flags: u32,
        pub params: u64,
        pub params_size: u32,
        pub status: u32,
    }

    /// NVOS55: RM_DUP_OBJECT.
    pub struct Nvos55 = 28 {
        pub client: u32,
        pub parent: u32,
        pub object: u32,
        pub client_src: u32,
        pub object_src: u32,
        pub flags: u32,
        pub status: u32,
    }

    /// REGISTER_FD: ties a `/dev/nvidiaN` descriptor to the client's `/dev/nvidiactl`.
    pub struct RegisterFd = 4 {
        pub ctl_fd: i32,
    }

    /// ALLOC_OS_EVENT and FREE_OS_EVENT (`nv_ioctl_alloc_os_event_t`, `nv_ioctl_free_os_event_t`).
    pub struct OsEvent = 16 {
        pub client: u32,
        pub device: u32,
        pub fd: u32,
        pub status: u32,
    }

    /// One element of CARD_INFO (`nv_ioctl_card_info_t`); the call takes an array, its size is in the request.
    pub struct CardInfo = 72 {
        pub valid: u8,
        pub pad: [u8; 3],
        pub domain: u32,
        pub bus: u8,
        pub slot: u8,
        pub function: u8,
        pub pad2: u8,
        pub vendor_id: u16,
        pub device_id: u16,
        pub gpu_id: u32,
        pub interrupt_line: u16,
        pub pad3: u16,
        pub reg_address: u64,
        pub reg_size: u64,
        /// BAR1.
        pub fb_address: u64,
        pub fb_size: u64,
        /// N of `/dev/nvidiaN`.
        pub minor: u32,
        pub dev_name: [u8; 10],
        pub pad4: u16,
    }

    /// CHECK_VERSION_STR (`nv_ioctl_rm_api_version_t`).
    pub struct CheckVersion = 72 {
        /// [`CheckVersion::STRICT`], `RELAXED` or `QUERY`.
        pub cmd: u32,
        pub reply: u32,
        /// NUL-terminated, as `580.159.04`.
        pub version: [u8; 64],
    }
}

impl CheckVersion {
    pub const STRICT: u32 = 0;
    pub const RELAXED: u32 = b'1' as u32;
    /// The kernel writes its own version into the string.
    pub const QUERY: u32 = b'2' as u32;
    pub const UNRECOGNIZED: u32 = 0;
    pub const RECOGNIZED: u32 = 1;

    /// The version up to its NUL, or `None` if it is not text.
    pub fn text(&self) -> Option<&str> {
        let end = self.version.iter().position(|&b| b == 0).unwrap_or(self.version.len());
        core::str::from_utf8(&self.version[..end]).ok()
    }
}

/// NVOS32 functions.
pub mod heap {
    pub const ALLOC_SIZE: u32 = 2;
    pub const FREE: u32 = 3;
    pub const INFO: u32 = 5;
    /// Takes [`super::HeapAlloc`]'s start with other fields in between; not decoded.
    pub const ALLOC_TILED_PITCH_HEIGHT: u32 = 6;
    pub const ALLOC_SIZE_RANGE: u32 = 14;
    pub const ALLOC_OS_DESCRIPTOR: u32 = 27;
}

/// NVOS02 flags (RM_ALLOC_MEMORY), already shifted.
pub mod nvos02 {
    pub const PHYSICALITY_NONCONTIGUOUS: u32 = 1 << 4;
    /// LOCATION 11:8.
    pub const LOCATION_PCI: u32 = 0;
    pub const LOCATION_VIDMEM: u32 = 2 << 8;
    pub const LOCATION_MASK: u32 = 0xf << 8;
    /// COHERENCY 15:12.
    pub const COHERENCY_CACHED: u32 = 1 << 12;
    pub const COHERENCY_WRITE_COMBINE: u32 = 2 << 12;
    pub const COHERENCY_WRITE_BACK: u32 = 5 << 12;
    /// MAPPING 31:30.
    pub const MAPPING_NO_MAP: u32 = 1 << 30;
}

/// NVOS33 flags (RM_MAP_MEMORY), already shifted.
pub mod nvos33 {
    pub const ACCESS_READ_ONLY: u32 = 1;
    pub const ACCESS_WRITE_ONLY: u32 = 2;
    pub const MEM_SPACE_USER: u32 = 1 << 14;
    pub const MAPPING_DIRECT: u32 = 1 << 15;
    pub const FIFO_MAPPING_ENABLE: u32 = 1 << 17;
    /// CACHING_TYPE 25:23.
    pub const CACHING_UNCACHED: u32 = 1 << 23;
    pub const CACHING_WRITECOMBINED: u32 = 2 << 23;
    pub const CACHING_DEFAULT: u32 = 6 << 23;
}

/// `attr` of memory allocations (NVOS32_ATTR), already shifted.
pub mod attr {
    /// PAGE_SIZE 24:23.
    pub const PAGE_SIZE_4K: u32 = 1 << 23;
    pub const PAGE_SIZE_BIG: u32 = 2 << 23;
    pub const PAGE_SIZE_HUGE: u32 = 3 << 23;
    /// LOCATION 26:25.
    pub const LOCATION_MASK: u32 = 3 << 25;
    pub const LOCATION_VIDMEM: u32 = 0;
    pub const LOCATION_PCI: u32 = 1 << 25;
    pub const LOCATION_ANY: u32 = 3 << 25;
    /// PHYSICALITY 28:27.
    pub const PHYSICALITY_NONCONTIGUOUS: u32 = 1 << 27;
    pub const PHYSICALITY_CONTIGUOUS: u32 = 2 << 27;
    pub const PHYSICALITY_ALLOW_NONCONTIGUOUS: u32 = 3 << 27;
    /// COHERENCY 31:29.
    pub const COHERENCY_CACHED: u32 = 1 << 29;
    pub const COHERENCY_WRITE_COMBINE: u32 = 2 << 29;
    pub const COHERENCY_WRITE_BACK: u32 = 5 << 29;
}

/// `flags` of memory allocations (NVOS32_ALLOC_FLAGS).
pub mod alloc_flags {
    pub const IGNORE_BANK_PLACEMENT: u32 = 0x1;
    pub const FORCE_MEM_GROWS_UP: u32 = 0x2;
    pub const FIXED_ADDRESS_ALLOCATE: u32 = 0x10;
    pub const ALIGNMENT_HINT: u32 = 0x80;
    pub const ALIGNMENT_FORCE: u32 = 0x100;
    pub const MEMORY_HANDLE_PROVIDED: u32 = 0x4000;
    pub const MAP_NOT_REQUIRED: u32 = 0x8000;
    pub const PERSISTENT_VIDMEM: u32 = 0x1_0000;
    pub const VIRTUAL: u32 = 0x8_0000;
}

/// True for a GPFIFO channel class (KEPLER to BLACKWELL: 0x..6F with a channel-group interface).
pub const fn is_channel_class(class: u32) -> bool {
    matches!(class, 0xa06f | 0xa16f | 0xb06f | 0xc06f | 0xc36f | 0xc46f | 0xc56f | 0xc76f | 0xc86f | 0xc96f | 0xca6f)
}

/// True for a usermode (doorbell) class.
pub const fn is_usermode_class(class: u32) -> bool {
    matches!(class, 0xc361 | 0xc461 | 0xc561 | 0xc661 | 0xc761)
}

/// KEPLER_CHANNEL_GROUP_A
pub const CLASS_CHANNEL_GROUP: u32 = 0xa06c;
