//! The samples of one part of a cell, by rounds, as text.
//!
//! A round is the sorted values that occur in it, each with how often: the distance to the value before, and a count. Both
//! become digits of five bits (the lowest first, 32 added where more follow), a digit one letter of base 64. A value that
//! occurs once takes the number `2 * distance`, another one `2 * distance + 1` and then `count - 2`. So most samples take one or
//! two letters, and the text stays text.
//!
//! If that is too long, values are first put into buckets, as in a histogram: each value becomes the number of its bucket, and the largest value of
//! each round is stored as well.

use serde::{Deserialize, Serialize};

/// A value that is read from buckets differs from the sample's by at most this part of it.
///
/// A bucket is 2^k wide and begins at 1024 * 2^k or above it; its middle is read.
pub const ERROR: f64 = 1.0 / 2048.0;

/// Maximum number of letters of one series. With more, values are put into buckets.
pub const EXACT: usize = 16 << 10;

/// The samples of one part (done, submit or engine) of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The largest value of each round, if values are in buckets; 0 for a round without samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest: Option<Vec<u64>>,
    /// How many samples were cut short, so that their values are too small, and the smallest of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub capped: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capped_from: Option<u64>,
    /// The rounds of all repeats in sequence; an empty text for a round without samples.
    pub rounds: Vec<String>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Why a text is no round.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    #[error("the letter {0:?} is not in the base 64 alphabet")]
    Letter(char),
    #[error("it ends within a number")]
    Ends,
    #[error("a number in it is too large")]
    Large,
    #[error("it has more than {MOST} samples")]
    Many,
    #[error("it has {largest} largest values of {rounds} rounds")]
    Largest { largest: usize, rounds: usize },
}

/// Maximum number of samples of one round, so that a damaged file does not fill the memory.
const MOST: u64 = 1 << 26;

impl Series {
    /// `rounds`: in any order within each. With more than `exact` letters values are put into buckets.
    pub fn of(rounds: &[Vec<u64>], exact: usize) -> Series {
        let sorted: Vec<Vec<u64>> = rounds
            .iter()
            .map(|round| {
                let mut round = round.clone();
                round.sort_unstable();
                round
            })
            .collect();
        let text: Vec<String> = sorted.iter().map(|round| text(round.iter().copied())).collect();
        if text.iter().map(String::len).sum::<usize>() <= exact {
            return Series { largest: None, capped: 0, capped_from: None, rounds: text };
        }
        let text = sorted.iter().map(|round| self::text(round.iter().map(|v| bucket(*v)))).collect();
        let largest = sorted.iter().map(|round| round.last().copied().unwrap_or(0)).collect();
        Series { largest: Some(largest), capped: 0, capped_from: None, rounds: text }
    }

    /// Whether every value is stored exactly.
    pub fn is_exact(&self) -> bool {
        self.largest.is_none()
    }

    /// The values of each round, sorted.
    ///
    /// # Errors
    /// A text is no round.
    pub fn values(&self) -> Result<Vec<Vec<u64>>, Wrong> {
        let mut rounds = self.rounds.iter().map(|text| values(text)).collect::<Result<Vec<_>, _>>()?;
        let Some(largest) = &self.largest else { return Ok(rounds) };
        if largest.len() != rounds.len() {
            return Err(Wrong::Largest { largest: largest.len(), rounds: rounds.len() });
        }
        for (round, largest) in rounds.iter_mut().zip(largest) {
            round.iter_mut().for_each(|v| *v = middle(*v).min(*largest));
            if let Some(last) = round.last_mut() {
                *last = *largest;
            }
        }
        Ok(rounds)
    }
}

/// The values of one round's text, sorted.
///
/// # Errors
/// It is no round.
pub fn values_of(text: &str) -> Result<Vec<u64>, Wrong> {
    values(text)
}

/// The number of a value's bucket: itself below 2048, then 1,024 buckets for each power of two.
fn bucket(value: u64) -> u64 {
    let shift = u64::from((value | 1).ilog2()).saturating_sub(10);
    shift * 1024 + (value >> shift)
}

/// The value in the middle of a bucket.
fn middle(bucket: u64) -> u64 {
    let shift = (bucket / 1024).saturating_sub(1);
    match u32::try_from(shift) {
        Ok(0) => bucket,
        // Buckets above the largest value do not exist.
        Ok(shift @ 1..=53) => ((bucket - u64::from(shift) * 1024) << shift) | (1 << (shift - 1)),
        _ => u64::MAX,
    }
}

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn push(text: &mut String, mut number: u64) {
    loop {
        let (digit, rest) = ((number & 31) as usize, number >> 5);
        let more = if rest > 0 { 32 } else { 0 };
        text.push(char::from(LETTERS[digit + more]));
        number = rest;
        if rest == 0 {
            return;
        }
    }
}

/// From sorted values.
fn text(sorted: impl Iterator<Item = u64>) -> String {
    let mut text = String::new();
    let (mut before, mut current) = (0u64, None::<(u64, u64)>);
    let mut one = |value: u64, count: u64| {
        // A distance of 2^63 or more has no room for the mark; no sample takes 292 years.
        let distance = (value - before).min(u64::MAX / 2);
        push(&mut text, 2 * distance + u64::from(count > 1));
        if count > 1 {
            push(&mut text, count - 2);
        }
        before += distance;
    };
    for value in sorted {
        match &mut current {
            Some((v, count)) if *v == value => *count += 1,
            current => {
                if let Some((v, count)) = current.replace((value, 1)) {
                    one(v, count);
                }
            }
        }
    }
    if let Some((v, count)) = current {
        one(v, count);
    }
    text
}

fn values(text: &str) -> Result<Vec<u64>, Wrong> {
    let mut letters = text.chars();
    let mut next = || -> Result<Option<u64>, Wrong> {
        let (mut number, mut shift) = (0u64, 0);
        loop {
            let Some(letter) = letters.next() else { return if shift > 0 { Err(Wrong::Ends) } else { Ok(None) } };
            let digit = LETTERS.iter().position(|l| char::from(*l) == letter).ok_or(Wrong::Letter(letter))? as u64;
            let part = digit & 31;
            if shift > 60 || (shift == 60 && part > 15) {
                return Err(Wrong::Large);
            }
            number |= part << shift;
            shift += 5;
            if digit < 32 {
                return Ok(Some(number));
            }
        }
    };
    let (mut values, mut value) = (Vec::new(), 0u64);
    while let Some(number) = next()? {
        value = value.checked_add(number / 2).ok_or(Wrong::Large)?;
        let count = if number % 2 == 0 { 1 } else { next()?.ok_or(Wrong::Ends)?.saturating_add(2) };
        if count > MOST || values.len() as u64 + count > MOST {
            return Err(Wrong::Many);
        }
        values.extend(std::iter::repeat_n(value, count as usize));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_round_is_text() {
        assert_eq!(Series::of(&[vec![5, 7, 5], vec![], vec![1000]], EXACT).rounds, ["LAE", "", "w+B"]);
        let series = |text: &str| Series { largest: None, capped: 0, capped_from: None, rounds: vec![text.into()] };
        assert_eq!(series("LAE").values(), Ok(vec![vec![5, 5, 7]]));
        assert_eq!(series("w").values(), Err(Wrong::Ends));
        assert_eq!(series("L").values(), Err(Wrong::Ends));
        assert_eq!(series("L-").values(), Err(Wrong::Letter('-')));
        assert_eq!(series(&"/".repeat(14)).values(), Err(Wrong::Large));
        assert_eq!(series("D//////A").values(), Err(Wrong::Many));
        let short = Series { largest: Some(vec![]), ..series("LAE") };
        assert_eq!(short.values(), Err(Wrong::Largest { largest: 0, rounds: 1 }));
    }

    proptest! {
        #[test]
        fn stored_values_are_read_back(
            rounds in prop::collection::vec(
                prop::collection::vec((0u32..63, any::<u64>()).prop_map(|(bits, v)| v & ((1 << bits) - 1)), 0..50), 0..5),
        ) {
            let mut sorted = rounds.clone();
            sorted.iter_mut().for_each(|r| r.sort_unstable());
            let exact = Series::of(&rounds, usize::MAX);
            prop_assert!(exact.is_exact());
            prop_assert_eq!(exact.values().unwrap(), sorted.clone());
            let near = Series::of(&rounds, 0);
            prop_assert_eq!(near.is_exact(), rounds.iter().all(Vec::is_empty));
            for (near, sorted) in near.values().unwrap().iter().zip(&sorted) {
                prop_assert_eq!((near.len(), near.last()), (sorted.len(), sorted.last()));
                for (near, exact) in near.iter().zip(sorted) {
                    prop_assert!(near.abs_diff(*exact) as f64 <= *exact as f64 * ERROR, "{} of {}", near, exact);
                }
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[A-Za-z0-9+/]{0,12}|.{0,8}") {
            let series = Series { largest: Some(vec![9]), capped: 0, capped_from: None, rounds: vec![text] };
            // A text may stand for millions of samples: another test reads those.
            if series.rounds[0].len() < 5 {
                let _ = series.values();
            }
        }
    }
}
