//! What a sample did: facts, times, and the checksum.

use crate::Result;
use crate::data::{Checksum, check};
use serde::Serialize;
use std::fmt;

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
    pub parts: Vec<Part>,
    checksum: Checksum,
}

impl Report {
    pub(crate) fn new(name: &'static str, gpu: String, seed: u64) -> Report {
        Report { name, gpu, seed, facts: Vec::new(), parts: Vec::new(), checksum: Checksum::NEW }
    }

    pub(crate) fn fact(&mut self, what: &'static str, value: u64) {
        self.facts.push((what, value));
    }

    /// Compares a result with the expected one, and adds it to the checksum.
    pub(crate) fn check(&mut self, what: impl FnOnce() -> String, expected: &[u8], got: &[u8]) -> Result<()> {
        check(what, expected, got)?;
        self.add(got);
        Ok(())
    }

    /// Adds a result to the checksum.
    pub(crate) fn add(&mut self, result: &[u8]) {
        self.checksum.add(result);
    }

    /// Over all results, in an order that does not depend on timing.
    pub fn checksum(&self) -> u64 {
        self.checksum.value()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} on {}", self.name, self.gpu)?;
        self.parts.iter().filter(|part| part.skipped.is_some()).try_for_each(|part| writeln!(f, "{part}"))?;
        for (what, value) in &self.facts {
            writeln!(f, "{what}: {value}")?;
        }
        write!(f, "checksum {} seed {}: {:016x}", self.name, self.seed, self.checksum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_checksum_and_holds_no_time() {
        let mut report = Report::new("bench", "GPU".into(), 9);
        report.add(b"result");
        let line = report.to_string().lines().last().unwrap().to_owned();
        report.fact("launches", 3);
        let text = report.to_string();
        assert_eq!(text.lines().last().unwrap(), line);
        assert!(line.starts_with("checksum bench seed 9: "), "{line}");
    }
}
