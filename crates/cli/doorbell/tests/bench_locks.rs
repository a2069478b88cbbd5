//! `doorbell bench pthreads` as a user sees it, in short.

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

fn locks(args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.args(["bench", "pthreads"]).args(args).timeout(std::time::Duration::from_secs(120));
    command
}

#[test]
#[ignore = "4 s; run by .ci/run"]
fn starvation_has_a_figure_for_every_policy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.json");
    let args = ["--only", "starvation", "--timeout", "0.3s", "--repeats", "2", "--section", "10ms", "--seed", "5"];
    let run = || {
        let out = locks(&args).args(["--force", "--out"]).arg(&path).assert().success();
        let v: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        (String::from_utf8(out.get_output().stdout.clone()).unwrap(), v)
    };
    // On a busy machine a writer waits for its CPU, too.
    let (text, v) = test_support::measured(|| {
        let (text, v) = run();
        let ms = |policy: &str| v["starvation_ms"][policy].as_f64().unwrap();
        let fair = ms("phase-fair") < 100.0 && ms("stock") > ms("phase-fair");
        if fair { Ok((text, v)) } else { Err(format!("ten sections, and less than stock: {}", v["starvation_ms"])) }
    });
    assert!(text.contains("wait of a writer") && text.contains("wait of a reader"), "{text}");
    assert!(!text.contains("SCHED_FIFO") && !text.contains('\x1b'), "{text}");
    for waits in ["starvation_ms", "reader_starvation_ms"] {
        for policy in ["stock", "stock-prefer-writer", "phase-fair", "old", "guard"] {
            assert!(v[waits][policy].as_f64().is_some_and(|ms| ms > 0.0), "{waits} {policy}: {v}");
        }
    }
    let of = |policy: &str| v["starvation_ms"][policy].as_f64().unwrap();
    assert_eq!(v["starvation"]["stock"]["capped"].as_bool(), Some(of("stock") >= 300.0));
    assert!(v["inversion_ms"].is_null());
    assert_eq!((v["environment"]["facts"]["run.seed"].as_u64(), v["plan"]["cap_ms"].as_f64()), (Some(5), Some(300.0)));
    assert!(v["libc"].as_str().unwrap().starts_with("glibc 2."));
}

/// One run of all other parts, with only JSON on standard output.
#[test]
#[ignore = "4 s; run by .ci/run"]
fn inversion_is_measured_or_says_why_not() {
    let args = ["--only", "inversion,costs", "--repeats", "1", "--rounds", "1", "--threads", "2", "--json"];
    let v = test_support::measured(|| {
        let out = locks(&args).assert().success();
        let v: Value = serde_json::from_slice(&out.get_output().stdout).unwrap();
        let ms = |policy: &str| v["inversion_ms"][policy].as_f64();
        let stock = ms("stock").unwrap_or(0.0);
        let helps = ["boost", "guard", "pi"].into_iter().filter_map(ms).all(|ms| ms < stock / 2.0);
        if stock == 0.0 || helps { Ok(v) } else { Err(v["inversion_ms"].to_string()) }
    });
    let ms = |policy: &str| v["inversion_ms"][policy].as_f64();
    match v["inversion_unavailable"].as_str() {
        Some(reason) => {
            assert!(!reason.is_empty() && ms("stock").is_none());
            test_support::skip_part!("{reason}");
        }
        None => {
            let stock = ms("stock").unwrap();
            assert!(stock >= 300.0, "{v}");
            for policy in ["boost", "guard"] {
                assert!(ms(policy).unwrap() < stock / 2.0, "{policy}: {v}");
            }
            match ms("pi") {
                Some(pi) => assert!(pi < stock / 2.0, "{v}"),
                None => assert!(v["inversion"]["pi"]["unavailable"].is_string(), "{v}"),
            }
        }
    }
    assert!(v["starvation_ms"].is_null());
    let cells = v["costs"].as_array().unwrap();
    for threads in [1, 2] {
        for pair in ["mutex", "read", "write"] {
            let of = |c: &&Value| c["threads"] == threads && c["pair"] == pair && c["policy"] == "stock";
            assert!(cells.iter().find(of).unwrap()["p50_ns"].as_f64().unwrap() > 0.0);
        }
    }
}

#[test]
fn what_is_asked_wrongly_is_said_before_anything_runs() {
    locks(&["--only", "deadlock"]).assert().code(2).stderr(contains("starvation").and(contains("inversion")));
    locks(&["--timeout", "0s"]).assert().code(2).stderr(contains("more than no time"));
    locks(&["--crowd", "1"]).assert().code(2).stderr(contains("2..=64"));
    locks(&["--threads", "1000"]).assert().code(2).stderr(contains("128"));
    locks(&["--out", "/no/such/folder/x.json"]).assert().code(2).stderr(contains("cannot be created"));
}
