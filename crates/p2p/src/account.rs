//! What a matrix says (`docs/reference/p2p.schema.json`). Rates are bytes a second of one direction, times nanoseconds.

use crate::way::Way;
use serde::{Deserialize, Serialize};
use statistics::{Interval, Summary};

pub const SCHEMA: &str = "doorbell.p2p/1";

/// Of intervals: with five repeats it is from the least to the largest.
pub const CONFIDENCE: f64 = 0.9375;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Matrix {
    pub schema: String,
    pub doorbell: String,
    pub commit: Option<String>,
    pub command: Vec<String>,
    /// UTC, RFC 3339.
    pub started: String,
    /// On the software GPU: what works is a result, how fast it was is none.
    pub functional: bool,
    pub gpus: u32,
    /// Of a timed transfer, and of one whose latency is taken.
    pub bytes: u64,
    pub latency_bytes: u64,
    pub repeats: u32,
    pub environment: serde_json::Value,
    pub warnings: Vec<String>,
    pub cells: Vec<Cell>,
}

/// From one GPU to one, by one way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cell {
    pub way: Way,
    pub from: u32,
    pub to: u32,
    /// The route, or its two halves.
    pub route: String,
    /// Peer access: the bytes do not go through the host's memory.
    pub p2p: bool,
    pub status: Status,
    /// Transfers of random bytes that were compared, and what was wrong.
    pub verified: u32,
    pub wrong: Option<String>,
    /// This direction alone.
    pub alone: Option<Over>,
    /// While the same amount goes the other way.
    pub both: Option<Both>,
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub latency: Option<Summary>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Done,
    /// Not possible on this machine, and why.
    Unavailable(String),
    Failed(String),
}

/// Both directions at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Both {
    /// This direction, over its own time.
    pub this: Over,
    pub other: Over,
    /// A sum: the bytes of both directions over the longer of the two times.
    pub sum: Over,
}

/// The median over repeats, and an interval that holds it with 93.75 % or more, where there are five repeats or more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Over {
    pub median: f64,
    #[cfg_attr(test, schemars(with = "Option<std::collections::BTreeMap<String, f64>>"))]
    pub interval: Option<Interval<f64>>,
    pub repeats: u32,
}

impl Over {
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Over> {
        let median = statistics::median(&mut values)?;
        let interval = statistics::median_interval(&values, CONFIDENCE);
        Some(Over { median, interval, repeats: values.len() as u32 })
    }
}

impl Matrix {
    pub fn cell(&self, way: Way, from: u32, to: u32) -> Option<&Cell> {
        self.cells.iter().find(|cell| (cell.way, cell.from, cell.to) == (way, from, to))
    }

    pub fn ways(&self) -> Vec<Way> {
        Way::ALL.into_iter().filter(|way| self.cells.iter().any(|cell| cell.way == *way)).collect()
    }

    pub fn is_wrong(&self) -> bool {
        self.cells.iter().any(|cell| cell.wrong.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `DOORBELL_WRITE_SCHEMA=1` writes the file.
    #[test]
    fn the_schema_is_that_of_the_types() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/p2p.schema.json");
        let mut schema = serde_json::to_value(schemars::schema_for!(Matrix)).unwrap();
        schema["title"] = "A matrix of `doorbell bench p2p`".into();
        schema["properties"]["schema"] = serde_json::json!({ "const": SCHEMA });
        let text = format!("{schema:#}\n");
        if std::env::var_os("DOORBELL_WRITE_SCHEMA").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), text, "DOORBELL_WRITE_SCHEMA=1 cargo test -p p2p writes it");
    }

    #[test]
    fn five_repeats_have_an_interval_from_the_least_to_the_largest() {
        let over = Over::of(vec![3.0, 1.0, 2.0, 5.0, 4.0]).unwrap();
        assert_eq!((over.median, over.interval), (3.0, Some(Interval { low: 1.0, high: 5.0 })));
        assert_eq!(Over::of(vec![1.0; 4]).unwrap().interval, None);
        assert_eq!(Over::of(Vec::new()), None);
    }
}
