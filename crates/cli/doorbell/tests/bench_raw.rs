//! `doorbell bench raw` as a user sees it, on the software GPU: what works, what is printed, what is written.

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

fn raw() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.args(["bench", "raw"]).timeout(std::time::Duration::from_secs(120));
    command
}

#[test]
fn every_way_is_moved_verified_and_never_timed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("raw.json");
    let sizes = "4B..16KiB,1KiB..31KiB/5KiB,64KiB,1MiB";
    let out = raw().args(["--gpu", "soft", "--sizes", sizes, "--out"]).arg(&path).assert().success();
    let text = String::from_utf8(out.get_output().stdout.clone()).unwrap();
    assert!(text.contains("functional") && text.contains("right") && text.contains("h2d inline"), "{text}");
    assert!(!text.contains(" us") && !text.contains(" ns") && !text.contains("GB/s"), "{text}");
    let json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!((json["bench"].as_str(), json["functional"].as_bool()), (Some("raw"), Some(true)));
    let cells = json["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 5 * settings::sizes::parse(sizes).unwrap().len());
    for cell in cells {
        let long = cell["mode"] == "inline" && cell["bytes"].as_u64().unwrap() > 512 << 10;
        assert_eq!(cell["verified"].as_bool(), Some(!long), "{cell}");
        assert_eq!(cell["unavailable"].is_string(), long, "{cell}");
        assert!(["raw_p50_ns", "raw_min_ns", "raw_max_ns", "gbps"].iter().all(|key| cell[key].is_null()), "{cell}");
        assert!(long || cell["copies"].as_u64().unwrap() >= 2, "{cell}");
        assert!(["h2d", "d2h"].contains(&cell["direction"].as_str().unwrap()));
    }
    assert!(json["profiler"].is_null());
}

#[test]
fn the_profiler_is_unavailable_in_software_with_its_reason() {
    let out = raw().args(["--gpu", "soft", "--sizes", "8B", "--profiler", "--json"]).assert().success();
    let json: Value = serde_json::from_slice(&out.get_output().stdout).unwrap();
    assert!(json["profiler"]["unavailable"].as_str().unwrap().contains("CUDA"));
}

#[test]
fn a_planted_fault_is_a_failed_cell_and_an_error() {
    raw()
        .args(["--gpu", "soft", "--sizes", "4KiB"])
        .env("DOORBELL_SOFTGPU_FAULT", "short-copy")
        .assert()
        .code(2)
        .stdout(contains("failed").and(contains("the first at offset 4095")))
        .stderr(contains("4 of 5 cells failed"));
}

#[test]
fn what_is_asked_wrongly_is_said_before_anything_runs() {
    raw().args(["--gpu", "soft", "--sizes", "4KB"]).assert().code(2).stderr(contains("KiB is 1024"));
    raw().args(["--gpu", "soft", "--sizes", "2GiB"]).assert().code(2).stderr(contains("1 GiB is the most"));
    raw().args(["--gpu", "soft", "--ce", "99"]).assert().code(2).stderr(contains("no copy engine 99"));
    raw().args(["--cupti", "x"]).assert().code(2).stderr(contains("--profiler"));
}
