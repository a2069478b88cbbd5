//! The contents of a matrix (`docs/reference/p2p.schema.json`). Rates are bytes a second of one direction, times nanoseconds.

use crate::way::Way;
use serde::{Deserialize, Serialize};
use statistics::{CONFIDENCE, Figure, Interval, Ratio, Rounds, Summary};

pub const SCHEMA: &str = "doorbell.p2p/2";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Matrix {
    pub schema: String,
    pub doorbell: String,
    pub commit: Option<String>,
    pub command: Vec<String>,
    /// UTC, RFC 3339.
    pub started: String,
    /// On the software GPU: results show what works; speeds have no meaning.
    pub functional: bool,
    pub gpus: u32,
    /// Bytes of a timed transfer, and of a transfer for the latency.
    pub bytes: u64,
    pub latency_bytes: u64,
    /// In each of them every cell between two GPUs took a turn.
    pub rounds: u32,
    pub environment: serde_json::Value,
    pub warnings: Vec<String>,
    pub cells: Vec<Cell>,
}

/// From one GPU to another, by one method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cell {
    pub way: Way,
    pub from: u32,
    pub to: u32,
    /// The route, or its two halves.
    pub route: String,
    /// Peer access: the bytes do not pass through the host's memory.
    pub p2p: bool,
    pub status: Status,
    /// Transfers of random bytes that were compared, and the error.
    pub verified: u32,
    pub wrong: Option<String>,
    /// This direction, without the other.
    pub alone: Option<Rate>,
    /// While the same amount is moved in the other direction.
    pub both: Option<Both>,
    pub latency: Option<Times>,
    /// The median over rounds of this method's p50 without the other direction, divided by that of a copy engine in the same direction and round.
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub over_ce: Option<Ratio>,
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

/// Both directions at the same time. The cell of the other direction has the same values, exchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Both {
    /// This direction, over its own time.
    pub this: Rate,
    pub other: Rate,
    /// A sum: the bytes of both directions over the longer of the two times.
    pub sum: Rate,
}

/// Bytes over the p50 of the times, and the interval of that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Rate {
    pub rate: f64,
    #[cfg_attr(test, schemars(with = "Option<std::collections::BTreeMap<String, f64>>"))]
    pub interval: Option<Interval<f64>>,
    pub times: Times,
}

/// Times of all transfers of all rounds, nanoseconds. A percentile needs ten samples beyond it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Times {
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub ns: Summary,
    /// Holds the p50 of this process with 95 %: by the rounds. Null with fewer than three rounds.
    #[cfg_attr(test, schemars(with = "Option<std::collections::BTreeMap<String, f64>>"))]
    pub p50_interval: Option<Interval<f64>>,
    pub rounds: u32,
}

impl Times {
    pub(crate) fn of(rounds: &Rounds) -> Option<Times> {
        let p50_interval = rounds.interval(Figure::P50, CONFIDENCE);
        Some(Times { ns: rounds.summary()?, p50_interval, rounds: rounds.sampled().len() as u32 })
    }
}

impl Rate {
    pub(crate) fn of(bytes: u64, times: Times) -> Rate {
        let rate = |ns: f64| bytes as f64 * 1e9 / ns.max(1.0);
        // The longest time is the lowest rate.
        let interval = times.p50_interval.map(|of| Interval { low: rate(of.high), high: rate(of.low) });
        Rate { rate: rate(times.ns.p50 as f64), interval, times }
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
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/reference/p2p.schema.json");
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
    fn a_rate_is_that_of_the_p50_and_its_interval_that_of_rounds() {
        let round = |n: u64| (0..100).map(|sample| 1000 + 10 * n + sample % 3).collect::<Vec<_>>();
        let rounds: Vec<Vec<u64>> = (0..12).map(round).collect();
        let times = Times::of(&Rounds::new(&rounds).rounds_are_processes()).unwrap();
        assert_eq!((times.rounds, times.ns.count, times.ns.max), (12, 1200, 1112));
        assert!(times.ns.p99.is_some_and(|p99| p99 >= 1110), "{times:?}");
        let rate = Rate::of(4000, times.clone());
        let interval = rate.interval.unwrap();
        assert_eq!(rate.rate, 4e12 / times.ns.p50 as f64);
        assert_eq!(interval.low, 4e12 / times.p50_interval.unwrap().high);
        assert!(interval.holds(rate.rate) && interval.low < interval.high, "{rate:?}");
        let few = Rounds::new(&rounds[..2]).rounds_are_processes();
        assert_eq!(Times::of(&few).unwrap().p50_interval, None, "two rounds say too little");
        assert_eq!(Times::of(&Rounds::new(&[Vec::new(), Vec::new()])), None);
    }
}
