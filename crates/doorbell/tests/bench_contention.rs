//! `doorbell bench contention` as a user meets it, on the software GPU: processes under policies, rounds, results. There is no
//! CUDA in software, so its calls are unavailable with a reason, and copies of ours are what is measured. Never how fast.

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

fn contention(args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.args(["bench", "contention"]).args(args).timeout(std::time::Duration::from_secs(120));
    command
}

#[test]
fn policies_take_turns_and_one_that_does_not_exist_is_only_named() {
    let dir = tempfile::tempdir().unwrap();
    let (path, tapes) = (dir.path().join("c.json"), dir.path().join("tapes"));
    let cells = "alone,copy=2x4KiB";
    let policies = "stock,pi+phase-fair,traced,nonsense";
    let args = ["--gpu", "soft", "--cells", cells, "--policies", policies, "--duration", "0.4s", "--rounds", "2"];
    let out = contention(&args).arg("--tapes").arg(&tapes).arg("--out").arg(&path).assert().success();
    let text = String::from_utf8(out.get_output().stdout.clone()).unwrap();
    assert!(text.contains("unavailable: nonsense") && text.contains("is no policy"), "{text}");
    assert!(text.contains("unavailable: launch: ") && !text.contains("p99") && !text.contains("GB/s"), "{text}");
    for round in 0..2 {
        assert!(tapes.join(format!("contention-{round}.doorbell")).is_file());
    }

    let v: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!((v["functional"].as_bool(), v["partial"].as_bool()), (Some(true), Some(false)));
    let cells = v["cells"].as_array().unwrap();
    let names: Vec<_> = cells.iter().map(|c| (c["cell"].as_str().unwrap(), c["policy"].as_str().unwrap())).collect();
    assert_eq!(names.len(), 6, "{names:?}");
    assert!(names[..3].iter().all(|n| n.0 == "alone") && names[3..].iter().all(|n| n.0 == "copy=2x4KiB"), "{names:?}");
    for c in cells {
        assert_eq!(c["rounds"], 2, "{c}");
        assert!(c["seconds"].as_f64().unwrap() >= 0.4, "{c}");
        let series = c["series"].as_array().unwrap();
        assert_eq!(series.len(), 5);
        assert!(series[..3].iter().all(|s| s["unavailable"].is_string() && s["call"].is_null()), "{c}");
        for s in &series[3..] {
            let done = &s["done"];
            let counted: u64 = done["histogram"].as_array().unwrap().iter().map(|b| b[1].as_u64().unwrap()).sum();
            assert_eq!(done["samples"].as_u64(), Some(counted), "{s}");
            assert_eq!((s["failed"].is_null(), s["done_rounds"].as_array().unwrap().len()), (true, 2), "{s}");
        }
        let threads = c["load"].as_array().unwrap().first().map(|l| (l["threads"].as_u64(), l["right"].as_u64()));
        let beside = (c["cell"] != "alone").then_some((Some(2), Some(2)));
        assert_eq!(threads, beside, "{c}");
    }
}

#[test]
fn without_a_gpu_nothing_is_measured_and_a_wrong_cell_is_said() {
    if std::path::Path::new("/dev/nvidiactl").exists() {
        trial::skip_part!("there is a GPU here");
    } else {
        contention(&["--quick"]).assert().code(77).stderr(contains("no GPU to measure").and(contains("hint: ")));
    }
    contention(&["--cells", "copy=64"]).assert().code(2).stderr(contains("cells are written alone"));
    contention(&["--policies", "traced"]).assert().code(2).stderr(contains("--tapes"));
    contention(&["--out", "/no/such/folder/x.json"]).assert().code(2).stderr(contains("cannot be created"));
}
