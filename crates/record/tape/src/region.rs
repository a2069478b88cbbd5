//! The memory that agent and recorder share: one file (the recorder's memfd) laid out as
//!
//! | offset | what |
//! |---|---|
//! | 0 | [`Control`]: one page of settings and counters |
//! | [`IDENTITY_AT`] | [`Identity`]: who the process is |
//! | [`SLOTS_AT`] | [`SLOTS`] channel slots: what the agent knows of each channel, readable after the program died |
//! | [`TABLE_AT`] | one [`RingEntry`] a ring: who owns it |
//! | [`SHADOW_AT`] | shadow pages: what lies at the program's GPFIFO and USERD addresses instead of GPU memory |
//! | [`STAMPS_AT`] | where the GPU writes when kernels ended: see [`crate::stamp`] |
//! | [`RINGS_AT`] | the rings, each a page of [`RingHead`] and its events: see [`crate::rings`] |
//!
//! The agent maps the first [`FIXED_BYTES`] when it attaches, and the rest piece by piece when it is needed: shadow pages with a
//! channel, a ring with its thread. So a program that locks its memory (mlockall) or limits its address space does not pay for parts
//! that it does not use. The recorder does the same.
//!
//! Invariant: every field that both sides write is atomic; each has one writer, named at the field.

use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// "DRBLRGN1"
pub const MAGIC: u64 = u64::from_le_bytes(*b"DRBLRGN1");
/// Changes whenever a layout here or in `event` changes; agent and recorder must agree.
pub const VERSION: u32 = 10;

/// x86-64's page: agent and recorder run only there. The file of a recording has no pages and its reader does not map it, so machines
/// with any page size read it.
pub const PAGE: usize = 4096;
/// Channels followed at a time (slots of freed channels are used again).
pub const SLOTS: usize = 512;
pub const IDENTITY_AT: usize = PAGE;
pub const SLOTS_AT: usize = IDENTITY_AT + size_of::<Identity>();
/// Rings of the small size: threads that are alive and have recorded something.
pub const SMALL: usize = 2048;
/// Rings of the large size: threads among them that record much.
pub const LARGE: usize = 256;
pub const RINGS: usize = SMALL + LARGE;
pub const TABLE_AT: usize = SLOTS_AT + SLOTS * size_of::<Slot>();
pub const TABLE_BYTES: usize = RINGS * size_of::<RingEntry>();
/// Mapped as a whole: control page, slots and the table of rings.
pub const FIXED_BYTES: usize = (TABLE_AT + TABLE_BYTES).next_multiple_of(PAGE);
pub const SHADOW_AT: usize = FIXED_BYTES;
/// Bytes of shadow pages: 12 KiB a channel of 1024 entries.
pub const SHADOW_BYTES: usize = 16 << 20;
pub const STAMPS_AT: usize = SHADOW_AT + SHADOW_BYTES;
pub const STAMPS_BYTES: usize = crate::stamp::SLOTS as usize * size_of::<crate::stamp::Slot>();
/// After them: the agent's copies of segments, with its own words added.
pub const SEGMENTS_AT: usize = STAMPS_AT + STAMPS_BYTES;
pub const SEGMENTS_BYTES: usize = 4 << 20;
pub const RINGS_AT: usize = SEGMENTS_AT + SEGMENTS_BYTES;

/// How doorbells are tapped.
pub mod tap {
    /// Sites are rewritten where that is safe.
    pub const AUTO: u32 = 0;
    pub const TRAP: u32 = 1;
    /// Driver calls only.
    pub const OFF: u32 = 3;
}

/// What is on the tape besides driver calls and commands: bits.
pub mod contents {
    /// Operations of locks.
    pub const LOCKS: u32 = 1;
    /// The program's and its threads' names stay off the tape (`--no-args`).
    pub const NO_NAMES: u32 = 2;
    /// CUDA's calls.
    pub const CALLS: u32 = 4;
    /// With [`CALLS`]: the Python frames that make them.
    pub const PYTHON: u32 = 8;
    /// Ranges and marks of NVTX.
    pub const NVTX: u32 = 16;
    /// When kernels end: the GPU writes it down.
    pub const GPU_TIMES: u32 = 32;
    /// With [`LOCKS`]: only waits and the holds that caused them.
    pub const WAITS: u32 = 64;
}

/// What happens when a ring is full.
pub mod on_full {
    /// Count a gap and go on.
    pub const GAP: u32 = 0;
    /// Wait for the recorder.
    pub const WAIT: u32 = 1;
}

/// When the program is recorded. The program itself may begin or end a pause at any time, whatever this is.
pub mod capture {
    /// From its start on.
    pub const ALWAYS: u32 = 0;
    /// Not before the program requests it.
    pub const CALL: u32 = 1;
    /// From cudaProfilerStart to cudaProfilerStop.
    pub const PROFILER: u32 = 2;
    /// The user switches it on and off: SIGUSR2 to the recorder.
    pub const SIGNAL: u32 = 3;
    /// While a range of NVTX with a certain text is open: [`crate::session::Session::range`].
    pub const RANGE: u32 = 4;
    /// Requests at the recorder's control socket switch it on and off.
    pub const ATTACH: u32 = 5;
}

/// Page 0. Two groups on separate cache lines: settings that the tap reads, and counters of the agent.
#[repr(C)]
pub struct Control {
    pub magic: u64,
    pub version: u32,
    /// [`tap`]; set by the recorder before the program starts.
    pub tap: u32,
    /// [`on_full`]; set by the recorder.
    pub on_full: u32,
    /// Bytes of a large ring, a power of two; set by the recorder.
    pub ring_bytes: u32,
    /// The process that has claimed the region, by its own getpid. Agent.
    pub pid: AtomicI32,
    /// 1 when the recorder takes no more events (disk full, limit reached): taps record no more. Recorder.
    pub stopped: AtomicU32,
    /// [`contents`]; set by the recorder before the program starts.
    pub contents: u32,
    /// Bytes of a small ring, a power of two; set by the recorder.
    pub small_bytes: u32,
    /// Counts the pauses' beginnings and ends: odd while only driver calls are recorded. Agent and recorder, each by
    /// [`Control::pause`].
    pub pauses: AtomicU32,
    /// [`capture`]; set by the recorder before the program starts.
    pub capture: u32,
    _pad0: [u32; 20],
    /// 1 after an agent has started, 2 when it has finished (its last events are in the rings). Agent.
    pub state: AtomicU32,
    /// Small rings claimed so far (highest index + 1). Agent.
    pub rings: AtomicU32,
    /// Sites rewritten. Agent.
    pub patched: AtomicU32,
    /// Why the agent gave up a strategy: bits of [`trouble`]. Agent.
    pub trouble: AtomicU32,
    /// Doorbells seen by traps, and by rewritten sites, for channels that have ended (live ones count in their slot). Agent.
    pub trapped: AtomicU64,
    pub tapped: AtomicU64,
    /// Doorbells whose token no known channel has. Agent.
    pub strangers: AtomicU64,
    /// Events lost because no ring was free. Agent.
    pub ringless: AtomicU64,
    /// Large rings claimed so far (highest number among the large ones + 1). Agent.
    pub large_rings: AtomicU32,
    /// Threads that kept a small ring, or had none, because the memory for rings was used up. Agent.
    pub no_memory: AtomicU64,
    /// Children that the process started through libc. Agent.
    pub children: AtomicU64,
    /// What /proc/PID/stat had when the program began: minor faults of children that the process had waited for before
    /// (it was another program then), and the address of its stack. Agent.
    pub child_faults: AtomicU64,
    pub start_stack: AtomicU64,
    /// The name there; empty if the program has named itself. Agent.
    pub name: [AtomicU8; NAME],
    /// 1 while the process replaces itself by another program through libc. Agent.
    pub in_exec: AtomicU32,
    /// Doorbells that were rung during pauses. Agent.
    pub paused_rings: AtomicU64,
    /// Time stamp counter when the latest pause began. Agent or recorder, whichever began it.
    pub paused_at: AtomicU64,
    /// The state of Python frames: one of [`crate::python::state`]. Agent.
    pub python: AtomicU32,
    /// Kernels stamped so far. Agent.
    pub stamped: AtomicU64,
    /// Kernels without a stamp because all slots were in use. Agent.
    pub slots_full: AtomicU64,
    /// Kernels without a stamp because the program uses the words itself. Agent.
    pub words_in_use: AtomicU64,
    /// Kernels without a stamp because the agent does not know their QMD's version. Agent.
    pub other_version: AtomicU64,
    /// Kernels without a stamp because the GPU may have been reading them: their channel has no shadow. Agent.
    pub no_shadow: AtomicU64,
    /// Kernels without a stamp because CUPTI was active. Agent.
    pub by_cupti: AtomicU64,
    /// Kernels whose end was given up. Recorder, before it counts them in `settled`.
    pub given_up: AtomicU64,
    /// The ends of all kernels below this number are on the tape, or never will be: their slots are free. Recorder.
    pub settled: AtomicU64,
}

impl Control {
    /// Begins or ends a pause. False if that state is set already.
    pub fn pause(&self, pause: bool, tsc: u64) -> bool {
        let now = self.pauses.load(Ordering::Relaxed);
        if (now & 1 == 1) == pause {
            return false;
        }
        if pause {
            self.paused_at.store(tsc, Ordering::Relaxed);
        }
        // Only one of two simultaneous calls succeeds.
        self.pauses.compare_exchange(now, now.wrapping_add(1), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// Bytes of a process's name, with a NUL after it (TASK_COMM_LEN).
pub const NAME: usize = 16;
/// Bytes of a process's identity.
pub const EXE: usize = 1024;
pub const ARGS: usize = 6144;
pub const ENVIRON: usize = 1000;

/// The process's identity, from itself: the recorder may be too late to read it in /proc. All zero if the agent left it out. Agent,
/// before it stores 1 in [`Control::state`].
#[repr(C)]
pub struct Identity {
    /// Bytes that are used of each.
    pub exe_len: AtomicU32,
    pub args_len: AtomicU32,
    pub environ_len: AtomicU32,
    _pad: [u32; 3],
    /// The target of the link /proc/self/exe.
    pub exe: [AtomicU8; EXE],
    /// As /proc/self/cmdline: a NUL after each; cut where there is no more room.
    pub args: [AtomicU8; ARGS],
    /// The variables of [`IN_ENVIRON`] from the environment at the start, with a NUL after each.
    pub environ: [AtomicU8; ENVIRON],
}

/// Variables in which launchers pass which part of a job a process is.
pub const IN_ENVIRON: [&str; 12] = [
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK",
    "MPI_LOCALRANKID",
    "PMI_SIZE",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NTASKS",
];

const _: () = assert!(size_of::<Identity>() == 2 * PAGE);

pub mod trouble {
    /// An instruction that touched a doorbell page could not be decoded; the page was opened and is no longer tapped.
    pub const UNDECODED: u32 = 1;
    /// The second mapping of a doorbell page failed: not tapped.
    pub const NO_SECOND_MAPPING: u32 = 2;
    /// A ring in GPU memory could not be shadowed; read through BAR1 instead.
    pub const NO_SHADOW: u32 = 4;
    /// A fixed table was full (channels, pages, mappings, memories).
    pub const TABLE_FULL: u32 = 8;
    /// membarrier or mprotect of code was refused: sites continue to trap.
    pub const NO_PATCH: u32 = 16;
    /// The driver's layout of a channel's struct differs from its branch's: the channel layout is not trusted, no doorbell is tapped.
    pub const UNKNOWN_DRIVER: u32 = 32;
    /// A page of a library could not be written: calls of CUDA are missing.
    pub const NO_CALLS: u32 = 64;
    /// The program disabled the time stamp counter for itself: locks and calls are not recorded from then on.
    pub const NO_TSC: u32 = 128;
    /// The program forbade itself system calls that a new thread's ring or new code needs.
    pub const CONFINED: u32 = 256;
    /// A CUDA function has more variants than the table has entries: calls of the others are missing.
    pub const CALLS_FULL: u32 = 512;
    /// A library was opened with a separate scope or namespace: its locks and calls bypass the agent.
    pub const BYPASSED: u32 = 1024;
    /// The table lacks the driver's version. The agent checked its structs by driver calls.
    pub const NEW_DRIVER: u32 = 2048;
    /// The driver's layout of UVM's structs differs from its branch's: calls of UVM were not read.
    pub const UNKNOWN_UVM: u32 = 4096;
    /// More kernels were launched than are looked up by name.
    pub const NAMES_FULL: u32 = 8192;
    /// More Python stacks than are remembered: each of the others is on the tape once for each call.
    pub const STACKS_FULL: u32 = 16384;
    /// More texts of NVTX were registered than are kept: in forked children, and after a pause, some are missing.
    pub const TEXTS_FULL: u32 = 32768;
    /// A copy of NVTX uses the program's own injection library, or has unknown tables: its ranges are missing.
    pub const NO_RANGES: u32 = 65536;
}

/// One channel, as the agent follows it. All fields are written by the agent, under the slot's claim or in the cold zone.
#[repr(C, align(128))]
pub struct Slot {
    /// 0 free, 1 in use, 2 ended and not yet used again, 3 ended and never used again.
    pub state: AtomicU32,
    pub token: AtomicU32,
    pub client: AtomicU32,
    pub handle: AtomicU32,
    /// Rings waiting for the tap; the thread that raises it from 0 is the owner.
    pub claim: AtomicU32,
    /// GP_PUT as last seen.
    pub put: AtomicU32,
    pub entries_total: AtomicU64,
    pub rings_total: AtomicU64,
    /// Those of them that trapped.
    pub trapped_total: AtomicU64,
    /// Entries that were seen but not recorded (gaps).
    pub lost: AtomicU64,
    /// Offset of this channel's shadow USERD page in the region, 0 if it has none. GP_PUT is there at +0x8C.
    pub shadow_userd: AtomicU64,
    /// With a shadow: where the process maps the USERD that the GPU reads, else 0. GP_GET is there at +0x88.
    pub real_userd: AtomicU64,
    /// Counts the uses of this slot.
    pub generation: AtomicU32,
    pub entries: AtomicU32,
}

/// One ring's entry. It is not in the ring's memory, so that a search for a free ring does not touch that.
#[repr(C, align(64))]
#[derive(Default)]
pub struct RingEntry {
    /// Low half: the thread that owns it, 0 if it is free. High half: counts its owners. Agent; the recorder clears the
    /// low half of a dead owner.
    pub owner: AtomicU64,
    /// 1 when its memory is taken from the session's. The side that takes it.
    pub backed: AtomicU32,
}

const _: () = assert!(size_of::<RingEntry>() == 64);

/// First page of a ring.
#[repr(C, align(128))]
pub struct RingHead {
    /// Bytes ever published. Agent.
    pub head: AtomicU64,
    _pad0: [u64; 15],
    /// Bytes ever taken. Recorder.
    pub tail: AtomicU64,
    _pad1: [u64; 15],
    /// Thread that writes, or wrote last. [`RingEntry`] has the ring's owner. Agent.
    pub tid: AtomicI32,
    /// Events, entries and bytes lost so far because the ring was full. Agent.
    pub gap_events: AtomicU64,
    pub gap_entries: AtomicU64,
    pub gap_bytes: AtomicU64,
    /// Their values when its owner claimed the ring. Agent.
    pub gap_before: [AtomicU64; 3],
    /// `gap_events` as of the owner's last GAP event. Agent.
    pub gap_noted: AtomicU64,
    /// Counts the threads that have owned this ring. Agent.
    pub generation: AtomicU32,
    /// How many rings the thread has used before this one. Agent.
    pub ordinal: AtomicU32,
    /// The process, by its own number. Agent.
    pub pid: AtomicI32,
    /// Calls that were too short to be written ([`crate::call::Function::is_brief`]), of all its owners. Agent.
    pub short_calls: AtomicU64,
}

/// Where in a ring's first page its [`LockTable`] is.
pub const LOCKS_AT: usize = 1024;
/// Locks that a thread can hold at a time and still have each of them written as one event.
pub const HELD: usize = 32;

/// The locks that a thread holds and waits for. In shared memory, so that they outlive a killed program. Agent.
#[repr(C)]
pub struct LockTable {
    /// Rows of `held` that are in use, the latest last.
    pub n: AtomicU32,
    /// 1 while the thread waits for `waiting`.
    pub waits: AtomicU32,
    pub waiting: HeldLock,
    pub held: [HeldLock; HELD],
}

/// A lock that is held, or waited for.
#[repr(C)]
#[derive(Default)]
pub struct HeldLock {
    pub addr: AtomicU64,
    /// Return address of the call.
    pub site: AtomicU64,
    /// When it was taken, or when the wait began; 0 while the thread waits for a condition with this mutex.
    pub since: AtomicU64,
    /// Ticks that it took to get it, or [`HeldLock::open`], as `flags` says.
    pub wait: AtomicU64,
    /// Flags of the event, see [`crate::lock`], and [`HeldLock::LONG`].
    pub flags: AtomicU32,
    /// The call's result, if `flags` has [`HeldLock::LONG`].
    pub result: AtomicI32,
}

impl HeldLock {
    /// `wait` and `result` are not both 0.
    pub const LONG: u32 = 1 << 16;
    /// Taken without reading the clock: `since` is no begin, `wait` is [`HeldLock::open`].
    pub const OPEN: u32 = 1 << 17;

    /// `wait` of a lock that was taken without reading the clock. `turn`: how many threads had begun to wait in the lock's place of the
    /// agent's table. `call`: the number of the CUDA call, 0 for none.
    #[inline(always)]
    pub const fn open(turn: u32, call: u32) -> u64 {
        turn as u64 | (call as u64) << 32
    }

    /// As an event: its flags and its body. `waiting`: 1 for the lock that a thread waits for.
    pub fn event(&self, waiting: u32) -> (u16, crate::lock::HeldBody) {
        let flags = self.flags.load(Ordering::Relaxed);
        let long = flags & HeldLock::LONG != 0;
        let is_open = waiting == crate::lock::left::HELD && flags & HeldLock::OPEN != 0;
        let body = crate::lock::HeldBody {
            addr: self.addr.load(Ordering::Relaxed),
            site: self.site.load(Ordering::Relaxed),
            since: if is_open { 0 } else { self.since.load(Ordering::Relaxed) },
            wait: if long || is_open { self.wait.load(Ordering::Relaxed) } else { 0 },
            result: if long { self.result.load(Ordering::Relaxed) } else { 0 },
            waiting: if is_open { crate::lock::left::OPEN } else { waiting },
        };
        (flags as u16, body)
    }
}

/// Where in a ring's first page its [`CallRow`] is.
pub const CALL_AT: usize = 3072;

/// The CUDA call that a thread is in. In shared memory, so that it outlives a killed program. Agent.
#[repr(C, align(64))]
#[derive(Default)]
pub struct CallRow {
    /// The function's number; 0 while the thread is in none.
    pub function: AtomicU32,
    /// [`crate::call::flag`]
    pub flags: AtomicU32,
    pub began: AtomicU64,
    pub site: AtomicU64,
    pub stream: AtomicU64,
    pub object: AtomicU64,
    pub size: AtomicU64,
    /// Handle of the last kernel that was passed to the driver in it; 0 if none was.
    pub kernel: AtomicU64,
    /// [`crate::call::CallBody::seq`]
    pub seq: AtomicU32,
    /// [`crate::call::CallBody::python`]
    pub python: AtomicU32,
}

impl CallRow {
    /// The call that the thread is in, as an event: the function and its body. `None` if it is in none.
    pub fn event(&self) -> Option<(u16, crate::call::CallBody)> {
        let function = u16::try_from(self.function.load(Ordering::Relaxed)).ok().filter(|f| *f != 0)?;
        let body = crate::call::CallBody {
            began: self.began.load(Ordering::Relaxed),
            site: self.site.load(Ordering::Relaxed),
            stream: self.stream.load(Ordering::Relaxed),
            object: self.object.load(Ordering::Relaxed),
            size: self.size.load(Ordering::Relaxed),
            result: 0,
            flags: self.flags.load(Ordering::Relaxed) as u16,
            inner: 0,
            seq: self.seq.load(Ordering::Relaxed),
            python: self.python.load(Ordering::Relaxed),
            ..crate::call::CallBody::default()
        };
        Some((function, body))
    }
}

const _: () = assert!(LOCKS_AT + size_of::<LockTable>() <= CALL_AT && CALL_AT + size_of::<CallRow>() <= PAGE);
const _: () = assert!(size_of::<Control>() <= PAGE && size_of::<RingHead>() <= LOCKS_AT);
const _: () = assert!(LOCKS_AT + size_of::<LockTable>() <= PAGE);
const _: () = assert!(SHADOW_AT.is_multiple_of(PAGE) && RINGS_AT.is_multiple_of(PAGE));
