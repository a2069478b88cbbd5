//! Which CUDA call each submission belongs to, with CUDA in software.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use tape::call::{CallBody, function};
use tape::event::{Body, Events};
use tape::file::{Item, Reader};

fn doorbell(arguments: &[&str]) -> Output {
    let out = Command::new(assert_cmd::cargo::cargo_bin!("doorbell")).args(arguments).output().unwrap();
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    out
}

/// A sample that launches graphs, recorded.
fn recorded(dir: &Path, ways: &[&str]) -> String {
    let library = std::env::current_exe().unwrap().with_file_name("libsoftcuda.so");
    std::os::unix::fs::symlink(library, dir.join("libcuda.so.1")).unwrap();
    let file = dir.join("a.doorbell").to_str().unwrap().to_owned();
    let command = assert_cmd::cargo::cargo_bin!("doorbell");
    let mut record = Command::new(command);
    record.args(["record", "--quiet", "--gpu", "soft", "-o", &file]).args(ways).arg("--").arg(command);
    let out =
        record.args(["sample", "graphs", "--only", "chain-2,chain-10"]).env("LD_LIBRARY_PATH", dir).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    file
}

fn rows(file: &str, view: &str) -> Vec<Value> {
    serde_json::from_slice(&doorbell(&["show", view, "--json", file]).stdout).unwrap()
}

/// The calls on the tape, by thread and number: the name, from when to when, the body.
fn calls(file: &str) -> BTreeMap<(i32, u32), (&'static str, u64, CallBody)> {
    let mut reader = Reader::open(Path::new(file)).unwrap();
    let mut out = BTreeMap::new();
    while let Some(item) = reader.item().unwrap() {
        let Item::Events { tid, bytes, .. } = item else { continue };
        for event in Events::new(&bytes) {
            let Body::Call(body) = event.body else { continue };
            let name = function(event.head.flags).unwrap().name;
            let twice = out.insert((tid, body.seq), (name, event.head.tsc, body));
            assert!(twice.is_none(), "thread {tid} has two calls of number {}", body.seq);
        }
    }
    out
}

#[test]
fn each_submission_names_the_call_that_made_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = recorded(dir.path(), &["--calls"]);
    let calls = calls(&file);
    let mut found = 0;
    for row in rows(&file, "--submissions") {
        let Some(call) = row["call"].as_object() else { continue };
        let key = (row["tid"].as_i64().unwrap() as i32, call["number"].as_u64().unwrap() as u32);
        let (name, ended, body) = calls.get(&key).unwrap_or_else(|| panic!("no call {key:?}: {row}"));
        assert_eq!(call["name"], *name, "{row}");
        let tsc: u64 = row["tsc"].as_str().unwrap().parse().unwrap();
        assert!((body.began..=*ended).contains(&tsc), "{row} {body:?}");
        let hex = |key: &str| u64::from_str_radix(&call[key].as_str().unwrap()[2..], 16).unwrap();
        assert_eq!((hex("stream"), hex("object")), (body.stream, body.object), "{row}");
        found += usize::from(*name == "cuGraphLaunch");
    }
    let launched = calls.values().filter(|(name, ..)| *name == "cuGraphLaunch").count();
    assert!(found > 0 && found <= launched, "{found} of {launched}");
    let launches = rows(&file, "--launches");
    assert!(launches.iter().any(|row| row["call"]["name"] == "cuGraphLaunch"), "{launches:?}");
    let text = String::from_utf8(doorbell(&["show", "--launches", &file]).stdout).unwrap();
    assert!(text.contains(", in cuGraphLaunch #"), "{text}");
}

#[test]
fn without_calls_no_submission_names_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = recorded(dir.path(), &[]);
    let rows = rows(&file, "--submissions");
    assert!(!rows.is_empty() && rows.iter().all(|row| row["call"].is_null()), "{rows:?}");
}
