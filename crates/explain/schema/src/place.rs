//! Where memory lies.

use serde::{Deserialize, Serialize};

/// Where the bytes behind a GPU virtual address lie, as far as the driver calls on the tape say.
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
