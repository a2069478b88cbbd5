//! Differences between the calls of two runs' cells: the commands of a call with one driver, and with another.

use super::{CommandsOfRun, Typical, UsedChannel};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// One difference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Differing {
    /// `doorbells`, `pushbuffer bytes`, `operations of COPY2`, `GPFIFO of COPY2`.
    pub what: String,
    pub a: Said,
    pub b: Said,
}

/// The value of one of the two.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Said {
    /// Of its calls.
    Calls(Typical),
    /// The kinds of memory that hold it.
    Places(BTreeSet<String>),
}

/// Values whose medians over calls, or places, differ. Times are left out: they need rounds.
pub fn compared(a: &CommandsOfRun, b: &CommandsOfRun) -> Vec<Differing> {
    let (of_a, of_b) = (counts(a), counts(b));
    let names: BTreeSet<&String> = of_a.keys().chain(of_b.keys()).collect();
    let count = |of: &BTreeMap<String, Typical>, name: &String| of.get(name).copied().unwrap_or_default();
    let mut all: Vec<Differing> = Vec::new();
    for name in names {
        let (a, b) = (count(&of_a, name), count(&of_b, name));
        if a.median != b.median {
            all.push(Differing { what: name[2..].to_owned(), a: Said::Calls(a), b: Said::Calls(b) });
        }
    }
    let (of_a, of_b) = (places(&a.channels), places(&b.channels));
    // A channel that only one of them uses is visible in the operations.
    for (name, a) in &of_a {
        if let Some(b) = of_b.get(name).filter(|b| *b != a) {
            all.push(Differing { what: name.clone(), a: Said::Places(a.clone()), b: Said::Places(b.clone()) });
        }
    }
    all
}

/// By name, with a digit and a space before it that define the order.
fn counts(c: &CommandsOfRun) -> BTreeMap<String, Typical> {
    let mut all = BTreeMap::from([
        ("0 doorbells".to_owned(), c.doorbells),
        ("1 GPFIFO entries".to_owned(), c.entries),
        ("2 pushbuffer bytes".to_owned(), c.pushbuffer_bytes),
        ("3 inline bytes".to_owned(), c.inline_bytes),
        ("6 lock operations".to_owned(), c.locks),
    ]);
    all.extend(c.executors.iter().map(|(name, of)| (format!("4 operations of {name}"), of.operations)));
    all.extend(c.methods.iter().map(|(class, writes)| (format!("5 methods of {class}"), *writes)));
    all
}

fn places(channels: &[UsedChannel]) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for c in channels {
        let parts = [("GPFIFO", &c.gpfifo), ("USERD", &c.userd), ("pushbuffer", &c.pushbuffer)];
        let semaphores = c.semaphores.iter().map(|place| ("semaphores", place));
        for (part, place) in parts.into_iter().chain(semaphores) {
            all.entry(format!("{part} of {}", c.engine)).or_default().insert(place.clone());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::Moved;

    fn each(n: u64) -> Typical {
        Typical { min: n, median: n, max: n + 1, mean: n as f64 }
    }

    fn cell(entries: u64, engine: &str, gpfifo: &str) -> CommandsOfRun {
        let channel = UsedChannel {
            engine: "COPY2".into(),
            gpfifo: gpfifo.into(),
            userd: "video".into(),
            pushbuffer: "host".into(),
            semaphores: vec!["host".into()],
            ..UsedChannel::default()
        };
        CommandsOfRun {
            doorbells: each(1),
            entries: each(entries),
            executors: [(engine.to_owned(), Moved { operations: each(1), bytes: each(64) })].into(),
            channels: vec![channel],
            ..CommandsOfRun::default()
        }
    }

    #[test]
    fn equal_facts_are_left_out_and_different_ones_have_both_values() {
        let (a, b) = (cell(2, "inline", "video"), cell(1, "COPY2", "host"));
        assert_eq!(compared(&a, &a), []);
        let found = compared(&a, &b);
        let names: Vec<&str> = found.iter().map(|d| d.what.as_str()).collect();
        assert_eq!(names, ["GPFIFO entries", "operations of COPY2", "operations of inline", "GPFIFO of COPY2"]);
        assert_eq!((&found[0].a, &found[0].b), (&Said::Calls(each(2)), &Said::Calls(each(1))));
        assert_eq!(found[1].a, Said::Calls(Typical::default()));
        assert_eq!(found[3].b, Said::Places(["host".to_owned()].into()));
    }

    #[test]
    fn calls_that_differ_now_and_then_are_alike() {
        let (mut a, b) = (cell(2, "inline", "video"), cell(2, "inline", "video"));
        a.entries.max = 900;
        assert_eq!(compared(&a, &b), []);
    }
}
