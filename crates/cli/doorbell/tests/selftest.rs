//! `doorbell selftest` as a user runs it, on the software GPU.

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;

fn selftest() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.timeout(std::time::Duration::from_secs(120));
    command.arg("selftest");
    command
}

#[test]
fn the_list_has_every_check_with_what_it_is_for() {
    let lines = selftest().arg("--list").assert().success();
    let text = String::from_utf8(lines.get_output().stdout.clone()).unwrap();
    assert_eq!(text.lines().count(), sample_programs::checks::CHECKS.len());
    for check in sample_programs::checks::CHECKS {
        assert!(text.contains(check.name) && text.contains(check.about), "{}", check.name);
    }
}

#[test]
fn checks_pass_on_the_software_gpu() {
    selftest().args(["--gpu", "soft", "--only", "tiny", "--only", "open"]).assert().success().stdout(
        contains("passed   open").and(contains("passed   tiny")).and(contains("2 passed, 0 failed, 0 skipped")),
    );
}

#[test]
fn a_planted_fault_fails_the_check_in_words_and_in_json() {
    selftest()
        .args(["--gpu", "soft", "--only", "tiny"])
        .env("DOORBELL_SOFTGPU_FAULT", "short-copy")
        .assert()
        .code(1)
        .stdout(contains("failed   tiny").and(contains("last byte differs at offset 7 of 8 bytes")));
    let output = selftest()
        .args(["--gpu", "soft", "--only", "tiny", "--json"])
        .env("DOORBELL_SOFTGPU_FAULT", "dead-channel:2:69")
        .assert()
        .code(1);
    let json: serde_json::Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    assert_eq!((json["gpu"].as_str(), json["failed"].as_u64()), (Some("soft"), Some(1)));
    let check = &json["checks"][0];
    assert_eq!((check["name"].as_str(), check["verdict"].as_str()), (Some("tiny"), Some("failed")));
    assert!(check["detail"].as_str().unwrap().contains("killed by error 69"), "{check}");
}

#[test]
fn wrong_names_and_absent_gpus_say_what_to_do() {
    selftest().args(["--only", "nonsense"]).assert().code(2).stderr(contains("--list"));
    selftest()
        .args(["--gpu", "soft", "--index", "7", "--only", "open"])
        .assert()
        .code(77)
        .stderr(contains("there is no GPU 7").and(contains("hint: ")));
}

/// Uses a CUDA in software on the software GPU.
#[test]
fn launches_past_cuda_are_checked_in_a_process_of_their_own() {
    let program = std::env::current_exe().unwrap();
    let [library, softgpu] = ["libsoftcuda.so", "libdoorbell_softgpu.so"].map(|name| program.with_file_name(name));
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(library, folder.path().join("libcuda.so.1")).unwrap();
    let check = |only: &str| {
        let mut command = selftest();
        command.args(["--launches", "--only", only]).env("LD_LIBRARY_PATH", folder.path());
        command.env("LD_PRELOAD", &softgpu).env("DOORBELL_SOFTGPU", "strict");
        command
    };
    check("launched-tiny,launched-memset").assert().success().stdout(
        contains("passed   launched-tiny")
            .and(contains("passed   launched-memset"))
            .and(contains("2 passed, 0 failed, 0 skipped")),
    );
    let output = check("launched-parameters,launched-queue")
        .arg("--json")
        .env("DOORBELL_SOFTGPU_FAULT", "stale-bank")
        .assert()
        .code(1);
    let json: serde_json::Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    assert_eq!((json["failed"].as_u64(), json["skipped"].as_u64()), (Some(1), Some(1)), "{json}");
    check("launch").assert().code(2).stderr(contains("--launches --list"));
}

#[test]
fn the_checks_of_launches_are_listed_and_need_cuda() {
    let list = selftest().args(["--launches", "--list"]).assert().success();
    let text = String::from_utf8(list.get_output().stdout.clone()).unwrap();
    assert!(
        text.starts_with("launched-tiny") && text.lines().count() == sample_programs::LAUNCH_CHECKS.len(),
        "{text}"
    );
    selftest().args(["--launches", "--gpu", "soft"]).assert().code(2);
}
