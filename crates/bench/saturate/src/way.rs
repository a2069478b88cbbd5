//! How a copy engine gets an I/O and says that it is done: what an I/O of its own costs is found by changing one of these at a time.

use serde::{Deserialize, Serialize};

/// How an engine is told of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It may overlap those before it; then a release of its own.
    #[default]
    Pipelined,
    /// It begins when those before it are done.
    Plain,
    /// The release in the same launch as the copy.
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
    /// For all who look: the bytes are there when the completion is seen.
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

/// One way; the default is what was found to be the fastest with a flushed completion for each I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Way {
    /// Null: the source's.
    pub mode: Option<Mode>,
    pub flush: Flush,
    /// I/Os that one completion tells of; null: as many as a doorbell announces.
    pub completions_every: Option<u32>,
    /// Where the ring's entries and the words of copies lie.
    pub commands: Memory,
    /// Where the engine writes completions, and the CPU polls them.
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
    /// Whether it goes with so many I/Os behind a doorbell, at such a depth.
    pub fn fits(self, batch: u32, depth: u32) -> bool {
        let alone = batch <= 1;
        let every = match self.completions_every {
            None => true,
            // Each by itself has a completion each without being asked.
            Some(every) if alone => every > 1 && every <= depth && self.flush == Flush::All,
            Some(every) => every == 1,
        };
        every && (alone || self.flush == Flush::All && self.mode.is_none())
    }
}

/// What is not as usual; nothing where all is.
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
        let completions = (self.completions != usual.completions).then(|| "completions in video memory".to_owned());
        let all: Vec<String> = [mode, flush, every, commands, completions].into_iter().flatten().collect();
        f.write_str(&all.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_says_what_is_not_as_usual() {
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
            "folded, no flush, a completion every 8, commands in host memory, completions in video memory"
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
