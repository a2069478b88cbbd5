//! The chunks that are JSON. Every field has a default: an older tape lacks some, a newer one has more.

use serde::{Deserialize, Serialize};

/// Facts about the recording and the machine that are not in the events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// doorbell's version.
    pub doorbell: String,
    /// The first program's. Absent with `--no-args`.
    pub args: Option<Vec<String>>,
    pub exe: String,
    /// RFC 3339, UTC.
    pub started: String,
    /// NVIDIA driver, or `soft` for the software GPU.
    pub driver: String,
    pub gpu: String,
    pub cuda: Option<String>,
    pub kernel: String,
    pub cpu: String,
    pub host: String,
    /// Time stamp counter ticks a second.
    pub tsc_hz: f64,
    /// `auto`, `trap` or `patch`, as asked for.
    pub tap: String,
    /// Payloads were dropped (`--no-data`).
    pub no_data: bool,
    /// Locks were recorded (`--locks`).
    pub locks: bool,
    /// Only waits for locks, and the holds that they were for (`--locks=waits`).
    pub lock_waits: bool,
    /// Python frames were asked for (`--python`).
    pub python: bool,
    /// Ends of kernels were asked for (`--gpu-times`).
    pub gpu_times: bool,
    /// This is the newest part of a recording that kept no more (`--last`).
    pub saved: Option<Saved>,
    pub extra: serde_json::Map<String, serde_json::Value>,
}

/// Why the newest part of a recording was saved, and which parts were deliberately left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Saved {
    /// The trigger: `call > 5ms`, `SIGUSR1`, `the program ended`; `part` for a recording in parts.
    pub reason: String,
    /// What happened, in words. May be empty.
    pub what: String,
    /// Time stamp counter when it happened.
    pub tsc: u64,
    /// Number of the file in this recording, from 1.
    pub number: u32,
    /// Time stamp counter where the part begins: it is complete from there on. 0: it is the whole recording.
    pub from_tsc: u64,
    /// Seconds from there to the save; 0 for a part of a recording in parts, which has it in its [`End`].
    pub seconds: f64,
    /// Left out from the time before: events that concern only one moment, with their bytes, and the doorbells among them.
    pub events: u64,
    pub bytes: u64,
    pub doorbells: u64,
    /// Processes that ended before.
    pub processes: u64,
    /// Driver calls, names and other lasting facts for which the memory was too small. They are lost.
    pub forgotten: u64,
}

/// Clocks read together: at the start, every minute, and at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    pub tsc: u64,
    /// CLOCK_MONOTONIC, ns.
    pub monotonic_ns: u64,
    /// CLOCK_REALTIME, ns.
    pub realtime_ns: u64,
    /// Largest error of the pair, ns: half the time between the two readings of the tsc around it.
    pub error_ns: u64,
}

/// A process image begins: what one execve, or one fork, made of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Number of the image in this recording, from 0 in the order in which they began to be recorded. Chunk heads carry it.
    pub index: u32,
    pub pid: i32,
    /// Parent as the image began to be recorded; 0 if it is not known.
    pub ppid: i32,
    /// The image of the nearest process above it that is recorded.
    pub parent: Option<u32>,
    /// The unrecorded processes between (shells, launchers), the nearest first; up to the first program if none above it
    /// is recorded.
    pub through: Vec<Ancestor>,
    /// How many images this process had before: 0 for the first, one more after each exec.
    pub image: u32,
    /// Empty with `--no-args`, or if /proc lacked it.
    pub exe: String,
    /// Absent with `--no-args`.
    pub args: Option<Vec<String>>,
    /// Time stamp counter when the image began to be recorded.
    pub start_tsc: u64,
    pub rank: Option<Rank>,
}

/// A process that is not recorded itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ancestor {
    pub pid: i32,
    /// From /proc/PID/comm. Empty with `--no-args`.
    pub name: String,
}

/// Which part of a job a process is, from its launcher's environment variables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rank {
    pub rank: u32,
    pub local_rank: Option<u32>,
    pub world_size: Option<u32>,
    /// `torchrun`, `slurm`, `openmpi` or `pmi` (MPICH and Intel MPI).
    pub launcher: String,
}

/// An image has ended, or is not recorded any further.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessEnd {
    /// [`Process::index`]
    pub index: u32,
    /// `exited 0`, `killed by signal 9`, `exec` (an image of the same process replaced it), `ended` (its status is not
    /// known), `still running`.
    pub how: String,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub seconds: f64,
    /// Doorbells seen by traps and by rewritten sites.
    pub trapped: u64,
    pub tapped: u64,
    /// Doorbells with a token of no known channel.
    pub strangers: u64,
    pub sites_patched: u32,
    /// Counted gaps: events and GPFIFO entries that did not fit into a ring, or were made after the recording stopped.
    pub gap_events: u64,
    pub gap_entries: u64,
    pub gap_bytes: u64,
    /// Doorbells that went by in pauses.
    pub paused_doorbells: u64,
    /// Calls that were too short to be written. 0 on older tapes.
    pub short_calls: u64,
    /// The state of Python frames, if they were requested: one of [`crate::python::state`].
    pub python: u32,
    /// Counts of its kernels' ends, if they were requested.
    pub kernel_ends: Option<KernelEnds>,
    /// The agent's troubles, in words.
    pub trouble: Vec<String>,
    /// Channels at the end, in particular those that the program did not free.
    pub channels: Vec<EndChannel>,
    /// The tape has everything of this image that was to be recorded.
    pub complete: bool,
    /// Why not, in words.
    pub incomplete_because: Vec<String>,
}

/// How many kernels of an image have their end on the tape (`--gpu-times`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelEnds {
    /// Kernels that were made to store their end; kernels of graphs count when the graph is uploaded.
    pub stamped: u64,
    /// Ends on the tape.
    pub ends: u64,
    /// Kernels without a stamp, by reason: all slots were in use, the program uses the words itself, the QMD's version is
    /// unknown, the channel has no shadow.
    pub slots_full: u64,
    pub words_in_use: u64,
    pub other_version: u64,
    pub no_shadow: u64,
    /// CUPTI was active. 0 on older tapes, as is the next field.
    pub by_cupti: u64,
    /// Stamped, but the end was not stored although many later ones were.
    pub given_up: u64,
}

/// A program that was started and cannot be recorded, or a process that could not be attached to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Unwatched {
    /// The first one's; 0 if it is not known.
    pub pid: i32,
    /// The process that started it.
    pub ppid: i32,
    /// Its image, if that one is recorded.
    pub parent: Option<u32>,
    /// Empty with `--no-args`.
    pub path: String,
    /// One of [`crate::session::unwatched::TEXT`].
    pub why: String,
    /// Time stamp counter when it was noted; 0 in a chunk that only counts.
    pub tsc: u64,
    /// How often the same was noted: 1 for the first, and, at the end of the recording, the number of the others.
    pub count: u64,
}

/// The last chunk but for the index.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// How the first program ended: `exited 0`, `killed by signal 9`, `recording stopped early: the disk is full` ...
    pub how: String,
    /// The first program's, as are the exit code and the signal.
    pub pid: i32,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub seconds: f64,
    /// Sums over all images from here.
    pub trapped: u64,
    pub tapped: u64,
    pub strangers: u64,
    pub sites_patched: u32,
    pub gap_events: u64,
    pub gap_entries: u64,
    pub gap_bytes: u64,
    /// Doorbells that went by in pauses.
    pub paused_doorbells: u64,
    /// Calls that were too short to be written. 0 on older tapes.
    pub short_calls: u64,
    /// The agents' troubles, in words.
    pub trouble: Vec<String>,
    /// The image's, if there is just one; else see each [`ProcessEnd`].
    pub channels: Vec<EndChannel>,
    /// True if an agent ever reported in.
    pub agent: bool,
    /// Images that were recorded.
    pub processes: u32,
    /// The recorder's own use of the machine.
    pub recorder_use: Option<RecorderUse>,
    /// The tape has everything that was to be recorded. For a tape of version 1 see `judge`.
    pub complete: bool,
    /// Why not, in words, starting with the most important reason.
    pub incomplete_because: Vec<String>,
}

/// A recorder's use of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecorderUse {
    /// CPU time of all its threads.
    pub user_seconds: f64,
    /// The same in the kernel.
    pub system_seconds: f64,
    /// Maximum of resident memory, including the rings that it shares with the program.
    pub peak_memory_bytes: u64,
    /// If events did not fit into the rings: how much later than planned the recorder looked at them, the worst of the times when some were lost.
    pub late_seconds: f64,
    /// How long it waited at that time until earlier events were packed and written.
    pub held_up_seconds: f64,
    /// The longest write to the file at that time.
    pub longest_write_seconds: f64,
}

impl End {
    /// For a tape of version 1: tapes that stopped early, counted gaps or had agents in trouble are not complete.
    pub(super) fn judge(&mut self) {
        if self.how.starts_with("recording stopped") {
            self.incomplete_because.push(self.how.clone());
        }
        if self.gap_events > 0 {
            self.incomplete_because.push(format!("{} events did not fit into the rings", self.gap_events));
        }
        self.complete = self.incomplete_because.is_empty();
        self.processes = self.agent.into();
    }

    /// The same, for the one image of a tape of version 1.
    pub(super) fn of_the_only_process(&self) -> ProcessEnd {
        let e = self.clone();
        ProcessEnd {
            index: 0,
            how: e.how,
            exit_code: e.exit_code,
            signal: e.signal,
            seconds: e.seconds,
            trapped: e.trapped,
            tapped: e.tapped,
            strangers: e.strangers,
            sites_patched: e.sites_patched,
            gap_events: e.gap_events,
            gap_entries: e.gap_entries,
            gap_bytes: e.gap_bytes,
            paused_doorbells: e.paused_doorbells,
            short_calls: e.short_calls,
            python: 0,
            kernel_ends: None,
            trouble: e.trouble,
            channels: e.channels,
            complete: e.complete,
            incomplete_because: e.incomplete_because,
        }
    }
}

/// A channel's last state, read from shared memory after the program ended, also after `kill -9`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndChannel {
    pub slot: u32,
    pub generation: u32,
    pub handle: u32,
    pub client: u32,
    pub token: u32,
    /// GP_PUT as last seen by the tap.
    pub put: u32,
    /// Entries it accounts for since the channel began, wraps counted.
    pub entries: u64,
    pub rings: u64,
    pub lost: u64,
    /// GP_PUT in the shadow USERD at the end, if there is one. It differs from `put` if the program died after writing it
    /// and before ringing.
    pub final_put: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_tape_has_fewer_counts_of_kernels() {
        let ends: KernelEnds = serde_json::from_str(r#"{"stamped": 3, "ends": 2, "slots_full": 1}"#).unwrap();
        assert_eq!(ends, KernelEnds { stamped: 3, ends: 2, slots_full: 1, ..KernelEnds::default() });
    }
}
