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
    let mut opened = Opened { names: RangeNames::new(Some(pattern)), during: During::default() };
    walk(r, &mut opened)?;
    opened.during.merge();
    Ok(opened.during)
}

/// Names that are remembered.
const NAMES: usize = 1 << 16;

/// Which ranges have such a name. The text of a name is looked at once.
pub struct RangeNames<'p> {
    pattern: Option<&'p Pattern>,
    /// Whether the name is such a one, by its numbers.
    known: HashMap<Key, bool>,
}

impl<'p> RangeNames<'p> {
    /// `None`: all have.
    pub fn new(pattern: Option<&'p Pattern>) -> RangeNames<'p> {
        RangeNames { pattern, known: HashMap::new() }
    }

    pub fn has(&mut self, r: &Range, texts: &Texts) -> bool {
        if self.known.len() >= NAMES {
            self.known.clear();
        }
        let matches = || self.pattern.is_none_or(|pattern| pattern.matches(&texts.label(r.key)));
        *self.known.entry(r.key).or_insert_with(matches)
    }
}

struct Opened<'p> {
    names: RangeNames<'p>,
    during: During,
}

impl Sink for Opened<'_> {
    fn range(&mut self, r: &Range, texts: &Texts) {
        let Some((ended, _)) = r.ended.filter(|_| r.style != Style::Mark) else { return };
        if self.names.has(r, texts) {
            self.during.add(r.source.process, r.began, ended);
        }
    }
}
