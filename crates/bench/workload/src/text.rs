//! How a call is written: a name, and in brackets a number, words or keys with values: `launch`, `graph(20)`, `launch(polled)`,
//! `lock(mutex,hold=50us)`.
//!
//! The names and their options are in the catalogue ([`Entry`]).

use crate::entry::{Call, Entry, Value};
use crate::spec::{SyntaxError, Wrong, bracketed, or_nothing};

/// What the brackets of a call may contain.
fn allowed(entry: &Entry) -> String {
    let mut all = Vec::new();
    if let Some(number) = entry.number {
        all.push(format!("the number of {} from {} to {}", number.of, number.least, number.most));
    }
    if !entry.words.is_empty() {
        all.push(entry.words.join(if entry.one_word { " or " } else { ", " }));
    }
    all.extend(entry.values.iter().map(|value| match value {
        Value::Time(key) => format!("{key}= and a time, as `50us`"),
        Value::Name(key) => format!("{key}= and letters, digits, `-` or `_`"),
        Value::Count(key) => format!("{key}= and a number from 1 on"),
        Value::Size(key) => format!("{key}= and a size, as `4KiB`"),
        Value::List(key) => format!("{key}= and one or several, with `+` between them"),
        Value::Choice(key, words) => format!("{key}= and {}", words.join(" or ")),
    }));
    if all.is_empty() {
        format!("{} takes nothing in brackets", entry.name)
    } else {
        format!("{} takes {}", entry.name, all.join("; "))
    }
}

/// A key that the call accepts, with a suitable value.
fn value<'t>(entry: &Entry, text: &'t str) -> Option<(&'static str, &'t str)> {
    let (key, given) = text.split_once('=')?;
    let (key, given) = (key.trim_end(), given.trim_start());
    let value = entry.values.iter().find(|value| value.key() == key)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let fits = match value {
        Value::Time(_) => experiment::time_ns(given).is_ok(),
        Value::Choice(_, words) => words.contains(&given),
        Value::Count(_) => given.parse::<u32>().is_ok_and(|count| count > 0),
        Value::Size(_) => settings::sizes::one(given).is_ok_and(|bytes| bytes > 0),
        Value::List(_) => !given.is_empty() && given.chars().all(|c| plain(c) || "+:.".contains(c)),
        Value::Name(_) => !given.is_empty() && given.len() <= LONGEST_NAME && given.chars().all(plain),
    };
    fits.then_some((value.key(), given))
}

const LONGEST_NAME: usize = 64;

/// Reads a call.
///
/// # Errors
/// What is wrong, where, and what is allowed there.
pub fn parse<'e>(text: &str, entries: &'e [Entry]) -> Result<(Call, &'e Entry), SyntaxError> {
    read(text, entries).map_err(|wrong| wrong.of("call", text))
}

fn read<'e>(text: &str, entries: &'e [Entry]) -> Result<(Call, &'e Entry), Wrong> {
    let (at, name, options) = bracketed(text, 0, ['(', ')'])?;
    let entry = entries.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let forms: Vec<&str> = entries.iter().map(|entry| entry.form).collect();
        Wrong { at, what: or_nothing(name), allowed: format!("calls are {}", forms.join(", ")) }
    })?;
    let mut call = Call {
        name: entry.name,
        number: entry.number.map_or(0, |number| number.default),
        words: Vec::new(),
        number_given: false,
        values: Vec::new(),
    };
    for (at, option) in options {
        let refused = |what: String| Wrong { at, what, allowed: allowed(entry) };
        if option.bytes().next().is_some_and(|byte| byte.is_ascii_digit()) {
            let number = entry.number.filter(|_| !call.number_given).ok_or_else(|| refused(or_nothing(option)))?;
            let value = option.parse().ok().filter(|value| (number.least..=number.most).contains(value));
            call.number = value.ok_or_else(|| refused(or_nothing(option)))?;
            call.number_given = true;
            continue;
        }
        match entry.words.iter().find(|word| **word == option) {
            Some(word) if call.words.contains(word) => {
                return Err(refused(format!("`{option}` for the second time")));
            }
            Some(word) if entry.one_word && !call.words.is_empty() => {
                return Err(refused(format!("`{word}` besides `{}`", call.words.join(", "))));
            }
            Some(word) => call.words.push(word),
            None => {
                let (key, given) = value(entry, option).ok_or_else(|| refused(or_nothing(option)))?;
                if call.given(key).is_some() {
                    return Err(refused(format!("`{key}` for the second time")));
                }
                call.values.push((key, given.into()));
            }
        }
    }
    call.values.sort_by_key(|(key, _)| entry.values.iter().position(|known| known.key() == *key));
    call.words.sort_by_key(|word| entry.words.iter().position(|known| known == word));
    Ok((call, entry))
}
