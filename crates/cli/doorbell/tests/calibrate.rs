//! `doorbell calibrate` as a user sees it, on the software GPU.

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use submit::route_choice::{Key, Profile};

fn calibrate() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.env_remove(submit::route_choice::VARIABLE).arg("calibrate").timeout(Duration::from_secs(60));
    command
}

/// The shortest possible calibration.
fn short(out: &Path) -> Command {
    let mut command = calibrate();
    command.args(["--gpu", "soft", "--host-memory", "pinned", "--batch", "1", "--budget", "20s", "-o"]).arg(out);
    command
}

#[test]
fn the_software_gpus_profile_is_written_explained_and_refused_for_a_real_gpu() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("p.toml");
    let words = contains("to-gpu").and(contains("from-gpu")).and(contains("no speed")).and(contains("p.toml"));
    // No time of the software GPU is printed.
    short(&out).assert().success().stdout(words.and(contains(" us").not()).and(contains(" ns").not()));
    let profile = Profile::load(&out).unwrap();
    assert!(profile.functional && profile.plans.iter().all(|plan| plan.key.load == Key::IDLE), "{profile:?}");
    assert!(profile.plans.iter().any(|plan| plan.points.iter().any(|point| point.figures.len() > 3)), "{profile:?}");
    // An existing file is replaced only on request.
    short(&out).assert().code(2).stderr(contains("exists").and(contains("--force")));
    assert_eq!(Profile::load(&out).unwrap(), profile);

    let explain = |command: &mut Command| {
        command.args(["--explain=8B,4KiB", "--gpu", "soft"]).assert().success().stdout(contains("4 KiB: host->"));
    };
    explain(calibrate().env(submit::route_choice::VARIABLE, &out));
    explain(calibrate().arg("--profile").arg(&out));
    let json = calibrate().args(["--explain=8B", "--gpu", "soft", "--json", "--profile"]).arg(&out).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(json[0]["route"].is_string() && json[0]["why"].is_string() && json[0]["bytes"] == 8, "{json}");

    calibrate()
        .env(submit::route_choice::VARIABLE, &out)
        .arg("--explain")
        .assert()
        .code(2)
        .stderr(contains("software GPU"));
    let text = std::fs::read_to_string(&out).unwrap();
    let cpu = &profile.facts.cpu;
    std::fs::write(&out, text.replace(cpu.as_str(), "an abacus")).unwrap();
    let changed =
        contains("stale").and(contains("an abacus")).and(contains(cpu.as_str())).and(contains("doorbell calibrate"));
    calibrate()
        .env(submit::route_choice::VARIABLE, &out)
        .args(["--explain", "--gpu", "soft"])
        .assert()
        .code(2)
        .stderr(changed);
    // A profile that is named may belong to another machine, and then a message says so.
    let named = calibrate().args(["--explain=8B", "--gpu", "soft", "--profile"]).arg(&out).assert().success();
    named.stderr(contains("would not follow it").and(contains("an abacus")));
}

#[test]
fn the_own_profile_has_a_place_and_both_loads() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = calibrate();
    command.args(["--gpu", "soft", "--host-memory", "pinned", "--batch", "1", "--budget", "3s", "--json"]);
    command.args(["--beside", "host->ce1->gpu0", "--threads", "1"]).env("XDG_CONFIG_HOME", dir.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let profile = Profile::load(&dir.path().join("doorbell/profile.soft.toml")).unwrap();
    assert_eq!(json["plans"].as_array().map(Vec::len), Some(profile.plans.len()));
    for load in [Key::IDLE, "1 x host->ce1->gpu0 of 4KiB"] {
        assert!(profile.plans.iter().any(|plan| plan.key.load == load), "{load}: {profile:?}");
    }
}

#[test]
#[ignore = "3 s; run by .ci/run"]
fn route_auto_is_measured_by_the_profile_and_unavailable_without_one() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("p.toml");
    let text = "about = \"auto\"\n[run]\ngpu = \"soft\"\nrepeats = 1\nrounds = 2\nsamples = 8\ntimeout = \"60s\"\n[[subject]]\nroute = \"host->auto->gpu0\"\n\
                [[subject]]\nroute = \"gpu0->auto->host\"\n[[subject]]\nroute = \"host->ce2->gpu0\"\n[verify]\nevery = 1\n\
                [matrix]\nbytes = [\"8B\", \"64KiB\"]\n";
    let file = dir.path().join("auto.toml");
    std::fs::write(&file, text).unwrap();
    let bench = || {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
        command.env(submit::route_choice::VARIABLE, &out).arg("bench").arg(&file).timeout(Duration::from_secs(60));
        command
    };
    bench().assert().success().stdout(contains("no profile at").and(contains("doorbell calibrate")));
    short(&out).assert().success();
    let measured = bench().arg("--json").output().unwrap();
    assert!(measured.status.success());
    let run: serde_json::Value = serde_json::from_slice(&measured.stdout).unwrap();
    let cells = run["cells"].as_array().unwrap();
    assert!(cells.len() == 6 && cells.iter().all(|cell| cell["status"] == "measured"), "{run}");
}

#[test]
fn ctrl_c_writes_nothing_and_keeps_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("p.toml");
    std::fs::write(&out, "old").unwrap();
    let mut process = std::process::Command::new(assert_cmd::cargo::cargo_bin!("doorbell"))
        .args(["calibrate", "--gpu", "soft", "--budget", "10m", "--for", "max", "--force", "-o"])
        .arg(&out)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(600));
    // SAFETY: two numbers; the process has not been waited for, so its id is not reused.
    unsafe { libc::kill(process.id() as i32, libc::SIGINT) };
    assert_eq!(process.wait().unwrap().code(), Some(130));
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "old");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn what_would_be_measured_is_said_with_what_is_left_out() {
    let plan = calibrate().args(["--gpu", "soft", "--dry-run"]).assert().success();
    plan.stdout(contains("host->ce2->gpu0").and(contains("its completion does not show that the bytes have arrived")));
    let json = calibrate()
        .args(["--gpu", "soft", "--dry-run", "--json", "--host-memory", "pinned", "--batch", "1"])
        .output()
        .unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["sweeps"].as_array().map(Vec::len), Some(2), "{json}");
    calibrate()
        .args(["--beside", "host->warp->gpu0"])
        .assert()
        .code(2)
        .stderr(contains("warp").and(contains("--beside")));
    calibrate().args(["--explain=4KB"]).assert().code(2).stderr(contains("KiB is 1024"));
}
