//! How values are written into cells.

use run_folder::data_file::Value;
use terminal::number;
use terminal::run::three_digits;

/// Of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    Ns,
    #[default]
    Us,
    Ms,
    S,
    /// The unit that fits, in the cell.
    Auto,
}

impl Unit {
    pub const ALL: [(&str, Unit); 5] =
        [("ns", Unit::Ns), ("us", Unit::Us), ("ms", Unit::Ms), ("s", Unit::S), ("auto", Unit::Auto)];

    pub fn parse(text: &str) -> Option<Unit> {
        Unit::ALL.iter().find(|(name, _)| *name == text).map(|(_, unit)| *unit)
    }

    pub fn time(self, ns: f64) -> String {
        match self {
            Unit::Ns => long(ns),
            Unit::Us => long(ns / 1e3),
            Unit::Ms => long(ns / 1e6),
            Unit::S => long(ns / 1e9),
            Unit::Auto => number::nanoseconds(ns.round().max(0.0) as u64),
        }
    }
}

/// Three digits, or all before the point, with commas.
fn long(v: f64) -> String {
    if v >= 999.5 { number::count(v.round() as u64) } else { three_digits(v) }
}

/// Which part of a figure is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Show {
    #[default]
    Value,
    Interval,
    Both,
}

pub const NONE: &str = "-";

pub fn value(value: Option<Value>, show: Show, number: impl Fn(f64) -> String) -> String {
    let Some(v) = value else { return NONE.into() };
    let least = if v.at_least { "at least " } else { "" };
    let interval = v.interval.filter(|_| !v.at_least).map(|i| format!("{} to {}", number(i.low), number(i.high)));
    match (show, interval) {
        (Show::Value, _) | (Show::Both, None) => format!("{least}{}", number(v.value)),
        (Show::Interval, interval) => interval.unwrap_or_else(|| NONE.into()),
        (Show::Both, Some(interval)) => format!("{} ({interval})", number(v.value)),
    }
}

/// A rate: an integer from a hundred on.
pub fn rate(v: f64) -> String {
    if v >= 100.0 { number::count(v.round() as u64) } else { three_digits(v) }
}

/// `4KiB`, as experiments write it.
pub fn size(bytes: u64) -> String {
    number::bytes(bytes).replace(' ', "")
}
