//! The format as a JSON Schema, for editors that complete and check TOML while it is written. It is made from the table of keys; only the reader
//! checks names, sums and relations between keys.

use crate::keys::{Key, Kind, OF_LOADS, OF_SUBJECTS, SECTIONS, Section};
use serde_json::{Map, Value, json};

/// The schema, as its file holds it.
pub fn schema() -> String {
    let mut properties = Map::new();
    for section in SECTIONS {
        match section.name {
            "" => properties.extend(section.keys.iter().map(of_key)),
            "matrix" => drop(properties.insert("matrix".into(), matrix(section))),
            name => {
                let one = of_section(section);
                let all = if section.many {
                    json!({ "type": "array", "description": section.about, "items": one })
                } else {
                    one
                };
                properties.insert(name.into(), all);
            }
        }
    }
    // `variant` is a text in files that doorbell writes; in files with variants it is a table.
    let variants =
        json!({ "type": "object", "properties": {}, "additionalProperties": { "$ref": "#/definitions/variant" } });
    let text = properties.remove("variant").unwrap_or_default();
    properties.insert("variant".into(), json!({ "anyOf": [text, variants] }));
    let whole = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "An experiment of doorbell bench",
        "type": "object",
        "properties": properties,
        "required": ["run"],
        "additionalProperties": false,
        "definitions": { "values": values(), "axis": axis(), "variant": variant() },
    });
    let mut text = format!("{whole:#}");
    text.push('\n');
    text
}

fn of_section(section: &Section) -> Value {
    let properties: Map<String, Value> = section.keys.iter().map(of_key).collect();
    let mut one = json!({
        "type": "object",
        "description": section.about,
        "properties": properties,
        "additionalProperties": false,
    });
    match section.name {
        "run" => one["anyOf"] = json!([{ "required": ["duration"] }, { "required": ["samples"] }]),
        "subject" | "load" => one["not"] = json!({ "required": ["route", "call"] }),
        "compare" => one["required"] = json!(["baseline"]),
        "largest" => one["required"] = json!(["axis", "subject"]),
        "repay" => one["required"] = json!(["once", "each", "against"]),
        _ => {}
    }
    one
}

/// The contents of `[variant.NAME]`: sections of the file, which may have fewer keys, and may remove some.
fn variant() -> Value {
    let out = json!({ "enum": [""], "description": "Takes the key out." });
    let mut properties: Map<String, Value> =
        SECTIONS[0].keys.iter().filter(|key| key.name == "about").map(of_key).collect();
    for section in SECTIONS.iter().filter(|section| !section.name.is_empty()) {
        let of_file = || json!({ "$ref": format!("#/properties/{}", section.name) });
        let one = if section.many || section.name == "matrix" {
            of_file()
        } else {
            let either = |(name, key): (String, Value)| (name, json!({ "anyOf": [key, out.clone()] }));
            let keys: Map<String, Value> = section.keys.iter().map(of_key).map(either).collect();
            json!({
                "type": "object",
                "description": section.about,
                "properties": keys,
                "additionalProperties": false,
            })
        };
        properties.insert(section.name.into(), one);
    }
    json!({
        "type": "object",
        "description": "A variant: what differs from the file. Lists of tables are replaced as a whole, everything else key by key.",
        "properties": properties,
        "required": ["about"],
        "additionalProperties": false,
    })
}

fn of_key(key: &Key) -> (String, Value) {
    let mut schema = of_kind(key.kind);
    schema["description"] = key.about.into();
    let default = match key.kind {
        _ if key.default.is_empty() => None,
        Kind::Whole { .. } => key.default.parse::<u64>().ok().map(Value::from),
        Kind::Flag => key.default.parse::<bool>().ok().map(Value::from),
        _ => Some(key.default.into()),
    };
    if let Some(default) = default {
        schema["default"] = default;
    }
    (key.name.into(), schema)
}

fn of_kind(kind: Kind) -> Value {
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    let bytes = json!({ "type": "integer", "minimum": 1 });
    match kind {
        Kind::Text => json!({ "type": "string" }),
        Kind::Whole { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Time => text(r"^\s*([0-9]+(\.[0-9]+)?\s*(ns|us|µs|μs|ms|s|min|h)|0)\s*$"),
        Kind::Size => json!({ "anyOf": [bytes, text(r"^\s*[0-9]+\s*(B|KiB|MiB|GiB)?\s*$")] }),
        Kind::Sizes => {
            let sizes = text(r"^[0-9BKMGi\s.,/]+$");
            let list = json!({ "type": "array", "items": { "anyOf": [bytes, sizes] }, "minItems": 1 });
            json!({ "anyOf": [bytes, sizes, list] })
        }
        Kind::Rate => {
            let written = text(r"^\s*[0-9][0-9.e+-]*\s*(/\s*(s|ms|min))?\s*$");
            json!({ "anyOf": [{ "type": "number", "exclusiveMinimum": 0 }, written] })
        }
        Kind::Reach => text(r"^\s*[0-9][0-9.e+-]*\s*(%|/\s*(s|ms|min)|([kMG]|[KMG]i)?B/s)\s*$"),
        Kind::Class => text(r"^\s*(other|nice\(\s*[+-]?[0-9]+\s*\)|fifo\(\s*\+?[0-9]+\s*\)|deadline|real-time)\s*$"),
        Kind::Cpus => text(r"^\s*(any|last|others|[0-9\s,+-]+)\s*$"),
        Kind::Policy => text(
            r"^\s*(.+\.toml|(stock|agent|traced|pi|ticket|boost|phase-fair|guard)(\s*[+,]\s*(pi|ticket|boost|phase-fair|guard))*)\s*$",
        ),
        Kind::Arrival => text(r"^\s*(closed\s*\(\s*\+?[0-9]+\s*\)|paced\s*\(.+\))$"),
        Kind::Addresses => {
            text(r"^\s*(fixed|random|sweep\s*\(\s*[0-9]+\s*(B|KiB|MiB|GiB)?\s*,\s*[0-9]+\s*(B|KiB|MiB|GiB)?\s*\))\s*$")
        }
        Kind::Sum => text(r"\S"),
        Kind::Choice(words) => json!({ "type": "string", "enum": words }),
        Kind::Amount => {
            let written = text(r"^\s*[0-9][0-9.e+-]*\s*(%|ns|us|µs|μs|ms|s|min|h|([kMG]|[KMG]i)?B/s)?\s*$");
            json!({ "anyOf": [{ "type": "number", "minimum": 0, "maximum": 1 }, written] })
        }
        Kind::Times => text(r"^\s*[0-9][0-9.e+-]*\s+\S"),
        Kind::Within => text(
            r"^\s*[0-9][0-9.e+-]*\s*(%|ns|us|µs|μs|ms|s|min|h)\s*(,\s*[0-9][0-9.e+-]*\s*(%|ns|us|µs|μs|ms|s|min|h)\s*)?$",
        ),
        Kind::Names => json!({ "type": "array", "items": { "type": "string" }, "minItems": 1, "uniqueItems": true }),
        Kind::Values => json!({ "$ref": "#/definitions/values" }),
    }
}

fn values() -> Value {
    let one = json!({ "type": ["string", "number"] });
    json!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1, "uniqueItems": true }] })
}

/// `crowd.count = [..]` is a table `crowd` for TOML.
fn axis() -> Value {
    let mut keys: Vec<&str> = OF_SUBJECTS.iter().chain(OF_LOADS).copied().collect();
    keys.sort_unstable();
    keys.dedup();
    let list = json!({ "$ref": "#/definitions/values" });
    let properties: Map<String, Value> = keys.into_iter().map(|key| (key.to_owned(), list.clone())).collect();
    // Names may contain dots; TOML then makes tables within tables.
    let inner = json!({ "$ref": "#/definitions/axis" });
    json!({ "anyOf": [list, { "type": "object", "properties": properties, "additionalProperties": inner }] })
}

fn matrix(section: &Section) -> Value {
    let mut properties: Map<String, Value> = section.keys.iter().map(of_key).collect();
    let of_run = section.keys.iter().filter_map(|key| Some((key.name.strip_prefix("run.")?, of_key(key).1)));
    let of_run: Map<String, Value> = of_run.map(|(name, schema)| (name.to_owned(), schema)).collect();
    properties.insert("run".into(), json!({ "type": "object", "properties": of_run, "additionalProperties": false }));
    json!({
        "type": "object",
        "description": section.about,
        "properties": properties,
        "additionalProperties": { "$ref": "#/definitions/axis" },
    })
}
