//! How many kernels of a process have a time, and why the others have none (`record --gpu-times`).

use serde::{Deserialize, Deserializer, Serialize};

/// The kernels of one process image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelTimes {
    pub process: u32,
    pub pid: i32,
    pub state: State,
    /// CUDA's return value if `state` is `refused` (CUresult); 0 if there was no address for the memory.
    pub cuda_result: Option<u32>,
    /// Runs of kernels on the tape, and those among them that have a time.
    pub kernels: u64,
    /// Those of them that have a time.
    pub timed: u64,
    /// Times that the GPU was ordered to store: one for a kernel, two for a copy. `None` if the end of the process is
    /// not on the tape.
    pub stamped: Option<u64>,
    /// Those among them that are on the tape.
    pub ends: u64,
    /// Why the others have none. These add up to `kernels` minus `timed`.
    pub lacking: Vec<LackingRow>,
}

/// Kernels without a time, for one reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LackingRow {
    pub reason: Reason,
    pub kernels: u64,
    /// The reason in words, and a remedy if there is one.
    pub text: &'static str,
    /// What to do about it; null where nothing is known.
    pub hint: Option<&'static str>,
}

/// The part that is read back: the rest is derived.
#[derive(Deserialize)]
struct Lacking {
    reason: Reason,
    kernels: u64,
}

impl<'de> Deserialize<'de> for LackingRow {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<LackingRow, D::Error> {
        Lacking::deserialize(from).map(|row| LackingRow::of(row.reason, row.kernels))
    }
}

impl LackingRow {
    pub fn of(reason: Reason, kernels: u64) -> LackingRow {
        LackingRow { reason, kernels, text: reason.text(), hint: reason.hint() }
    }
}

/// Whether times of a process were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// They were recorded, to the end.
    On,
    /// CUDA did not map the memory for them.
    Refused,
    /// The program's CUDA lacks the functions that map it.
    NoFunction,
    /// They were recorded until their context was destroyed.
    ContextGone,
    /// No launch was seen before which the memory could have been mapped.
    NotBegun,
    /// CUPTI was taking times in the program when it ended, or when the recording did.
    Cupti,
    /// The program has a part of a GPU (MIG).
    Divided,
    /// Confidential computing is on.
    Confidential,
}

impl State {
    /// The reason for a kernel without a time that has no other reason.
    pub fn reason(self) -> Option<Reason> {
        match self {
            State::On => None,
            State::Refused => Some(Reason::Refused),
            State::NoFunction => Some(Reason::NoFunction),
            State::ContextGone => Some(Reason::ContextGone),
            State::NotBegun => Some(Reason::NotBegun),
            State::Cupti => Some(Reason::Cupti),
            State::Divided => Some(Reason::Divided),
            State::Confidential => Some(Reason::Confidential),
        }
    }
}

/// Why a kernel has no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    NotUnderstood,
    WordsInUse,
    OtherVersion,
    SlotsFull,
    NoShadow,
    OtherGpu,
    NotMapped,
    NoClock,
    Refused,
    NoFunction,
    ContextGone,
    NotBegun,
    GivenUp,
    NotEnded,
    GraphAgain,
    PastCuda,
    UploadedBefore,
    NotKnown,
    Cupti,
    Divided,
    Confidential,
}

impl Reason {
    pub fn text(self) -> &'static str {
        match self {
            Reason::NotUnderstood => "launches whose kernels are not known",
            Reason::WordsInUse => "the program or its profiler uses the words that would store the end",
            Reason::OtherVersion => "the GPU describes kernels in a version that doorbell does not know",
            Reason::SlotsFull => "more than 260,000 kernels were in flight",
            Reason::NoShadow => "their channel has no shadow, so the GPU might have been reading their words already",
            Reason::OtherGpu => {
                "they ran on another GPU, before doorbell knew that its memory is mapped there, or where it is not"
            }
            Reason::NotMapped => "their GPU's first kernels, launched before CUDA had mapped doorbell's memory there",
            Reason::NoClock => "the GPU's clock was not read",
            Reason::Refused => "CUDA did not map doorbell's memory for the GPU",
            Reason::NoFunction => "the program's CUDA has no function that maps doorbell's memory for the GPU",
            Reason::ContextGone => "the context in which times were recorded was destroyed",
            Reason::NotBegun => "no call of CUDA's launched them that doorbell sees",
            Reason::GivenUp => "their end did not arrive, but those of 130,000 later ones did",
            Reason::NotEnded => "their end had not arrived when the recording ended",
            Reason::GraphAgain => "launches of a graph whose kernels could not each be told to store their end",
            Reason::PastCuda => {
                "launches of a graph by libdoorbell, or another library with its own channels: only launches by CUDA's calls get stamps"
            }
            Reason::UploadedBefore => "launches whose kernels were written before this part of the recording",
            Reason::NotKnown => "it is not known why",
            Reason::Cupti => "CUPTI was active: the program or its profiler had CUPTI take times",
            Reason::Divided => "the GPU is divided (MIG), where no times were seen yet",
            Reason::Confidential => "confidential computing is on: what is sent to the GPU is encrypted",
        }
    }

    /// What to do about it.
    pub fn hint(self) -> Option<&'static str> {
        Some(match self {
            Reason::NotUnderstood => "`show --graphs` has what is known of graphs",
            Reason::WordsInUse => "record without another profiler",
            Reason::OtherVersion => "record on an H100 or H200",
            Reason::SlotsFull => "wait for the GPU more often, or record a part of the program (`record --capture`)",
            Reason::NoShadow => "record without `--tap trap`, from the program's start",
            Reason::OtherGpu => "use one process for each GPU, if more than the first kernel of a GPU has no time",
            Reason::NotMapped => "launch a kernel on each GPU before the part that matters",
            Reason::NoClock => "record as a user who may open /dev/nvidiactl and the GPU's device file",
            Reason::Refused => "raise the limit of locked memory (`ulimit -l`)",
            Reason::NoFunction => "use the CUDA of a driver of branch 418 or later",
            Reason::ContextGone => "keep the first context until the end (no `cudaDeviceReset`)",
            Reason::NotBegun => "start the program under `doorbell record`",
            Reason::GivenUp => return None,
            Reason::NotEnded => "wait for the GPU (`cudaDeviceSynchronize`) before the program ends",
            Reason::GraphAgain => "record without `--tap trap`",
            Reason::PastCuda => "launch the graph by CUDA (`cudaGraphLaunch`) where its times matter",
            Reason::UploadedBefore => "give `--last` more: a graph is uploaded by its first launch",
            Reason::NotKnown => return None,
            Reason::Cupti => "record without torch.profiler, nsys or another user of CUPTI",
            Reason::Divided => "use a whole GPU",
            Reason::Confidential => "use a GPU without it",
        })
    }
}
