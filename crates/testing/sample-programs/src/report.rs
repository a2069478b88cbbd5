//! What a sample did: facts, times, and the checksum.

use crate::data::Checksum;
use serde::Serialize;
use std::fmt;

/// The times of one loop, in nanoseconds of CPU time spent in the calls of each iteration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loop {
    pub n: usize,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    pub mean_ns: u64,
}

impl Loop {
    /// Nearest rank: p99 is the smallest time that at least 99 % of the iterations did not exceed. `None` if empty.
    pub(crate) fn from_times(mut times: Vec<u64>) -> Option<Loop> {
        times.sort_unstable();
        let n = times.len();
        let rank = |percent: usize| times.get((n * percent).div_ceil(100).saturating_sub(1)).copied();
        Some(Loop {
            n,
            p50_ns: rank(50)?,
            p99_ns: rank(99)?,
            max_ns: *times.last()?,
            mean_ns: times.iter().sum::<u64>() / n as u64,
        })
    }
}

/// One of the things that a sample does, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    pub name: String,
    /// Its position among all parts, from 1.
    pub number: u32,
    pub launches: u64,
    /// Why it was left out.
    pub skipped: Option<String>,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.skipped {
            Some(reason) => write!(f, "{} {}: skipped, {reason}", self.number, self.name),
            None => write!(f, "{} {}: {} launches", self.number, self.name, self.launches),
        }
    }
}

/// Everything about one run. [`fmt::Display`] writes it as lines; the last is the checksum, and it alone is the same for
/// every run with one seed and count.
#[derive(Clone, Debug)]
pub struct Report {
    pub name: &'static str,
    pub gpu: String,
    pub seed: u64,
    pub facts: Vec<(&'static str, u64)>,
    pub loops: Vec<(&'static str, Loop)>,
    pub parts: Vec<Part>,
    checksum: Checksum,
}

impl Report {
    pub(crate) fn new(name: &'static str, gpu: String, seed: u64) -> Report {
        Report { name, gpu, seed, facts: Vec::new(), loops: Vec::new(), parts: Vec::new(), checksum: Checksum::NEW }
    }

    pub(crate) fn fact(&mut self, what: &'static str, value: u64) {
        self.facts.push((what, value));
    }

    /// Adds a result to the checksum.
    pub(crate) fn add(&mut self, result: &[u8]) {
        self.checksum.add(result);
    }

    /// Over all results, in an order that does not depend on timing.
    pub fn checksum(&self) -> u64 {
        self.checksum.value()
    }

    /// The loops as one line of JSON: `{"sample":"bench","gpu":..,"loops":{"launch":{"n":..,"p50_ns":..,..},..}}`.
    pub fn json(&self) -> String {
        let loops: serde_json::Map<String, serde_json::Value> =
            self.loops.iter().map(|(name, times)| ((*name).to_owned(), serde_json::json!(times))).collect();
        serde_json::json!({ "sample": self.name, "gpu": self.gpu, "seed": self.seed, "loops": loops }).to_string()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} on {}", self.name, self.gpu)?;
        self.parts.iter().filter(|part| part.skipped.is_some()).try_for_each(|part| writeln!(f, "{part}"))?;
        for (what, value) in &self.facts {
            writeln!(f, "{what}: {value}")?;
        }
        if !self.loops.is_empty() {
            writeln!(f, "{}", self.json())?;
        }
        write!(f, "checksum {} seed {}: {:016x}", self.name, self.seed, self.checksum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let times = Loop::from_times((1..=1000).rev().collect()).unwrap();
        assert_eq!(times, Loop { n: 1000, p50_ns: 500, p99_ns: 990, max_ns: 1000, mean_ns: 500 });
        assert_eq!(Loop::from_times(vec![7]).unwrap(), Loop { n: 1, p50_ns: 7, p99_ns: 7, max_ns: 7, mean_ns: 7 });
        assert_eq!(Loop::from_times(vec![]), None);
    }

    #[test]
    fn the_last_line_is_the_checksum_and_holds_no_time() {
        let mut report = Report::new("bench", "GPU".into(), 9);
        report.add(b"result");
        let line = report.to_string().lines().last().unwrap().to_owned();
        report.fact("launches", 3);
        report.loops.push(("launch", Loop::from_times(vec![1, 2, 3]).unwrap()));
        let text = report.to_string();
        assert_eq!(text.lines().last().unwrap(), line);
        assert!(line.starts_with("checksum bench seed 9: "), "{line}");
        let json: serde_json::Value = serde_json::from_str(text.lines().nth_back(1).unwrap()).unwrap();
        assert_eq!(json["loops"]["launch"]["p50_ns"], 2);
    }
}
