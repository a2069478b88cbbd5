//! What `show` says of a recording at a glance.

use crate::channel::Channel;
use crate::kernel_times::KernelTimes;
use crate::operations::Shape;
use crate::place::Place;
use crate::processes::{HowEnded, ProcessRow, UnwatchedRow};
use crate::ranges::Watched;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use tape::file::RecorderUse;

/// Everything that `show` says of a recording at a glance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Summary {
    pub program: Program,
    /// Which doorbell recorded it, on which machine.
    pub recorded_by: RecordedBy,
    /// The first reading of the clocks, where times in seconds count from.
    pub clock: Option<FirstClock>,
    /// `followed`, or `not recorded` where the recording is of an older doorbell: then nothing is known of the program's children and of what it execs.
    pub children: Cow<'static, str>,
    /// Where there is no submission: what that usually means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nothing: Option<Cow<'static, str>>,
    pub driver: String,
    pub gpu: String,
    /// Device instances of the GPUs that its channels are on.
    pub gpus: Vec<u32>,
    pub cuda: Option<String>,
    pub tap: Tap,
    /// What of locks was recorded: `all` operations or `waits` only; absent if nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locks: Option<Cow<'static, str>>,
    /// From the first clock reading to the last, or what the recorder said at the end.
    pub seconds: Option<f64>,
    /// Rings that brought GPFIFO entries (on a channel whose ring cannot be seen: all its rings).
    pub submissions: u64,
    /// Stores to a doorbell.
    pub doorbells: u64,
    /// GPFIFO entries on the tape.
    pub entries: u64,
    /// Everything that this kind of recording can hold is on the tape.
    pub complete: bool,
    /// Why it is not complete, one sentence each; empty if it is.
    pub incomplete_because: Vec<String>,
    /// The newest part of a recording that kept no more (`record --last`): what is left out on purpose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved: Option<Saved>,
    /// Times in which nothing was recorded but driver calls, because the user or the program said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pauses: Option<Pauses>,
    /// What the recorder used; absent where the recording has no end, or is older.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorder: Option<RecorderUse>,
    /// Ranges of NVTX, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvtx: Option<Watched>,
    /// Times of kernels, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_times: Option<Vec<KernelTimes>>,
    /// GPFIFO entries that were rung but are not on the tape. Where none is missing: events of locks and calls that did not fit into the rings.
    pub lost: u64,
    pub lost_detail: Lost,
    /// Bytes of all segments that the entries name.
    pub command_bytes: u64,
    /// Those of them that are on the tape.
    pub command_bytes_recorded: u64,
    pub copies: Copies,
    /// Fills by the copy engine.
    pub fills: u64,
    pub fill_bytes: u64,
    pub semaphores: Semaphores,
    /// Launches of a grid. What a graph starts from QMDs that lie in memory is not among them, see `launch_detail`.
    pub launches: u64,
    pub launch_detail: Launches,
    /// The commonest shapes of launches.
    pub launch_shapes: Vec<LaunchShape>,
    pub channels: u64,
    pub channel_list: Vec<Channel>,
    pub problems: Problems,
    /// Instructions that ring doorbells.
    pub sites: Vec<Site>,
    /// Doorbell pages.
    pub pages: Vec<Page>,
    pub notes: Vec<String>,
    pub trouble: Vec<String>,
    pub end: Option<HowEnded>,
    pub driver_calls: u64,
    /// Process images in the order in which they began; all numbers above are totals over them.
    pub processes: Vec<ProcessRow>,
    /// Programs that were started and could not be recorded.
    pub unwatched: Vec<UnwatchedRow>,
    /// Why reading stopped before the end of the file.
    pub damage: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Program {
    pub exe: String,
    pub args: Option<Vec<String>>,
    pub pid: i32,
    pub started: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RecordedBy {
    /// doorbell's version.
    pub doorbell: String,
    pub host: String,
    pub kernel: String,
    pub cpu: String,
}

/// Clocks read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstClock {
    /// CLOCK_MONOTONIC and CLOCK_REALTIME.
    #[serde(serialize_with = "crate::wide::decimal", deserialize_with = "crate::wide::read_decimal")]
    pub monotonic_ns: u64,
    #[serde(serialize_with = "crate::wide::decimal", deserialize_with = "crate::wide::read_decimal")]
    pub realtime_ns: u64,
    /// Largest error of the reading.
    pub error_ns: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tap {
    /// As asked for.
    pub asked: String,
    /// Doorbells on the tape that a trap saw, and that a rewritten site saw.
    pub trapped: u64,
    pub rewritten: u64,
    /// Rung by a thread that found the channel's tap busy.
    pub handed_over: u64,
    pub sites_patched: u64,
}

/// The newest part of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// What was waited for: `call > 5ms`, `SIGUSR1`, `the program ended`.
    pub reason: String,
    /// What happened, in words. May be empty.
    pub what: String,
    /// Number of the file in this recording, from 1.
    pub number: u32,
    /// Seconds that the file covers, up to its end.
    pub seconds: f64,
    /// Of the time before: events that tell only of one moment, with their bytes, and doorbells among them.
    pub events: u64,
    pub bytes: u64,
    pub doorbells: u64,
    /// Processes that ended before that time.
    pub processes: u64,
    /// Driver calls, names and other lasting things that there was no memory to keep.
    pub forgotten: u64,
}

/// Those of all processes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pauses {
    pub count: u64,
    pub seconds: f64,
    /// Doorbells that went by in them.
    pub doorbells: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Lost {
    /// What the channels' final GP_PUTs account for and the tape lacks.
    pub by_channels: u64,
    /// Entries in gaps that were counted.
    pub by_gaps: u64,
    /// Events that did not fit into the rings, or came after the recording had stopped.
    pub gap_events: u64,
    pub gap_bytes: u64,
    /// Channels of which only a lower bound is known (no final GP_PUT on the tape).
    pub channels_unaccounted: u64,
    /// Doorbells that are not on the tape, by the channels' ring counters.
    pub rings_missing: u64,
    /// Doorbells of channels whose ring cannot be seen: what they submitted is not on the tape.
    pub blind_rings: u64,
    /// Entries written but not rung when the program died: not lost.
    pub unrung: u64,
    /// Doorbells with a token of no known channel: their entries are not on the tape and not counted.
    pub strangers: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Copies {
    /// Copies by a copy engine.
    pub copy_engine: u64,
    pub copy_engine_detail: Transfers,
    /// Writes whose bytes came in the command stream, those of launches left out.
    pub inline: u64,
    pub inline_detail: Transfers,
    /// Inline writes that carried a launch's QMD or constants.
    pub inline_for_launches: u64,
    pub inline_for_launches_bytes: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Transfers {
    pub bytes: u64,
    /// By where source and destination lie.
    pub by_place: Vec<Direction>,
    pub sizes: Vec<Bucket>,
    /// Exact sizes with their counts, the commonest first.
    pub commonest_sizes: Vec<SizeCount>,
    /// Transfers whose sizes were too many to be told apart.
    pub other_sizes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeCount {
    pub bytes: u64,
    pub count: u64,
}

/// A power of two of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Smallest and largest size that falls into it, bytes.
    pub from: u64,
    pub to: u64,
    pub count: u64,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Direction {
    /// `None` for inline data.
    pub from: Option<Place>,
    /// Which GPU's memory, if it is a GPU's.
    pub from_gpu: Option<u32>,
    pub to: Place,
    pub to_gpu: Option<u32>,
    pub count: u64,
    pub bytes: u64,
    /// Transfers of which the GPU's times are known (`record --gpu-times`), with their bytes, their time and the longest.
    pub timed: u64,
    pub timed_bytes: u64,
    pub gpu_ns: u64,
    pub longest_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Semaphores {
    pub released: u64,
    pub acquired: u64,
    /// Releases that write the GPU's time as well.
    pub timestamps: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launches {
    /// QMDs sent to the compute engine: by SEND_PCAS_A, and in methods.
    pub by_pcas: u64,
    pub by_inline_qmd: u64,
    /// QMDs without blocks: they only order or start others (the driver sends one before many a kernel, and as a graph's
    /// root). Not launches.
    pub empty: u64,
    /// QMDs sent again without being written in between, as when a graph is launched again: the kernels that they start
    /// from memory are not in the stream.
    pub again: u64,
    /// Launches whose QMD was never in the stream.
    pub without_qmd: u64,
    /// Distinct kernels, by their address.
    pub programs: u64,
    pub shapes: u64,
    /// Launches whose shapes or programs were too many to be told apart: then the two numbers above are lower bounds.
    pub not_told_apart: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchShape {
    #[serde(flatten)]
    pub shape: Shape,
    pub count: u64,
}

/// What could not be decoded.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Problems {
    /// Methods of no name, by class and offset.
    pub unknown_methods: Vec<UnknownMethod>,
    /// Words that are no header where one must stand.
    pub bad_headers: u64,
    /// Words behind an END_PB_SEGMENT.
    pub skipped_words: u64,
    /// Segments whose address has no CPU mapping: only the address is on the tape.
    pub unmapped_segments: u64,
    pub unmapped_bytes: u64,
    /// Segments longer than is recorded.
    pub cut_segments: u64,
    /// Segments of which words did not fit into the rings.
    pub torn_segments: u64,
    /// Segments whose words were read long after the doorbell: another thread may have written over them.
    pub late_segments: u64,
    /// Segments whose words were still to be copied when the program died. Their entries are not lost.
    pub uncopied_segments: u64,
    /// Entries behind a hole in their channel's counter.
    pub holes: u64,
    /// Operations that use a register which was last set in words that are missing.
    pub guessed: u64,
    pub unknown_events: u64,
    pub stray_bytes: u64,
    pub late_rings: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownMethod {
    pub class: u32,
    pub offset: u16,
    pub count: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Site {
    /// Index of the process image.
    pub process: u32,
    pub address: u64,
    pub module: String,
    pub offset: u64,
    pub patched: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<Cow<'static, str>>,
    /// Hexadecimal bytes of the code.
    pub code: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Page {
    /// Index of the process image.
    pub process: u32,
    pub address: u64,
    pub class: u32,
    pub handle: u32,
    pub tapped: bool,
}
