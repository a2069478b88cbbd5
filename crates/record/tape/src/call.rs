//! Events of CUDA calls, which `record --calls` adds to a tape, and the calls by number.
//!
//! One event for each outermost call of a thread, written when it returns. Tapped calls that it makes itself
//! (`cuLaunchKernel` in `cudaLaunchKernel`) are only counted. The head's time stamp is that of the return, so that one
//! thread's events are in order. The head's flags are the function's [`Function::number`]. The ring has the thread, as for
//! locks. A lock of the same thread that was taken within `began..head.tsc` was taken inside the call.
//!
//! The first is a [`CallsBody`]. Tapes without calls do not have these.

use crate::fix;

mod others;
mod table;

/// Number of rows that are written by hand: the others' calls are recorded by less.
pub const ROWS: usize = table::ROWS.len();

static ALL: [Function; ROWS + others::OTHERS.len()] = {
    let mut all = [table::ROWS[0]; ROWS + others::OTHERS.len()];
    let mut n = 1;
    while n < all.len() {
        all[n] = if n < ROWS { table::ROWS[n] } else { answered(others::OTHERS[n - ROWS]) };
        n += 1;
    }
    all
};

/// The answer of a function without a row.
const fn answered(mut f: Function) -> Function {
    let all = table::ANSWERS_OF_OTHERS;
    let mut n = 0;
    while n < all.len() {
        if is_same(all[n].0, f.name) {
            f.answer = all[n].1;
        }
        n += 1;
    }
    f
}

/// All functions, in the order of their numbers.
pub const FUNCTIONS: &[Function] = &ALL;

/// Layout of the bodies here; in the first event. Changes whenever the meaning of one of them does. (A function more in
/// the table is no change: numbers are never used again. Nor are fields at the end of a body: an older one is read with
/// zeros there.)
pub const LAYOUT: u32 = 1;

/// Event kinds, in addition to those of [`crate::event::kind`].
pub mod kind {
    /// Calls are tapped from here on: [`CallsBody`](super::CallsBody).
    pub const CALLS: u16 = 48;
    /// A call that has returned: [`CallBody`](super::CallBody).
    pub const CALL: u16 = 49;
    /// A call that its thread or the recording ended in: [`CallBody`](super::CallBody) without result. Written by the
    /// recorder. The head's time stamp is when it noticed, the flags are the function.
    pub const IN_CALL: u16 = 50;
    /// The name of a kernel: [`NameBody`](super::NameBody). In the ring of the thread that launches it first, before that
    /// launch.
    pub const NAME: u16 = 51;
    /// The driver gave a table of functions without names: [`ExportTableBody`](super::ExportTableBody). Calls through it are not
    /// recorded.
    pub const EXPORT_TABLE: u16 = 55;
    /// Where a kernel's code may be: [`ObjectBody`](super::ObjectBody). After its name, when a graph with kernels was made.
    pub const OBJECT: u16 = 63;
    /// What a handle was made of: [`OriginBody`](super::OriginBody). After the call that gave the handle.
    pub const ORIGIN: u16 = 69;
}

/// Calls are tapped from here on. Before any other event here.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallsBody {
    /// [`LAYOUT`]
    pub layout: u32,
    pub pid: u32,
}

/// One call. Head: the time of its return; its flags are the function's number ([`Function::number`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallBody {
    /// Time stamp counter at its begin.
    pub began: u64,
    /// Return address of the call.
    pub site: u64,
    /// The stream handle that the caller passed: 0 default, 1 legacy, [`of_thread`] for a thread's own default stream (older tapes: 2,
    /// or 0 with [`flag::PER_THREAD`]), else a pointer. 0 where the function takes none. The stream that a call has made
    /// ([`Effect::MakesStream`]; 0 on older tapes).
    pub stream: u64,
    /// Its object, of the kind [`Function::object`]: a kernel function, a graph, an event, an address. Of a call that has made a
    /// stream: [`of_stream`].
    pub object: u64,
    /// Bytes that were copied, set or allocated; blocks of the grid for a launch of a kernel; how a stream compares a value; else 0.
    pub size: u64,
    /// Its result: `CUresult`, for the runtime `cudaError_t`. 0 is success, 600 'not ready' (a query).
    pub result: i32,
    /// Bits of [`flag`].
    pub flags: u16,
    /// Tapped calls that it made itself, 65535 for more.
    pub inner: u16,
    /// Counts the outermost calls of this thread, from 1: doorbells that it rings inside carry it
    /// ([`crate::event::RingBody::call`]). 0 on older tapes.
    pub seq: u32,
    /// The Python stack that made it: [`crate::python::StackBody::number`]. 0 if there was none, or if stacks were not
    /// requested; [`crate::python::LOST`] if it could not be written.
    pub python: u32,
    /// Where a copy reads from, or the value that a stream waits for or writes ([`Function::source_at`]). On the tape with such functions and batches alone, else 0.
    pub source: u64,
    /// Copies of a batch that has returned ([`Size::Copies`]), of which `object` and `source` are the first one's addresses.
    /// On the tape with batches alone, else 0.
    pub copies: u32,
    pub pad: u32,
}

/// The copies of a batch whose bytes are added up. To read more sizes would take the program's time.
pub const ADDED_UP: usize = 4096;

impl CallBody {
    /// Its bytes without the source, as words of a little-endian machine.
    #[inline(always)]
    pub const fn words(self) -> [u64; 7] {
        let sixth = self.result as u32 as u64 | (self.flags as u64) << 32 | (self.inner as u64) << 48;
        [
            self.began,
            self.site,
            self.stream,
            self.object,
            self.size,
            sixth,
            self.seq as u64 | (self.python as u64) << 32,
        ]
    }

    /// Its bytes without the number of copies.
    #[inline(always)]
    pub const fn words_with_source(self) -> [u64; 8] {
        let [a, b, c, d, e, f, g] = self.words();
        [a, b, c, d, e, f, g, self.source]
    }

    /// All of its bytes, of a batch.
    #[inline(always)]
    pub const fn words_with_copies(self) -> [u64; 9] {
        let [a, b, c, d, e, f, g, h] = self.words_with_source();
        [a, b, c, d, e, f, g, h, self.copies as u64]
    }
}

/// The handle of a thread's own default stream. It is no pointer: its lower half is 2.
pub const fn of_thread(tid: i32) -> u64 {
    2 | (tid as u32 as u64) << 32
}

/// The thread whose own default stream this is; `None` for other streams, and for 2 on older tapes.
pub const fn thread_of(stream: u64) -> Option<u32> {
    match (stream as u32, (stream >> 32) as u32) {
        (2, tid) if tid != 0 => Some(tid),
        _ => None,
    }
}

/// [`of_stream`] of a stream in a green context whose SMs could not be asked.
pub const SMS_NOT_KNOWN: u32 = u32::MAX;

/// What a stream is like: its priority, and how many SMs its green context has, 0 without one.
pub const fn of_stream(priority: i32, sms: u32) -> u64 {
    priority as u32 as u64 | (sms as u64) << 32
}

/// The priority and the SMs of [`of_stream`].
pub const fn stream_is(object: u64) -> (i32, u32) {
    (object as u32 as i32, (object >> 32) as u32)
}

/// The name of a handle's kernel follows: its symbol, as the compiler made it. The head's flags are the time that CUDA took to give it, in [`NAME_TICKS`] (0 on
/// older tapes). It is before the begin of a launch by the driver's function, and may have loaded the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameBody {
    /// `CUfunction` or `CUkernel`. A handle may be used again with another name after its module is unloaded.
    pub handle: u64,
    /// Bytes of the name that follow.
    pub name: u32,
    pub pad: u32,
}

/// Ticks in a unit of a name's time: up to 20 ms can be said.
pub const NAME_TICKS: u64 = 1024;

/// Words of the driver's object for a kernel, each of 8 bytes, follow: those that could be addresses of code. On driver 580 the word at 0x68 is the address of
/// the kernel's code. Readers take a word for that only where a QMD has the same address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectBody {
    /// As in its name's event.
    pub handle: u64,
    /// Words that follow.
    pub words: u32,
    pub pad: u32,
}

/// A library, a module or a kernel: what the driver made it of.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginBody {
    /// `CUlibrary`, `CUmodule`, `CUkernel` or `CUfunction`.
    pub handle: u64,
    /// The handle that it was got from; with a hash the address of the code that was loaded.
    pub from: u64,
    /// The hash of that code ([`crate::fix::Kernel::hash`]); 0 for what was got from a handle.
    pub hash: u64,
}

/// cuGetExportTable has returned a table, in any call and in a pause, too.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportTableBody {
    /// Which table: the bytes of the `CUuuid` that the caller passed.
    pub id: [u64; 2],
}

/// [`CallBody::flags`].
pub mod flag {
    /// The variant for which stream 0 is the thread's own (`_ptds`, `_ptsz`).
    pub const PER_THREAD: u16 = 1;
    /// More bytes were copied than `size`: the batch has more copies than [`super::ADDED_UP`], or copies CUDA arrays, whose
    /// elements count as one byte each because their sizes are not in the arguments.
    pub const AT_LEAST: u16 = 2;
    /// The direction of a copy that the caller passed to the runtime, plus 1. 0 not passed, 1 host to host, 2 host to
    /// device, 3 device to host, 4 device to device, 5 by the addresses.
    pub const DIRECTION: u16 = 7 << 8;
    pub const DIRECTION_SHIFT: u32 = 8;
}

/// What kind of call it is. This decides:
///
/// - The guard, and how many calls belong to a process's start: [`Class::is_guarded`].
/// - The cause in `why` (`slow-calls/src/parts.rs`): `Synchronize` the GPU or a host function; `Alloc`, `Free` memory;
///   `Create`, `Destroy` code if [`Effect::LoadsCode`] or [`Effect::UnloadsCode`], else the making of objects; `Copy` pageable
///   memory or the GPU. All others: the usual time, then pageable memory, a first launch, a full ring, or unknown.
/// - What it waits for (`slow-calls/src/gather.rs`): `Synchronize` its event, its stream or all work; `Copy` its own work;
///   `CopyAsync` of pageable memory its stream. `EventRecord` is the point that a later wait for the event means.
/// - What is known to be done after it: a `Synchronize` or `Query` of a stream that succeeds empties rings and ends host functions,
///   which `HostFunction` counts.
/// - First launches: `Launch` by kernel, and `GraphLaunch` by graph (until [`Effect::ChangesGraph`]).
/// - Graph launches: submissions in a `GraphLaunch` are those of a graph (`decode/src/graphs.rs`).
/// - Sizes: `Copy`, `CopyAsync` and `Memset` are told apart by size (`lock-analysis/src/call_kind.rs`).
/// - For the driver's functions, what the agent does before the call: [`Function::is_drivers_launch`],
///   [`Function::is_drivers_transfer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Starts a kernel.
    Launch,
    /// Starts a graph.
    GraphLaunch,
    /// A copy that waits for its end (or may).
    Copy,
    /// A copy in a stream.
    CopyAsync,
    Memset,
    EventRecord,
    /// Asks whether an event or a stream is done; does not wait.
    Query,
    /// Makes a stream wait; does not wait itself.
    StreamWait,
    /// Makes a stream write a word for which others may wait.
    StreamWrite,
    /// Waits for an event, a stream, a context or a device.
    Synchronize,
    Alloc,
    Free,
    /// Makes a stream, an event, a graph that can be launched, or loads code.
    Create,
    Destroy,
    /// A function of the host's in a stream.
    HostFunction,
    /// Tells profilers where to begin and to end.
    Profiler,
    /// Any other function of the driver.
    Other,
}

impl Class {
    /// Launches, copies and memsets pass the guard. Calls that wait for the GPU, or do not touch its queues, do not.
    pub const fn is_guarded(self) -> bool {
        matches!(self, Class::Launch | Class::GraphLaunch | Class::Copy | Class::CopyAsync | Class::Memset)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Class::Launch => "launch",
            Class::GraphLaunch => "graph launch",
            Class::Copy => "copy",
            Class::CopyAsync => "async copy",
            Class::Memset => "memset",
            Class::EventRecord => "event record",
            Class::Query => "query",
            Class::StreamWait => "stream wait",
            Class::StreamWrite => "stream write",
            Class::Synchronize => "synchronize",
            Class::Alloc => "alloc",
            Class::Free => "free",
            Class::Create => "create",
            Class::Destroy => "destroy",
            Class::HostFunction => "host function",
            Class::Profiler => "profiler",
            Class::Other => "other",
        }
    }
}

/// Library of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    /// libcuda
    Driver,
    /// libcudart
    Runtime,
}

/// What [`CallBody::object`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Object {
    None,
    /// `CUfunction` or `CUkernel`; for the runtime the host's address of the kernel.
    Kernel,
    /// `CUgraphExec`
    Graph,
    /// `CUevent`
    Event,
    /// Destination of a copy, or the memory that is set or freed.
    Address,
    /// The host function's address.
    Code,
    /// None: the flags that the function was passed.
    Flags,
}

/// How [`CallBody::size`] is read. Arguments are counted in words of 8 bytes as the x86-64 psABI passes them, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    None,
    Word(u8),
    /// A word times so many bytes.
    Times(u8, u8),
    /// Two words, times so many bytes.
    Product(u8, u8, u8),
    /// Width and height: a pointer to two words, at this offset.
    At2(u8, u8),
    /// Width, height and depth: a pointer to three words, at this offset.
    At3(u8, u8),
    /// Three words that are 32 bits wide: a grid.
    Grid(u8),
    /// Two words that hold three of 32 bits: a `dim3`.
    Dim3(u8),
    /// A pointer to three of 32 bits: a launch configuration's grid.
    Config(u8),
    /// How a stream compares a word, 0 to 3 (CU_STREAM_WAIT_VALUE_GEQ to _NOR), without the flag that asks for a flush.
    Compare(u8),
    /// A batch of copies. Pointers to its destinations, sources and sizes, and how many there are.
    Copies(u8, u8, u8, u8),
    /// A batch of copies. A pointer to its `CUDA_MEMCPY3D_BATCH_OP`s, and how many there are.
    Copies3d(u8, u8),
}

/// How [`CallBody::stream`] is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    None,
    Word(u8),
    /// In the launch configuration that this word points to, `CUlaunchConfig` and `cudaLaunchConfig_t` +32.
    Config(u8),
}

/// What a call changes for later ones, in addition to its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    None,
    LoadsCode,
    /// Handles of kernels end with it.
    UnloadsCode,
    /// A graph that can be launched is made by it.
    MakesGraph,
    /// A graph that can be launched is changed by it.
    ChangesGraph,
    /// A stream is made by it. The first argument is where its handle goes.
    MakesStream,
    StartsProfilers,
    StopsProfilers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToGpu,
    FromGpu,
    /// The addresses say it (cuMemcpy, cuMemcpyAsync).
    Either,
}

/// How `run --fix` answers a call ([`crate::fix`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    None,
    HostAlloc,
    AllocHost,
    FreeHost,
    Register,
    /// `waits`: cuMemcpy and its kin, which wait for their stream first.
    Copy {
        direction: Direction,
        waits: bool,
    },
    /// A batch in a stream, which this word says.
    Batch {
        stream: u8,
    },
    /// cuMemcpy3DBatchAsync
    Batch3d {
        stream: u8,
    },
    /// Passed on, after another process has compiled it. The second word is the code, or a file's name. Words: the number of options, they and their
    /// values; 0: there are none.
    Compiles {
        is_file: bool,
        options: u8,
        names: u8,
        values: u8,
    },
    /// Passed on. libdoorbell observes CUDA from before this call.
    Initialises,
    /// cuMemAlloc
    Alloc,
    /// cuMemFree
    Free,
    /// A question about memory of the agent's.
    Tells(Told),
    /// Passed on, but memory of the agent's at the address in this word ([`Function::NOT_SAID`]: there is none) has another answer than CUDA's.
    Shares {
        address: u8,
    },
    /// Passed on. Memory ends with its context.
    EndsContext,
    /// Passed on. While a stream is being captured, copies are passed on, too.
    BeginsCapture,
    EndsCapture,
}

/// What a program may ask of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// cuMemHostGetFlags
    Flags,
    /// cuMemRetainAllocationHandle
    Handle,
    /// cuMemGetAddressRange
    Range,
    /// cuPointerGetAttribute
    Attribute,
    /// cuPointerGetAttributes
    Attributes,
}

impl Told {
    /// The word that is the memory's address.
    pub const fn address(self) -> usize {
        match self {
            Told::Flags | Told::Handle => 1,
            Told::Range | Told::Attribute => 2,
            Told::Attributes => 3,
        }
    }
}

impl Answer {
    /// The bits of the fixes that give it; 0 for none.
    pub const fn fixes(self) -> u32 {
        match self {
            Answer::None | Answer::Shares { address: Function::NOT_SAID } => 0,
            Answer::BeginsCapture | Answer::EndsCapture => fix::ALL,
            Answer::HostAlloc | Answer::AllocHost | Answer::FreeHost | Answer::Register => fix::PINS,
            Answer::Tells(_) => fix::PINS | fix::MEMORY,
            Answer::Alloc | Answer::Free | Answer::Shares { .. } | Answer::EndsContext => fix::MEMORY,
            Answer::Copy { .. } => fix::COPIES,
            Answer::Batch { .. } | Answer::Batch3d { .. } | Answer::Initialises => fix::PAGES,
            Answer::Compiles { .. } => fix::CODE,
        }
    }

    /// The word that is the address of memory, where only memory of the agent's is looked at.
    pub const fn address(self) -> Option<u8> {
        match self {
            Answer::FreeHost | Answer::Free => Some(0),
            Answer::Tells(what) => Some(what.address() as u8),
            Answer::Shares { address } => Some(address),
            _ => None,
        }
    }

    /// The argument that says how many bytes, and from how many on the call is answered. Smaller ones delay others
    /// by 0.2 ms at most: their pinned memory is a part of an existing block. (An answer takes longer: docs/results/fix.md.)
    pub const fn least(self) -> (usize, usize) {
        match self {
            Answer::None
            | Answer::FreeHost
            | Answer::Initialises
            | Answer::Compiles { .. }
            | Answer::Free
            | Answer::Tells(_)
            | Answer::Shares { .. }
            | Answer::EndsContext
            | Answer::BeginsCapture
            | Answer::EndsCapture => (0, 0),
            Answer::HostAlloc | Answer::AllocHost | Answer::Register => (1, 2 << 20),
            // 64 MiB hold others up for 0.2 ms at most, 2 GiB for 1 ms.
            Answer::Alloc => (1, 256 << 20),
            // Up to 2 MiB, CUDA's call returns even if its stream stands still, and an answer takes longer.
            Answer::Copy { direction: Direction::ToGpu | Direction::Either, .. } => (2, (2 << 20) + 1),
            Answer::Copy { .. } => (2, 2 << 20),
            // With fewer pieces CUDA is as fast.
            Answer::Batch { .. } => (3, 16),
            Answer::Batch3d { .. } => (0, 16),
        }
    }
}

/// A function that is tapped, in one of its forms.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Identifies it on tapes, in all its forms. Never changes and is never used again.
    pub number: u16,
    /// As programs write it, without version and variant.
    pub name: &'static str,
    pub class: Class,
    /// Suffixes of its symbols' names, after `name`. Each makes a separate entry with the same arguments.
    pub suffixes: &'static [&'static str],
    /// cuGetProcAddress gives this form from this version of CUDA on, as `CUDA_VERSION` has it. 0 for the first form.
    pub since: u16,
    /// Words of arguments.
    pub words: u8,
    pub size: Size,
    pub stream: Stream,
    pub object: Object,
    /// The word that is the object. (That of a batch is its first copy's destination.)
    pub object_at: u8,
    /// The word that is a copy's source, or the value of a word, where the object is the address; [`Function::NOT_SAID`] for other calls.
    pub source_at: u8,
    /// The word that is a `cudaMemcpyKind`; [`Function::NOT_SAID`] if none is.
    pub direction_at: u8,
    pub effect: Effect,
    pub answer: Answer,
}

impl Function {
    pub const NOT_SAID: u8 = u8::MAX;

    pub const fn is_batch(&self) -> bool {
        matches!(self.size, Size::Copies(..) | Size::Copies3d(..))
    }

    /// Programs ask such things by the thousand. Without a stream, a call that succeeds in some microseconds is not written.
    pub const fn is_brief(&self) -> bool {
        matches!(self.class, Class::Other) || matches!(self.answer, Answer::Tells(_))
    }

    /// A launch that passes a kernel's handle to the driver.
    pub const fn is_drivers_launch(&self) -> bool {
        matches!((self.api(), self.class), (Api::Driver, Class::Launch))
    }

    /// Makes the GPU copy, fill or run a graph, by a function of the driver.
    pub const fn is_drivers_transfer(&self) -> bool {
        let moves = matches!(self.class, Class::GraphLaunch | Class::Copy | Class::CopyAsync | Class::Memset);
        matches!(self.api(), Api::Driver) && moves
    }

    pub const fn api(&self) -> Api {
        match self.name.as_bytes() {
            [b'c', b'u', b'd', b'a', ..] | [b'_', b'_', b'c', b'u', b'd', b'a', ..] => Api::Runtime,
            _ => Api::Driver,
        }
    }
}

/// Numbers that functions had before they got a row that is written by hand.
const EARLIER: [(u16, u16); 7] =
    [(1306, 107), (1307, 108), (1233, 109), (1342, 110), (1343, 111), (1344, 112), (1345, 113)];

/// The function with this number, in its first form; `None` for one of a newer doorbell.
pub fn function(number: u16) -> Option<&'static Function> {
    let number = EARLIER.iter().find(|(earlier, _)| *earlier == number).map_or(number, |(_, now)| *now);
    // The table is in the order of its numbers, see the test.
    FUNCTIONS.get(FUNCTIONS.partition_point(|f| f.number < number)).filter(|f| f.number == number)
}

/// The number of a function; 0 for one that the table lacks.
pub const fn number(name: &str) -> u16 {
    let mut i = 0;
    while i < FUNCTIONS.len() {
        if is_same(FUNCTIONS[i].name, name) {
            return FUNCTIONS[i].number;
        }
        i += 1;
    }
    0
}

const fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut same = 0;
    while same < a.len() && same < b.len() && a[same] == b[same] {
        same += 1;
    }
    same == a.len() && same == b.len()
}

/// The function by its number in a doorbell ([`crate::event::RingBody`]); `None` for 0 and for numbers of a newer table.
pub fn of_ring(number: u32) -> Option<&'static Function> {
    function(u16::try_from(number).ok()?)
}

/// The name of that function.
pub fn name(number: u32) -> &'static str {
    of_ring(number).map_or("unknown", |f| f.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_bodys_bytes() {
        let body = CallBody {
            began: 1,
            site: 2,
            stream: 3,
            object: 4,
            size: 5,
            result: -6,
            flags: 7,
            inner: 8,
            seq: 9,
            python: 10,
            source: 11,
            copies: 12,
            pad: 0,
        };
        let bytes: Vec<u8> = body.words_with_copies().iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(bytes, crate::event::bytes_of(&body));
    }

    #[test]
    fn numbers_rise_and_names_are_there_once() {
        for pair in FUNCTIONS.windows(2) {
            let [a, b] = pair else { continue };
            let is_later_form = a.number == b.number && a.since < b.since;
            assert!(a.number < b.number || is_later_form, "{} {}", a.name, b.name);
        }
        for f in FUNCTIONS {
            assert_eq!(function(f.number).map(|g| (g.name, g.since)), Some((f.name, 0)));
            for g in FUNCTIONS.iter().filter(|g| g.name == f.name && g.since != f.since) {
                // What readers see is the same in all forms, and a symbol is of one form.
                let seen = |f: &Function| (f.number, f.class, f.object, f.effect, f.source_at != Function::NOT_SAID);
                assert_eq!(seen(g), seen(f), "{}", f.name);
                assert!(f.suffixes.iter().all(|s| !g.suffixes.contains(s)), "{}", f.name);
            }
            assert_eq!(FUNCTIONS.iter().filter(|g| g.name == f.name && g.since == f.since).count(), 1, "{}", f.name);
            let most = if f.class == Class::Other { 16 } else { 11 };
            assert!(!f.suffixes.is_empty() && f.words <= most, "{}", f.name);
        }
        assert!(function(0).is_none() && function(u16::MAX).is_none());
    }

    #[test]
    fn words_that_are_kept_are_words_that_are_passed() {
        for f in FUNCTIONS {
            let last = match f.size {
                Size::None => 0,
                Size::Word(a) | Size::Times(a, _) | Size::At2(a, _) | Size::At3(a, _) | Size::Config(a) => a,
                Size::Compare(a) => a,
                Size::Product(a, b, _) => a.max(b),
                Size::Grid(a) => a + 2,
                Size::Dim3(a) => a + 1,
                Size::Copies(a, b, c, d) => a.max(b).max(c).max(d),
                Size::Copies3d(a, b) => a.max(b),
            };
            let stream = match f.stream {
                Stream::None => 0,
                Stream::Word(a) | Stream::Config(a) => a,
            };
            let direction = if f.direction_at == Function::NOT_SAID { 0 } else { f.direction_at };
            let source = if f.source_at == Function::NOT_SAID { 0 } else { f.source_at };
            for word in [last, stream, f.object_at, direction, source] {
                assert!(word < f.words.max(1), "{}: word {word} of {}", f.name, f.words);
            }
        }
    }

    #[test]
    fn columns_that_readers_need_are_filled() {
        for f in FUNCTIONS {
            let has = |part: &str| f.name.contains(part);
            let effect = match f.class {
                Class::Create if has("ModuleLoad") || has("LibraryLoad") => Effect::LoadsCode,
                Class::Create if f.api() == Api::Driver && has("GraphInstantiate") => Effect::MakesGraph,
                Class::Create if has("ExecUpdate") => Effect::ChangesGraph,
                _ if has("StreamCreate") => Effect::MakesStream,
                Class::Destroy if has("Unload") => Effect::UnloadsCode,
                Class::Profiler if has("Start") => Effect::StartsProfilers,
                Class::Profiler => Effect::StopsProfilers,
                _ => Effect::None,
            };
            assert_eq!(f.effect, effect, "{}", f.name);
            // Rows, boxes, symbols and batches are no two addresses.
            let is_copy = matches!(f.class, Class::Copy | Class::CopyAsync);
            let is_plain = is_copy && !["2D", "3D", "Symbol", "Batch"].into_iter().any(has);
            let has_source = is_plain || has("WaitValue") || has("WriteValue");
            assert_eq!(f.source_at != Function::NOT_SAID, has_source, "{}: source", f.name);
            assert!(f.class == Class::Other || f.is_batch() == has("Batch"), "{}", f.name);
            assert!(!is_plain || f.object == Object::Address && f.object_at == 0, "{}: destination", f.name);
        }
    }
}
