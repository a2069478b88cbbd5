//! The source of the stand-in's memory.

use std::any::Any;
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Device { ordinal: i32 },
    Managed,
    Pinned,
    Registered,
}

pub struct Block {
    pub kind: Kind,
    pub bytes: usize,
    /// CUDA's number of the allocation, which is never used twice.
    pub number: u64,
    /// Keeps the memory alive, and mapped for the GPU.
    pub _keep: Keep,
}

/// Frees the memory when dropped.
pub type Keep = Box<dyn Any + Send>;
pub type Source = Box<dyn FnMut(Kind, u64, usize) -> (u64, Keep) + Send>;
/// The source of device and pinned memory, if not the heap. Also told of registered memory: the address is its, 0 for other kinds.
pub static SOURCE: Mutex<Option<Source>> = Mutex::new(None);

/// Bytes of the mapping that small blocks share, and of the largest small block.
const CHUNK: u64 = 2 << 20;
pub const SMALL: u64 = 64 << 10;

/// Memory as CUDA allocates it. Blocks of device memory of up to [`SMALL`] bytes share a mapping, which stays when they are
/// freed. They are given out again, the lowest first. Larger blocks, and host memory, each have their own driver allocation.
pub fn blocks(of: &Arc<gpu::AddressSpace>) -> Source {
    let (of, chunk) = (of.clone(), of.alloc_video(CHUNK).unwrap());
    let free: Arc<Mutex<BTreeSet<u64>>> = Arc::new(Mutex::new((0..CHUNK / SMALL).map(|n| n * SMALL).collect()));
    Box::new(move |kind, at, bytes| {
        if let Some(at) = NonNull::new(at as *mut u8) {
            // SAFETY: registered memory stays until it is unregistered.
            let memory = unsafe { of.adopt_host(at, bytes as u64, Arc::new(())) }.unwrap();
            return (memory.va(), Box::new(memory) as Keep);
        }
        let device = matches!(kind, Kind::Device { .. });
        let small = if device && bytes as u64 <= SMALL { free.lock().unwrap().pop_first() } else { None };
        if let Some(offset) = small {
            let keep = Small { chunk: chunk.clone(), free: free.clone(), offset };
            return (chunk.va() + offset, Box::new(keep) as Keep);
        }
        let memory = if device { of.alloc_video(bytes as u64) } else { of.alloc_host(bytes as u64) }.unwrap();
        (memory.va(), Box::new(memory) as Keep)
    })
}

/// A small block, which is free again on drop, without a driver call.
struct Small {
    #[allow(dead_code, reason = "kept alive")]
    chunk: Arc<gpu::Memory>,
    free: Arc<Mutex<BTreeSet<u64>>>,
    offset: u64,
}

impl Drop for Small {
    fn drop(&mut self) {
        self.free.lock().unwrap().insert(self.offset);
    }
}
