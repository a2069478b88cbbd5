//! `doorbell bench` as a user meets it, on the software GPU: what works, what is said, what is written. Never how fast.

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;
use std::path::Path;

fn bench() -> Command {
    let mut c = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    c.arg("bench");
    c
}

fn soft(args: &[&str]) -> Command {
    let mut c = bench();
    c.args(["--gpu", "soft"]).args(args);
    c
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn routes_of_our_own_are_measured_on_the_software_gpu() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json");
    let routes = "host->ce0->gpu0, gpu0->ce0->host,host->inline->gpu0,host->cuda->gpu0";
    let out = soft(&["--routes", routes, "--sizes", "4B,1KiB,64KiB", "--samples", "120", "--seed", "7", "--out"])
        .arg(&path)
        .assert()
        .success();
    let text = String::from_utf8_lossy(&out.get_output().stdout).into_owned();
    assert!(text.contains("software GPU") && text.contains("right") && !text.contains("GB/s"), "{text}");
    assert!(text.contains("unavailable\n  host->cuda->gpu0, every size: ") && !text.contains('\x1b'), "{text}");

    let v = read(&path);
    assert_eq!((v["functional"].as_bool(), v["environment"]["seed"].as_u64()), (Some(true), Some(7)));
    assert_eq!(v["environment"]["gpu"], "software GPU");
    let cells = v["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 12);
    for c in cells {
        let own = !c["route"].as_str().unwrap().contains("cuda");
        assert_eq!(own, c["unavailable"].is_null(), "{c}");
        if own {
            assert_eq!((c["verified"].as_bool(), c["samples"].as_u64()), (Some(true), Some(120)), "{c}");
            let ns = |k: &str| c[k].as_u64().unwrap_or_else(|| panic!("{k}: {c}"));
            assert!(ns("p50_ns") <= ns("p99_ns") && ns("p99_ns") <= ns("max_ns"), "{c}");
            assert!(ns("submit_p50_ns") <= ns("submit_p99_ns") && ns("submit_p50_ns") <= ns("p50_ns"), "{c}");
            let worst = c["worst"].as_array().unwrap();
            assert_eq!((worst.len(), worst[0]["total_ns"].as_u64()), (100, Some(ns("max_ns"))));
        }
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "only the result is left");
}

#[test]
fn json_on_standard_output_is_nothing_else() {
    let out = soft(&["--routes", "host->ce0->gpu0", "--sizes", "8B", "--samples", "5", "--json"]).assert().success();
    let v: Value = serde_json::from_slice(&out.get_output().stdout).unwrap();
    let c = &v["cells"][0];
    assert!(c["p99_ns"].is_null() && c["samples"] == 5 && c["verified"] == true, "{c}");
}

#[test]
fn the_routes_are_listed_with_what_they_lack() {
    let out = soft(&["--list"]).assert().success();
    let text = String::from_utf8_lossy(&out.get_output().stdout).into_owned();
    let line = |r: &str| text.lines().find(|l| l.starts_with(r)).unwrap_or_else(|| panic!("{r}: {text}"));
    assert!(line("host->cuda->gpu0 ").contains("no: "));
    assert!(line("host->ce0->gpu0 ").ends_with("yes"));
}

#[test]
fn where_nothing_can_be_measured_the_status_is_77_and_the_reasons_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json");
    soft(&["--routes", "host->cuda->gpu0", "--sizes", "8B", "--out"]).arg(&path).assert().code(77);
    assert!(read(&path)["cells"][0]["unavailable"].as_str().is_some_and(|r| r.contains("CUDA")));
}

#[test]
fn wrong_arguments_are_told_apart_before_anything_is_measured() {
    let says = |args: &[&str], word: &str| {
        soft(args).assert().code(2).stderr(contains(word).and(contains("hint: "))).stdout("");
    };
    says(&["--sizes", "4KB"], "\"KB\"");
    says(&["--sizes", "8B..4B"], "ends before it begins");
    says(&["--sizes", "8EiB"], "\"EiB\"");
    says(&["--sizes", "1000000GiB"], "take smaller sizes");
    says(&["--routes", "host->warp9->gpu0"], "warp9");
    says(&["--routes", "host->ce0->gpu0,"], "route");
    says(&["--routes", "host->ce0->gpu0", "--compare", "gpu0->ce0->host"], "not among");
    says(&["--cpu", "100000"], "CPU 100000");
    says(&["--out", "/no/such/folder/r.json"], "/no/such/folder/r.json");
    says(&["--out", "/dev/full"], "/dev/full");
    says(&["--out", "/tmp"], "/tmp");
    for (option, value) in [("--samples", "0"), ("--samples", "many"), ("--time-per-cell", "0s"), ("--fifo=100", "")] {
        let args = [option, value];
        soft(&args[..if value.is_empty() { 1 } else { 2 }]).assert().code(2).stderr(contains(&option[..6]));
    }
}

#[test]
fn the_noise_of_the_machine_has_both_probes() {
    let out = bench().args(["noise", "--duration", "0.2s", "--json"]).assert().success();
    let v: Value = serde_json::from_slice(&out.get_output().stdout).unwrap();
    for probe in ["wakeups", "gaps"] {
        let ns = |k: &str| v[probe][k].as_u64().unwrap_or_else(|| panic!("{k}: {v}"));
        assert!(ns("p50_ns") <= ns("max_ns") && ns("samples") > 0);
    }
    bench().args(["noise", "--duration", "0.1s", "--fifo"]).assert().success().stdout(contains("noise of the machine"));
}

/// As little time as shows that each stage was reached.
const SHORT: [&str; 6] = ["--unloaded", "0.1s", "--noise", "0.02s", "--duration", "0.2s"];

#[test]
fn the_worst_is_measured_without_and_under_a_load_that_is_counted() {
    let mut args = vec!["worst", "--gpu", "soft", "--threads", "2", "--bytes", "3000B", "--json"];
    args.extend(SHORT);
    let out = bench().args(&args).assert().success();
    let v: Value = serde_json::from_slice(&out.get_output().stdout).unwrap();
    assert_eq!((v["functional"].as_bool(), v["load"]["threads"].as_u64()), (Some(true), Some(2)));
    assert_eq!(v["load"]["ended"]["right"].as_u64(), Some(2), "{}", v["load"]);
    assert!(v["loaded"]["load"]["transfers"].as_u64() > Some(0) && v["quiet"]["load"].is_null());
    for stage in ["quiet", "loaded"] {
        let rows = v[stage]["rows"].as_array().unwrap();
        let own = |r: &&Value| r["unavailable"].is_null();
        assert!(rows.iter().filter(own).count() >= 6 && rows.iter().any(|r| !r["unavailable"].is_null()));
        for row in rows.iter().filter(own) {
            assert_eq!(row["verified"], true, "{row}");
            assert_eq!(row["worst"][0]["total_ns"], row["max_ns"], "{row}");
        }
        assert!(v[stage]["noise_floor_ns"].as_u64() > Some(0));
    }
    let text = |args: &[&str]| {
        let out = bench().args(["worst", "--gpu", "soft", "--threads", "0"]).args(args).args(SHORT).assert();
        String::from_utf8_lossy(&out.success().get_output().stdout).into_owned()
    };
    let shown = text(&["--routes", "host->ce2->gpu0@4KiB,launch"]);
    assert!(shown.contains("without load") && !shown.contains("under load"), "{shown}");
    assert!(
        shown.contains("4 KiB") && shown.contains("unavailable: launch 4 B: ") && !shown.contains("p99"),
        "{shown}"
    );
}

#[test]
fn a_worst_that_is_wrong_or_cannot_be_says_so() {
    let worst = |args: &[&str]| {
        let mut c = bench();
        c.args(["worst", "--gpu", "soft", "--threads", "1", "--bytes", "64B"]).args(args).args(SHORT);
        c
    };
    worst(&["--routes", "host->ce2->gpu0@8B,host->bar1->gpu0"])
        .env("DOORBELL_SOFTGPU_FAULT", "short-copy")
        .assert()
        .code(2)
        .stdout(contains("FAILED: host->ce2->gpu0 8 B: 1 of 8 bytes differs").and(contains("wrong data")))
        .stderr(contains("of what is measured and 1 of the load failed"));
    worst(&["--routes", "launch,host->cuda->gpu0"]).assert().code(77).stderr(contains("no CUDA"));
    for (wrong, word) in [
        (&["--routes", "host->warp9->gpu0@8B"][..], "warp9"),
        (&["--routes", "host->ce0->gpu0@8..9B"], "size"),
        (&["--cpu", "100000"], "CPU 100000"),
        (&["--out", "/no/such/folder/r.json"], "/no/such/folder"),
    ] {
        worst(wrong).assert().code(2).stderr(contains(word).and(contains("hint: ")));
    }
}

#[test]
fn our_own_part_runs_beside_itself_and_a_hang_ends_it() {
    let beside = |fault: &str, seconds: &str, patience: &str| {
        let mut c = bench();
        c.args(["beside", "--gpu", "soft", "--bytes", "4KiB", "--json"]);
        c.args(["--duration", seconds, "--patience", patience]);
        if !fault.is_empty() {
            c.env("DOORBELL_SOFTGPU_FAULT", fault);
        }
        c.timeout(std::time::Duration::from_secs(100));
        c.output().unwrap()
    };
    let json = |out: &std::process::Output| serde_json::from_slice::<Value>(&out.stdout).unwrap();
    let good = beside("", "0.5s", "30s");
    let v = json(&good);
    assert_eq!((good.status.code(), v["wrong"].as_u64(), v["hangs"].as_bool()), (Some(0), Some(0), Some(false)), "{v}");
    let right = v["workers"].as_array().unwrap().iter().filter(|w| w["end"] == "right").count();
    assert!(right >= 12 && v["given_back_s"].is_number(), "{v}");

    let lost = beside("lost-release:400", "60s", "1s");
    let v = json(&lost);
    assert_eq!(
        (lost.status.code(), v["hangs"].as_bool(), v["given_back_s"].is_null()),
        (Some(2), Some(true), true),
        "{v}"
    );
    assert!(v["seconds"].as_f64() < Some(50.0), "{v}");
    let short = beside("short-copy", "1s", "30s");
    let v = json(&short);
    assert!(short.status.code() == Some(2) && v["wrong"].as_u64() >= Some(10), "{v}");
}

#[test]
fn help_has_examples() {
    bench().arg("--help").assert().success().stdout(contains("Examples:").and(contains("--list")));
    for what in ["worst", "beside"] {
        bench().args([what, "--help"]).assert().success().stdout(contains("Examples:").and(contains("Exit status:")));
    }
    bench().args(["noise", "--help"]).assert().success().stdout(contains("Examples:"));
}
