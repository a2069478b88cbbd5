//! Sizes as they are written: `4B..64MiB` doubling, `1KiB..31KiB/1KiB` in steps, lists of both.

use std::collections::BTreeSet;

/// Upper limit of the number of sizes in one text.
pub const MOST: usize = 4096;

/// What is wrong with a text of sizes, and in which part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "a size is missing in {0:?}; sizes are written `4B`, `31KiB`, `64MiB`, ranges `4B..64MiB` or `1KiB..31KiB/1KiB`"
    )]
    Missing(String),
    #[error("{0:?} does not begin with a number; a size is a whole number and a unit: `4B`, `31KiB`, `64MiB`")]
    Number(String),
    #[error("{0:?} is not a whole number; take a smaller unit")]
    Fraction(String),
    #[error("{unit:?} in {text:?} is not a unit; units are B, KiB, MiB and GiB{}", hint(.unit))]
    Unit { text: String, unit: String },
    #[error("{0:?} is more than 64 bits hold")]
    Large(String),
    #[error("{0:?}: nothing to copy in 0 bytes")]
    Zero(String),
    #[error("{0:?}: the range ends before it begins")]
    Backwards(String),
    #[error("{0:?}: a step needs a range before it: `1KiB..31KiB/1KiB`")]
    StepAlone(String),
    #[error("{0:?}: more than {MOST} sizes")]
    TooMany(String),
    #[error("{0:?} is more than one size")]
    NotOne(String),
}

/// A hint for units that people often mean differently, or that are ambiguous.
fn hint(unit: &str) -> String {
    let letter = unit.to_ascii_lowercase();
    match letter.trim_end_matches("ib").trim_end_matches('b') {
        "k" => " (KiB is 1024 bytes)".into(),
        "m" => " (MiB is 1024 KiB)".into(),
        "g" => " (GiB is 1024 MiB)".into(),
        _ => String::new(),
    }
}

/// Bytes, ascending, each once. The end of a range is always among them.
///
/// # Errors
/// Invalid sizes, a range that ends before it begins, more than [`MOST`] sizes.
pub fn parse(text: &str) -> Result<Vec<u64>, Error> {
    let mut all = BTreeSet::new();
    for part in text.split(',') {
        range(part.trim(), text, &mut all)?;
    }
    Ok(all.into_iter().collect())
}

/// A single size.
///
/// # Errors
/// Invalid sizes, and several sizes.
pub fn one(text: &str) -> Result<u64, Error> {
    if text.contains(',') || text.contains("..") {
        return Err(Error::NotOne(text.into()));
    }
    size(text, text)
}

/// The shortest text for so many bytes.
pub fn text(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.into_iter().find(|(_, shift)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| format!("{bytes}B"), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

fn range(part: &str, whole: &str, into: &mut BTreeSet<u64>) -> Result<(), Error> {
    let (ends, step) = match part.split_once('/') {
        Some((ends, step)) => (ends, Some(size(step, part)?)),
        None => (part, None),
    };
    let Some((first, last)) = ends.split_once("..") else {
        if step.is_some() {
            return Err(Error::StepAlone(part.into()));
        }
        into.insert(size(part, whole)?);
        return Ok(());
    };
    let (first, last) = (size(first, part)?, size(last, part)?);
    if last < first {
        return Err(Error::Backwards(part.into()));
    }
    let mut next = Some(first);
    while let Some(s) = next.filter(|s| *s < last) {
        into.insert(s);
        if into.len() >= MOST {
            return Err(Error::TooMany(part.into()));
        }
        next = s.checked_add(step.unwrap_or(s));
    }
    into.insert(last);
    Ok(())
}

/// A number and its unit; without a unit, bytes.
fn size(text: &str, within: &str) -> Result<u64, Error> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Error::Missing(within.into()));
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(Error::Number(text.into()));
    }
    if unit.starts_with('.') {
        return Err(Error::Fraction(text.into()));
    }
    let shift = match unit.trim_start() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        unit => return Err(Error::Unit { text: text.into(), unit: unit.into() }),
    };
    let large = || Error::Large(text.into());
    let bytes = number.parse::<u64>().map_err(|_| large())?.checked_mul(1 << shift).ok_or_else(large)?;
    if bytes == 0 { Err(Error::Zero(text.into())) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_double_or_step_and_lists_are_merged() {
        let doubling: Vec<u64> = (2..=26).map(|i| 1 << i).collect();
        assert_eq!(parse("4B..64MiB").unwrap(), doubling);
        let steps: Vec<u64> = (1..=31).map(|i| i << 10).collect();
        assert_eq!(parse("1KiB..31KiB/1KiB").unwrap(), steps);
        assert_eq!(parse("8B, 4B,1KiB..4KiB ,2KiB").unwrap(), [4, 8, 1024, 2048, 4096]);
        assert_eq!(parse("512").unwrap(), [512]);
        assert_eq!(parse("3B..20B").unwrap(), [3, 6, 12, 20], "the end is among them");
        assert_eq!(parse("4B..4B").unwrap(), [4]);
        assert_eq!(parse("17179869183GiB..17179869183GiB/1B").unwrap().len(), 1);
    }

    #[test]
    fn mistakes_are_named() {
        let fails_with = |text: &str, words: &[&str]| {
            let e = parse(text).unwrap_err().to_string();
            assert!(words.iter().all(|w| e.contains(w)), "{text:?}: {e}");
        };
        fails_with("", &["missing"]);
        fails_with("4B,,8B", &["missing", "4B,,8B"]);
        fails_with("4B..", &["missing", "4B.."]);
        fails_with("4B..8B/", &["missing"]);
        fails_with("4KB", &["\"KB\"", "KiB is 1024"]);
        fails_with("4kib", &["\"kib\"", "KiB is 1024"]);
        fails_with("4M", &["\"M\"", "MiB"]);
        fails_with("4 parsecs", &["parsecs", "units are B, KiB"]);
        fails_with("1.5KiB", &["whole number", "smaller unit"]);
        fails_with("KiB", &["does not begin with a number"]);
        fails_with("-4B", &["does not begin with a number"]);
        fails_with("0B", &["0 bytes"]);
        fails_with("4B..8B/0B", &["0 bytes"]);
        fails_with("8B..4B", &["ends before"]);
        fails_with("8B/4B", &["range"]);
        fails_with("99999999999GiB", &["64 bits"]);
        fails_with("99999999999999999999B", &["64 bits"]);
        fails_with("1B..1GiB/1B", &["more than 4096"]);
    }

    #[test]
    fn one_size_is_one() {
        assert_eq!(one("4KiB"), Ok(4096));
        assert!(matches!(one("4B,8B"), Err(Error::NotOne(_))));
        assert!(matches!(one("4B..8B"), Err(Error::NotOne(_))));
        assert_eq!(
            [text(4), text(4096), text(4097), text(64 << 20), text(1 << 40)],
            ["4B", "4KiB", "4097B", "64MiB", "1024GiB"]
        );
    }

    proptest! {
        #[test]
        fn printed_sizes_read_back(bytes in 1..u64::MAX) {
            prop_assert_eq!(one(&text(bytes)), Ok(bytes));
        }

        #[test]
        fn no_text_panics(text in "[0-9a-zA-Z./, -]{0,24}") {
            if let Ok(sizes) = parse(&text) {
                prop_assert!(!sizes.is_empty() && sizes.is_sorted() && sizes[0] > 0);
            }
        }
    }
}
