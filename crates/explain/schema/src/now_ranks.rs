//! The ranks of a job at one moment.

use crate::now::NowCall;
use serde::Serialize;

/// A rank: a process of a job.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NowRank {
    /// From the environment that its launcher made; null if that has none.
    pub rank: Option<u32>,
    pub pid: i32,
    /// Empty with `record --no-args`.
    pub program: String,
    /// The process's state, as of a thread.
    pub state: String,
    /// Collectives (kernels of NCCL that all ranks run together) that it has launched since it is recorded.
    pub collectives: u64,
    /// Others wait for this rank: so many collectives they have launched that it has not, of one stream. Else 0.
    pub behind: u64,
    /// The collective that it launched first of those that are not known to have ended. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collective: Option<NowCollective>,
    /// The CUDA call in which one of its threads has been longest, else absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<NowCall>,
    /// The thread that launched its last collective; without one, the thread in that call, else the first.
    pub tid: i32,
    /// What that thread does, in words.
    pub does: String,
}

/// A collective that has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NowCollective {
    pub name: String,
    /// Its number among the collectives of its stream, from 1.
    pub number: u64,
    /// The stream's handle.
    #[serde(serialize_with = "crate::wide::hex")]
    pub stream: u64,
    /// Time since its launch.
    pub ns: u64,
}

/// A recorder that was asked with `--all`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NowRecorder {
    /// The program that it started.
    pub pid: i32,
    /// Empty with `record --no-args`, and if the recorder did not answer.
    pub program: String,
    /// Why there is nothing of it here, else absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}
