//! Fixes: calls of CUDA's that the agent answers in another way with the same result, so that they hold no other thread up.
//!
//! [`Fixes`] has the requested ones, and the agent's counts of answered and of other calls. It is a part of the
//! [`Board`](crate::policy::Board) (`run --fix`) or of the [`Session`](crate::session::Session) (`record --fix`). Without doorbell
//! the agent makes one.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Pinned host memory is made by the driver's functions for virtual memory, which take no lock that launches need. A bit of
/// [`Fixes::wanted`].
pub const PINS: u32 = 1;
/// Copies of pageable memory go through pinned pieces of the agent's own.
pub const COPIES: u32 = 2;
/// Batches of copies are made by libdoorbell.
pub const PAGES: u32 = 4;
/// Code is compiled by another process first, which fills CUDA's cache.
pub const CODE: u32 = 8;
/// Large memory of the GPU is made by the driver's functions for virtual memory.
pub const MEMORY: u32 = 16;
pub const ALL: u32 = PINS | COPIES | PAGES | CODE | MEMORY;
pub const COUNT: usize = 5;
/// The kernels of a plan are loaded with their library ([`Kernels`]). It has no name: only a plan has kernels.
pub const KERNELS: u32 = 32;

/// As users write them, in the order of the bits.
pub const NAMES: [&str; COUNT] = ["pins", "copies", "pages", "code", "memory"];

/// The number of the fix that answers a function, by the driver's or the runtime's name for it. (Not registrations, which keep the lock
/// for a part of the time.)
pub fn of_call(name: &str) -> Option<usize> {
    match name {
        "cuMemHostAlloc" | "cuMemAllocHost" | "cuMemFreeHost" | "cudaHostAlloc" | "cudaMallocHost" | "cudaFreeHost" => {
            Some(0)
        }
        "cuMemcpy" | "cuMemcpyAsync" | "cuMemcpyHtoD" | "cuMemcpyHtoDAsync" | "cuMemcpyDtoH" | "cuMemcpyDtoHAsync"
        | "cudaMemcpy" | "cudaMemcpyAsync" => Some(1),
        "cuModuleLoad"
        | "cuModuleLoadData"
        | "cuModuleLoadDataEx"
        | "cuModuleLoadFatBinary"
        | "cuLibraryLoadData"
        | "cuLibraryLoadFromFile" => Some(3),
        "cuMemAlloc" | "cuMemFree" | "cudaMalloc" | "cudaFree" => Some(4),
        _ => None,
    }
}

/// Why a call was passed on unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Why {
    Rounding,
    Flags,
    Capture,
    Policy,
    Full,
    Driver,
    NotPageable,
    Range,
    OwnStream,
    Pages,
    Busy,
    Context,
    Failed,
    Off,
    DefaultStream,
    NotPinned,
    Library,
    NoText,
    NoCompiler,
    NoCache,
    Gpus,
    Shared,
}

impl Why {
    pub const COUNT: usize = 22;
    pub const TEXT: [&str; Why::COUNT] = [
        "rounding to 2 MiB would add more than 12 %",
        "write-combined, or with arguments that doorbell does not know",
        "while a stream is being captured",
        "a NUMA policy of the thread's, or nodes of unequal memory before driver 595",
        "more of them at a time than doorbell keeps track of",
        "the driver has no such memory here, or no more of it",
        "not between pageable memory and a GPU's",
        "memory of the GPU of several pieces, or of none",
        "asynchronous, in a non-blocking stream: CUDA holds nobody up",
        "pages that could not be made before",
        "another thread had what doorbell needs",
        "memory of another context",
        "the stream had an error",
        "the fix turned itself off",
        "in the default stream, which CUDA refuses",
        "not between pinned memory and a GPU's",
        "no libdoorbell was loaded, or it has no channels here",
        "code that CUDA does not compile",
        "no compiler: doorbell's process is gone, or CUDA could not start there",
        "CUDA's cache did not take the code",
        "more than one GPU: doorbell cannot see which copies between them need CUDA's own memory",
        "IPC, RDMA or synchronous copies (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) asked for memory that doorbell had made: CUDA may refuse them",
    ];
}

/// [`Count::turned_off`]: the program shares memory ([`Why::Shared`]).
pub const SHARED: u32 = u32::MAX;

/// The fixes that are wanted, and what became of their calls.
#[derive(Debug)]
#[repr(C)]
pub struct Fixes {
    /// Their bits.
    pub wanted: u32,
    /// The number of the compiler's socket ([`crate::compile::name`]); 0: there is none.
    pub compiler: u32,
    /// In the order of the bits.
    pub counts: [Count; COUNT],
}

/// What became of the calls of one fix.
#[derive(Debug)]
#[repr(C)]
pub struct Count {
    pub answered: AtomicU64,
    pub bytes: AtomicU64,
    /// By [`Why`].
    pub passed_on: [AtomicU64; Why::COUNT],
    /// The `CUresult` for which the fix turned itself off, plus 1; [`SHARED`]; 0 while it is on.
    pub turned_off: AtomicU32,
    pub pad: u32,
}

impl Fixes {
    /// As it is now.
    pub fn copied(&self) -> Fixes {
        let now = |n: &AtomicU64| AtomicU64::new(n.load(Ordering::Relaxed));
        let count = |of: &Count| Count {
            answered: now(&of.answered),
            bytes: now(&of.bytes),
            passed_on: of.passed_on.each_ref().map(now),
            turned_off: AtomicU32::new(of.turned_off.load(Ordering::Relaxed)),
            pad: 0,
        };
        Fixes { wanted: self.wanted, compiler: self.compiler, counts: self.counts.each_ref().map(count) }
    }

    /// The bits of fixes by their names, with commas between them; or the name that is none.
    ///
    /// # Errors
    /// That name.
    pub fn bits(list: &[u8]) -> Result<u32, &[u8]> {
        list.split(|b| *b == b',').map(<[u8]>::trim_ascii).try_fold(0, |bits, name| {
            let at = NAMES.iter().position(|n| n.as_bytes().eq_ignore_ascii_case(name));
            at.map(|at| bits | 1 << at).ok_or(name)
        })
    }
}

impl Count {
    pub fn answered(&self, bytes: u64) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn passed_on(&self, why: Why) {
        if let Some(count) = self.passed_on.get(why as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Kernels that are loaded as soon as their code is (`[[kernel]]` in a plan). A part of the [`Board`](crate::policy::Board).
#[repr(C)]
pub struct Kernels {
    pub count: u32,
    pub pad: u32,
    pub kernels: [Kernel; Kernels::MOST],
    pub names: [u8; Kernels::NAMES],
}

/// A kernel, and what became of it.
#[repr(C)]
pub struct Kernel {
    /// Of the code that was passed to CUDA: a fat binary, a cubin or a text. Of large code it has a part. Never 0.
    pub hash: u64,
    /// Where its name begins in the names; a NUL ends it.
    pub name: u32,
    /// One of [`loaded`].
    pub state: AtomicU32,
}

/// [`Kernel::state`].
pub mod loaded {
    /// No code with this hash was loaded.
    pub const NOT_SEEN: u32 = 0;
    pub const EARLY: u32 = 1;
    /// The code was loaded, but no context was current, or a stream was being captured.
    pub const NO_MOMENT: u32 = 2;
    /// The driver lacks a function for it, or there were more libraries without a moment than doorbell keeps.
    pub const NOT_POSSIBLE: u32 = 3;
    /// And the `CUresult` of a step.
    pub const FAILED: u32 = 0x1_0000;
}

impl Kernels {
    pub const MOST: usize = 1024;
    /// Bytes of all names.
    pub const NAMES: usize = 128 << 10;

    /// Those of this code, each with its name and the NUL after it. (The program may have written anything here.)
    pub fn of(&self, hash: u64) -> impl Iterator<Item = (&Kernel, &core::ffi::CStr)> {
        let all = self.kernels.get(..self.count as usize).unwrap_or(&[]);
        all.iter().filter(move |kernel| kernel.hash == hash).filter_map(|kernel| {
            let name = self.names.get(kernel.name as usize..)?;
            Some((kernel, core::ffi::CStr::from_bytes_until_nul(name).ok()?))
        })
    }
}
