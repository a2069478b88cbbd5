//! Where memory is.

use serde::{Deserialize, Serialize};

/// Where the memory at a GPU virtual address is, according to the driver calls on the tape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The GPU's own memory.
    Video,
    /// System memory.
    Host,
    /// No mapping on the tape covers it (managed memory, a peer's memory, or made before recording began).
    #[default]
    Unknown,
}

impl Place {
    pub fn name(self) -> &'static str {
        match self {
            Place::Video => "video",
            Place::Host => "host",
            Place::Unknown => "?",
        }
    }
}
