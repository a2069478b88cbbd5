//! How a copy engine gets an I/O and reports its completion. The cost of each choice is found by changing one at a time.

use gpu::{CopyFlush, CopyMode, Place};

/// One way. The default was the fastest with a flushed completion for each I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    pub mode: CopyMode,
    /// Before the engine writes an I/O's completion.
    pub flush: CopyFlush,
    /// I/Os per completion; `None`: as many as per doorbell.
    pub completions_every: Option<u32>,
    /// The memory of the GPFIFO entries and of the commands of copies.
    pub commands: Place,
    /// The memory in which the engine writes completions, and the CPU polls them.
    pub completions: Place,
}

impl Default for Way {
    fn default() -> Way {
        Way {
            mode: CopyMode::Pipelined,
            flush: CopyFlush::All,
            completions_every: None,
            commands: Place::Video,
            completions: Place::Host,
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
            Some(every) if alone => every > 1 && every <= depth && self.flush == CopyFlush::All,
            Some(every) => every == 1,
        };
        every && (alone || self.flush == CopyFlush::All && self.mode == CopyMode::Pipelined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_that_a_batch_has_anyway_or_cannot_have_does_not_fit() {
        let every = |n| Way { completions_every: Some(n), ..Way::default() };
        let (loose, plain) =
            (Way { flush: CopyFlush::None, ..every(8) }, Way { mode: CopyMode::Plain, ..Way::default() });
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
            assert_eq!(way.fits(batch, 128), fits, "{way:?}, {batch}");
        }
    }
}
