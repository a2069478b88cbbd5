//! What the graph holds: objects, memories, channels, doorbell pages, mappings.
//!
//! Ids are positions in lists that only grow, so an id stays good after its object was freed, until [`super::ObjectGraph::forget_freed`].

use super::intervals::Sliced;
use crate::class;
use crate::place::Place;

/// Position of an object in [`super::ObjectGraph::objects`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub usize);

/// Position of a memory in [`super::ObjectGraph::memories`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemoryId(pub usize);

/// Position of a channel in [`super::ObjectGraph::channels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub usize);

/// Counts the records that the graph was given: when something was made or freed.
pub type Moment = u64;

/// A handle that a client holds or held.
#[derive(Clone, Debug)]
pub struct Object {
    pub id: ObjectId,
    pub client: u32,
    pub handle: u32,
    /// Handle that was named as its parent.
    pub parent_handle: u32,
    /// The object with that handle, if its creation was seen.
    pub parent: Option<ObjectId>,
    /// 0 if it was duplicated from an object whose creation was not seen.
    pub class: u32,
    pub kind: ObjectKind,
    pub born: Moment,
    pub freed: Option<Moment>,
    pub(super) children: Vec<ObjectId>,
}

/// What is known of an object beyond its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    Client,
    /// `instance`: the GPU's device instance.
    Device {
        instance: u32,
    },
    Subdevice {
        index: u32,
    },
    VaSpace,
    Memory(MemoryId),
    /// A channel group: engine type, 0 if not known, and its address space, 0 for the device's own.
    Group {
        engine: u32,
        va_space: u32,
    },
    ContextShare {
        va_space: u32,
    },
    Channel(ChannelId),
    /// A usermode object: which of [`super::ObjectGraph::usermode_pages`].
    Usermode(usize),
    /// An engine class on a channel.
    Engine,
    Other,
}

impl Object {
    /// The class's name, or its number.
    pub fn class_name(&self) -> String {
        class::name(self.class).map_or_else(|| format!("class {:#06x}", self.class), str::to_owned)
    }
}

/// A memory object, under one or several handles.
#[derive(Clone, Debug)]
pub struct Memory {
    pub id: MemoryId,
    /// Client and handle that it was allocated under.
    pub client: u32,
    pub handle: u32,
    pub class: u32,
    /// Bytes; 0 if not known.
    pub size: u64,
    pub place: Place,
    /// CPU address of the pages it was made of, for user memory (class 0x71).
    pub user_address: Option<u64>,
    /// For a range of virtual memory: handle of its address space, 0 for the device's own.
    pub va_space: u32,
    pub born: Moment,
    /// When its last handle was freed. UVM mappings of it may outlive that.
    pub freed: Option<Moment>,
    pub(super) handles: u32,
}

/// A piece of a memory object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    pub place: Place,
    /// `None` for memory that belongs to UVM (semaphore pools, managed memory), and for memory whose creation was not seen.
    pub memory: Option<MemoryId>,
    /// Client and handle that named the memory; 0 if none did.
    pub client: u32,
    pub handle: u32,
    /// Bytes into the memory (into the range, where there is no memory).
    pub offset: u64,
    /// Bytes from here to the end of the mapping.
    pub rest: u64,
    /// Where the program sees the same byte.
    pub cpu: Option<u64>,
    /// UVM's managed memory: the place changes as it migrates.
    pub managed: bool,
}

/// USERD of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Userd {
    pub handle: u32,
    pub memory: Option<MemoryId>,
    pub offset: u64,
    pub place: Place,
    /// Where the program sees it; the last address known, if it was unmapped.
    pub cpu: Option<u64>,
    /// Its GPU virtual address, where it is mapped into the GPU's address space.
    pub gpu: Option<u64>,
}

/// A GPFIFO channel, alive or not.
#[derive(Clone, Debug)]
pub struct Channel {
    pub id: ChannelId,
    pub client: u32,
    pub handle: u32,
    pub class: u32,
    pub parent: u32,
    /// Handle of its channel group; `None` for a channel right under a device.
    pub group: Option<u32>,
    /// Device instance of its GPU.
    pub gpu: Option<u32>,
    /// GPU virtual address of the GPFIFO.
    pub gpfifo: u64,
    pub entries: u32,
    pub flags: u32,
    /// Runqueue 0 or 1 within the group (NVOS04 bit 4).
    pub runqueue: u32,
    pub userd: Option<Userd>,
    /// NV2080_ENGINE_TYPE, from the channel, its group or BIND, in this order; 0 if none of them gave it.
    pub engine: u32,
    pub context_share: Option<u32>,
    /// Its address space: its own, its context share's or its group's.
    pub va_space: Option<u32>,
    /// Memory of the error notifier.
    pub error_notifier: Option<u32>,
    /// Channel number that RM gave.
    pub cid: u32,
    /// Work-submit token: what its doorbell is rung with.
    pub token: Option<u32>,
    /// Registered with UVM: base and length of its window.
    pub uvm: Option<(u64, u64)>,
    /// The memory of the GPFIFO; the last place known.
    pub gpfifo_at: Option<Located>,
    /// Engine objects on it: handle, class.
    pub engines: Vec<(u32, u32)>,
    /// True once the channel or its group was scheduled.
    pub scheduled: bool,
    pub born: Moment,
    pub freed: Option<Moment>,
}

impl Channel {
    /// The runlist of the channel's doorbell: bits 22:16 of the token, from Ampere on; Volta and Turing leave them 0.
    pub fn runlist(&self) -> Option<u32> {
        self.token.map(|t| (t >> 16) & 0x7f)
    }

    /// Channel number on the runlist: bits 11:0 of the token.
    pub fn chid(&self) -> Option<u32> {
        self.token.map(|t| t & 0xfff)
    }

    /// The engine's name, `GRAPHICS` or `COPY2`, if it is known.
    pub fn engine_name(&self) -> Option<&'static str> {
        class::engine::name(self.engine)
    }

    pub fn alive(&self) -> bool {
        self.freed.is_none()
    }
}

/// A doorbell page.
#[derive(Clone, Debug)]
pub struct UsermodePage {
    pub client: u32,
    pub handle: u32,
    pub class: u32,
    /// Reached through BAR1, not BAR0.
    pub bar1: bool,
    /// Where the program mapped it last; all its mappings are [`super::ObjectGraph::cpu_ranges`].
    pub cpu: Option<u64>,
    pub freed: Option<Moment>,
}

/// What a CPU mapping shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Memory(MemoryId),
    /// Which of [`super::ObjectGraph::usermode_pages`].
    Usermode(usize),
    /// An RM object that the graph does not know.
    Object {
        client: u32,
        handle: u32,
    },
    /// Managed memory or a semaphore pool: a mapping of the UVM file.
    Uvm,
}

/// One CPU mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuMapping {
    pub target: Target,
    /// Offset of the mapping's first byte in the target.
    pub offset: u64,
    /// Descriptor it was mapped from.
    pub fd: i32,
    pub(super) file: usize,
}

impl Sliced for CpuMapping {
    fn advance(&mut self, by: u64) {
        self.offset = self.offset.wrapping_add(by);
    }
}

/// The memory of a range of GPU addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct External {
    pub backing: Backing,
    pub offset: u64,
    /// GPUs that it is mapped on; empty for RM mappings.
    pub gpus: Vec<[u8; 16]>,
    /// Device instance of the GPU that the memory was allocated on, if that is known.
    pub home: Option<u32>,
    /// For an RM mapping: client and handle of the address space.
    pub space: Option<(u32, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backing {
    Memory { client: u32, handle: u32, memory: Option<MemoryId> },
    SemaphorePool,
}

impl Sliced for External {
    fn advance(&mut self, by: u64) {
        self.offset = self.offset.wrapping_add(by);
    }
}

/// A mapping of GPU addresses, for listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuMapping {
    pub base: u64,
    pub length: u64,
    /// Client and handle named in the call; `None` for a semaphore pool.
    pub handle: Option<(u32, u32)>,
    pub memory: Option<MemoryId>,
    /// Into the memory.
    pub offset: u64,
    pub place: Place,
}
