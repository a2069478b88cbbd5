//! A data file for measurements without an experiment: a flat row for each, with the fields that the tool wrote.

use crate::Error;
use crate::model::Origin;
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
    /// Paths of the fields, and their values.
    pub rows: Vec<BTreeMap<String, Value>>,
}

impl Rows {
    /// Objects within a row become paths, as `wire.to_gpu.mean`. Lists, empty values and the fields in `leave_out` are left out.
    pub fn of(origin: Origin, rows: impl Iterator<Item = Value>, leave_out: &[&str]) -> Rows {
        let flat = |row: Value| {
            let mut fields = BTreeMap::new();
            flatten("", row, leave_out, &mut fields);
            fields
        };
        Rows { schema: SCHEMA.into(), origin, rows: rows.map(flat).collect() }
    }

    /// # Errors
    /// It is another file, or of another version.
    pub fn read(bytes: &[u8]) -> Result<Rows, Error> {
        crate::file::check_schema(bytes, SCHEMA)?;
        Ok(serde_json::from_slice(bytes)?)
    }

    /// One line for each row.
    ///
    /// # Errors
    /// A number that JSON does not have.
    pub fn to_text(&self) -> Result<String, Error> {
        let head = serde_json::to_string(&Rows { rows: Vec::new(), ..self.clone() })?;
        let rows = self.rows.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        Ok(format!("{}\n{}]}}\n", head.strip_suffix("]}").unwrap_or(&head), rows.join(",\n")))
    }
}

fn flatten(path: &str, value: Value, leave_out: &[&str], to: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name } else { format!("{path}.{name}") };
                if !leave_out.contains(&path.as_str()) {
                    flatten(&path, value, leave_out, to);
                }
            }
        }
        Value::Null | Value::Array(_) => {}
        value => drop(to.insert(path.to_owned(), value)),
    }
}
