//! The table of what was measured to hold other threads up, from the data file of docs/results/holds.md.

use crate::dist::Workspace;
use anyhow::Context;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

const DATA: &str = "docs/results/data/holds.json";
const FILE: &str = "crates/explain/lock-analysis/src/holds/table.rs";

/// Write the table of calls that hold other threads up again, from docs/results/data/holds.json
#[derive(Debug, clap::Args)]
pub struct Args {}

impl Args {
    pub fn run(self) -> anyhow::Result<()> {
        let root = Workspace::with(&["--no-deps"])?.root;
        let text = table(&fs::read_to_string(root.join(DATA)).context(DATA)?)?;
        fs::write(root.join(FILE), &text).context(FILE)?;
        println!("{FILE}: {} rows", text.matches("    m(").count());
        Ok(())
    }
}

/// A function's longest: what the call was, its size, the median of its turns, and the maximum. Microseconds.
struct Longest<'d> {
    with: String,
    mib: Option<&'d Value>,
    p50_us: f64,
    max_us: f64,
}

/// The file. A row of the data is a turn of one kind of call; those of one kind and size belong together.
fn table(data: &str) -> anyhow::Result<String> {
    let data: Value = serde_json::from_str(data)?;
    let rows = data["rows"].as_array().context("no rows")?;
    let mut kinds: BTreeMap<(&str, u64), Vec<&Value>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row["holds"] == "yes") {
        let call = row["call"].as_str().context("a row without a call")?;
        kinds.entry((call, row["mib"].as_u64().unwrap_or(0))).or_default().push(row);
    }
    let mut longest: BTreeMap<&str, Longest<'_>> = BTreeMap::new();
    for ((call, _), turns) in kinds {
        let figures = |key: &str| turns.iter().filter_map(|row| row[key].as_f64()).collect::<Vec<_>>();
        let (p50_us, max_us) = (median(figures("more_p50_us")), figures("more_max_us").into_iter().fold(0.0, f64::max));
        // (`cuName`, what else. Several functions that are called one after the other are the first one's.)
        let (function, with) =
            call.strip_prefix('`').and_then(|call| call.split_once('`')).context("a call without a name")?;
        let with = with.trim_start_matches(", ").replace('`', "");
        let known = longest.get(function);
        if known.is_none_or(|known| p50_us > known.p50_us) {
            longest.insert(function, Longest { with, mib: turns.first().map(|row| &row["mib"]), p50_us, max_us });
        }
    }
    let gpu = data["machine"]["gpu.name"].as_str().context("no machine")?;
    let mut text = format!(
        "//! Made by `cargo xtask holds` from `{DATA}`: of each function the longest in the median.\n\n\
         use super::Measured;\n\n\
         pub(super) const GPU: &str = {gpu:?};\n\n\
         const fn m(function: &'static str, with: &'static str, mib: u64, p50_ns: u64, max_ns: u64) -> Measured {{\n    \
         Measured {{ function, with, mib, p50_ns, max_ns }}\n}}\n\n\
         #[rustfmt::skip]\npub(super) const MEASURED: &[Measured] = &[\n"
    );
    for (function, of) in longest {
        let (mib, ns) = (of.mib.and_then(Value::as_u64).unwrap_or(0), |us: f64| (us * 1e3).round() as u64);
        writeln!(text, "    m({function:?}, {:?}, {mib}, {}, {}),", of.with, ns(of.p50_us), ns(of.max_us))?;
    }
    Ok(text + "];\n")
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    let (n, at) = (of.len(), |i: usize| of.get(i).copied().unwrap_or(0.0));
    if n % 2 == 1 { at(n / 2) } else { (at((n / 2).wrapping_sub(1)) + at(n / 2)) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_table_is_that_of_the_data_file() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        let [data, made] = [DATA, FILE].map(|path| fs::read_to_string(root.join(path)).unwrap());
        assert_eq!(table(&data).unwrap(), made, "`cargo xtask holds` writes {FILE} again");
    }
}
