//! The most important tests with drivers of other branches than the usual one: a recorded sample, doorbell's channels,
//! launches.

use assert_cmd::cargo::cargo_bin;
use rm::abi::BRANCHES;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use test_support::finished;

/// A command under a software GPU whose driver reports this version.
fn under(version: &str) -> Command {
    let mut command = Command::new(cargo_bin!("doorbell"));
    command.env("DOORBELL_SOFTGPU_DRIVER", version).env("DOORBELL_UNVERIFIED_DRIVER", "1");
    command
}

#[track_caller]
fn done(out: &Output, what: &str) {
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{what}: {text}");
}

/// The summary of a recording of samples.
fn recorded(dir: &Path, version: &str, samples: &[&str]) -> Value {
    let tape = dir.join(version);
    let mut command = under(version);
    command.args(["record", "-q", "--gpu", "soft", "-o"]).arg(&tape).arg("--").arg(cargo_bin!("doorbell"));
    done(&finished(command.arg("sample").args(samples).args(["--gpu", "soft"]), version), version);
    let mut show = under(version);
    let shown = finished(show.args(["show", "--summary", "--json"]).arg(&tape), "show");
    done(&shown, version);
    serde_json::from_slice(&shown.stdout).unwrap()
}

/// Nothing was lost, every entry has its channel, and the result is the same as in `like`.
fn same(version: &str, summary: &Value, like: &Value) {
    assert_eq!(summary["lost"], 0, "{version}: {summary}");
    assert_eq!(summary["lost_detail"]["strangers"], 0, "{version}: {summary}");
    // (Not the doorbells: the program rings once for several entries if its thread comes late.)
    for what in ["entries", "copies"] {
        assert_eq!(summary[what], like[what], "{version}: {what}");
    }
    let trouble = summary["trouble"].to_string();
    assert!(!trouble.contains("not tapped") && !trouble.contains("not read"), "{version}: {trouble}");
}

#[test]
fn a_sample_is_recorded_on_the_oldest_and_the_newest_branch() {
    let dir = tempfile::tempdir().unwrap();
    let usual = recorded(dir.path(), "580.159.04", &["channels"]);
    assert_ne!(usual["entries"], 0, "{usual}");
    let [oldest, .., newest] = &BRANCHES;
    for version in [oldest.last, newest.last] {
        same(version, &recorded(dir.path(), version, &["channels"]), &usual);
    }
}

#[test]
#[ignore = "a minute; run by .ci/run --long"]
fn long_the_suite_s_core_holds_on_every_branch_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let [library, softgpu] = ["libsoftcuda.so", "libdoorbell_softgpu.so"].map(|name| program.with_file_name(name));
    let cuda = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(library, cuda.path().join("libcuda.so.1")).unwrap();
    let samples = ["copies", "launches", "channels"];
    let usual = recorded(dir.path(), "580.159.04", &samples);
    for version in [
        "535.309.01",
        "550.163.01",
        "565.77",
        "570.211.01",
        "580.178.04",
        "595.91.07",
        "610.57.04",
        "615.71.09",
        "620.6.0",
    ] {
        same(version, &recorded(dir.path(), version, &samples), &usual);
        // doorbell's channels: every check of the GPU, including copies and launches.
        done(&finished(under(version).args(["selftest", "--gpu", "soft"]), version), version);
        // Graphs that are learnt from CUDA and launched without it.
        let mut launches = under(version);
        launches.args(["selftest", "--launches", "--only", "launched-tiny,launched-chain,launched-memset"]);
        launches.env("LD_LIBRARY_PATH", cuda.path()).env("LD_PRELOAD", &softgpu).env("DOORBELL_SOFTGPU", "strict");
        done(&finished(&mut launches, version), version);
    }
}
