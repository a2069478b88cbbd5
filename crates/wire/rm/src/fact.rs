//! What driver calls mean for objects, memory and address spaces: the rules, in one place for every reader.
//!
//! This module decides which call creates an object, frees one, duplicates one, maps memory or names a channel's token, and where each driver
//! branch keeps the fields. Each reader decides what to keep: the agent keeps fixed tables for its taps, [`crate::graph`] keeps everything. Nothing
//! here allocates or panics.

use crate::abi::{self, Branch, control, nvos02, uvm};
use crate::call::{Alloc, Call, Control, ExternalGpus, HeapOp, VidHeap, work_submit_token};
use crate::class;
use crate::place::Place;

/// The meaning of one successful call. Objects are named by their client and handle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fact<'a> {
    Created(Created),
    /// The object, and all below it, is gone. A client's own handle (`handle == client`) takes everything of the client.
    Freed {
        client: u32,
        handle: u32,
    },
    /// `client`, `handle` is one more name for the object that `source` names.
    Duplicated {
        client: u32,
        parent: u32,
        handle: u32,
        source: (u32, u32),
    },
    /// The next mmap of `fd` shows this object, from `offset` on.
    Bound {
        fd: i32,
        client: u32,
        handle: u32,
        offset: u64,
    },
    /// The channel's doorbell is rung with `token`.
    Token {
        client: u32,
        channel: u32,
        token: u32,
    },
    /// The channel runs on this engine (NV2080_ENGINE_TYPE).
    EngineOf {
        client: u32,
        channel: u32,
        engine_type: u32,
    },
    ChannelScheduled {
        client: u32,
        channel: u32,
    },
    GroupScheduled {
        client: u32,
        group: u32,
    },
    /// RM mapped memory into an address space: `space` names it, or a range of virtual memory in it.
    MappedInSpace {
        client: u32,
        space: u32,
        memory: u32,
        base: u64,
        length: u64,
        offset: u64,
    },
    /// RM unmapped `length` bytes at `base`. 0: to the end of the mapping that is there.
    UnmappedInSpace {
        client: u32,
        space: u32,
        base: u64,
        length: u64,
    },
    /// UVM mapped memory at a GPU address.
    MappedExternal(MappedExternal<'a>),
    /// UVM unmapped a range on one GPU.
    UnmappedExternal {
        base: u64,
        length: u64,
        gpu: [u8; 16],
    },
    /// UVM keeps this range of addresses for external mappings.
    RangeReserved {
        base: u64,
        length: u64,
    },
    /// UVM put a pool of semaphores there, in its own host memory.
    PoolCreated {
        base: u64,
        length: u64,
    },
    /// UVM freed the range that begins at `base`, whole; `length` may be 0.
    RangeFreed {
        base: u64,
        length: u64,
    },
    GpuRegistered([u8; 16]),
    GpuUnregistered([u8; 16]),
    /// UVM manages this address space on this GPU.
    SpaceRegistered {
        client: u32,
        space: u32,
        gpu: [u8; 16],
    },
    SpaceUnregistered([u8; 16]),
    /// The channel is registered with UVM; `window` is its base and length.
    ChannelRegistered {
        client: u32,
        channel: u32,
        window: (u64, u64),
    },
    ChannelUnregistered {
        client: u32,
        channel: u32,
    },
    /// The kernel driver's version, or the program's own, which the kernel has accepted.
    Version(abi::CheckVersion),
}

/// An object and the parameters of its allocation. For a client, `client` and `parent` are its own handle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Created {
    pub client: u32,
    pub parent: u32,
    pub handle: u32,
    pub class: u32,
    pub what: What,
}

/// What kind of object it is. Parameters that were not kept read as zeros.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    Client,
    Device {
        instance: u32,
    },
    Subdevice {
        index: u32,
    },
    VaSpace,
    /// `va_space`: handle of its address space, 0 for the device's own.
    Group {
        engine_type: u32,
        va_space: u32,
    },
    ContextShare {
        va_space: u32,
    },
    Channel(abi::ChannelAlloc),
    /// A doorbell page.
    Usermode {
        bar1: bool,
    },
    Memory(Memory),
    /// Anything else, engine objects among them. A copy engine may say which one it is.
    Other {
        engine_type: Option<u32>,
    },
}

/// A memory object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes; 0 if not known.
    pub size: u64,
    pub place: Place,
    /// CPU address of the program's own pages that it was made of.
    pub user_address: Option<u64>,
    /// The next mmap of this descriptor shows it.
    pub fd: Option<i32>,
    /// For a range of GPU addresses without memory: handle of its address space, 0 for the device's own.
    pub va_space: u32,
}

/// UVM_MAP_EXTERNAL_ALLOCATION.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedExternal<'a> {
    pub base: u64,
    pub length: u64,
    /// Into the memory.
    pub offset: u64,
    pub client: u32,
    pub memory: u32,
    pub gpus: ExternalGpus<'a>,
}

impl<'a> Fact<'a> {
    /// The fact in a call to a driver of this branch; `None` if it failed or contains no such fact. `ret` is what ioctl returned.
    pub fn of(branch: &Branch, call: &Call<'a>, ret: i32) -> Option<Fact<'a>> {
        if !call.succeeded(ret) {
            return None;
        }
        Some(match *call {
            Call::Alloc(ref a) => Fact::Created(created(branch, a)),
            Call::AllocMemory(ref a) => Fact::Created(host_memory(a)),
            Call::VidHeapControl(ref h) => heap(h)?,
            Call::Free(f) => Fact::Freed { client: f.root, handle: f.old },
            Call::DupObject(d) => Fact::Duplicated {
                client: d.client,
                parent: d.parent,
                handle: d.object,
                source: (d.client_src, d.object_src),
            },
            Call::MapMemory(m) if m.fd >= 0 => {
                Fact::Bound { fd: m.fd, client: m.client, handle: m.memory, offset: m.offset }
            }
            Call::Control(ref c) => fact_of_control(c)?,
            Call::MapMemoryDma(m) => Fact::MappedInSpace {
                client: m.client,
                space: m.dma,
                memory: m.memory,
                base: m.dma_offset,
                length: m.length,
                offset: m.offset,
            },
            Call::UnmapMemoryDma(m) => {
                Fact::UnmappedInSpace { client: m.client, space: m.dma, base: m.dma_offset, length: m.size }
            }
            Call::CheckVersion(v) => Fact::Version(v),
            Call::UvmRegisterGpu(g) => Fact::GpuRegistered(g.uuid),
            Call::UvmUnregisterGpu(g) => Fact::GpuUnregistered(g.uuid),
            Call::UvmRegisterGpuVaspace(v) => {
                Fact::SpaceRegistered { client: v.client, space: v.va_space, gpu: v.uuid }
            }
            Call::UvmUnregisterGpuVaspace(v) => Fact::SpaceUnregistered(v.uuid),
            Call::UvmRegisterChannel(c) => {
                Fact::ChannelRegistered { client: c.client, channel: c.channel, window: (c.base, c.length) }
            }
            Call::UvmUnregisterChannel(c) => Fact::ChannelUnregistered { client: c.client, channel: c.channel },
            Call::UvmCreateExternalRange(r) => Fact::RangeReserved { base: r.base, length: r.length },
            Call::UvmSemaphorePool { base, length, .. } => Fact::PoolCreated { base, length },
            Call::UvmMapExternal(m) => Fact::MappedExternal(MappedExternal {
                base: m.base,
                length: m.length,
                offset: m.offset,
                client: m.client,
                memory: m.memory,
                gpus: m.gpus,
            }),
            Call::UvmUnmapExternal(uvm::GpuRange { base, length, uuid, .. }) => {
                Fact::UnmappedExternal { base, length, gpu: uuid }
            }
            Call::UvmFree(r) => Fact::RangeFreed { base: r.base, length: r.length },
            // RM_UNMAP_MEMORY ends only the kernel's side: the program's mapping ends with its munmap.
            Call::MapMemory(_)
            | Call::UnmapMemory(_)
            | Call::RegisterFd(_)
            | Call::CardInfo(_)
            | Call::UvmInitialize(_)
            | Call::UvmMmInitialize(_)
            | Call::UvmOther { .. }
            | Call::Other { .. }
            | Call::Foreign { .. } => return None,
        })
    }
}

/// RM_ALLOC.
fn created(branch: &Branch, a: &Alloc<'_>) -> Created {
    let class = a.class;
    // A client's own handle is the new handle that the call returns; every other object is under `root`.
    if class::is_root(class) {
        return Created { client: a.new, parent: a.new, handle: a.new, class, what: What::Client };
    }
    let what = match class {
        class::NV01_DEVICE_0 => What::Device { instance: a.params::<abi::DeviceAlloc>().map_or(0, |p| p.device_id) },
        class::NV20_SUBDEVICE_0 => {
            What::Subdevice { index: a.params::<abi::SubdeviceAlloc>().map_or(0, |p| p.subdevice_id) }
        }
        class::FERMI_VASPACE_A => What::VaSpace,
        class::FERMI_CONTEXT_SHARE_A => {
            What::ContextShare { va_space: a.params::<abi::ContextShareAlloc>().map_or(0, |p| p.va_space) }
        }
        class::KEPLER_CHANNEL_GROUP_A => {
            let p = a.params::<abi::ChannelGroupAlloc>().unwrap_or_default();
            What::Group { engine_type: p.engine_type, va_space: p.va_space }
        }
        // If parameters were cut, only the channel's handle is known.
        c if abi::is_channel_class(c) => What::Channel(branch.layouts.channel_alloc.read_short(a.nested).client),
        c if abi::is_usermode_class(c) => {
            What::Usermode { bar1: a.params::<abi::UsermodeAlloc>().is_some_and(|p| p.bar1 != 0) }
        }
        c => match place_of_class(c) {
            Some(place) => {
                let p = branch.layouts.memory_alloc.read(a.nested);
                // Class 0x40 is used for every kind of memory; its attributes give the kind, with the values that the driver returned.
                let place = match p {
                    Some(p) if c == class::NV01_MEMORY_LOCAL_USER => place_of_attr(p.attr),
                    _ => place,
                };
                What::Memory(Memory {
                    size: p.map_or(0, |p| p.size),
                    place,
                    user_address: None,
                    fd: None,
                    va_space: p.map_or(0, |p| p.va_space),
                })
            }
            None => What::Other {
                engine_type: (class::is_copy(c))
                    .then(|| a.params::<abi::CopyAlloc>().filter(|p| p.version == 1).map(|p| p.engine_type))
                    .flatten(),
            },
        },
    };
    Created { client: a.root, parent: a.parent, handle: a.new, class, what }
}

/// RM_ALLOC_MEMORY.
fn host_memory(a: &abi::Nvos02Fd) -> Created {
    let place = match (place_of_class(a.class), a.flags & nvos02::LOCATION_MASK) {
        (Some(p), _) if p != Place::Unknown => p,
        (_, nvos02::LOCATION_VIDMEM) => Place::Video,
        (_, nvos02::LOCATION_PCI) => Place::Host,
        _ => Place::Unknown,
    };
    let user = a.class == class::NV01_MEMORY_SYSTEM_OS_DESCRIPTOR;
    Created {
        client: a.root,
        parent: a.parent,
        handle: a.new,
        class: a.class,
        what: What::Memory(Memory {
            size: a.limit.saturating_add(1),
            place,
            user_address: user.then_some(a.memory),
            // The call also prepares the mapping of other host memory.
            fd: (!user && a.fd >= 0).then_some(a.fd),
            va_space: 0,
        }),
    }
}

/// RM_VID_HEAP_CONTROL.
fn heap(h: &VidHeap) -> Option<Fact<'static>> {
    let (handle, class, memory) = match h.op {
        HeapOp::Alloc { memory, flags, attr, size, .. } => {
            let (class, place) = if flags & abi::alloc_flags::VIRTUAL != 0 {
                (class::NV50_MEMORY_VIRTUAL, Place::Unknown)
            } else {
                match place_of_attr(attr) {
                    Place::Host => (class::NV01_MEMORY_SYSTEM, Place::Host),
                    place => (class::NV01_MEMORY_LOCAL_USER, place),
                }
            };
            (memory, class, Memory { size, place, user_address: None, fd: None, va_space: h.va_space })
        }
        HeapOp::OsDescriptor { memory, descriptor, size } => {
            let of_program = Memory { size, place: Place::Host, user_address: Some(descriptor), fd: None, va_space: 0 };
            (memory, class::NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, of_program)
        }
        HeapOp::Free { memory } => return Some(Fact::Freed { client: h.root, handle: memory }),
        HeapOp::Other { .. } => return None,
    };
    Some(Fact::Created(Created { client: h.root, parent: h.parent, handle, class, what: What::Memory(memory) }))
}

/// RM_CONTROL.
fn fact_of_control(c: &Control<'_>) -> Option<Fact<'static>> {
    let (client, channel) = (c.client, c.object);
    Some(match c.cmd {
        control::CTRL_WORK_SUBMIT_TOKEN => Fact::Token { client, channel, token: work_submit_token(c)? },
        control::CHANNEL_BIND => {
            Fact::EngineOf { client, channel, engine_type: c.params::<control::Bind>()?.engine_type }
        }
        control::CHANNEL_SCHEDULE => Fact::ChannelScheduled { client, channel },
        control::GROUP_SCHEDULE => Fact::GroupScheduled { client, group: c.object },
        _ => return None,
    })
}

/// The place of memory, from NVOS32 and NV_MEMORY_ALLOCATION_PARAMS attributes.
fn place_of_attr(attr: u32) -> Place {
    match attr & abi::attr::LOCATION_MASK {
        abi::attr::LOCATION_VIDMEM => Place::Video,
        abi::attr::LOCATION_PCI => Place::Host,
        _ => Place::Unknown,
    }
}

/// The default place of each memory class.
fn place_of_class(class: u32) -> Option<Place> {
    Some(match class {
        // SYSTEM, OS_DESCRIPTOR, LIST_SYSTEM
        0x3e | 0x71 | 0x81 => Place::Host,
        // LOCAL_PRIVILEGED, LOCAL_USER, LIST_FBMEM, LOCAL_PHYSICAL, FABRIC, MULTICAST_FABRIC
        0x3f | 0x40 | 0x82 | 0xc2 | 0xf8 | 0xfd => Place::Video,
        // EXTENDED_USER, VIRTUAL, LIST_OBJECT, DEVICELESS, NV50_MEMORY_VIRTUAL, FLA, FABRIC_IMPORT
        0x42 | 0x70 | 0x83 | 0x90ce | 0x50a0 | 0xf3 | 0xf9 | 0xfb => Place::Unknown,
        _ => return None,
    })
}
