//! The processes of a recording.

use serde::{Deserialize, Serialize};

/// A process image: the result of one execve, or of one fork.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessRow {
    /// Number of the image in this recording; other rows refer to it as `process`.
    pub index: u32,
    pub pid: i32,
    /// 0 if it is not known.
    pub ppid: i32,
    /// Index of the parent's image, if that is recorded.
    pub parent: Option<u32>,
    /// 0 for the first image of a process, one more after each exec.
    pub image: u32,
    pub exe: String,
    /// Absent with `--no-args`.
    pub args: Option<Vec<String>>,
    pub rank: Option<RankRow>,
    /// When its recording began, seconds.
    pub began: Option<f64>,
    pub end: Option<HowEnded>,
    /// Nothing of it is missing.
    pub complete: bool,
    /// Why not, one sentence each.
    pub incomplete_because: Vec<String>,
    pub doorbells: u64,
    pub submissions: u64,
    pub entries: u64,
    /// Entries lost.
    pub lost: u64,
    pub copies: u64,
    pub launches: u64,
    pub channels: u64,
    pub driver_calls: u64,
}

/// A process's part in a job, as its launcher sets it in the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankRow {
    /// Rank in the job.
    pub rank: u32,
    /// Rank on this machine.
    pub local_rank: Option<u32>,
    /// Processes of the job.
    pub world_size: Option<u32>,
    /// `torchrun`, `slurm`, `openmpi` or `pmi`.
    pub launcher: String,
}

/// A program that was started and not recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UnwatchedRow {
    pub pid: i32,
    /// Index of the image that started it, if that is recorded.
    pub parent: Option<u32>,
    /// Empty with `--no-args`.
    pub path: String,
    pub why: String,
    pub seconds: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HowEnded {
    /// How it ended, in words.
    pub how: String,
    /// Exit status, if it exited.
    pub exit_code: Option<i32>,
    /// Signal, if one ended it.
    pub signal: Option<i32>,
}
