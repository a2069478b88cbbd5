//! Every key that is printed is documented, and every documented key is printed.
//!
//! The samples in the modules have a value for each field, so a new field does not compile until it is added here.

mod commands;
mod locks;
mod rank;
mod slow_calls;
mod summary;

use commands::{
    copy_row, driver_call_count, driver_call_row, graph_row, kernel_run, kernel_times, kernels, launch_row, objects,
    python, ranges, submission_row,
};
use locks::{calls, diff, locks, one_call, one_range, one_switch, symbol_row, use_row, wait_row};
use schema::document::{Document, Kind};
use schema::lines::Line;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use summary::{channel, recording_row, summary, top};

const REFERENCE: &str = include_str!("../../../../../docs/reference/json.md");

/// The keys of a section of the reference.
fn documented(section: &str) -> BTreeSet<String> {
    let from = REFERENCE.find(&format!("\n## {section}\n")).unwrap_or_else(|| panic!("no section {section}"));
    let body = &REFERENCE[from + 1..];
    let body = &body[..body.find("\n## ").unwrap_or(body.len())];
    let mut all = BTreeSet::new();
    for (key, meaning) in body.lines().filter_map(|l| l.strip_prefix("| `")?.split_once('`')) {
        all.insert(key.trim_end_matches("[]").to_owned());
        // `as [channel](#channel)`: the keys of that section.
        if let Some((_, rest)) = meaning.split_once("as [")
            && let Some((other, _)) = rest.split_once("](#")
        {
            all.extend(documented(other).iter().filter(|k| *k != "schema").map(|k| format!("{key}.{k}")));
        }
    }
    all
}

fn keys(v: &Value, prefix: &str, into: &mut BTreeSet<String>) {
    let Value::Object(map) = v else { return };
    for (k, v) in map {
        let path = format!("{prefix}{k}");
        if k != "*" {
            into.insert(path.clone());
        }
        keys(v, &format!("{path}."), into);
        for element in v.as_array().into_iter().flatten() {
            keys(element, &format!("{path}[]."), into);
        }
    }
}

fn printed(v: &impl Serialize) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    keys(&serde_json::to_value(v).unwrap(), "", &mut all);
    all
}

fn same(section: &str, v: &impl Serialize) {
    let (documented, printed) = (documented(section), printed(v));
    let missing: Vec<_> = printed.difference(&documented).collect();
    let gone: Vec<_> = documented.difference(&printed).collect();
    assert!(missing.is_empty() && gone.is_empty(), "{section}: not documented {missing:?}, not printed {gone:?}");
}

fn document<T: Kind>(section: &str, v: &T) {
    same(section, &Document::of(v));
    assert!(REFERENCE.contains(&format!("`{}`", T::SCHEMA)), "{}", T::SCHEMA);
}

#[test]
fn documented_keys_are_the_printed_ones() {
    document("summary", &summary());
    same("submission", &submission_row());
    same("copy", &copy_row());
    same("launch", &launch_row());
    same("kernel run", &kernel_run());
    same("kernel times", &kernel_times());
    same("gpu times", &json!({ "kernel_times": [kernel_times()], "runs": [kernel_run()] }));
    same("kernels", &kernels());
    same("driver calls", &driver_call_count());
    same("python", &python());
    same("ranges", &ranges());
    same("graph", &graph_row());
    same("channel", &channel());
    document("objects", &objects());
    document("locks", &locks());
    document("why", &slow_calls::why());
    document("calls", &calls());
    document("rank", &rank::ranks());
    document("diff", &diff());
    document("top", &top());
    same("call", &driver_call_row());
    same("lock", &use_row());
    same("cuda_call", &one_call());
    same("switch", &one_switch());
    same("range", &one_range());
    let Value::Object(mut symbol) = serde_json::to_value(Line::Symbol { place: "x", symbol: &symbol_row() }).unwrap()
    else {
        panic!()
    };
    symbol.remove("type");
    same("symbol", &symbol);
    same("recording", &recording_row());
    assert!(REFERENCE.contains(<tape::file::Header as Kind>::SCHEMA));
}

#[test]
fn what_may_exceed_2_to_the_53_is_a_string() {
    let mut s = submission_row();
    (s.tsc, s.entries[0].gp) = (u64::MAX, u64::MAX);
    let v = serde_json::to_value(&s).unwrap();
    assert_eq!((&v["tsc"], &v["entries"][0]["gp"]), (&"18446744073709551615".into(), &"0xffffffffffffffff".into()));
    let mut c = copy_row();
    c.payload = None;
    assert!(serde_json::to_value(&c).unwrap()["payload"].is_null());
    assert_eq!(serde_json::to_value(wait_row()).unwrap()["tsc"], "1");
}
