//! A data file for measurements without an experiment: a row for each, with the fields that the tool wrote.
//!
//! The invariant: what [`Rows::read`] accepts holds figures as numbers. Text is a label. So a table of rows is computed, never copied.

use crate::data_file::Error;
use crate::data_file::model::Origin;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

pub const SCHEMA: &str = "doorbell.rows/1";

/// One run, as rows. Figures of pages are computed over them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rows {
    pub schema: String,
    #[serde(flatten)]
    pub origin: Origin,
    /// What its figures are, if they were computed before they were stored and the samples were not kept. A page prints it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<String>,
    /// Paths of the fields, and their values.
    pub rows: Vec<BTreeMap<String, Value>>,
}

impl Rows {
    /// # Errors
    /// It is another file, or of another version; a figure in it is text.
    pub fn read(bytes: &[u8]) -> Result<Rows, Error> {
        crate::data_file::file::check_schema(bytes, SCHEMA)?;
        let mut read: Rows = serde_json::from_slice(bytes)?;
        for row in &mut read.rows {
            let fields = Value::Object(std::mem::take(row).into_iter().collect());
            flatten("", fields, row);
        }
        for (row, fields) in (1..).zip(&read.rows) {
            if let Some((field, Value::String(text))) = fields.iter().find(|(_, v)| v.as_str().is_some_and(is_figure)) {
                return Err(Error::Text { row, field: field.clone(), text: text.clone() });
            }
        }
        Ok(read)
    }
}

const UNITS: [&str; 16] =
    ["ns", "us", "ms", "s", "%", "B", "KiB", "MiB", "GiB", "KB", "MB", "GB", "MB/s", "GB/s", "IOPS", "times"];

/// Whether a text consists of numbers and their units: `4.99 us`, `+1.5 to +3.3 %`, `0 0 2 2`.
fn is_figure(text: &str) -> bool {
    let is_number = |word: &str| word.replace(',', "").parse::<f64>().is_ok_and(f64::is_finite);
    let number = |word: &str| UNITS.iter().any(|u| word.strip_suffix(u).is_some_and(is_number)) || is_number(word);
    let words = || text.split_whitespace().map(|word| word.trim_matches(['(', ')', '[', ']', ',', ';', ':']));
    words().any(number) && words().all(|word| number(word) || UNITS.contains(&word) || ["to", "-", ""].contains(&word))
}

/// Objects within a row become paths, as `wire.to_gpu.mean`. Lists and empty values are left out.
fn flatten(path: &str, value: Value, to: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name } else { format!("{path}.{name}") };
                flatten(&path, value, to);
            }
        }
        Value::Null | Value::Array(_) => {}
        value => drop(to.insert(path.to_owned(), value)),
    }
}
