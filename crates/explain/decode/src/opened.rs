//! Finds when ranges of NVTX were open.

use crate::during::During;
use crate::filter::Pattern;
use crate::ranges::{Key, Range, Style, Texts};
use crate::recording::{InsightError, Recording};
use crate::walk::{Sink, walk};
use std::collections::HashMap;

/// When a range with such a name was open, in any thread, of those whose end is on the tape.
///
/// # Errors
/// The recording cannot be read.
pub fn during(r: &Recording, pattern: &Pattern) -> Result<During, InsightError> {
    let mut opened = Opened { pattern, wanted: HashMap::new(), during: During::default() };
    walk(r, &mut opened)?;
    opened.during.merge();
    Ok(opened.during)
}

/// Names that are remembered.
const NAMES: usize = 1 << 16;

struct Opened<'p> {
    pattern: &'p Pattern,
    /// Whether the name is such a one, by its numbers.
    wanted: HashMap<Key, bool>,
    during: During,
}

impl Sink for Opened<'_> {
    fn range(&mut self, r: &Range, texts: &Texts) {
        let Some((ended, _)) = r.ended.filter(|_| r.style != Style::Mark) else { return };
        if self.wanted.len() >= NAMES {
            self.wanted.clear();
        }
        if *self.wanted.entry(r.key).or_insert_with(|| self.pattern.matches(&texts.label(r.key))) {
            self.during.add(r.source.process, r.began, ended);
        }
    }
}
