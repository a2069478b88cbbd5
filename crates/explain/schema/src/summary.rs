//! The overview that `show` prints of a recording.

use crate::channel::Channel;
use crate::kernel_times::KernelTimes;
use crate::operations::Shape;
use crate::place::Place;
use crate::processes::{HowEnded, ProcessRow, UnwatchedRow};
use crate::ranges::Watched;
use crate::streams::StreamKind;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use tape::file::RecorderUse;

/// All that the overview of `show` contains.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Summary {
    pub program: Program,
    /// The doorbell that recorded it, and the machine.
    pub recorded_by: RecordedBy,
    /// The first reading of the clocks, from which times in seconds count.
    pub clock: Option<FirstClock>,
    /// `followed`, or `not recorded` if the recording comes from an older doorbell: then the program's children and its
    /// execs are not known.
    pub children: Cow<'static, str>,
    /// If there is no submission: the usual reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nothing: Option<Cow<'static, str>>,
    /// Version of the NVIDIA driver, or `soft`.
    pub driver: String,
    /// Name of the GPU.
    pub gpu: String,
    /// Device instances of the GPUs that its channels are on.
    pub gpus: Vec<u32>,
    /// Version of CUDA, if known.
    pub cuda: Option<String>,
    pub tap: Tap,
    /// The recorded lock events: `all` operations or `waits` only; absent if locks were not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locks: Option<Cow<'static, str>>,
    /// From the first clock reading to the last, or the recorder's value at the end.
    pub seconds: Option<f64>,
    /// Doorbells with GPFIFO entries (on a channel whose ring cannot be seen: all its doorbells).
    pub submissions: u64,
    /// Stores to a doorbell.
    pub doorbells: u64,
    /// GPFIFO entries on the tape.
    pub entries: u64,
    /// Everything that this kind of recording can hold is on the tape.
    pub complete: bool,
    /// Why it is not complete, one sentence each; empty if it is.
    pub incomplete_because: Vec<String>,
    /// The newest part of a recording that kept no more (`record --last`): the part that is left out on purpose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved: Option<Saved>,
    /// Times in which only driver calls were recorded, on request of the user or the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pauses: Option<Pauses>,
    /// Resources of the recorder; absent if the recording has no end, or is older.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorder: Option<RecorderUse>,
    /// NVTX ranges, if they were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvtx: Option<Watched>,
    /// Times of kernels, if they were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_times: Option<Vec<KernelTimes>>,
    /// GPFIFO entries that were rung but are not on the tape. If none is missing: events of locks and calls that did not
    /// fit into the rings.
    pub lost: u64,
    pub lost_detail: Lost,
    /// Bytes of all segments that the entries name.
    pub command_bytes: u64,
    /// Those among them that are on the tape.
    pub command_bytes_recorded: u64,
    pub copies: Copies,
    /// Fills by the copy engine.
    pub fills: u64,
    /// Bytes of the fills.
    pub fill_bytes: u64,
    pub semaphores: Semaphores,
    /// Launches of a grid. Kernels that a graph starts from QMDs in memory are not among them; see `launch_detail`.
    pub launches: u64,
    pub launch_detail: Launches,
    /// The most frequent shapes of launches.
    pub launch_shapes: Vec<LaunchShape>,
    pub channels: u64,
    pub channel_list: Vec<Channel>,
    /// Streams that were created with a priority, or in a green context.
    pub streams: Vec<StreamKind>,
    pub problems: Problems,
    /// Instructions that ring doorbells.
    pub sites: Vec<Site>,
    /// Doorbell pages.
    pub pages: Vec<Page>,
    pub notes: Vec<String>,
    /// What the agent had trouble with.
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
    /// Its arguments; null with `--no-args`.
    pub args: Option<Vec<String>>,
    pub pid: i32,
    /// When the recording began, RFC 3339.
    pub started: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RecordedBy {
    /// doorbell's version.
    pub doorbell: String,
    /// Name of the machine.
    pub host: String,
    /// Release of its kernel.
    pub kernel: String,
    /// Its processor.
    pub cpu: String,
}

/// Clocks read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstClock {
    /// CLOCK_MONOTONIC.
    #[serde(serialize_with = "crate::wide::decimal", deserialize_with = "crate::wide::read_decimal")]
    pub monotonic_ns: u64,
    /// CLOCK_REALTIME.
    #[serde(serialize_with = "crate::wide::decimal", deserialize_with = "crate::wide::read_decimal")]
    pub realtime_ns: u64,
    /// Largest error of the reading.
    pub error_ns: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tap {
    /// As requested.
    pub asked: String,
    /// Doorbells on the tape that a trap saw.
    pub trapped: u64,
    /// Doorbells on the tape that a rewritten site saw.
    pub rewritten: u64,
    /// Rung by a thread that found the channel's tap busy.
    pub handed_over: u64,
    /// Sites that were rewritten.
    pub sites_patched: u64,
}

/// The newest part of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// The trigger: `call > 5ms`, `SIGUSR1`, `the program ended`.
    pub reason: String,
    /// The event, in words. May be empty.
    pub what: String,
    /// Number of the file in this recording, from 1.
    pub number: u32,
    /// Seconds that the file covers, up to its end.
    pub seconds: f64,
    /// Left out, from the time before: events that concern only one moment, their bytes, and the doorbells among them.
    pub events: u64,
    pub bytes: u64,
    pub doorbells: u64,
    /// Processes that ended before that time.
    pub processes: u64,
    /// Driver calls, names and other lasting facts for which there was no memory.
    pub forgotten: u64,
}

/// The pauses of all processes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pauses {
    pub count: u64,
    pub seconds: f64,
    /// Doorbells during the pauses.
    pub doorbells: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Lost {
    /// Entries that the channels' final GP_PUTs account for and the tape lacks.
    pub by_channels: u64,
    /// Entries in gaps that were counted.
    pub by_gaps: u64,
    /// Events that did not fit into the rings, or occurred after the recording had stopped.
    pub gap_events: u64,
    /// Bytes of those events.
    pub gap_bytes: u64,
    /// Channels with a known lower bound only (no final GP_PUT on the tape).
    pub channels_unaccounted: u64,
    /// Doorbells that are not on the tape, by the channels' ring counters.
    pub rings_missing: u64,
    /// Doorbells of channels whose ring cannot be seen: their submissions are not on the tape.
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
    /// Writes whose bytes were in the command stream, except for those of launches.
    pub inline: u64,
    pub inline_detail: Transfers,
    /// Inline writes that carried a launch's QMD or constants.
    pub inline_for_launches: u64,
    /// Bytes of those.
    pub inline_for_launches_bytes: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Transfers {
    pub bytes: u64,
    /// By the places of source and destination.
    pub by_place: Vec<Direction>,
    pub sizes: Vec<Bucket>,
    /// Exact sizes with their counts, the most frequent first.
    pub commonest_sizes: Vec<SizeCount>,
    /// Transfers of sizes beyond the limit, which are counted together.
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
    /// Largest size that falls into it, bytes.
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
    /// Which GPU's memory, if it is a GPU's.
    pub to_gpu: Option<u32>,
    pub count: u64,
    pub bytes: u64,
    /// Transfers with known GPU times (`record --gpu-times`), with their bytes, their time and the longest.
    pub timed: u64,
    /// Their bytes.
    pub timed_bytes: u64,
    /// Their time on the GPU, all together.
    pub gpu_ns: u64,
    /// The longest of them.
    pub longest_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Semaphores {
    /// Releases.
    pub released: u64,
    /// Acquires.
    pub acquired: u64,
    /// Releases that also write the GPU's time.
    pub timestamps: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launches {
    /// QMDs sent to the compute engine: by SEND_PCAS_A, and in methods.
    pub by_pcas: u64,
    /// Sent in methods.
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
    /// Distinct shapes.
    pub shapes: u64,
    /// Launches of shapes or programs beyond the limit: then the two numbers above are lower bounds.
    pub not_told_apart: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchShape {
    #[serde(flatten)]
    pub shape: Shape,
    pub count: u64,
}

/// Parts that could not be decoded.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Problems {
    /// Methods without a name, by class and offset.
    pub unknown_methods: Vec<UnknownMethod>,
    /// Words that should be a header and are none.
    pub bad_headers: u64,
    /// Words after an END_PB_SEGMENT.
    pub skipped_words: u64,
    /// Segments whose address has no CPU mapping: only the address is on the tape.
    pub unmapped_segments: u64,
    /// Bytes of those segments.
    pub unmapped_bytes: u64,
    /// Segments longer than their recorded part.
    pub cut_segments: u64,
    /// Segments some of whose words did not fit into the rings.
    pub torn_segments: u64,
    /// Segments whose words were read long after the doorbell: another thread may have overwritten them.
    pub late_segments: u64,
    /// Segments whose words were still to be copied when the program died. Their entries are not lost.
    pub uncopied_segments: u64,
    /// Entries after a hole in their channel's counter.
    pub holes: u64,
    /// Operations that use a register which was last set in words that are missing.
    pub guessed: u64,
    /// Events of unknown kinds.
    pub unknown_events: u64,
    /// Bytes that are no event.
    pub stray_bytes: u64,
    /// Doorbells out of turn.
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
    /// Path of the module.
    pub module: String,
    pub offset: u64,
    /// It was rewritten.
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
    /// Its doorbells are seen.
    pub tapped: bool,
}
