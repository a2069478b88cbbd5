//! A recording in one file, of a program that runs for a day.

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use test_support::Source;

/// Turns of ten seconds each: see `programs/day.c`.
const HOUR: u32 = 360;
const DAY: u32 = 24 * HOUR;

/// Memory of the program at its end and the most that the recorder used, in MiB.
fn memory_of(turns: u32, dir: &Path) -> (u64, u64) {
    let file = dir.join("day.doorbell");
    let doorbell = || Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    let mut command = doorbell();
    command
        .args(["record", "--force", "--gpu", "soft", "--calls", "--locks", "--gpu-times", "--on-full", "wait"])
        .arg("-o")
        .arg(&file);
    command.args(["--", "./day", &turns.to_string()]).current_dir(dir).env("LD_LIBRARY_PATH", dir);
    let out = test_support::finished(&mut command, "a day");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let program: u64 = String::from_utf8_lossy(&out.stdout).trim().parse().unwrap();
    let show = |view: &str| -> Value {
        let shown = test_support::finished(doorbell().args(["show", view, "--json"]).arg(&file), "show");
        serde_json::from_slice(&shown.stdout).unwrap()
    };
    let s = show("--summary");
    assert_eq!((&s["lost"], &s["complete"]), (&0.into(), &true.into()), "{}", s["incomplete_because"]);
    let processes = s["processes"].as_array().unwrap().len() as u32;
    assert!(processes == turns / 100 + 1 && s["submissions"].as_u64() >= Some(8 * u64::from(turns)), "{processes}");
    // (The agent maps its memory for the GPU's times with calls of CUDA, inside the first launch.)
    let calls = show("--calls");
    let calls: Vec<_> = calls["calls"].as_array().unwrap().iter().map(|c| c["call"].as_str().unwrap()).collect();
    assert!(calls.contains(&"cuLaunchKernel") && calls.contains(&"cuGraphLaunch"), "{calls:?}");
    assert!(!calls.contains(&"cuMemHostRegister"), "a call that the program has not made: {calls:?}");
    let peak = s["recorder"]["peak_memory_bytes"].as_u64().unwrap();
    println!("{turns} turns: {} submissions, program {program} KiB, recorder {} KiB", s["submissions"], peak >> 10);
    (program >> 10, peak >> 20)
}

#[test]
fn a_day_in_one_file_takes_little_more_memory_than_an_hour() {
    let dir = tempfile::tempdir().unwrap();
    let name = match test_support::link_softcuda(dir.path()) {
        Ok(name) => name,
        Err(why) => test_support::skip!("{why}"),
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/day.c");
    let flags = [name.to_str().unwrap(), "-Wl,--allow-shlib-undefined", "-pthread"];
    if let Err(why) = (Source { file: &source, compiler: "cc", flags: &flags }).compile(dir.path()) {
        test_support::skip!("{why}");
    }
    let (hour, day) = (memory_of(HOUR, dir.path()), memory_of(DAY, dir.path()));
    assert!(day.0 <= hour.0 + 1, "the program: {} and {} MiB", hour.0, day.0);
    // (Names of threads are kept up to a number. At the end the recorder sums up its file.)
    assert!(day.1 <= hour.1 + 16, "the recorder: {} and {} MiB", hour.1, day.1);
}
