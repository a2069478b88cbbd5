//! The written forms of times, rates, classes, CPUs and bounds, in both directions: every printed text reads back as the same value.

use crate::model::{
    Addresses, Arrival, Bound, Class, Cpus, Data, Gpu, MOST_DEPTH, MOST_PLACES, Metric, MustReach, Observe, Process,
    Record, What, WithinBest,
};
use settings::{Wrong, sizes};
use std::fmt;

/// Whole nanoseconds up to here are exact as floating point; 104 days.
const LONGEST_NS: u64 = 9_007_199_254_740_992;
/// More CPUs than Linux supports.
const MOST_CPU: usize = 8191;
const TIMES: &str = "a time is written `500ns`, `50us`, `1.5ms`, `60s`, `2m`, `1h` or `1m30s`";

/// The first name of a unit is printed: `min` cannot be mistaken for `ms`.
const UNITS_OF_TIME: [(&[&str], u64); 6] = [
    (&["h"], 3_600_000_000_000),
    (&["min", "m"], 60_000_000_000),
    (&["s"], 1_000_000_000),
    (&["ms"], 1_000_000),
    (&["us", "µs", "μs"], 1_000),
    (&["ns"], 1),
];

/// Nanoseconds of `1.5ms`, or of several parts, the longest unit first: `1m30s`. The only grammar of times: experiments, calls and
/// the command line take it.
pub(crate) fn time(text: &str) -> Result<u64, Wrong> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|b| b == b'0') {
        return Ok(0);
    }
    let wrong = || Wrong::new(format!("{text:?} is not a time"), TIMES);
    let large = || Wrong::new(format!("{text:?} is too long"), "at most 100 days");
    let (mut rest, mut sum, mut longest) = (text, 0u64, u64::MAX);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start();
        let letters = after.find(|c: char| c.is_ascii_digit() || c.is_whitespace() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        rest = after.trim_start();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        // A fraction ends a time: `1.5m30s` has two of them.
        let is_last = rest.is_empty();
        if whole.is_empty() || fraction.contains('.') || number.ends_with('.') || !(is_last || fraction.is_empty()) {
            return Err(wrong());
        }
        if unit.is_empty() {
            let what = format!("{text:?} needs a unit, as in {number}s or {number}ms");
            return Err(Wrong::new(what, TIMES));
        }
        let Some((_, scale)) = UNITS_OF_TIME.iter().find(|(names, _)| names.contains(&unit)) else {
            return Err(Wrong::new(format!("{unit:?} in {text:?} is no unit of time"), TIMES));
        };
        if *scale >= longest {
            return Err(Wrong::new(format!("{text:?} does not have its longest unit first"), TIMES));
        }
        longest = *scale;
        let part = whole.parse::<u64>().map_err(|_| large())?.checked_mul(*scale).ok_or_else(large)?;
        sum = sum.checked_add(part).ok_or_else(large)?;
        let mut scale = *scale;
        for digit in fraction.trim_end_matches('0').bytes() {
            if scale % 10 != 0 {
                return Err(Wrong::new(format!("{text:?} is no whole number of nanoseconds"), TIMES));
            }
            scale /= 10;
            sum = sum.checked_add(u64::from(digit - b'0') * scale).ok_or_else(large)?;
        }
    }
    match sum {
        _ if text.is_empty() => Err(wrong()),
        ns if ns > LONGEST_NS => Err(large()),
        ns => Ok(ns),
    }
}

/// A time in the usual notation, in ns.
///
/// # Errors
/// The mistake, and the notation of times.
pub fn time_ns(text: &str) -> Result<u64, String> {
    time(text).map_err(|wrong| format!("{}; {}", wrong.what, wrong.allowed))
}

/// The shortest text for so many nanoseconds.
pub(crate) fn time_text(ns: u64) -> String {
    let found = UNITS_OF_TIME.iter().find(|(_, scale)| ns >= *scale && ns.is_multiple_of(*scale));
    let (unit, scale) = found.map_or(("ns", 1), |(names, scale)| (names[0], *scale));
    format!("{}{unit}", ns / scale)
}

/// A number above 0, finite.
fn number(text: &str) -> Option<f64> {
    // Other forms that `parse` accepts: `inf`, `nan`, signs.
    let plain = text.starts_with(|c: char| c.is_ascii_digit());
    text.parse::<f64>().ok().filter(|n| plain && n.is_finite() && *n >= 0.0)
}

/// `1000/s`: so many a second.
pub(crate) fn rate(text: &str) -> Result<f64, Wrong> {
    const RATES: &str = "a rate is written `1000/s`, `10/ms` or `30/min`; for no load at all, `count = 0`";
    let (count, per) = text.trim().split_once('/').unwrap_or((text.trim(), "s"));
    let times = match per.trim() {
        "s" => 1.0,
        "ms" => 1000.0,
        "m" | "min" => 1.0 / 60.0,
        per => return Err(Wrong::new(format!("{per:?} in {text:?} is no unit of a rate"), RATES)),
    };
    match number(count.trim()).map(|n| n * times).filter(|n| n.is_finite() && *n > 0.0) {
        Some(rate) => Ok(rate),
        None => Err(Wrong::new(format!("{text:?} is no rate"), RATES)),
    }
}

/// `1000/s`, `5GB/s`, `90%`
pub(crate) fn must_reach(text: &str) -> Result<MustReach, Wrong> {
    const FORM: &str = "write `1000/s`, `5GB/s`, or `90%` of its own rate, or of what it reached alone";
    let text = text.trim();
    let above_zero = |n: Option<f64>| n.filter(|n| n.is_finite() && *n > 0.0);
    let found = if let Some(percent) = text.strip_suffix('%') {
        above_zero(number(percent.trim())).filter(|n| *n <= 100.0).map(MustReach::Percent)
    } else if text.ends_with("B/s") {
        above_zero(bytes_per_second(text)).map(MustReach::Bytes)
    } else {
        text.contains('/').then(|| rate(text).ok()).flatten().map(MustReach::Times)
    };
    found.ok_or_else(|| Wrong::new(format!("{text:?} is not a rate that a load can reach"), FORM))
}

impl fmt::Display for MustReach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MustReach::Times(n) => write!(f, "{n}/s"),
            MustReach::Bytes(n) => write!(f, "{n}B/s"),
            MustReach::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// `closed(4)`: its word and the text in the brackets.
fn called(text: &str) -> (&str, Option<&str>) {
    match text.strip_suffix(')').and_then(|t| t.split_once('(')) {
        Some((word, inner)) => (word.trim(), Some(inner.trim())),
        None => (text, None),
    }
}

pub(crate) fn class(text: &str) -> Result<Class, Wrong> {
    let text = text.trim();
    let bounded = |inner: &str, least: i64, most: i64| {
        let value = inner.parse::<i64>().ok().filter(|n| (least..=most).contains(n));
        value
            .ok_or_else(|| Wrong::unfit(&format!("{inner:?} in {text:?}"), &format!("a number from {least} to {most}")))
    };
    match called(text) {
        ("other", None) => Ok(Class::Other),
        ("nice", Some(n)) => Ok(Class::Nice(bounded(n, -20, 19)? as i32)),
        ("fifo", Some(n)) => Ok(Class::Fifo(bounded(n, 1, 99)? as u32)),
        ("deadline", None) => Ok(Class::Deadline),
        ("real-time", None) => Ok(Class::RealTime),
        ("nice" | "fifo", None) => Err(Wrong::new(format!("{text:?} needs a number"), "as `nice(-5)` or `fifo(80)`")),
        (word, _) => {
            const WORDS: [&str; 5] = ["other", "nice(-5)", "fifo(80)", "deadline", "real-time"];
            Err(Wrong::word(format!("{text:?} is no scheduling class"), word, WORDS))
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Class::Other => f.write_str("other"),
            Class::Nice(n) => write!(f, "nice({n})"),
            Class::Fifo(n) => write!(f, "fifo({n})"),
            Class::Deadline => f.write_str("deadline"),
            Class::RealTime => f.write_str("real-time"),
        }
    }
}

pub(crate) fn cpus(text: &str) -> Result<Cpus, Wrong> {
    const CPUS: &str = "CPUs are written `any`, `last`, `others`, or as a list: `0,2-5`";
    let text = text.trim();
    match text {
        "any" => return Ok(Cpus::Any),
        "last" => return Ok(Cpus::Last),
        "others" => return Ok(Cpus::Others),
        _ => {}
    }
    let wrong = || Wrong { meant: None, ..Wrong::new(format!("{text:?} names no CPUs"), CPUS) };
    let mut all = std::collections::BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |t: &str| t.trim().parse::<usize>().map_err(|_| wrong());
        let (first, last) = (number(first)?, number(last)?);
        if last > MOST_CPU {
            return Err(Wrong::new(format!("there is no CPU {last}"), format!("numbers up to {MOST_CPU}")));
        }
        if last < first {
            return Err(Wrong::new(format!("{:?} ends before it begins", part.trim()), CPUS));
        }
        all.extend(first..=last);
    }
    Ok(Cpus::These(all.into_iter().collect()))
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let these = match self {
            Cpus::Any => return f.write_str("any"),
            Cpus::Last => return f.write_str("last"),
            Cpus::Others => return f.write_str("others"),
            Cpus::These(these) => these,
        };
        let mut rest = these.as_slice();
        while let Some(first) = rest.first() {
            let run = rest.iter().enumerate().take_while(|(i, cpu)| **cpu == first + i).count();
            if rest.len() != these.len() {
                f.write_str(",")?;
            }
            match run {
                1 => write!(f, "{first}")?,
                _ => write!(f, "{first}-{}", first + run - 1)?,
            }
            rest = &rest[run..];
        }
        Ok(())
    }
}

pub(crate) fn arrival(text: &str) -> Result<Arrival, Wrong> {
    const ARRIVALS: &str = "`closed(4)`: 4 in flight at a time; `paced(100us)`: one per period";
    let text = text.trim();
    match called(text) {
        ("closed", Some(depth)) => match depth.parse().ok().filter(|d| (1..=MOST_DEPTH).contains(d)) {
            Some(depth) => Ok(Arrival::Closed { depth }),
            None => Err(Wrong::unfit(&format!("{depth:?} in {text:?}"), &format!("a number from 1 to {MOST_DEPTH}"))),
        },
        ("paced", Some(period)) => match time(period)? {
            0 => Err(Wrong::new(format!("a period of 0 in {text:?}"), ARRIVALS)),
            period_ns => Ok(Arrival::Paced { period_ns }),
        },
        (word, inner) => {
            let meant = settings::nearest(word, ["closed", "paced"]).filter(|_| inner.is_some());
            let meant = meant.map(|word| format!("{word}({})", inner.unwrap_or_default()));
            Err(Wrong { meant, ..Wrong::new(format!("{text:?} is no arrival"), ARRIVALS) })
        }
    }
}

impl fmt::Display for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arrival::Closed { depth } => write!(f, "closed({depth})"),
            Arrival::Paced { period_ns } => write!(f, "paced({})", time_text(*period_ns)),
        }
    }
}

pub(crate) fn addresses(text: &str) -> Result<Addresses, Wrong> {
    const ADDRESSES: &str =
        "`fixed`; `random`; `sweep(64MiB,4GiB)`: in each round the next multiple of 64 MiB below 4 GiB";
    let text = text.trim();
    match called(text) {
        ("fixed", None) => Ok(Addresses::Fixed),
        ("random", None) => Ok(Addresses::Random),
        ("sweep", Some(inner)) => {
            let wrong = || Wrong::new(format!("{text:?} is no step and range"), ADDRESSES);
            let (step, range) = inner.split_once(',').ok_or_else(wrong)?;
            let size = |text: &str| sizes::one(text.trim()).map_err(|e| Wrong::new(e.to_string(), ADDRESSES));
            let sweep = Addresses::Sweep { step: size(step)?, range: size(range)? };
            if !matches!(sweep, Addresses::Sweep { step, range } if step <= range) {
                return Err(Wrong::new(format!("the step of {text:?} is longer than its range"), ADDRESSES));
            }
            if sweep.places() > MOST_PLACES {
                return Err(Wrong::new(
                    format!("{text:?} has {} places", sweep.places()),
                    format!("at most {MOST_PLACES}"),
                ));
            }
            Ok(sweep)
        }
        (word, inner) => {
            let meant = settings::nearest(word, ["fixed", "random", "sweep"]);
            let meant = meant.map(|word| inner.map_or(word.to_owned(), |inner| format!("{word}({inner})")));
            Err(Wrong { meant, ..Wrong::new(format!("{text:?} is not known"), ADDRESSES) })
        }
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Addresses::Fixed => f.write_str("fixed"),
            Addresses::Random => f.write_str("random"),
            Addresses::Sweep { step, range } => write!(f, "sweep({},{})", sizes::text(*step), sizes::text(*range)),
        }
    }
}

/// `pin + unpin`: names of subjects.
pub(crate) fn sum(text: &str) -> Vec<String> {
    text.split(SUM).map(|name| name.trim().to_owned()).collect()
}

/// The name, if it is that of a subject or load.
pub(crate) fn known(kind: &str, name: &str, known: &[&str]) -> Result<String, Wrong> {
    let wrong = || Wrong::word(format!("there is no {kind} {name:?}"), name, known.iter().copied());
    known.contains(&name).then(|| name.to_owned()).ok_or_else(wrong)
}

/// The names of a sum, if all are known. `words` are allowed in place of a sum.
pub(crate) fn known_sum(kind: &str, text: &str, known: &[&str], words: &[&str]) -> Result<Vec<String>, Wrong> {
    let names = sum(text);
    let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) else { return Ok(names) };
    let words = known.iter().chain(words).copied();
    let wrong = Wrong::word(format!("there is no {kind} {unknown:?}"), unknown, words);
    Err(Wrong { allowed: wrong.allowed + ", several with ` + ` between them", ..wrong })
}

/// Separates the names of a sum. The blanks are part of it, because names may contain a plus.
pub(crate) const SUM: &str = " + ";

/// The words of a policy, and those for how the process runs.
const POLICIES: [&str; 8] = ["stock", "agent", "traced", "pi", "ticket", "boost", "phase-fair", "guard"];

/// `pi+phase-fair`, or the file of a plan.
pub(crate) fn policy(text: &str) -> Result<String, Wrong> {
    let text = text.trim();
    if text.len() > 5 && text.ends_with(".toml") && !text.contains(char::is_control) {
        return Ok(text.into());
    }
    let words: Vec<&str> = text.split(['+', ',']).map(str::trim).collect();
    for word in &words {
        if !POLICIES.contains(word) {
            let mut wrong = Wrong::word(format!("{word:?} is no lock policy"), word, POLICIES);
            wrong.allowed += ", several with `+`, or a plan: a file that ends in .toml";
            return Err(wrong);
        }
        let alone = ["stock", "agent", "traced"].contains(word);
        if (alone && words.len() > 1) || words.iter().filter(|w| *w == word).count() > 1 {
            let allowed = "`stock`, `agent` and `traced` stand alone; others once, as in `pi+phase-fair`";
            return Err(Wrong::new(format!("{word:?} in {text:?} does not fit"), allowed));
        }
    }
    Ok(words.join("+"))
}

pub(crate) fn metric(text: &str) -> Result<Metric, Wrong> {
    Metric::of(text).map_err(|wrong| Wrong { what: format!("{text:?} is no metric"), ..wrong })
}

impl Metric {
    /// As written in files.
    pub fn name(self) -> &'static str {
        self.word()
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl What {
    /// As written in files.
    pub fn text(&self) -> &str {
        match self {
            What::Route(text) | What::Call(text) => text,
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Types whose values are words.
pub(crate) trait Word: Sized + Copy + PartialEq + 'static {
    const WORDS: &'static [&'static str];
    /// In the order of the words.
    const VALUES: &'static [Self];

    fn of(text: &str) -> Result<Self, Wrong> {
        let found = Self::WORDS.iter().position(|word| *word == text);
        let wrong = || Wrong::word(format!("{text:?} is not known"), text, Self::WORDS.iter().copied());
        found.map(|at| Self::VALUES[at]).ok_or_else(wrong)
    }

    fn word(self) -> &'static str {
        Self::VALUES.iter().position(|value| *value == self).map_or("", |at| Self::WORDS[at])
    }
}

macro_rules! words {
    ($($type:ident: $($word:literal => $value:ident),+;)*) => {
        $(impl Word for $type {
            const WORDS: &'static [&'static str] = &[$($word),+];
            const VALUES: &'static [$type] = &[$($type::$value),+];
        })*
    };
}

words! {
    Gpu: "real" => Real, "soft" => Soft, "none" => None;
    Record: "no" => No, "commands" => Commands;
    Data: "fresh" => Fresh, "fixed" => Fixed;
    Process: "shared" => Shared, "own" => Own;
    Observe: "submit" => Submit, "done" => Done, "engine" => Engine;
    Metric: "min" => Min, "mean" => Mean, "p50" => P50, "p99" => P99, "p99.9" => P999, "p99.99" => P9999, "max" => Max,
        "misses" => Misses, "rate" => Rate;
}

const UNITS_OF_RATE: [(&str, f64); 7] = [
    ("kB/s", 1e3),
    ("MB/s", 1e6),
    ("GB/s", 1e9),
    ("KiB/s", 1024.0),
    ("MiB/s", 1_048_576.0),
    ("GiB/s", 1_073_741_824.0),
    ("B/s", 1.0),
];

/// `10GB/s`
fn bytes_per_second(text: &str) -> Option<f64> {
    let scaled = |(unit, scale): &(&str, f64)| Some(number(text.strip_suffix(unit)?.trim())? * scale);
    UNITS_OF_RATE.iter().find_map(scaled).filter(|rate| rate.is_finite())
}

/// A bound of a metric, in the metric's unit.
pub(crate) fn amount(text: &str, metric: Metric) -> Result<f64, Wrong> {
    let text = text.trim();
    match metric {
        Metric::Misses => {
            let part = match text.strip_suffix('%') {
                Some(percent) => number(percent.trim()).map(|n| n / 100.0),
                None => number(text),
            };
            let allowed = "of misses a part of all is bounded: `0.1%`, `0.001` or `0`";
            part.filter(|p| *p <= 1.0).ok_or_else(|| Wrong::new(format!("{text:?} is no part"), allowed))
        }
        Metric::Rate => bytes_per_second(text)
            .ok_or_else(|| Wrong::new(format!("{text:?} is no rate of bytes"), "it is written `10GB/s` or `300MiB/s`")),
        _ => time(text).map(|ns| ns as f64),
    }
}

pub(crate) fn amount_text(amount: f64, metric: Metric) -> String {
    match metric {
        Metric::Misses => amount.to_string(),
        Metric::Rate => format!("{amount}B/s"),
        _ => time_text(amount as u64),
    }
}

/// `1.2 cuda`
pub(crate) fn times(text: &str) -> Result<Bound, Wrong> {
    let parts = text.trim().split_once(char::is_whitespace);
    let factor = parts.and_then(|(factor, of)| Some((number(factor).filter(|f| *f > 0.0)?, of.trim())));
    match factor.filter(|(_, of)| !of.is_empty()) {
        Some((factor, of)) => Ok(Bound::AtMostTimes(factor, of.into())),
        None => Err(Wrong::unfit(&format!("{text:?}"), "a number and the name of a subject: `1.2 cuda`")),
    }
}

/// `5%, 100ns`: either or both.
pub(crate) fn within(text: &str) -> Result<WithinBest, Wrong> {
    const FORM: &str = "write `5%, 100ns`: at most this much above the best one, whichever of the two allows more; or give one of them";
    let (mut percent, mut ns) = (None, None);
    for part in text.split(',').map(str::trim) {
        let twice = match part.strip_suffix('%') {
            Some(of) => {
                let of = number(of.trim()).ok_or_else(|| Wrong::new(format!("{part:?} is no percentage"), FORM))?;
                percent.replace(of).is_some()
            }
            None => ns.replace(time(part).map_err(|wrong| Wrong::new(wrong.what, FORM))? as f64).is_some(),
        };
        if twice {
            return Err(Wrong::new(format!("{text:?} gives the same kind of bound twice"), FORM));
        }
    }
    Ok(WithinBest { percent: percent.unwrap_or(0.0), ns: ns.unwrap_or(0.0), among: Vec::new() })
}

pub(crate) fn within_text(within: &WithinBest) -> String {
    format!("{}%, {}", within.percent, time_text(within.ns as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_exact() {
        for (text, ns) in [
            ("60s", 60_000_000_000),
            ("1.5ms", 1_500_000),
            ("100us", 100_000),
            ("100 µs", 100_000),
            ("7ns", 7),
            ("2min", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("0", 0),
            ("0s", 0),
            ("0.000001s", 1_000),
            ("1.50s", 1_500_000_000),
            ("0.5min", 30_000_000_000),
            ("2m", 120_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1h 30min", 5_400_000_000_000),
            ("1s500ms", 1_500_000_000),
            ("1m1.5s", 61_500_000_000),
        ] {
            assert_eq!(time(text), Ok(ns), "{text}");
            assert_eq!(time(&time_text(ns)), Ok(ns));
        }
        assert_eq!(time_text(90_000_000_000), "90s");
        for text in [
            "",
            "s",
            "5",
            "5 parsecs",
            "1.2.3s",
            "1.s",
            ".5s",
            "-1s",
            "0.5ns",
            "99999999999h",
            "101000000s",
            "1m1m",
            "1s1m",
            "1.5m30s",
            "1m30",
            "5s ago",
            "1e30s",
            "nan",
            "inf",
            "2400h1000000000s",
        ] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        fn says<T: fmt::Debug>(wrong: Result<T, Wrong>, words: &[&str]) {
            let text = wrong.unwrap_err().at(&crate::Place::Whole).to_string();
            assert!(words.iter().all(|w| text.contains(w)), "{text}");
        }
        says(time("60"), &["needs a unit", "60s"]);
        says(time("30s1m"), &["longest unit first", "1m30s"]);
        says(rate("0/s"), &["count = 0"]);
        says(rate("5/day"), &["\"day\"", "1000/s"]);
        says(rate("inf/s"), &["no rate"]);
        says(class("nice(-21)"), &["-20 to 19"]);
        says(class("fifo"), &["needs a number"]);
        says(class("real_time"), &["did you mean `real-time`"]);
        says(cpus("0,x"), &["0,2-5"]);
        says(cpus("5-2"), &["ends before"]);
        says(cpus("100000"), &["no CPU 100000"]);
        says(arrival("close(4)"), &["did you mean `closed(4)`"]);
        says(arrival("closed(0)"), &["from 1 to"]);
        says(arrival("paced(0s)"), &["period of 0"]);
        says(policy("phasefair"), &["did you mean `phase-fair`"]);
        says(policy("stock+pi"), &["stand alone"]);
        says(metric("p999"), &["did you mean `p99"]);
        says(amount("50us", Metric::Misses), &["0.1%"]);
        says(amount("10GB", Metric::Rate), &["10GB/s"]);
        says(times("cuda"), &["1.2 cuda"]);
        for wrong in ["", "5", "1000", "0/s", "0%", "101%", "5GB", "0GB/s", "5/day", "-1/s"] {
            says(must_reach(wrong), &["1000/s", "5GB/s", "90%"]);
        }
        for wrong in ["", "5", "5%, 3%", "1us, 100ns", "-5%", "5%,", "5%; 100ns", "nan%"] {
            says(within(wrong), &["5%, 100ns"]);
        }
    }

    #[test]
    fn bounds_are_in_the_metrics_unit() {
        assert_eq!(amount("50us", Metric::P99), Ok(50_000.0));
        assert_eq!(amount("0.5%", Metric::Misses), Ok(0.005));
        assert_eq!(amount("0", Metric::Misses), Ok(0.0));
        assert_eq!(amount("2.5GB/s", Metric::Rate), Ok(2.5e9));
        assert_eq!(amount("1 MiB/s", Metric::Rate), Ok(1_048_576.0));
        let best = |percent, ns| Ok(WithinBest { percent, ns, among: Vec::new() });
        assert_eq!(within("5%, 100ns"), best(5.0, 100.0));
        assert_eq!(within(" 1us ,2.5 %"), best(2.5, 1000.0));
        assert_eq!(must_reach("10/ms"), Ok(MustReach::Times(10_000.0)));
        assert_eq!(must_reach(" 2.5 GB/s"), Ok(MustReach::Bytes(2.5e9)));
        assert_eq!(must_reach("90%"), Ok(MustReach::Percent(90.0)));
        assert_eq!((within("2%"), within("100ns")), (best(2.0, 0.0), best(0.0, 100.0)));
        assert_eq!(times("1.2 host->cuda->gpu0"), Ok(Bound::AtMostTimes(1.2, "host->cuda->gpu0".into())));
    }

    proptest! {
        #[test]
        fn printed_values_read_back(ns in 0..LONGEST_NS, per_second in 0.001..1e12f64, set in proptest::collection::btree_set(0..64usize, 1..20)) {
            prop_assert_eq!(time(&time_text(ns)), Ok(ns));
            prop_assert_eq!(rate(&format!("{per_second}/s")), Ok(per_second));
            prop_assert_eq!(amount(&amount_text(per_second, Metric::Rate), Metric::Rate), Ok(per_second));
            let these = Cpus::These(set.into_iter().collect());
            prop_assert_eq!(cpus(&these.to_string()), Ok(these));
            for reach in [MustReach::Times(per_second), MustReach::Bytes(per_second), MustReach::Percent(12.5)] {
                prop_assert_eq!(must_reach(&reach.to_string()), Ok(reach));
            }
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,24}|[0-9a-z.()/%, µ+-]{0,24}|([0-9.]{1,4}(h|m|min|s|ms|us|ns)){1,4}") {
            let _ = (time(&text), rate(&text), class(&text), cpus(&text), arrival(&text), policy(&text), metric(&text), times(&text), within(&text));
            let _ = (amount(&text, Metric::Rate), amount(&text, Metric::Misses), amount(&text, Metric::Max));
        }
    }
}
