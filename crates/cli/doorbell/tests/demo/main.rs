//! A user's first steps: `doorbell demo`, what the README shows, and a starved thread.

mod starved;

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;
use std::path::Path;

/// What the README and the site's first page show.
const PICTURE: &str = include_str!("../../../../../docs/pictures/demo.svg");

fn doorbell() -> Command {
    let mut c = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    c.timeout(std::time::Duration::from_secs(120));
    c
}

fn summary(tape: &Path) -> Value {
    let out = doorbell().args(["show", "--summary", "--json"]).arg(tape).assert().success();
    serde_json::from_slice(&out.get_output().stdout).unwrap()
}

#[test]
fn it_shows_a_stall_why_and_what_removes_it() {
    // (A busy machine delays a frame for other reasons, too: then it is shown again.)
    let (dir, text, counts) = test_support::measured(|| {
        let dir = tempfile::tempdir().unwrap();
        let out = doorbell().args(["demo", "--gpu", "soft"]).current_dir(&dir).assert().success();
        let text = String::from_utf8(out.get_output().stdout.clone()).unwrap();
        let row = text.lines().find_map(|line| line.strip_prefix("late frames")).unwrap().to_owned();
        let counts: Vec<u64> = row.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        if counts[2] < counts[0] && counts[4] < counts[0] { Ok((dir, text, counts)) } else { Err(row) }
    });
    for part in [
        "On the software GPU",
        "$ doorbell record --locks -o doorbell-demo.doorbell",
        "cuGraphLaunch",
        "(frames)",
        "(pins) held",
        "inside cuMemHostAlloc",
        "called at",
        "`doorbell run --fix=pins` would have saved",
        "before     run --fix   libdoorbell",
        "they are no measurement",
        "The timeline is doorbell-demo.html",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let shown = PICTURE.split("<text").skip(1).filter_map(|line| line.split_once('>')?.1.split_once("</text>"));
    let shown: Vec<&str> = shown.map(|(line, _)| line).collect();
    assert_eq!(shape(&text), shape(&shown.join("\n")), "draw it again: cargo xtask pictures demo");
    assert!(text.lines().count() <= 32 && text.lines().all(|line| line.chars().count() <= 100), "{text}");
    // Held up as long as CUDA's lock is held, and not past it.
    assert!(counts[0] >= 3 && counts[1] == 500, "{counts:?}");
    let longest = text.lines().find_map(|line| line.strip_prefix("longest frame")).unwrap();
    assert!(
        longest.split_whitespace().next().unwrap().parse::<f64>().unwrap() >= 30.0 && longest.contains("ms"),
        "{longest}"
    );
    for file in ["doorbell-demo.doorbell", "doorbell-demo.html"] {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(dir.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    assert!(std::fs::read_to_string(dir.path().join("doorbell-demo.html")).unwrap().contains("cuGraphLaunch"));
    assert_eq!(summary(&dir.path().join("doorbell-demo.doorbell"))["lost"], 0);
}

/// The words of the lines, but for numbers with their units, and what depends on the machine and on chance: its GPU, the answer of `why`, the command's path.
fn shape(text: &str) -> Vec<String> {
    let varies = |word: &str| word.contains(|c: char| c.is_ascii_digit()) || ["ns", "us", "ms", "s"].contains(&word);
    let mut is_answer = false;
    let mut shape = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with("  ") && !line.starts_with("On the ")) {
        is_answer &= !line.is_empty();
        if !is_answer {
            shape.push(line.split_whitespace().filter(|word| !varies(word)).collect::<Vec<_>>().join(" "));
        }
        is_answer |= line.starts_with("$ doorbell why");
    }
    shape
}

#[test]
fn its_commands_are_a_recording_with_something_of_everything() {
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for tap in ["trap", "auto"] {
            let dir = &dir;
            scope.spawn(move || shows_something_of_everything(tap, dir.path()));
        }
    });
}

fn shows_something_of_everything(tap: &str, dir: &Path) {
    let tape = dir.join(format!("{tap}.doorbell"));
    let out =
        doorbell().args(["demo", "--commands", "--gpu", "soft", "--tap", tap, "--out"]).arg(&tape).assert().success();
    let text = String::from_utf8(out.get_output().stdout.clone()).unwrap();
    let v = summary(&tape);
    for p in ["/copies/copy_engine", "/copies/inline", "/fills", "/launches", "/semaphores/released", "/channels"] {
        assert!(v.pointer(p).and_then(Value::as_u64).is_some_and(|n| n > 0), "{tap}: {p} in {v}");
    }
    assert_eq!(v["lost"], 0);
    for part in [
        "On the software GPU",
        "checksum copies seed 1: ",
        "checksum launches seed 1: ",
        "\nlost         0\n",
        "LAUNCH_DMA DATA_TRANSFER_TYPE=NON_PIPELINED",
        "= copy 64 MiB, host 0x",
        "the times above mean nothing",
        "What to try next",
    ] {
        assert!(text.contains(part), "{tap}: {part:?} is not in\n{text}");
    }
    assert_eq!(text.matches("\n#").count(), 1, "one submission, decoded\n{text}");
    assert!(text.contains(&*tape.to_string_lossy()));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&tape).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn without_arguments_it_takes_what_is_there_and_writes_here() {
    let dir = tempfile::tempdir().unwrap();
    let out = doorbell().arg("demo").current_dir(&dir).assert().success();
    if recorder::driver_version().is_none() {
        out.stdout(contains("On the software GPU: this machine has no NVIDIA driver"));
    }
    assert_eq!(summary(&dir.path().join("doorbell-demo.doorbell"))["lost"], 0);
}

#[test]
fn the_real_gpu_or_the_reason() {
    if recorder::driver_version().is_some() {
        test_support::skip!("there is a driver");
    }
    let dir = tempfile::tempdir().unwrap();
    let out = doorbell().args(["demo", "--gpu", "real"]).current_dir(&dir).assert().code(77).stdout("");
    out.stderr(contains("no NVIDIA driver").and(contains("hint: `--gpu soft`")));
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
}

/// As with `| head`.
#[test]
fn a_reader_that_stops_reading_ends_it_without_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut demo = std::process::Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    let out = demo.args(["demo", "--gpu", "soft"]).current_dir(&dir).stdout(writer).output().unwrap();
    assert_eq!((out.status.code(), String::from_utf8_lossy(&out.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    doorbell()
        .args(["demo", "--gpu", "soft", "-o", "/no/such/dir/t"])
        .assert()
        .code(2)
        .stderr(contains("/no/such/dir"));
}

/// The README quotes what `why` prints of a recording that is in the tree.
#[test]
fn the_readme_shows_what_why_prints() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let quoted = readme.split_once("```text\n").unwrap().1.split_once("```").unwrap().0;
    let file = root.join("crates/explain/decode/fixtures/h100-module-load.doorbell");
    let out = doorbell().args(["why", "--call", "cuMemcpyHtoDAsync", "--worst", "1"]).arg(file).assert().success();
    let printed = String::from_utf8(out.get_output().stdout.clone()).unwrap();
    // (A terminal breaks the line.)
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&printed).contains(&words(quoted)), "{quoted} is not in\n{printed}");
}
