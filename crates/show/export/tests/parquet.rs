//! Recordings as Parquet files: the rows, columns and values of JSON Lines.

#[path = "../../../explain/decode/tests/synthetic/mod.rs"]
mod synthetic;

use decode::Recording;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

/// Tables and the types of rows in them.
const TABLES: [(&str, &str); 8] = [
    ("driver_calls", "call"),
    ("submissions", "submission"),
    ("copies", "copy"),
    ("launches", "launch"),
    ("locks", "lock"),
    ("cuda_calls", "cuda_call"),
    ("switches", "switch"),
    ("channels", "channel"),
];

fn exported(mut tape: synthetic::Tape) -> (tempfile::TempDir, Vec<Value>) {
    let dir = tempfile::tempdir().unwrap();
    let (path, mut lines) = (dir.path().join("t.doorbell"), Vec::new());
    tape.write(&path);
    let r = Recording::open(&path).unwrap();
    std::fs::create_dir(dir.path().join("out")).unwrap();
    export::parquet(&r, &dir.path().join("out")).unwrap();
    export::jsonl(&r, &mut lines).unwrap();
    (dir, String::from_utf8(lines).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect())
}

fn reader(dir: &Path, table: &str) -> SerializedFileReader<File> {
    SerializedFileReader::new(File::open(dir.join("out").join(format!("{table}.parquet"))).unwrap()).unwrap()
}

type Row = BTreeMap<String, Value>;

fn table(dir: &Path, name: &str) -> Vec<Row> {
    let value = |f: &Field| match f {
        Field::Null => Value::Null,
        Field::Bool(b) => (*b).into(),
        Field::Long(n) => (*n).into(),
        Field::ULong(n) => (*n).into(),
        Field::Double(n) => (*n).into(),
        Field::Str(s) => s.clone().into(),
        f => panic!("{f:?}"),
    };
    let rows = reader(dir, name).into_iter().map(Result::unwrap);
    rows.map(|row| row.get_column_iter().map(|(name, f)| (name.clone(), value(f))).collect()).collect()
}

/// A row of JSON as columns.
fn flat(v: &Value, prefix: &str, into: &mut Row) {
    for (key, v) in v.as_object().unwrap() {
        let name = format!("{prefix}{key}");
        match v {
            Value::Object(_) => flat(v, &format!("{name}_"), into),
            Value::Array(all) if key == "entries" => drop(into.insert(name, all.len().into())),
            Value::Array(all) if all.iter().all(Value::is_number) && all.len() == 3 => {
                let extent = ["x", "y", "z"].iter().zip(all);
                extent.for_each(|(axis, n)| drop(into.insert(format!("{name}_{axis}"), n.clone())));
            }
            Value::Array(all) => {
                let texts: Vec<&str> = all.iter().map(|t| t.as_str().unwrap()).collect();
                into.insert(name, texts.join(", ").into());
            }
            v => drop(into.insert(name, v.clone())),
        }
    }
}

/// What JSON has as a text, because it may be too large, is a number.
fn same(parquet: &Value, json: &Value) -> bool {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    parquet == json || parquet.as_u64().is_some_and(|n| json.as_str().and_then(number) == Some(n))
}

#[test]
fn every_table_has_the_rows_keys_and_values_of_json_lines() {
    same_as_json(synthetic::calls_and_locks(), &TABLES);
    let mut tape = synthetic::kernel_times();
    tape.range(200, 199_000, 203_000, "step");
    same_as_json(tape, &[("kernel_runs", "kernel_run"), ("launches", "launch"), ("ranges", "range")]);
}

fn same_as_json(tape: synthetic::Tape, tables: &[(&str, &str)]) {
    let (dir, lines) = exported(tape);
    for &(name, kind) in tables {
        let rows = table(dir.path(), name);
        let lines: Vec<&Value> = lines.iter().filter(|l| l["type"] == kind).collect();
        assert!(!rows.is_empty() && rows.len() == lines.len(), "{name}: {} rows of {}", rows.len(), lines.len());
        for (row, line) in rows.iter().zip(lines) {
            let mut flat_line = Row::new();
            flat(line, "", &mut flat_line);
            flat_line.remove("type");
            for (key, v) in &flat_line {
                // (For a missing call or shape the columns are null.)
                let is = row.get(key).unwrap_or(&Value::Null);
                assert!(same(is, v), "{name}.{key}: {is} for {v}");
            }
            for (column, v) in row.iter().filter(|(_, v)| !v.is_null()) {
                assert!(flat_line.contains_key(column), "{name}.{column}: {v}, which JSON has not");
            }
        }
    }
}

#[test]
fn entries_and_commands_have_tables_of_their_own() {
    let (dir, lines) = exported(synthetic::one_of_everything());
    let all = |key: &str| {
        lines
            .iter()
            .filter_map(|l| l["entries"].as_array())
            .flatten()
            .filter_map(|e| e[key].as_array())
            .flatten()
            .count()
    };
    let entries =
        lines.iter().filter(|l| l["type"] == "submission").flat_map(|l| l["entries"].as_array().unwrap()).count();
    assert_eq!((table(dir.path(), "entries").len(), table(dir.path(), "commands").len()), (entries, all("commands")));
    let commands = table(dir.path(), "commands");
    assert!(commands.iter().any(|c| c["text"].as_str().unwrap().contains("LAUNCH_DMA")));
    let recording = &table(dir.path(), "recording")[0];
    assert_eq!((&recording["rows_entries"], &recording["rows_locks"]), (&entries.into(), &0.into()));
    assert!(!dir.path().join("out/locks.parquet").exists(), "a table without rows has no file");
    assert_eq!(table(dir.path(), "processes")[0]["pid"], 4242);
    assert_eq!(table(dir.path(), "notes")[0]["text"], "child process 4300 is not recorded");
}

#[test]
fn missing_events_are_in_the_metadata_of_each_file() {
    let mut tape = synthetic::one_of_everything();
    tape.gap(100, 3, 2, 100);
    let (dir, lines) = exported(tape);
    for name in ["copies", "recording"] {
        let reader = reader(dir.path(), name);
        let all = reader.metadata().file_metadata().key_value_metadata().unwrap();
        let value = |key: &str| all.iter().find(|kv| kv.key == key).and_then(|kv| kv.value.clone()).unwrap();
        assert_eq!((value("doorbell.complete"), value("doorbell.lost_events")), ("false".into(), "3".into()));
        assert_eq!(value("doorbell.lost"), lines[1]["lost"].to_string());
        assert_eq!(
            (value("doorbell.clock_error_ns"), value("doorbell.schema")),
            ("0".into(), "doorbell.lines/2".into())
        );
    }
    assert_eq!(table(dir.path(), "recording")[0]["complete"], false);
}
