//! Where memory is.

use serde::{Deserialize, Serialize};

/// Where the memory at a GPU virtual address is, according to the driver calls on the tape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// GPU memory.
    Video,
    /// System memory.
    Host,
    /// No mapping on the tape covers it (managed memory, a peer's memory, or made before recording began).
    #[default]
    Unknown,
}

impl Place {
    /// For people: `GPU`, with `memory` after it where a sentence needs it.
    pub fn name(self) -> &'static str {
        match self {
            Place::Video => "GPU",
            Place::Host => "host",
            Place::Unknown => "?",
        }
    }

    /// As the folder of a run stores it.
    pub fn key(self) -> &'static str {
        match self {
            Place::Video => "video",
            place => place.name(),
        }
    }
}
