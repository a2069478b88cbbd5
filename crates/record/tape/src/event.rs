//! Layout of the events in a ring.
//!
//! Every event is a [`Head`] followed by a fixed body and, for some kinds, a payload; its length is a multiple of eight bytes and
//! includes the head. Bodies are plain words in native byte order with no implicit padding, so a record is written by one copy and read
//! back with [`Event::parse`]. The meaning of the words (of a token or an ioctl) does not matter here: the agent writes facts, `decode`
//! explains them.

use crate::{call, fault, lock, nvtx, python, stamp, switch};

/// Starts every event.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// One of the `kind` constants.
    pub kind: u16,
    /// Kind-specific flags.
    pub flags: u16,
    /// Bytes of the whole event, head included; a multiple of 8.
    pub len: u32,
    /// Time stamp counter when the event began.
    pub tsc: u64,
}

/// Event kinds.
pub mod kind {
    pub const RING: u16 = 1;
    pub const ENTRY: u16 = 2;
    pub const IOCTL: u16 = 3;
    pub const MMAP: u16 = 4;
    pub const MUNMAP: u16 = 5;
    pub const MREMAP: u16 = 6;
    pub const OPEN: u16 = 7;
    pub const CLOSE: u16 = 8;
    pub const DUP: u16 = 9;
    pub const CHANNEL: u16 = 10;
    pub const TOKEN: u16 = 11;
    pub const CHANNEL_END: u16 = 12;
    pub const PAGE: u16 = 13;
    pub const SITE: u16 = 14;
    pub const NOTE: u16 = 15;
    pub const GAP: u16 = 16;
    /// The events after it in this ring are another thread's: [`ThreadBody`](super::ThreadBody).
    pub const THREAD: u16 = 17;
    /// From here on only the process's driver calls are recorded, or all events again: [`PauseBody`](super::PauseBody).
    pub const PAUSE: u16 = 18;
    /// A channel's events before this one are left out: [`LeftOutBody`](super::LeftOutBody).
    pub const LEFT_OUT: u16 = 19;
}

/// Which file a descriptor is.
pub mod file {
    pub const OTHER: u32 = 0;
    /// `/dev/nvidiactl`
    pub const CTL: u32 = 1;
    /// `/dev/nvidia-uvm`
    pub const UVM: u32 = 2;
    /// Another `/dev/nvidia*` node (modeset, caps, uvm-tools)
    pub const NODE: u32 = 3;
    /// `/dev/nvidiaN` is `GPU + N`.
    pub const GPU: u32 = 0x100;
}

/// A slot number that means 'no channel known'.
pub const NO_SLOT: u32 = u32::MAX;

/// A doorbell was rung. The entries it brought follow in the same ring, as [`EntryBody`] events.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingBody {
    /// The value stored to the doorbell: the channel's work-submit token.
    pub token: u32,
    /// The agent's channel slot, or [`NO_SLOT`] where the token belongs to no channel that it follows.
    pub slot: u32,
    /// Counts the rings of this channel from 0, which orders them across threads.
    pub seq: u64,
    /// GP_PUT before and after, as indices into the GPFIFO.
    pub put_from: u32,
    pub put_to: u32,
    /// Thread that rang; 0 if it left its ring to another ([`ring_flags::HANDED_OVER`]) and is not known.
    pub tid: u32,
    /// Which doorbell page (slot of the agent's page table).
    pub page: u32,
    /// The outermost CUDA call that the thread was in: its function ([`call::Function::number`]). This and the fields that follow are 0
    /// if it was in none that is recorded, and on older tapes.
    pub function: u32,
    /// Its number: [`call::CallBody::seq`]
    pub call: u32,
    /// Its arguments: [`call::CallBody::stream`], [`call::CallBody::object`]
    pub stream: u64,
    pub object: u64,
    /// Handle of the kernel that this call launches, as passed to the driver ([`call::NameBody::handle`]); 0 if it launches none.
    pub kernel: u64,
    /// The Python stack that made the call: [`call::CallBody::python`].
    pub python: u32,
    pub pad: u32,
}

impl RingBody {
    /// The function of the call; `None` if the thread was in none, or in one of a newer doorbell's table.
    pub fn called(&self) -> Option<&'static call::Function> {
        call::of_ring(self.function)
    }

    /// Its bytes without the Python stack, for [`crate::ring::Writer::push_words_with`].
    #[inline(always)]
    pub const fn words(self) -> [u64; 8] {
        [
            self.token as u64 | (self.slot as u64) << 32,
            self.seq,
            self.put_from as u64 | (self.put_to as u64) << 32,
            self.tid as u64 | (self.page as u64) << 32,
            self.function as u64 | (self.call as u64) << 32,
            self.stream,
            self.object,
            self.kernel,
        ]
    }

    /// All of its bytes.
    #[inline(always)]
    pub const fn words_with_python(self) -> [u64; 9] {
        let [a, b, c, d, e, f, g, h] = self.words();
        [a, b, c, d, e, f, g, h, self.python as u64]
    }
}

pub mod ring_flags {
    /// Seen by a trap; without this flag, by a rewritten site.
    pub const TRAPPED: u16 = 1;
    /// Rung by another thread, which found this channel's tap busy and left its ring to the one that writes this.
    pub const HANDED_OVER: u16 = 2;
    /// Doorbells of this channel were rung in a pause before it. They and their entries are not counted in `seq`.
    pub const AFTER_PAUSE: u16 = 4;
}

/// One GPFIFO entry and as many words of its pushbuffer segment as one event holds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryBody {
    /// The eight bytes in the GPFIFO.
    pub gp: u64,
    /// Counts the entries of this channel, from 0.
    pub seq: u64,
    pub slot: u32,
    /// Index in the GPFIFO.
    pub index: u32,
    /// Words that follow in this event.
    pub words: u32,
    /// Why there are fewer words than in the segment: one of [`lack`].
    pub lack: u32,
}

impl EntryBody {
    /// Its bytes, for [`crate::ring::Writer::push_words_with`].
    #[inline(always)]
    pub const fn words(self) -> [u64; 4] {
        [self.gp, self.seq, self.slot as u64 | (self.index as u64) << 32, self.words as u64 | (self.lack as u64) << 32]
    }
}

/// Why an entry's words are not, or not all, on the tape.
pub mod lack {
    pub const NONE: u32 = 0;
    /// The segment's address has no CPU mapping in the program, so only the address is known.
    pub const UNMAPPED: u32 = 1;
    /// Segment longer than the agent records (the rest is left out).
    pub const TOO_LONG: u32 = 2;
    /// The ring was full (also counted as a gap).
    pub const RING_FULL: u32 = 3;
}

pub mod entry_flags {
    /// The same entry continues in the next ENTRY event of this ring.
    pub const MORE: u16 = 1;
    /// Continues the ENTRY event before.
    pub const CONTINUED: u16 = 2;
    /// Payload words were zeroed (`--no-data`).
    pub const SCRUBBED: u16 = 4;
    /// The segment is in GPU memory and was read through BAR1.
    pub const FROM_VIDEO: u16 = 8;
    /// The words were read long after the doorbell (the thread was held up): another thread may have written over them.
    pub const LATE: u16 = 16;
}

/// A driver call: `arg` bytes follow (as of the call's return). Then, on the next multiple of eight, `nested` bytes follow: the data at
/// the pointers of RM_ALLOC and RM_CONTROL parameters, after the call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoctlBody {
    pub fd: i32,
    /// One of [`file`].
    pub file: u32,
    pub request: u64,
    pub ret: i32,
    pub errno: i32,
    pub arg: u32,
    pub nested: u32,
    /// TSC when the call returned.
    pub tsc_end: u64,
}

pub mod ioctl_flags {
    /// The argument is UVM_MAP_EXTERNAL_ALLOCATION, kept as bytes 0..60 followed by bytes 9240..9264.
    pub const UVM_MAP_SHORT: u16 = 1;
    /// `nested` is shorter than the program's data.
    pub const NESTED_CUT: u16 = 2;
}

/// mmap of a driver file, or another call that makes a mapping which the object graph needs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MmapBody {
    /// Address of the mapping; -1 as u64 when the call failed.
    pub addr: u64,
    pub len: u64,
    pub offset: u64,
    pub fd: i32,
    pub file: u32,
    pub prot: u32,
    pub flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MunmapBody {
    pub addr: u64,
    pub len: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MremapBody {
    pub old: u64,
    pub old_len: u64,
    pub new: u64,
    pub new_len: u64,
}

/// open: the path follows (`path` bytes). close and dup use the same body.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileBody {
    pub fd: i32,
    /// dup: the new descriptor; else -1.
    pub other: i32,
    pub file: u32,
    /// Bytes of path that follow.
    pub path: u32,
}

/// The agent began to follow a channel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelBody {
    pub slot: u32,
    pub client: u32,
    pub handle: u32,
    pub class: u32,
    /// GPU virtual address of the GPFIFO.
    pub gpfifo: u64,
    pub entries: u32,
    /// How its ring is watched: one of [`watch`].
    pub watch: u32,
}

/// How the agent watches a channel's GPFIFO and USERD.
pub mod watch {
    /// Reads the program's own mapping (host memory, or GPU memory through BAR1).
    pub const DIRECT: u32 = 0;
    /// The program's addresses have ordinary memory, and entries are forwarded.
    pub const SHADOW: u32 = 1;
    /// GPFIFO or USERD has no CPU mapping: rings are seen, entries are not.
    pub const BLIND: u32 = 2;
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenBody {
    pub slot: u32,
    pub token: u32,
}

/// A channel was freed, or the program ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelEndBody {
    pub slot: u32,
    /// GP_PUT in USERD at the end.
    pub put: u32,
    /// Entries that GP_PUT accounts for since the channel began, wraps counted.
    pub entries: u64,
    /// Doorbells rung for it.
    pub rings: u64,
}

/// A doorbell page was recognised.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageBody {
    pub page: u32,
    pub class: u32,
    pub addr: u64,
    pub len: u64,
    /// 1 if tapped; else 0, and a NOTE has the reason.
    pub tapped: u32,
    pub handle: u32,
}

/// An instruction that rings a doorbell. The code bytes and the module's path follow (`path` bytes).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteBody {
    pub ip: u64,
    /// Offset in the module's file mapping, 0 if unknown.
    pub offset: u64,
    pub code: [u8; 16],
    /// 1 if rewritten, 0 if it continues to trap.
    pub patched: u32,
    /// Why not: one of [`site_why`].
    pub why: u32,
    /// Bytes of module path that follow.
    pub path: u32,
    pub pad: u32,
}

/// Why a site was not rewritten.
pub mod site_why {
    pub const NONE: u32 = 0;
    pub const TAP_IS_TRAP: u32 = 1;
    /// Neither dead padding after it nor a long enough instruction.
    pub const SHAPE: u32 = 2;
    /// No room for a stub within 2 GiB.
    pub const NO_STUB: u32 = 3;
    /// mprotect or membarrier refused.
    pub const REFUSED: u32 = 4;
    /// Out of slots for sites.
    pub const FULL: u32 = 5;
    /// A load, or a store of another width than four bytes.
    pub const NOT_A_DOORBELL: u32 = 6;
}

/// A note for the reader of a recording. `text` bytes of UTF-8 follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoteBody {
    pub text: u32,
    pub pad: u32,
}

/// The first event of a thread in a ring, and the first after another thread's. The agent publishes no event of the thread before it.
/// The recorder assigns the ring's events from here on to this thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadBody {
    pub tid: i32,
    /// How many rings this thread has used before: 0 when it is new (a thread number may be used again).
    pub ordinal: u32,
    /// The ring that the thread had before this one, or [`NO_RING`] for a new thread. Its events up to `from_head` come before
    /// those that follow here.
    pub from_ring: u32,
    pub pid: u32,
    /// That ring's head as the thread left it. It has published this much before it published this event.
    pub from_head: u64,
}

/// A pause begins or ends, for all threads of the process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PauseBody {
    /// 1 where it begins, 0 where it ends.
    pub paused: u32,
    /// By whom: [`pause_by`]
    pub by: u32,
}

/// Who begins or ends a pause.
pub mod pause_by {
    /// The recording began with it.
    pub const START: u32 = 0;
    /// The program: a call of libdoorbell or of the Python package.
    pub const CALL: u32 = 1;
    /// cudaProfilerStart, cudaProfilerStop
    pub const PROFILER: u32 = 2;
    /// SIGUSR2 to the recorder.
    pub const SIGNAL: u32 = 3;
    /// A range of NVTX.
    pub const RANGE: u32 = 4;
    /// A request at the recorder's control socket.
    pub const REQUEST: u32 = 5;
}

/// The thread number of the recorder's [`LeftOutBody`]s, which no thread has.
pub const LEFT_OUT_WRITER: i32 = -4;

/// In a recording that keeps only the newest part: this channel's events before this event's time are deliberately left out. So its
/// engine's state is not known here. The counts are those at which the channel's next events begin.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOutBody {
    pub slot: u32,
    /// Channels that had the slot before this one.
    pub generation: u32,
    /// [`RingBody::seq`] of the first ring that may follow, and [`EntryBody::seq`] of the first entry.
    pub rings: u64,
    pub entries: u64,
}

/// A ring number that means 'none'.
pub const NO_RING: u32 = u32::MAX;

/// Events of this thread that did not fit into this ring so far: where the totals rise there is a gap. They begin at 0 after each THREAD
/// event. (On tapes of version 1 they continue from thread to thread of a ring.)
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GapBody {
    pub events: u64,
    /// GPFIFO entries among them.
    pub entries: u64,
    pub bytes: u64,
}

/// Plain words, which are written to a ring and read from it as they are in memory.
///
/// # Safety
/// The type is `repr(C)`, has no padding and every bit pattern is a value.
pub unsafe trait Plain: Copy + Default {}

macro_rules! plain {
    ($($t:ty = $size:literal),* $(,)?) => {$(
        // SAFETY: repr(C) of integers whose sizes add up to the size of the whole (asserted), so there is no padding.
        unsafe impl Plain for $t {}
        const _: () = assert!(core::mem::size_of::<$t>() == $size && $size % 8 == 0);
    )*};
}

plain! {
    Head = 16, RingBody = 72, ThreadBody = 24, EntryBody = 32, IoctlBody = 40, MmapBody = 40, MunmapBody = 16, MremapBody = 32,
    FileBody = 16, ChannelBody = 32, TokenBody = 8, ChannelEndBody = 24, PageBody = 32, SiteBody = 48, NoteBody = 8,
    GapBody = 24, PauseBody = 8, LeftOutBody = 24, lock::LocksBody = 8, lock::PairBody = 24, lock::HoldBody = 48, lock::OpBody = 40, lock::HeldBody = 40,
    lock::SchedBody = 64, lock::MappingBody = 32, switch::SwitchesBody = 16, switch::SwitchBody = 16, switch::LostBody = 8,
    switch::TaskBody = 40, switch::DeadlineBody = 32,
    fault::WatchedBody = 16, fault::FaultsBody = 8, fault::Fault = 8, fault::StolenBody = 8,
    call::CallsBody = 8, call::CallBody = 72, call::NameBody = 16, call::ObjectBody = 16, call::ExportTableBody = 16,
    call::OriginBody = 24,
    python::PythonBody = 16, python::CodeBody = 24, python::StackBody = 8, python::Frame = 8,
    nvtx::NvtxBody = 8, nvtx::TextBody = 24, nvtx::RangeBody = 40, nvtx::EndBody = 16,
    stamp::StampsBody = 24, stamp::ClockBody = 24, stamp::EndsBody = 16, stamp::End = 16, stamp::LaunchedBody = 24, stamp::Run = 16,
    stamp::CopiedBody = 24,
}

/// Bytes of a value, for writing it.
pub fn bytes_of<T: Plain>(v: &T) -> &[u8] {
    // SAFETY: Plain has no padding, so all its bytes are initialised.
    unsafe { core::slice::from_raw_parts((v as *const T).cast(), core::mem::size_of::<T>()) }
}

fn read<T: Plain>(b: &[u8], at: usize) -> Option<T> {
    let b = b.get(at..at.checked_add(core::mem::size_of::<T>())?)?;
    // SAFETY: the slice has the size of T, every bit pattern is a T, and the read is unaligned.
    Some(unsafe { b.as_ptr().cast::<T>().read_unaligned() })
}

/// Bytes of the bodies that had fewer fields on tapes of version 1.
const RING_V1: usize = 32;
const CALL_V1: usize = 48;

/// The body of an event that fills `b`. On an older tape it has `OLD` bytes or a few more; the last fields are missing there and become
/// 0.
fn read_grown<T: Plain, const OLD: usize>(b: &[u8]) -> Option<T> {
    let body = b.get(size_of::<Head>()..)?;
    if body.len() >= size_of::<T>() {
        return read(body, 0);
    }
    if body.len() < OLD {
        return None;
    }
    let mut v = T::default();
    // SAFETY: the body is shorter than T, every bit pattern of which is a T.
    unsafe { core::ptr::copy_nonoverlapping(body.as_ptr(), (&raw mut v).cast::<u8>(), body.len()) };
    Some(v)
}

/// A parsed event. Payloads borrow from the chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Body<'a> {
    Ring(RingBody),
    /// The words as little-endian bytes, four a word.
    Entry(EntryBody, &'a [u8]),
    /// arg bytes, nested bytes
    Ioctl(IoctlBody, &'a [u8], &'a [u8]),
    Mmap(MmapBody),
    Munmap(MunmapBody),
    Mremap(MremapBody),
    Open(FileBody, &'a [u8]),
    Close(FileBody),
    Dup(FileBody),
    Channel(ChannelBody),
    Token(TokenBody),
    ChannelEnd(ChannelEndBody),
    Page(PageBody),
    Site(SiteBody, &'a [u8]),
    Note(&'a [u8]),
    Gap(GapBody),
    Thread(ThreadBody),
    Pause(PauseBody),
    LeftOut(LeftOutBody),
    Locks(lock::LocksBody),
    Pair(lock::PairBody),
    Hold(lock::HoldBody),
    Op(lock::OpBody),
    Held(lock::HeldBody),
    Sched(lock::SchedBody),
    /// path bytes, build id bytes
    Mapping(lock::MappingBody, &'a [u8], &'a [u8]),
    /// text bytes
    Switches(switch::SwitchesBody, &'a [u8]),
    Switch(switch::SwitchBody),
    SwitchesLost(switch::LostBody),
    Task(switch::TaskBody),
    Deadline(switch::DeadlineBody),
    /// text bytes
    FaultsWatched(fault::WatchedBody, &'a [u8]),
    /// [`fault::Fault`]s as bytes: [`faults`]
    Faults(fault::FaultsBody, &'a [u8]),
    FaultsLost(switch::LostBody),
    Stolen(fault::StolenBody),
    Calls(call::CallsBody),
    Call(call::CallBody),
    InCall(call::CallBody),
    ExportTable(call::ExportTableBody),
    /// name bytes
    Name(call::NameBody, &'a [u8]),
    /// words
    Object(call::ObjectBody, &'a [u8]),
    Origin(call::OriginBody),
    /// version
    Python(python::PythonBody, &'a [u8]),
    /// name of the file, of the function, line table
    PythonCode(python::CodeBody, &'a [u8], &'a [u8], &'a [u8]),
    /// [`python::Frame`]s as bytes: [`python_frames`]
    PythonStack(python::StackBody, &'a [u8]),
    Nvtx(nvtx::NvtxBody),
    /// text bytes
    Text(nvtx::TextBody, &'a [u8]),
    Push(nvtx::RangeBody),
    Pop(nvtx::EndBody),
    Start(nvtx::RangeBody),
    End(nvtx::EndBody),
    Mark(nvtx::RangeBody),
    Stamps(stamp::StampsBody),
    GpuClock(stamp::ClockBody),
    /// [`stamp::End`]s as bytes: [`ends`]
    Ends(stamp::EndsBody, &'a [u8]),
    /// [`stamp::Run`]s as bytes: [`qmds`]
    Launched(stamp::LaunchedBody, &'a [u8]),
    Copied(stamp::CopiedBody),
    /// A kind that this version lacks; kept so that it can be counted.
    Unknown,
}

/// One event of a ring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event<'a> {
    pub head: Head,
    pub body: Body<'a>,
}

impl Head {
    /// The head at the start of `b`; `None` unless an event of that length follows.
    pub fn parse(b: &[u8]) -> Option<Head> {
        let head: Head = read(b, 0)?;
        let len = head.len as usize;
        (len >= 16 && len.is_multiple_of(8) && len <= b.len()).then_some(head)
    }
}

impl<'a> Event<'a> {
    /// Parses the event at the start of `b` and returns it with its length in bytes. `None` if the bytes are no whole event.
    pub fn parse(b: &'a [u8]) -> Option<(Event<'a>, usize)> {
        let head = Head::parse(b)?;
        let len = head.len as usize;
        let b = &b[..len];
        let tail = |body: usize, n: u32| b.get(16 + body..(16 + body).checked_add(n as usize)?);
        let body = match head.kind {
            kind::RING => Body::Ring(read_grown::<_, RING_V1>(b)?),
            kind::ENTRY => {
                let e: EntryBody = read(b, 16)?;
                Body::Entry(e, tail(32, e.words.checked_mul(4)?)?)
            }
            kind::IOCTL => {
                let i: IoctlBody = read(b, 16)?;
                let arg = tail(40, i.arg)?;
                let from = 40 + (i.arg as usize).next_multiple_of(8);
                Body::Ioctl(i, arg, tail(from, i.nested)?)
            }
            kind::MMAP => Body::Mmap(read(b, 16)?),
            kind::MUNMAP => Body::Munmap(read(b, 16)?),
            kind::MREMAP => Body::Mremap(read(b, 16)?),
            kind::OPEN => {
                let f: FileBody = read(b, 16)?;
                Body::Open(f, tail(16, f.path)?)
            }
            kind::CLOSE => Body::Close(read(b, 16)?),
            kind::DUP => Body::Dup(read(b, 16)?),
            kind::CHANNEL => Body::Channel(read(b, 16)?),
            kind::TOKEN => Body::Token(read(b, 16)?),
            kind::CHANNEL_END => Body::ChannelEnd(read(b, 16)?),
            kind::PAGE => Body::Page(read(b, 16)?),
            kind::SITE => {
                let s: SiteBody = read(b, 16)?;
                Body::Site(s, tail(48, s.path)?)
            }
            kind::NOTE => {
                let n: NoteBody = read(b, 16)?;
                Body::Note(tail(8, n.text)?)
            }
            kind::GAP => Body::Gap(read(b, 16)?),
            kind::THREAD => Body::Thread(read(b, 16)?),
            kind::PAUSE => Body::Pause(read(b, 16)?),
            kind::LEFT_OUT => Body::LeftOut(read(b, 16)?),
            lock::kind::LOCKS => Body::Locks(read(b, 16)?),
            lock::kind::PAIR => Body::Pair(read(b, 16)?),
            lock::kind::HOLD => Body::Hold(read(b, 16)?),
            lock::kind::OP => Body::Op(read(b, 16)?),
            lock::kind::HELD => Body::Held(read(b, 16)?),
            lock::kind::SCHED => Body::Sched(read(b, 16)?),
            lock::kind::MAPPING => {
                let m: lock::MappingBody = read(b, 16)?;
                let path = tail(32, m.path)?;
                Body::Mapping(m, path, tail(32 + path.len().next_multiple_of(8), u32::from(head.flags))?)
            }
            switch::kind::SWITCHES => {
                let s: switch::SwitchesBody = read(b, 16)?;
                Body::Switches(s, tail(16, s.text)?)
            }
            switch::kind::SWITCH => Body::Switch(read(b, 16)?),
            switch::kind::LOST => Body::SwitchesLost(read(b, 16)?),
            switch::kind::TASK => Body::Task(read(b, 16)?),
            switch::kind::DEADLINE => Body::Deadline(read(b, 16)?),
            fault::kind::WATCHED => {
                let w: fault::WatchedBody = read(b, 16)?;
                Body::FaultsWatched(w, tail(16, w.text)?)
            }
            fault::kind::FAULTS => {
                let f: fault::FaultsBody = read(b, 16)?;
                Body::Faults(f, tail(8, f.count.checked_mul(8)?)?)
            }
            fault::kind::LOST => Body::FaultsLost(read(b, 16)?),
            fault::kind::STOLEN => Body::Stolen(read(b, 16)?),
            call::kind::CALLS => Body::Calls(read(b, 16)?),
            call::kind::CALL => Body::Call(read_grown::<_, CALL_V1>(b)?),
            call::kind::IN_CALL => Body::InCall(read_grown::<_, CALL_V1>(b)?),
            call::kind::EXPORT_TABLE => Body::ExportTable(read(b, 16)?),
            call::kind::NAME => {
                let n: call::NameBody = read(b, 16)?;
                Body::Name(n, tail(16, n.name)?)
            }
            call::kind::OBJECT => {
                let o: call::ObjectBody = read(b, 16)?;
                Body::Object(o, tail(16, o.words.checked_mul(8)?)?)
            }
            call::kind::ORIGIN => Body::Origin(read(b, 16)?),
            python::kind::PYTHON => {
                let p: python::PythonBody = read(b, 16)?;
                Body::Python(p, tail(16, p.text)?)
            }
            python::kind::CODE => {
                let c: python::CodeBody = read(b, 16)?;
                let (file, both) = (tail(24, c.file)?, c.file.checked_add(c.name)?);
                let name = tail(24, both)?.get(file.len()..)?;
                let lines = tail(24 + (both as usize).next_multiple_of(8), c.lines)?;
                Body::PythonCode(c, file, name, lines)
            }
            python::kind::STACK => {
                let s: python::StackBody = read(b, 16)?;
                Body::PythonStack(s, tail(8, s.frames.checked_mul(8)?)?)
            }
            nvtx::kind::NVTX => Body::Nvtx(read(b, 16)?),
            nvtx::kind::TEXT => {
                let t: nvtx::TextBody = read(b, 16)?;
                Body::Text(t, tail(24, t.bytes)?)
            }
            nvtx::kind::PUSH => Body::Push(read(b, 16)?),
            nvtx::kind::POP => Body::Pop(read(b, 16)?),
            nvtx::kind::START => Body::Start(read(b, 16)?),
            nvtx::kind::END => Body::End(read(b, 16)?),
            nvtx::kind::MARK => Body::Mark(read(b, 16)?),
            stamp::kind::STAMPS => Body::Stamps(read(b, 16)?),
            stamp::kind::CLOCK => Body::GpuClock(read(b, 16)?),
            stamp::kind::ENDS => {
                let e: stamp::EndsBody = read(b, 16)?;
                Body::Ends(e, tail(16, e.count.checked_mul(size_of::<stamp::End>() as u32)?)?)
            }
            stamp::kind::COPIED => Body::Copied(read(b, 16)?),
            stamp::kind::LAUNCHED => {
                let l: stamp::LaunchedBody = read(b, 16)?;
                Body::Launched(l, tail(24, l.runs.checked_mul(size_of::<stamp::Run>() as u32)?)?)
            }
            _ => Body::Unknown,
        };
        Some((Event { head, body }, len))
    }
}

/// The frames of a [`Body::PythonStack`].
pub fn python_frames(bytes: &[u8]) -> impl Iterator<Item = python::Frame> + '_ {
    bytes.chunks_exact(size_of::<python::Frame>()).filter_map(|b| read(b, 0))
}

/// The ends of a [`Body::Ends`].
pub fn ends(bytes: &[u8]) -> impl Iterator<Item = stamp::End> + '_ {
    bytes.chunks_exact(size_of::<stamp::End>()).filter_map(|b| read(b, 0))
}

/// The QMDs of a [`Body::Launched`], in the order of their numbers.
pub fn qmds(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let runs = bytes.chunks_exact(size_of::<stamp::Run>()).filter_map(|b| read::<stamp::Run>(b, 0));
    let each = runs.flat_map(|run| (0..run.count.into()).map(move |i| run.qmd.saturating_add(stamp::STRIDE * i)));
    each.take(stamp::SLOTS as usize)
}

/// Begin and end of each fault of a [`Body::Faults`], the first of which began at `began`.
pub fn faults(began: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, u64)> + '_ {
    let all = bytes.chunks_exact(size_of::<fault::Fault>()).filter_map(|b| read::<fault::Fault>(b, 0));
    all.scan(began, |now, f| {
        let from = now.saturating_add(f.after.into());
        *now = from.saturating_add(f.ticks.into());
        Some((from, *now))
    })
}

/// Events of a chunk, in order. Stops at the first bytes that are no event; [`Events::rest`] returns how many were left.
pub struct Events<'a> {
    bytes: &'a [u8],
}

impl<'a> Events<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Events { bytes }
    }

    /// Bytes not yet parsed.
    pub fn rest(&self) -> usize {
        self.bytes.len()
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        let (e, n) = Event::parse(self.bytes)?;
        self.bytes = &self.bytes[n..];
        Some(e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_bodies_bytes() {
        let ring = RingBody {
            token: 1,
            slot: 2,
            seq: 3,
            put_from: 4,
            put_to: 5,
            tid: 6,
            page: 7,
            function: 8,
            call: 9,
            stream: 10,
            object: 11,
            kernel: 12,
            python: 13,
            pad: 0,
        };
        assert_eq!(ring.words_with_python().map(u64::to_ne_bytes).concat(), bytes_of(&ring));
        let entry = EntryBody { gp: 1 << 63 | 1, seq: 2, slot: 3, index: 4, words: 5, lack: 6 };
        assert_eq!(entry.words().map(u64::to_ne_bytes).concat(), bytes_of(&entry));
    }
}
