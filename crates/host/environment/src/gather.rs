//! Facts while they are gathered.

use crate::names;
use crate::value::{Known, Value};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Gathered {
    pub facts: BTreeMap<String, Value>,
    pub unknown: BTreeMap<String, String>,
}

impl Gathered {
    /// Replaces the earlier entry of that name.
    pub fn put<T: Into<Value>>(&mut self, name: &'static str, known: Known<T>) {
        match known {
            Ok(value) => {
                self.unknown.remove(name);
                self.facts.insert(name.into(), value.into());
            }
            Err(reason) => {
                self.unknown.insert(name.into(), reason);
            }
        }
    }

    /// Marks all names with this beginning that have no entry yet as unknown, for this reason.
    pub fn none_of(&mut self, beginning: &str, reason: &str) {
        for fact in names::ALL.iter().filter(|f| f.name.starts_with(beginning)) {
            if !self.facts.contains_key(fact.name) && !self.unknown.contains_key(fact.name) {
                self.unknown.insert(fact.name.into(), reason.into());
            }
        }
    }
}
