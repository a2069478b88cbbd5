//! The JSON Schema for editors and the reader have the same keys, and accept the same files.

use experiment::keys::{Kind, SECTIONS};
use experiment::{read, shipped};
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeSet;

const FILE: &str = include_str!("../../../../docs/reference/experiment.schema.json");
const REFERENCE: &str = include_str!("../../../../docs/reference/experiments.md");

fn schema() -> Value {
    serde_json::from_str(FILE).unwrap()
}

#[test]
fn the_file_matches_the_table_of_keys() {
    let hint = "cargo run -p experiment --example schema > docs/reference/experiment.schema.json";
    assert!(FILE == experiment::schema::schema(), "the schema is of another table of keys: {hint}");
}

/// The first part that does not fit, with its place.
fn fits(value: &Value, schema: &Value, root: &Value, at: &str) -> Result<(), String> {
    let no = |why: String| Err(format!("{at}: {why}"));
    for (keyword, says) in schema.as_object().unwrap() {
        match keyword.as_str() {
            "$schema" | "title" | "description" | "default" | "definitions" | "additionalProperties" => {}
            "$ref" => {
                let path = says.as_str().unwrap().trim_start_matches('#');
                fits(value, root.pointer(path).unwrap_or_else(|| panic!("{path}")), root, at)?;
            }
            "type" => {
                let is = |name: &str| match name {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.is_i64() || value.is_u64(),
                    "number" => value.is_number(),
                    other => panic!("type {other}"),
                };
                let names: Vec<&str> = match says {
                    Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
                    name => name.as_str().into_iter().collect(),
                };
                if !names.iter().any(|name| is(name)) {
                    return no(format!("{value} is no {names:?}"));
                }
            }
            "properties" => {
                for (key, inner) in value.as_object().into_iter().flatten() {
                    let path = format!("{at}.{key}");
                    match (says.get(key), schema.get("additionalProperties")) {
                        (Some(own), _) => fits(inner, own, root, &path)?,
                        (None, Some(Value::Bool(false))) => return no(format!("unknown key {key}")),
                        (None, Some(other)) => fits(inner, other, root, &path)?,
                        (None, None) => {}
                    }
                }
            }
            "required" => {
                let missing = says.as_array().unwrap().iter().find(|key| value.get(key.as_str().unwrap()).is_none());
                if let Some(key) = missing {
                    return no(format!("{key} is missing"));
                }
            }
            "enum" if !says.as_array().unwrap().contains(value) => return no(format!("{value} is none of {says}")),
            "enum" => {}
            "items" => {
                for (i, inner) in value.as_array().into_iter().flatten().enumerate() {
                    fits(inner, says, root, &format!("{at}[{i}]"))?;
                }
            }
            "minItems" if value.as_array().is_some_and(|a| (a.len() as u64) < says.as_u64().unwrap()) => {
                return no("too few".into());
            }
            "uniqueItems" => {
                let all: Vec<String> = value.as_array().into_iter().flatten().map(Value::to_string).collect();
                if all.iter().collect::<BTreeSet<_>>().len() < all.len() {
                    return no("twice".into());
                }
            }
            "minItems" => {}
            "minimum" | "maximum" | "exclusiveMinimum" => {
                let (n, bound) = (value.as_f64(), says.as_f64().unwrap());
                let within = n.is_none_or(|n| match keyword.as_str() {
                    "minimum" => n >= bound,
                    "maximum" => n <= bound,
                    _ => n > bound,
                });
                if !within {
                    return no(format!("{value}, {keyword} {bound}"));
                }
            }
            "pattern" if !value.as_str().is_none_or(|t| Regex::new(says.as_str().unwrap()).unwrap().is_match(t)) => {
                return no(format!("{value} is not like {says}"));
            }
            "pattern" => {}
            "anyOf" => {
                let tried: Vec<_> = says.as_array().unwrap().iter().map(|one| fits(value, one, root, at)).collect();
                if !tried.iter().any(Result::is_ok) {
                    return no(format!("none of {tried:?}"));
                }
            }
            "not" if fits(value, says, root, at).is_ok() => return no("is what it must not be".into()),
            "not" => {}
            other => panic!("this check does not know {other}"),
        }
    }
    Ok(())
}

fn valid(text: &str) -> Result<(), String> {
    let value: Value = toml::from_str(text).map_err(|e| e.to_string())?;
    let schema = schema();
    fits(&value, &schema, &schema, "")
}

#[test]
fn shipped_files_fit_it_as_they_are_and_written_back() {
    for shipped in shipped() {
        valid(shipped.text).unwrap_or_else(|e| panic!("{}: {e}", shipped.name));
        assert!(shipped.text.starts_with("#:schema ../docs/reference/experiment.schema.json\n"), "{}", shipped.name);
        for one in shipped.read_all().unwrap_or_else(|e| panic!("{e}")) {
            let written = one.to_toml();
            valid(&written).unwrap_or_else(|e| panic!("{}: {e}\n{written}", one.title()));
        }
    }
}

/// A whole file with one more line in one section.
fn with(section: &str, line: &str) -> String {
    let mut sections: Vec<(&str, String)> = [
        ("", "name = \"x\"\nabout = \"a\"\n"),
        ("run", "duration = \"10s\"\n"),
        ("subject", "route = \"host->cuda->gpu0\"\nname = \"cuda\"\nsizes = \"4B..64MiB\"\ndeadline = \"1s\"\n"),
        ("load", "route = \"host->cuda->gpu0\"\nname = \"crowd\"\nbytes = \"4KiB\"\n"),
        ("matrix", "crowd.count = [1, 2]\n"),
        ("verify", ""),
        ("compare", "baseline = \"cuda\"\n"),
        ("repay", "once = \"cuda\"\neach = \"cuda\"\nagainst = \"cuda\"\n"),
        ("assert", "at-most = \"5s\"\n"),
        ("largest", "axis = \"crowd.count\"\nsubject = \"cuda\"\nat-most = \"5s\"\n"),
    ]
    .into_iter()
    .map(|(name, keys)| (name, keys.to_owned()))
    .collect();
    let key = line.split(" = ").next().unwrap();
    for (name, keys) in &mut sections {
        if *name == section {
            // In place of the existing one.
            *keys = keys.lines().filter(|old| old.split(" = ").next() != Some(key)).map(|l| format!("{l}\n")).collect();
            keys.push_str(&format!("{line}\n"));
        }
    }
    let head = |name: &str| match SECTIONS.iter().find(|s| s.name == name).unwrap() {
        s if s.name.is_empty() => String::new(),
        s if s.many => format!("[[{name}]]\n"),
        _ => format!("[{name}]\n"),
    };
    sections.iter().map(|(name, keys)| format!("{}{keys}", head(name))).collect()
}

#[track_caller]
fn both(section: &str, line: &str, right: bool) {
    let text = with(section, line);
    let (read, fits) = (read(&text, "x.toml", &[]), valid(&text));
    assert_eq!(read.is_ok(), right, "the reader, [{section}] {line}: {read:?}");
    assert_eq!(fits.is_ok(), right, "the schema, [{section}] {line}: {fits:?}");
}

#[test]
fn every_key_is_known_to_both_with_its_default() {
    for section in SECTIONS {
        for key in section.keys {
            let value = match (key.kind, key.default) {
                (Kind::Whole { .. } | Kind::Flag, default) if !default.is_empty() => default.to_owned(),
                (_, default) if !default.is_empty() => format!("\"{default}\""),
                (Kind::Whole { .. }, _) => "7".into(),
                (Kind::Values, _) => match key.name {
                    "bytes" => "[4, \"4KiB\"]".into(),
                    "loads" => "[\"none\", \"all\", \"crowd\"]".into(),
                    "policy" => "[\"stock\", \"pi+phase-fair\"]".into(),
                    "run.class" => "[\"other\", \"fifo(80)\"]".into(),
                    "run.record" => "[\"no\", \"commands\"]".into(),
                    "addresses" => "[\"fixed\", \"random\", \"sweep(2MiB,20MiB)\"]".into(),
                    "arrival" => "[\"closed(1)\", \"paced(2ms)\"]".into(),
                    _ => "[\"any\", \"0,2-5\"]".into(),
                },
                (Kind::Times, _) => "\"1.2 cuda\"".into(),
                (Kind::Sum, _) if key.name == "beside" => "\"none + crowd\"".into(),
                (Kind::Sum, _) => "\"cuda + cuda\"".into(),
                (Kind::Within, _) => "\"5%, 100ns\"".into(),
                (Kind::Names, _) => "[\"cuda\"]".into(),
                (Kind::Rate, _) => "\"1000/s\"".into(),
                (Kind::Reach, _) => "\"5GB/s\"".into(),
                (Kind::Class, _) => "\"nice(-5)\"".into(),
                (Kind::Cpus, _) => "\"0,2-5\"".into(),
                (Kind::Sizes, _) => "[\"4B..1KiB\", 4096]".into(),
                (Kind::Size, _) => "4096".into(),
                (Kind::Text, _) if key.name == "baseline" => "\"cuda\"".into(),
                (Kind::Text, _) if key.name == "name" => match section.name {
                    "load" => "\"crowd\"".into(),
                    _ => "\"cuda\"".into(),
                },
                (Kind::Text, _) if key.name == "axis" => "\"bytes\"".into(),
                (Kind::Text, _) if section.name == "largest" => "\"cuda\"".into(),
                (Kind::Text, _) => "\"launch\"".into(),
                _ => "\"50us\"".into(),
            };
            let line = format!("{} = {value}", key.name);
            let mut text = with(section.name, &line);
            // Some keys may occur only once.
            match key.name {
                "call" => {
                    let from = text.find(&format!("[[{}]]", section.name)).unwrap();
                    let rest = text.split_off(from).replacen("route = \"host->cuda->gpu0\"\n", "", 1);
                    text.push_str(&rest);
                }
                "at-least" | "at-most-times" | "above-noise" | "within-best" => {
                    let at = text.find(&format!("[[{}]]", section.name)).unwrap();
                    let rest = text.split_off(at).replacen("at-most = \"5s\"\n", "", 1);
                    text.push_str(&rest);
                }
                "among" => text = text.replacen("at-most = \"5s\"\n", "within-best = \"2%\"\n", 1),
                _ => {}
            }
            let name = format!("[{}] {line}", section.name);
            read(&text, "x.toml", &[]).unwrap_or_else(|e| panic!("{name}: {e}\n{text}"));
            valid(&text).unwrap_or_else(|e| panic!("{name}: {e}\n{text}"));
        }
    }
}

#[test]
fn both_take_the_same_values() {
    for (section, line) in [
        ("run", "duration = \"1.5ms\""),
        ("run", "class = \"nice(-5)\""),
        ("run", "cpus = \"0, 2-5\""),
        ("run", "policy = \"plan.toml\""),
        ("run", "policy = \"pi,phase-fair\""),
        ("subject", "sizes = \"1KiB..31KiB/1KiB, 8B\""),
        ("subject", "sizes = 8"),
        ("subject", "arrival = \"paced(1.5 us)\""),
        ("subject", "addresses = \"random\""),
        ("subject", "addresses = \"sweep( 64MiB , 640MiB )\""),
        ("load", "process = \"own\""),
        ("matrix", "loads = [\"none\", \"crowd\"]"),
        ("largest", "metric = \"max\""),
        ("load", "rate = 0.5"),
        ("load", "rate = \"30/min\""),
        ("load", "bytes = 4096"),
        ("load", "must-reach = \"90 %\""),
        ("load", "must-reach = \"10/ms\""),
        ("load", "must-reach = \"2.5 GiB/s\""),
        ("matrix", "\"run.class\" = [\"other\"]"),
        ("matrix", "run.cpus = [\"any\"]"),
        ("matrix", "cuda.bytes = \"4B..64MiB\""),
        ("matrix", "bytes = 8"),
        ("assert", "at-most = \"1.5s\""),
    ] {
        both(section, line, true);
    }
}

#[test]
fn both_refuse_the_same() {
    for section in SECTIONS.iter().filter(|s| s.name != "matrix") {
        both(section.name, "colour = \"red\"", false);
    }
    for (section, line) in [
        ("run", "duration = 10"),
        ("run", "duration = \"10\""),
        ("run", "duration = \"10 parsecs\""),
        ("run", "rounds = 0"),
        ("run", "rounds = 1.5"),
        ("run", "rounds = \"3\""),
        ("run", "gpu = \"software\""),
        ("run", "class = \"rr(3)\""),
        ("run", "cpus = \"all\""),
        ("run", "policy = \"pie\""),
        ("run", "policy = \"pi+stock\""),
        ("subject", "call = \"launch\""),
        ("subject", "sizes = []"),
        ("subject", "sizes = \"4 parsecs\""),
        ("subject", "arrival = \"open(3)\""),
        ("subject", "rests = 1"),
        ("subject", "back-to-back = 0"),
        ("subject", "observe = \"seen\""),
        ("subject", "addresses = \"sweep(64MiB)\""),
        ("subject", "addresses = \"swept\""),
        ("repay", "once = \"\""),
        ("repay", "each = 5"),
        ("load", "count = 1025"),
        ("load", "count = -1"),
        ("load", "bytes = 0"),
        ("load", "bytes = \"4KB\""),
        ("load", "rate = 0"),
        ("load", "rate = \"fast\""),
        ("load", "process = \"another\""),
        ("largest", "axis = 5"),
        ("load", "must-reach = 5"),
        ("load", "must-reach = \"1000\""),
        ("load", "must-reach = \"5GB\""),
        ("matrix", "crowd.count = []"),
        ("matrix", "run.class = [[\"other\"]]"),
        ("matrix", "run.colour = [\"red\"]"),
        ("compare", "metric = \"p95\""),
        ("assert", "at-most = true"),
        ("assert", "metric = \"median\""),
        ("assert", "above-noise = 5"),
        ("assert", "within-best = \"5\""),
        ("assert", "within-best = \"5%; 100ns\""),
        ("assert", "among = []"),
    ] {
        both(section, line, false);
    }
}

#[test]
fn every_key_is_documented_where_it_belongs() {
    for section in SECTIONS {
        let title = match (section.name, section.many) {
            ("", _) => "## The file".to_owned(),
            (name, true) => format!("## `[[{name}]]`"),
            (name, false) => format!("## `[{name}]`"),
        };
        let from = REFERENCE.find(&format!("\n{title}\n")).unwrap_or_else(|| panic!("no section {title}"));
        let body = &REFERENCE[from + 1..];
        let body = &body[..body[3..].find("\n## ").map_or(body.len(), |end| end + 3)];
        let rows: Vec<&str> = body.lines().filter_map(|l| l.strip_prefix("| `")?.split('`').next()).collect();
        for key in section.keys {
            assert!(rows.contains(&key.name), "{title} says nothing of `{}`", key.name);
            if !key.default.is_empty() {
                let row = body.lines().find(|l| l.starts_with(&format!("| `{}`", key.name))).unwrap();
                assert!(row.contains(&format!("`{}`", key.default)), "{title}: the default of `{}`: {row}", key.name);
            }
        }
        let known: Vec<&str> = section.keys.iter().map(|k| k.name).collect();
        let more = rows.iter().find(|row| !known.contains(row) && !row.starts_with("NAME."));
        assert!(more.is_none(), "{title} documents {more:?}, which is no key");
    }
    for key in experiment::keys::OF_SUBJECTS.iter().chain(experiment::keys::OF_LOADS) {
        assert!(REFERENCE.contains(&format!("`NAME.{key}`")), "`NAME.{key}` is not documented");
    }
}
