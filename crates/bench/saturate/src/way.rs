//! How a copy engine gets an I/O and reports its completion. The cost of each choice is found by changing one at a time.

use serde::{Deserialize, Serialize};

/// How a copy is launched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It may overlap earlier ones; a separate release follows.
    #[default]
    Pipelined,
    /// It begins when the earlier ones are done.
    Plain,
    /// The release is in the same launch as the copy.
    Folded,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Mode::Pipelined => "pipelined",
            Mode::Plain => "plain",
            Mode::Folded => "folded",
        })
    }
}

/// What the engine flushes before it writes an I/O's completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Flush {
    /// For all readers: the bytes are there when the completion is seen.
    #[default]
    All,
    /// For who looks through the GPU (FLUSH_TYPE=GL).
    Local,
    /// Nothing.
    None,
}

/// Which memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    Video,
    Host,
}

/// One way. The default was the fastest with a flushed completion for each I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Way {
    /// Null: the source's.
    pub mode: Option<Mode>,
    pub flush: Flush,
    /// I/Os per completion; null: as many as per doorbell.
    pub completions_every: Option<u32>,
    /// The memory of the GPFIFO entries and of the commands of copies.
    pub commands: Memory,
    /// The memory in which the engine writes completions, and the CPU polls them.
    pub completions: Memory,
}

impl Default for Way {
    fn default() -> Way {
        Way {
            mode: None,
            flush: Flush::All,
            completions_every: None,
            commands: Memory::Video,
            completions: Memory::Host,
        }
    }
}

impl Way {
    /// Whether this way is possible with this many I/Os per doorbell, at this depth.
    pub fn fits(self, batch: u32, depth: u32) -> bool {
        let alone = batch <= 1;
        let every = match self.completions_every {
            None => true,
            // I/Os that are submitted alone have a completion each by default.
            Some(every) if alone => every > 1 && every <= depth && self.flush == Flush::All,
            Some(every) => every == 1,
        };
        every && (alone || self.flush == Flush::All && self.mode.is_none())
    }
}

/// The values that differ from the default; empty if none does.
impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let usual = Way::default();
        let mode = self.mode.map(|mode| mode.to_string());
        let flush = match self.flush {
            Flush::All => None,
            Flush::Local => Some("local flush".to_owned()),
            Flush::None => Some("no flush".to_owned()),
        };
        let every = self.completions_every.map(|every| match every {
            1 => "a completion each".to_owned(),
            every => format!("a completion every {every}"),
        });
        let commands = (self.commands != usual.commands).then(|| "commands in host memory".to_owned());
        let completions = (self.completions != usual.completions).then(|| "completions in GPU memory".to_owned());
        let all: Vec<String> = [mode, flush, every, commands, completions].into_iter().flatten().collect();
        f.write_str(&all.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_prints_what_differs_from_the_default() {
        let all = Way {
            mode: Some(Mode::Folded),
            flush: Flush::None,
            completions_every: Some(8),
            commands: Memory::Host,
            completions: Memory::Video,
        };
        assert_eq!(Way::default().to_string(), "");
        assert_eq!(
            all.to_string(),
            "folded, no flush, a completion every 8, commands in host memory, completions in GPU memory"
        );
    }

    #[test]
    fn a_way_that_a_batch_has_anyway_or_cannot_have_does_not_fit() {
        let every = |n| Way { completions_every: Some(n), ..Way::default() };
        let (loose, plain) =
            (Way { flush: Flush::None, ..every(8) }, Way { mode: Some(Mode::Plain), ..Way::default() });
        for (way, batch, fits) in [
            (Way::default(), 1, true),
            (Way::default(), 32, true),
            (every(1), 1, false),
            (every(8), 1, true),
            (every(129), 1, false),
            (every(1), 32, true),
            (every(32), 32, false),
            (loose, 1, false),
            (plain, 1, true),
            (plain, 8, false),
        ] {
            assert_eq!(way.fits(batch, 128), fits, "{way}, {batch}");
        }
    }
}
