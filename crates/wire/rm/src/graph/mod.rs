//! The objects that a program has made in the kernel driver, learnt only from its calls.
//!
//! Pass it every driver call in order, made by doorbell or read from a recording. It then answers what memory is at a GPU address, which channel a
//! doorbell value rings, and where a page is mapped. A call that failed changes nothing. A freed object stays listed with the time of its end
//! until [`ObjectGraph::forget_freed`].
//! [`crate::fact`] interprets the calls; the graph keeps the result. The graph never panics, on any input, and makes no system call.

mod apply;
mod forget;
mod intervals;
mod living;
mod mapping;
mod objects;
mod query;
#[cfg(test)]
mod tests;
mod tree;

pub use objects::{
    Channel, ChannelId, CpuMapping, GpuMapping, Located, Memory, MemoryId, Moment, Object, ObjectId, ObjectKind,
    Target, Userd, UsermodePage,
};
pub use tree::TreeNode;

pub use crate::call::FileKind;
pub use crate::place::Place;

use crate::abi::Branch;
use intervals::Intervals;
use objects::External;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// An ioctl, as it was when it returned.
#[derive(Clone, Copy, Debug)]
pub struct IoctlRecord<'a> {
    pub fd: i32,
    pub file: FileKind,
    pub request: u64,
    /// What ioctl returned.
    pub ret: i32,
    pub arg: &'a [u8],
    /// What RM_ALLOC's and RM_CONTROL's `params` pointed to.
    pub nested: &'a [u8],
}

/// An mmap.
#[derive(Clone, Copy, Debug, Default)]
pub struct MmapRecord {
    /// The address of the mapping; all ones if it failed.
    pub addr: u64,
    pub len: u64,
    pub offset: u64,
    pub fd: i32,
    pub prot: u32,
    pub flags: u32,
}

/// An open file description: what descriptors that were duplicated share.
#[derive(Clone, Debug, Default)]
struct File {
    kind: FileKind,
    /// Descriptors that refer to it.
    fds: u32,
    /// What RM_MAP_MEMORY or RM_ALLOC_MEMORY bound to it: target and offset. Stays for later mmaps.
    bound: Option<(Target, u64)>,
    /// Clients that were made through it and are freed with it.
    clients: Vec<u32>,
}

/// The objects of one process.
#[derive(Clone, Debug, Default)]
pub struct ObjectGraph {
    now: Moment,
    /// Number of objects and files after the last [`ObjectGraph::forget_all_freed`].
    remembered: usize,
    objects: Vec<Object>,
    live: HashMap<(u32, u32), ObjectId>,
    memories: Vec<Memory>,
    channels: Vec<Channel>,
    /// Those of them that are alive: what a call may change.
    alive: BTreeSet<ChannelId>,
    /// The latest channel of each client and handle.
    latest: HashMap<(u32, u32), ChannelId>,
    tokens: HashMap<u32, Vec<ChannelId>>,
    pages: Vec<UsermodePage>,
    files: Vec<File>,
    fds: HashMap<i32, usize>,
    cpu: Intervals<CpuMapping>,
    external: Intervals<External>,
    /// RM mappings by their address space: two spaces may use the same addresses.
    spaces_dma: HashMap<(u32, u32), Intervals<External>>,
    /// UVM's mappings on each GPU: two GPUs may map different memory at the same address.
    on_gpu: Vec<([u8; 16], Intervals<External>)>,
    /// Device instance and UUID of the GPUs whose address spaces were registered with UVM.
    instances: Vec<(u32, [u8; 16])>,
    /// External ranges and pools that UVM was asked for: base to length.
    ranges: BTreeMap<u64, u64>,
    /// GPUs registered with UVM.
    gpus: Vec<[u8; 16]>,
    /// VA spaces registered with UVM: client, handle, GPU.
    va_spaces: Vec<(u32, u32, [u8; 16])>,
    /// The UVM file that they were registered through.
    spaces: Option<usize>,
    driver_version: Option<String>,
    /// The branch of the driver's version, or the branch that a reader set before the version was known.
    branch: Option<&'static Branch>,
}
