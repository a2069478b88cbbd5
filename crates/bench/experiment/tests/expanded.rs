//! The stages and cells of each shipped experiment: moving an experiment to another file must not change them.
//!
//! `DOORBELL_WRITE_GOLDEN=1 cargo test -p experiment --test expanded` writes the file again, for an intended change.

use experiment::{Experiment, shipped};
use std::fmt::Write;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/expanded.tsv");

/// Stages, cells, and a checksum without the descriptions: names and `about` may change.
fn row(read: &Experiment) -> String {
    let stages = read.stages().unwrap();
    let cells: usize = stages.iter().map(|stage| stage.cells.len()).sum();
    let what = (&read.compare, &read.repays, &read.largests, &read.asserts, &read.run, &read.matrix, &stages);
    let crc = crc32fast::hash(&serde_json::to_vec(&what).unwrap());
    format!("{}\t{}\t{}\t{cells}\t{crc:08x}\n", read.name, read.variant.as_deref().unwrap_or("-"), stages.len())
}

#[test]
fn shipped_experiments_expand_as_before() {
    let mut now = String::from("experiment\tvariant\tstages\tcells\tcrc32\n");
    for shipped in shipped() {
        for one in shipped.read_all().unwrap_or_else(|e| panic!("{e}")) {
            let _ = now.write_str(&row(&one));
        }
    }
    if std::env::var_os("DOORBELL_WRITE_GOLDEN").is_some() {
        std::fs::write(FILE, &now).unwrap();
    }
    let before = std::fs::read_to_string(FILE).unwrap_or_default();
    let changed: Vec<&str> = now.lines().filter(|line| !before.lines().any(|was| was == *line)).collect();
    assert!(changed.is_empty(), "these expand into something else:\n{}", changed.join("\n"));
    assert_eq!(before.lines().count(), now.lines().count(), "rows are missing or too many");
}
