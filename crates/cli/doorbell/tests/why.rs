//! `doorbell why` of a program whose launches wait for a lock that another thread holds while it allocates memory.

#[path = "../../../explain/decode/tests/synthetic/mod.rs"]
mod synthetic;

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Mutex;
use test_support::Source;

fn doorbell(arguments: &[&str]) -> Output {
    Command::new(assert_cmd::cargo::cargo_bin!("doorbell")).args(arguments).output().unwrap()
}

fn text(arguments: &[&str]) -> String {
    let out = doorbell(arguments);
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// The program, with its library in the same folder. `Err` without a C compiler.
fn built(dir: &Path) -> Result<(), String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/why");
    let (library, app) = (sources.join("libcuda.c"), sources.join("app.c"));
    let library = Source { file: &library, compiler: "cc", flags: &[] }.compile_library(dir, "libcuda.so.1")?;
    Source { file: &app, compiler: "cc", flags: &[library.to_str().unwrap()] }.compile(dir)?;
    Ok(())
}

/// One program at a time: anything that takes its CPU changes which of its calls are slow.
static ONE: Mutex<()> = Mutex::new(());

fn recorded(dir: &Path, name: &str, how: &[&str], mode: &str) -> String {
    let _alone = poison::ignore(ONE.lock());
    let file = dir.join(name).to_str().unwrap().to_owned();
    let app = dir.join("app").to_str().unwrap().to_owned();
    let all = [&["record", "--quiet", "--tap", "off", "-o", &file], how, &["--", &app, mode]].concat();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    let out = command.args(all).env("LD_LIBRARY_PATH", dir).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    file
}

#[test]
fn a_launch_behind_an_allocation_is_put_down_to_the_lock_and_its_holder() {
    let dir = tempfile::tempdir().unwrap();
    if let Err(why) = built(dir.path()) {
        test_support::skip!("{why}");
    }
    let file = recorded(dir.path(), "a.doorbell", &["--locks"], "makes");
    let why: Value = serde_json::from_str(&text(&["why", "--json", "--above", "5ms", &file])).unwrap();
    assert_eq!(why["schema"], "doorbell.why/1");
    let of = |v: &Value| v["ns"].as_u64().unwrap();
    let sum: u64 = why["causes"].as_array().unwrap().iter().map(of).sum();
    assert_eq!(sum, of(&why));
    // (One of the three may find no launch that waits for it.)
    let launch = why["worst"].as_array().unwrap().iter().find(|w| w["call"] == "cuLaunchKernel").unwrap();
    assert_eq!(launch["cause"], "lock", "{launch}");
    let lock = &launch["parts"][0]["of"][0];
    assert_eq!(lock["because"][0]["call"], "cuMemAlloc", "{lock}");
    assert!(lock["what"].as_str().unwrap().starts_with("libcuda+0x"), "{lock}");
    assert!(
        why["worst"].as_array().unwrap().iter().any(|w| w["call"] == "cuMemAlloc" && w["cause"] == "memory"),
        "{why}"
    );
    // As text, in which the lock has its variable's name, and one call by its number.
    let number = launch["number"].to_string();
    let one = text(&["why", "--number", &number, "--thread", &launch["tid"].to_string(), &file]);
    let measured = "cuMemAlloc holds others up for 438 us at 2 GiB";
    for part in ["where the time went", "saves up to", "inside cuMemAlloc", "lock/mutex", measured] {
        assert!(one.contains(part), "{part:?} is not in\n{one}");
    }
}

/// 2,048 pages that were never touched; the second copy finds them there.
#[test]
fn a_copy_from_fresh_memory_is_put_down_to_page_faults() {
    let dir = tempfile::tempdir().unwrap();
    if let Err(why) = built(dir.path()) {
        test_support::skip!("{why}");
    }
    let file = recorded(dir.path(), "f.doorbell", &["--locks"], "fresh");
    let all = ["why", "--json", "--starting", "--above", "1ns", "--call", "cuMemcpyHtoD", &file];
    let why: Value = serde_json::from_str(&text(&all)).unwrap();
    let not_watched = why["not_watched"].to_string();
    if not_watched.contains("page faults") {
        test_support::skip!("{not_watched}");
    }
    let mut copies: Vec<&Value> = why["worst"].as_array().unwrap().iter().collect();
    copies.sort_by_key(|c| c["number"].as_u64());
    let minor = |c: &Value| c["page_faults"]["minor"].as_u64().unwrap();
    let first = copies[0];
    if why["incomplete_because"].to_string().contains("page faults") {
        test_support::skip!("{}", why["incomplete_because"]);
    }
    assert!((2048..2100).contains(&minor(first)), "{first}");
    let part = first["parts"].as_array().unwrap().iter().find(|p| p["cause"] == "page_fault").unwrap();
    assert_eq!(part["of"][0]["what"], "minor");
    assert_eq!(part["of"][0]["times"], first["page_faults"]["minor"]);
    assert!(copies.get(1).is_none_or(|second| minor(second) < 50), "{copies:?}");
    let shown = text(&["why", "--number", &first["number"].to_string(), &file]);
    assert!(shown.contains("minor faults") && shown.contains("page faults"), "{shown}");
}

/// The thread that launches waits for the GIL between its calls, while the other one has it in a call.
#[test]
fn a_wait_for_pythons_lock_between_calls_is_put_down_to_the_call_of_who_had_it() {
    let dir = tempfile::tempdir().unwrap();
    if let Err(why) = built(dir.path()) {
        test_support::skip!("{why}");
    }
    let ask = ["-c", "import sys; print(sys.executable, sys.version_info >= (3, 9))"];
    let Ok(said) = Command::new("python3").args(ask).output() else { test_support::skip!("there is no python3") };
    let said = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    let Some(python) = said.strip_suffix(" True") else { test_support::skip!("python3 is {said:?}") };
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/why/gil.py");
    let file = dir.path().join("g.doorbell").to_str().unwrap().to_owned();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.args(["record", "--quiet", "--tap", "off", "--locks", "-o", &file, "--", python]).arg(program);
    let out = command.env("LD_LIBRARY_PATH", dir.path()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let why: Value = serde_json::from_str(&text(&["why", "--json", "--starting", "--above", "5ms", &file])).unwrap();
    let worst = &why["between"]["worst"][0];
    assert!(worst["ns"].as_u64().unwrap() > 5_000_000 && worst["call"] == "cuLaunchKernel", "{}", why["between"]);
    assert_eq!(worst["because"][0]["call"], "cuCtxSynchronize", "{worst}");
    assert_ne!(worst["because"][0]["tid"], worst["tid"]);
    let shown = text(&["why", "--starting", "--above", "5ms", &file]);
    for part in ["between calls: waited for Python's lock (GIL)", "before cuLaunchKernel", "inside cuCtxSynchronize"] {
        assert!(shown.contains(part), "{part:?} is not in\n{shown}");
    }
}

#[test]
fn without_locks_it_says_so_and_without_calls_it_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    if let Err(why) = built(dir.path()) {
        test_support::skip!("{why}");
    }
    let file = recorded(dir.path(), "c.doorbell", &["--calls"], "makes");
    let why = text(&["why", "--above", "5ms", &file]);
    assert!(why.contains("not watched: locks (record --locks)") && why.contains("unknown"), "{why}");
    let none = recorded(dir.path(), "n.doorbell", &["--gpu", "soft"], "launches");
    let out = doorbell(&["why", &none]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(2) && said.contains("CUDA calls were not recorded"), "{said}");
}

/// Nine kernels, the last of which runs for 5 ms while the program waits for its stream.
#[test]
fn a_wait_for_the_gpu_names_its_kernels() {
    use tape::call::{self, CallBody};
    use tape::stamp::{self, StampsBody, state};
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.doorbell");
    let mut t = synthetic::kernel_launches(9, |t| {
        let body = StampsBody { state: state::ON, area: synthetic::SLOTS_AT, ..StampsBody::default() };
        t.event(100, stamp::kind::STAMPS, 0, &body, &[], &[]);
    });
    let body = CallBody { began: 210_000, stream: 0x51, seq: 10, ..CallBody::default() };
    t.event_at(100, 5_302_000, call::kind::CALL, 61, &body, &[], &[]);
    t.ends(&[1, 2, 3, 4, 5, 6, 7, 8, 5000]);
    t.write(&file);
    let file = file.to_str().unwrap();
    let shown = text(&["why", "--starting", file]);
    for part in [
        "\n  engine",
        "waits for the GPU: 1 call waited for 50.0 us or more",
        "call 10 of thread 100: 5.09 ms, engine",
        "saves up to 4.99 ms",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let why: Value = serde_json::from_str(&text(&["why", "--json", "--starting", file])).unwrap();
    assert_eq!((&why["slow"], &why["waits"][0]["cause"]), (&0.into(), &"engine".into()));
}

/// A copy to the device, a kernel that waits for it, a copy back, while the program waits for their stream.
#[test]
fn a_wait_for_the_gpu_names_its_copies() {
    use tape::call::{self, CallBody};
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.doorbell");
    let mut t = synthetic::copy_times();
    let body = CallBody { began: 207_500, stream: 0x51, seq: 6, ..CallBody::default() };
    t.event_at(100, 694_000, call::kind::CALL, 61, &body, &[], &[]);
    t.write(&file);
    let file = file.to_str().unwrap();
    let shown = text(&["why", "--starting", file]);
    let told = "copy 4 MiB host to device: add(int*) waited behind it in its stream";
    for part in [
        "call 6 of thread 100: 486 us, engine",
        "220 us    copy 4 MiB device to host\n",
        &format!("190 us    {told}\n"),
        "the longest that it waits for is the copy 4 MiB device to host; saves up to 220 us",
        "when 1 of 4 copies ran",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let why: Value = serde_json::from_str(&text(&["why", "--json", "--starting", file])).unwrap();
    assert_eq!(why["waits"][0]["parts"][0]["of"][1]["what"], told);
}

/// The library of the tests lacks the functions that map memory for the GPU.
#[test]
fn a_cuda_that_cannot_map_the_memory_for_times_is_named() {
    let dir = tempfile::tempdir().unwrap();
    if let Err(why) = built(dir.path()) {
        test_support::skip!("{why}");
    }
    let file = recorded(dir.path(), "a.doorbell", &["--gpu-times"], "makes");
    for view in ["--summary", "--kernels", "--gpu-times"] {
        let shown = text(&["show", &file, view]);
        assert!(shown.contains("no kernel was seen; the program's CUDA has no function that maps"), "{shown}");
    }
    let shown: Value = serde_json::from_str(&text(&["show", "--gpu-times", "--json", &file])).unwrap();
    let times = shown["kernel_times"].as_array().unwrap();
    assert_eq!((times.len(), &times[0]["state"], &times[0]["stamped"]), (1, &"no_function".into(), &0.into()));
}
