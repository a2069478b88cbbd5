//! Names of locks, threads, calls and times in rows.

use crate::facts::{Facts, Lock};
use decode::{Recording, Source};
use schema::Clock;
use std::collections::HashMap;

/// Names of the locks, threads and times of a recording in its rows.
pub struct Labels<'a> {
    pub facts: &'a Facts,
    pub recording: &'a Recording,
    clock: Clock,
    /// For each lock: its name without number, and how the name was found.
    pub names: Vec<(String, &'static str)>,
    /// Its number among those of its name, from 1; 0 if it is the only one.
    pub numbers: Vec<usize>,
    pub lost: u64,
}

impl<'a> Labels<'a> {
    pub fn new(r: &'a Recording, facts: &'a Facts) -> Labels<'a> {
        let names: Vec<_> = facts.locks.iter().map(|l| name(facts, l)).collect();
        let mut count: HashMap<&str, usize> = HashMap::new();
        names.iter().for_each(|(n, _)| *count.entry(n).or_default() += 1);
        let mut seen: HashMap<&str, usize> = HashMap::new();
        let numbers = names
            .iter()
            .map(|(n, _)| {
                let k = seen.entry(n).or_default();
                *k += 1;
                if count.get(n.as_str()) == Some(&1) { 0 } else { *k }
            })
            .collect();
        let lost = facts.gap_events().max(r.end().map_or(0, |e| e.gap_events));
        Labels { facts, recording: r, clock: decode::rows::clock_at(r, r.hz()), names, numbers, lost }
    }

    pub fn ns(&self, ticks: u64) -> u64 {
        self.recording.ns(ticks)
    }

    pub fn seconds(&self, tsc: u64) -> f64 {
        self.clock.seconds(tsc).unwrap_or(0.0)
    }

    pub fn name(&self, lock: usize) -> String {
        match (self.names.get(lock), self.numbers.get(lock)) {
            (Some((n, _)), Some(0)) => n.clone(),
            (Some((n, _)), Some(k)) => format!("{n}#{k}"),
            _ => String::new(),
        }
    }

    /// The place of an operation on a lock, by the mappings at that time.
    pub fn site(&self, lock: usize, addr: u64, when: u64) -> String {
        self.facts.names.site(self.facts.process(lock), addr, when)
    }

    pub fn thread(&self, thread: Source) -> String {
        self.facts.threads.name(thread).to_owned()
    }

    /// A thread that had a CPU before or after one of `process`: of this process or of any.
    pub fn other(&self, process: u32, tid: i32, when: u64) -> String {
        self.facts.threads.other_name(process, tid, when).to_owned()
    }
}

/// A CUDA function by its number on tapes.
pub fn function_name(number: u16) -> String {
    tape::call::function(number).map_or_else(|| format!("call {number}"), |f| f.name.into())
}

fn name(f: &Facts, l: &Lock) -> (String, &'static str) {
    let (place, by) = match (f.names.of_static(l.process, l.addr, l.used.0), l.made) {
        (Some(place), _) => (place, "static"),
        (None, Some((when, site))) => (f.names.site(l.process, site, when), "made"),
        (None, None) => (f.names.site(l.process, l.used.1, l.used.0), "first_use"),
    };
    (format!("{place}/{}", l.class.name()), by)
}
