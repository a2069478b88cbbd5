//! Numbers as cells of a table: as people read them, and as they are.

use crate::document::Cell;
use terminal::number;

pub fn ns(v: u64) -> Cell {
    Cell::number(number::nanoseconds(v), v as f64)
}

pub fn ns_or_none(v: Option<u64>) -> Cell {
    v.map_or_else(Cell::none, ns)
}

/// Rounded in the text, exact in the value.
pub fn ns_of(v: f64) -> Cell {
    Cell::number(number::nanoseconds(v.max(0.0).round() as u64), v)
}

pub fn bytes(v: u64) -> Cell {
    Cell::number(number::bytes(v), v as f64)
}

/// The size, if the call moves anything.
pub fn size(v: u64) -> Cell {
    if v == 0 { Cell::none() } else { bytes(v) }
}

pub fn count(v: u64) -> Cell {
    Cell::number(number::count(v), v as f64)
}

pub fn times(v: f64) -> Cell {
    Cell::number(terminal::run::three_digits(v), v)
}

pub fn times_or_none(v: Option<f64>) -> Cell {
    v.map_or_else(Cell::none, times)
}

pub fn seconds(v: f64) -> Cell {
    Cell::number(number::seconds(v), v)
}

/// After the start.
pub fn moment(seconds: f64) -> Cell {
    Cell::number(number::moment(seconds), seconds)
}

/// As a part of a hundred.
pub fn percent(part: f64) -> Cell {
    Cell::number(format!("{} %", terminal::run::three_digits(part * 100.0)), part)
}

/// Letters, digits and dashes: for links and names of files.
pub fn slug(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            out.push(c.to_ascii_lowercase());
        } else if !out.ends_with('-') && !out.is_empty() {
            out.push('-');
        }
    }
    out.truncate(60);
    out.trim_end_matches('-').to_owned()
}
