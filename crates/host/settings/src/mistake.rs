//! A mistake in a file: its description, its place, and the allowed values.

use std::fmt;

/// Where something is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Counted from 1; columns in characters.
    At { line: usize, column: usize },
    /// An option of the command line, as it was given.
    Option(String),
    /// No particular line: the whole file.
    #[default]
    Whole,
}

/// Where the lines of a text start, in bytes.
pub struct Lines(Vec<usize>);

impl Lines {
    pub fn of(text: &str) -> Lines {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Lines(std::iter::once(0).chain(ends).collect())
    }

    /// The place of byte `at` of that text.
    pub fn place(&self, text: &str, at: usize) -> Place {
        let at = at.min(text.len());
        let line = self.0.partition_point(|start| *start <= at).max(1);
        let start = self.0[line - 1];
        let column = text.get(start..at).map_or(at - start, |before| before.chars().count()) + 1;
        Place::At { line, column }
    }
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The file, as the caller named it.
    pub origin: String,
    pub place: Place,
    pub what: String,
    /// The allowed values; empty if `what` already gives them.
    pub allowed: String,
    /// The most similar allowed word, if it is similar enough.
    pub meant: Option<String>,
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::At { line, column } => write!(f, "{}:{line}:{column}: ", self.origin)?,
            Place::Option(option) => write!(f, "{option}: ")?,
            Place::Whole => write!(f, "{}: ", self.origin)?,
        }
        f.write_str(&self.what)?;
        if let Some(meant) = &self.meant {
            write!(f, "; did you mean `{meant}`?")?;
        }
        if !self.allowed.is_empty() {
            let between = if self.meant.is_some() { " " } else { "; " };
            write!(f, "{between}{}", self.allowed)?;
        }
        Ok(())
    }
}

/// A mistake whose place is not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub what: String,
    pub allowed: String,
    pub meant: Option<String>,
}

impl Wrong {
    /// The mistake, and the allowed values.
    pub fn new(what: impl Into<String>, allowed: impl Into<String>) -> Wrong {
        Wrong { what: what.into(), allowed: allowed.into(), meant: None }
    }

    /// A value of another kind, or beyond its bounds.
    pub fn unfit(value: &str, takes: &str) -> Wrong {
        Wrong::new(format!("{value} does not fit"), format!("it takes {takes}"))
    }

    /// A word that is not one of the allowed words.
    pub fn word<'a>(what: impl Into<String>, word: &str, words: impl IntoIterator<Item = &'a str>) -> Wrong {
        let words: Vec<&str> = words.into_iter().collect();
        let allowed = match words.as_slice() {
            [] => String::new(),
            [one] => format!("allowed: `{one}`"),
            _ => format!("allowed: {}", listed(&words)),
        };
        Wrong { what: what.into(), allowed, meant: nearest(word, words.iter().copied()).map(str::to_owned) }
    }

    /// The mistake at this place; the caller adds the file name later.
    pub fn at(self, place: &Place) -> Error {
        let Wrong { what, allowed, meant } = self;
        Error { origin: String::new(), place: place.clone(), what, allowed, meant }
    }
}

/// Maximum number of words listed in one message.
const LISTED: usize = 24;

fn listed(words: &[&str]) -> String {
    let mut text: Vec<String> = words.iter().take(LISTED).map(|w| format!("`{w}`")).collect();
    if words.len() > LISTED {
        text.push(format!("and {} more", words.len() - LISTED));
    }
    text.join(", ")
}

/// Longer words are no typing mistakes, and comparing them takes time.
const LONGEST: usize = 64;

/// The word most similar to `word`, if it is similar enough.
pub fn nearest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.to_lowercase().replace('_', "-").chars().collect();
    if word.is_empty() || word.len() > LONGEST {
        return None;
    }
    let mut best = None;
    for candidate in words {
        let letters: Vec<char> = candidate.to_lowercase().chars().collect();
        if letters.len() > LONGEST {
            continue;
        }
        let apart = distance(&word, &letters);
        if apart <= letters.len().max(word.len()) / 3 && best.is_none_or(|(least, _)| apart < least) {
            best = Some((apart, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Letters to insert, delete, replace or swap with the next.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_and_no_far_one() {
        let words = ["rounds", "repeats", "samples", "counters-every", "at-most"];
        assert_eq!(nearest("round", words), Some("rounds"));
        assert_eq!(nearest("sampels", words), Some("samples"));
        assert_eq!(nearest("counters_every", words), Some("counters-every"));
        assert_eq!(nearest("Rounds", words), Some("rounds"));
        assert_eq!(nearest("colour", words), None);
        assert_eq!(nearest("", words), None);
        assert_eq!(nearest(&"r".repeat(100_000), words), None);
    }

    #[test]
    fn distances() {
        let of = |a: &str, b: &str| distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>());
        assert_eq!([of("", ""), of("", "ab"), of("ab", ""), of("ab", "ba"), of("kitten", "sitting")], [0, 2, 2, 1, 3]);
    }
}
