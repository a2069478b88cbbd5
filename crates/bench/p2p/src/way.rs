//! The methods of a matrix.

use serde::{Deserialize, Serialize};
use std::fmt;
use workload::Machine;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// A copy engine of the source GPU, on doorbell's own channel.
    Ce,
    /// A kernel of that GPU, with 16 bytes a load and store.
    Sm,
    /// CUDA's own copies (cuMemcpyPeerAsync), peer access on.
    Cuda,
    /// Without peer access: through pinned host memory, in pieces, by two copy engines on doorbell's channels.
    Staged,
}

impl Way {
    pub const ALL: [Way; 4] = [Way::Ce, Way::Sm, Way::Cuda, Way::Staged];

    /// Its written name.
    pub fn name(self) -> &'static str {
        match self {
            Way::Ce => "ce",
            Way::Sm => "sm",
            Way::Cuda => "cuda",
            Way::Staged => "staged",
        }
    }

    /// Whether the bytes are copied from GPU to GPU without the host's memory.
    pub fn is_peer(self) -> bool {
        self != Way::Staged
    }

    pub fn about(self) -> &'static str {
        match self {
            Way::Ce => "copy engine, P2P on",
            Way::Sm => "kernel, P2P on",
            Way::Cuda => "CUDA (cuMemcpyPeerAsync), P2P on",
            Way::Staged => "P2P off: staged through pinned host memory by doorbell, two copy engines",
        }
    }

    /// The route; for the staged method, the two halves.
    pub(crate) fn routes(self, machine: &Machine, from: u32, to: u32) -> Result<[String; 2], workload::Unavailable> {
        let one = |executor: &str| Ok([format!("gpu{from}->{executor}->gpu{to}"), String::new()]);
        match self {
            Way::Ce => one(&format!("ce{}", machine.gpu(from)?.engine_between_gpus())),
            Way::Sm => one("sm[polled]"),
            Way::Cuda => one("cuda"),
            Way::Staged => {
                let out = machine.gpu(from)?.engine_for_host(false);
                let into = machine.gpu(to)?.engine_for_host(true);
                Ok([format!("gpu{from}->ce{out}->host"), format!("host->ce{into}->gpu{to}")])
            }
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
