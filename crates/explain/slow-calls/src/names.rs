//! Names of driver calls, kernels and copies by number.

use std::collections::HashMap;

/// Maximum number of separate names; a program makes some hundred different driver calls, and has some hundred kernels.
const MOST: usize = 4096;

#[derive(Debug, Default)]
pub struct Names {
    of: HashMap<String, u64>,
    names: Vec<String>,
}

impl Names {
    pub fn number(&mut self, name: String) -> u64 {
        if let Some(n) = self.of.get(&name) {
            return *n;
        }
        if self.names.len() >= MOST {
            return u64::MAX;
        }
        let number = self.names.len() as u64;
        self.names.push(name.clone());
        self.of.insert(name, number);
        number
    }

    /// `None` for a name that was not added.
    pub fn known(&self, name: &str) -> Option<u64> {
        self.of.get(name).copied()
    }

    pub fn name(&self, number: u64) -> &str {
        usize::try_from(number).ok().and_then(|n| self.names.get(n)).map_or("another one", String::as_str)
    }
}
