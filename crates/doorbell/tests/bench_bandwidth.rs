//! `doorbell bench bandwidth` as a user meets it, on the software GPU: what works, what is said, what is written.

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

fn bandwidth() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.args(["bench", "bandwidth", "--gpu", "soft"]).timeout(std::time::Duration::from_secs(120));
    command
}

#[test]
fn every_engine_moves_both_ways_and_nothing_is_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bandwidth.json");
    let out = bandwidth().args(["--bytes", "100KiB", "--count", "40", "--out"]).arg(&path).assert().success();
    let text = String::from_utf8(out.get_output().stdout.clone()).unwrap();
    assert!(text.contains("40 copies back to back of 100 KiB, 2 rounds in turns, seed 1"), "{text}");
    assert!(text.contains("functional") && text.contains("the software GPU has no CUDA"), "{text}");
    assert!(!text.contains("GB/s") && !text.contains(" us"), "{text}");
    let json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!((json["bench"].as_str(), json["functional"].as_bool()), (Some("bandwidth"), Some(true)));
    let cells = json["cells"].as_array().unwrap();
    let mut engines = 0;
    for cell in cells {
        let cuda = cell["route"].as_str().unwrap().contains("cuda");
        assert_eq!((cell["verified"].as_bool(), cell["unavailable"].is_string()), (Some(!cuda), cuda), "{cell}");
        assert_eq!(cell["rounds"].as_u64(), Some(if cuda { 0 } else { 2 }), "{cell}");
        assert!(["gpu_gbps", "cpu_gbps", "versus"].iter().all(|key| cell[key].is_null()), "{cell}");
        engines += usize::from(!cuda);
    }
    // Plain and pipelined, both ways, of at least one engine that runs beside kernels.
    assert!(engines >= 4 && engines.is_multiple_of(4) && cells.len() == engines + 2, "{json}");
}

#[test]
fn a_planted_fault_is_found_before_anything_is_timed() {
    bandwidth()
        .args(["--bytes", "4KiB"])
        .env("DOORBELL_SOFTGPU_FAULT", "short-copy")
        .assert()
        .code(2)
        .stdout(contains("before the timed copies").and(contains("the first at offset 4095")))
        .stderr(contains("ways failed"));
}

#[test]
fn what_is_asked_wrongly_is_said_before_anything_runs() {
    bandwidth().args(["--bytes", "4KB"]).assert().code(2).stderr(contains("--bytes").and(contains("KiB is 1024")));
    bandwidth().args(["--bytes", "4KiB,8KiB"]).assert().code(2).stderr(contains("one size is needed"));
    bandwidth().args(["--bytes", "2GiB"]).assert().code(2).stderr(contains("between 1 B and 1 GiB"));
    bandwidth().args(["--count", "257"]).assert().code(2).stderr(contains("257"));
}
