//! How a call is written: a name, and in brackets a number or words: `launch`, `graph(20)`, `launch(polled)`.
//!
//! Which names there are, and what each takes, is the catalogue's to say ([`Entry`]).

use crate::entry::{Call, Entry};
use copy::spec::SyntaxError;

/// `text` without the blanks around it, and where that begins.
fn trimmed(text: &str, at: usize) -> (usize, &str) {
    let start = text.trim_start();
    (at + text.len() - start.len(), start.trim_end())
}

fn quoted(word: &str) -> String {
    if word.is_empty() { "nothing".into() } else { format!("`{word}`") }
}

/// What may stand in the brackets of a call.
fn allowed(entry: &Entry) -> String {
    let mut all = Vec::new();
    if let Some(number) = entry.number {
        all.push(format!("the number of {} from {} to {}", number.of, number.least, number.most));
    }
    if !entry.words.is_empty() {
        all.push(entry.words.join(", "));
    }
    if all.is_empty() {
        format!("{} takes nothing in brackets", entry.name)
    } else {
        format!("{} takes {}", entry.name, all.join("; "))
    }
}

/// Reads a call.
///
/// # Errors
/// What is wrong with it, where, and what is allowed there.
pub fn parse(text: &str, entries: &[Entry]) -> Result<(Call, usize), SyntaxError> {
    let error = |at, what: String, allowed: String| SyntaxError { kind: "call", text: text.into(), at, what, allowed };
    let (at, whole) = trimmed(text, 0);
    let (name, inner) = match whole.split_once('(') {
        None => (whole, None),
        Some((name, rest)) => {
            let open = at + name.len();
            let inner = rest.strip_suffix(')').ok_or_else(|| {
                error(at + whole.len(), "no closing bracket".into(), format!("`)` ends what began at byte {open}"))
            })?;
            (name.trim_end(), Some((open + 1, inner)))
        }
    };
    let found = entries.iter().position(|entry| entry.name == name);
    let Some((index, entry)) = found.and_then(|index| Some((index, entries.get(index)?))) else {
        let forms: Vec<&str> = entries.iter().map(|entry| entry.form).collect();
        return Err(error(at, quoted(name), format!("calls are {}", forms.join(", "))));
    };
    let mut call = Call {
        name: entry.name,
        number: entry.number.map_or(0, |number| number.default),
        words: Vec::new(),
        number_given: false,
    };
    let Some((mut from, inner)) = inner else { return Ok((call, index)) };
    for part in inner.split(',') {
        let (at, part_text) = trimmed(part, from);
        from += part.len() + 1;
        let refused = |what: String| error(at, what, allowed(entry));
        if part_text.bytes().next().is_some_and(|byte| byte.is_ascii_digit()) {
            let number = entry.number.filter(|_| !call.number_given).ok_or_else(|| refused(quoted(part_text)))?;
            let value = part_text.parse().ok().filter(|value| (number.least..=number.most).contains(value));
            call.number = value.ok_or_else(|| refused(quoted(part_text)))?;
            call.number_given = true;
            continue;
        }
        match entry.words.iter().find(|word| **word == part_text) {
            Some(word) if !call.words.contains(word) => call.words.push(word),
            Some(_) => return Err(refused(format!("`{part_text}` for the second time"))),
            None => return Err(refused(quoted(part_text))),
        }
    }
    call.words.sort_by_key(|word| entry.words.iter().position(|known| known == word));
    Ok((call, index))
}
