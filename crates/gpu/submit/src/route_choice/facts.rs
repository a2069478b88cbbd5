//! The machine that a profile belongs to: another GPU, driver or machine has other crossovers.

use serde::Serialize;
use std::fmt;

/// Facts of the machine that was measured; `not known` for an unknown fact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// Version of doorbell.
    pub doorbell: String,
    pub gpu: String,
    pub uuid: String,
    pub driver: String,
    pub cpu: String,
    /// NUMA nodes: `0-1`.
    pub nodes: String,
    pub kernel: String,
}

impl Facts {
    pub const NAMES: [&'static str; 7] = ["doorbell", "gpu", "uuid", "driver", "cpu", "nodes", "kernel"];

    /// Names, as in the file, and values.
    pub fn each(&self) -> [(&'static str, &str); 7] {
        let values = [&self.doorbell, &self.gpu, &self.uuid, &self.driver, &self.cpu, &self.nodes, &self.kernel];
        std::array::from_fn(|i| (Facts::NAMES[i], values[i].as_str()))
    }

    /// Name of the software GPU.
    pub const SOFT: &'static str = "software GPU";

    pub fn is_soft(&self) -> bool {
        self.gpu == Facts::SOFT
    }

    /// The name for readers.
    fn title(name: &str) -> &str {
        match name {
            "gpu" => "GPU",
            "uuid" => "GPU's UUID",
            "cpu" => "CPU",
            "nodes" => "NUMA nodes",
            other => other,
        }
    }

    /// Compares with the current facts.
    ///
    /// # Errors
    /// Each fact that changed.
    pub fn still(&self, now: &Facts) -> Result<(), Stale> {
        let pairs = self.each().into_iter().zip(now.each());
        let changes: Vec<Change> = pairs
            .filter(|((_, was), (_, is))| was != is)
            .map(|((fact, was), (_, is))| Change { fact, was: was.into(), is: is.into() })
            .collect();
        if changes.is_empty() { Ok(()) } else { Err(Stale { changes }) }
    }
}

/// A fact that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// One of [`Facts::NAMES`].
    pub fact: &'static str,
    pub was: String,
    pub is: String,
}

/// The profile does not apply to this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    pub changes: Vec<Change>,
}

impl std::error::Error for Stale {}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the profile is stale: ")?;
        for (i, Change { fact, was, is }) in self.changes.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}{} was {was:?} and is {is:?}", Facts::title(fact))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fact_makes_a_profile_stale_by_itself_and_is_named_with_both_values() {
        let taken = Facts {
            doorbell: "0.1.0".into(),
            gpu: "NVIDIA H200".into(),
            uuid: "GPU-1".into(),
            driver: "580.159.04".into(),
            cpu: "Xeon".into(),
            nodes: "0-1".into(),
            kernel: "6.18.5".into(),
        };
        assert_eq!(taken.still(&taken), Ok(()));
        let changes: [fn(&mut Facts); 7] = [
            |f| f.doorbell = "new".into(),
            |f| f.gpu = "new".into(),
            |f| f.uuid = "new".into(),
            |f| f.driver = "new".into(),
            |f| f.cpu = "new".into(),
            |f| f.nodes = "new".into(),
            |f| f.kernel = "new".into(),
        ];
        for (change, (name, was)) in changes.iter().zip(taken.each()) {
            let mut now = taken.clone();
            change(&mut now);
            let stale = taken.still(&now).unwrap_err();
            assert_eq!(stale.changes, [Change { fact: name, was: was.into(), is: "new".into() }]);
            let text = stale.to_string();
            assert!(text.contains(Facts::title(name)) && text.contains(was) && text.contains("new"), "{text}");
        }
        let text = taken.still(&Facts::default()).unwrap_err().to_string();
        assert!(taken.each().iter().all(|(_, was)| text.contains(was)), "{text}");
    }
}
