//! The command built for aarch64, under an emulator with pages of 64 KiB. For recordings and runs of this machine its output is that of
//! this machine's command, byte by byte (except for the last digits of logarithms). It refuses everything else with a reason.
//!
//! `.ci/run --long` builds it first: `cargo build --target aarch64-unknown-linux-gnu -p doorbell`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn here() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("doorbell"))
}

/// `None` if it was not built.
fn other() -> Option<Command> {
    // <target>/<profile>/doorbell
    let target = assert_cmd::cargo::cargo_bin!("doorbell").ancestors().nth(2)?.to_owned();
    let binary = target.join("aarch64-unknown-linux-gnu/debug/doorbell");
    let mut command = Command::new("qemu-aarch64");
    // The folder of Debian's libraries for cross compilers.
    command.args(["-p", "65536", "-L", "/usr/aarch64-linux-gnu"]).arg(&binary);
    binary.exists().then_some(command)
}

fn output(command: &mut Command, dir: &Path) -> Output {
    test_support::finished(command.current_dir(dir), "doorbell")
}

fn lines(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// With 13 digits of each number: logarithms of two machines' libraries differ in the last of 17.
fn rounded(bytes: Vec<u8>) -> Vec<u8> {
    let Ok(text) = String::from_utf8(bytes.clone()) else { return bytes };
    let pieces = text.split_inclusive(|c: char| !c.is_ascii_digit() && c != '.').map(|piece| {
        let number = piece.trim_end_matches(|c: char| !c.is_ascii_digit());
        match number.parse::<f64>() {
            Ok(value) if number.len() > 13 && number.contains('.') => format!("{value:.12e}{}", &piece[number.len()..]),
            _ => piece.to_owned(),
        }
    });
    pieces.collect::<String>().into_bytes()
}

/// Status, both streams, and the file `out` if the command wrote it.
fn said(mut command: Command, arguments: &[&str], dir: &Path) -> (Option<i32>, String, String, Option<Vec<u8>>) {
    let done = output(command.args(arguments), dir);
    let written = fs::read(dir.join("out")).ok();
    if written.is_some() {
        fs::remove_file(dir.join("out")).unwrap();
    }
    let out = lines(&rounded(done.stdout));
    (done.status.code(), out, lines(&done.stderr), written.map(rounded))
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../explain/decode/fixtures").join(name)
}

/// A lock held for so long.
fn experiment(hold: &str) -> String {
    format!(
        "[run]\ngpu = \"none\"\nrounds = 8\nsamples = 240\nnoise = \"20ms\"\n[[subject]]\nname = \"lock\"\ncall = \"lock(mutex,hold={hold})\"\n\
         [[subject]]\ncall = \"nothing\"\n"
    )
}

#[test]
#[ignore = "a build for aarch64 and 2 minutes; run by .ci/run --long"]
fn long_aarch64_reads_what_this_machine_wrote() {
    if other().is_none() || !test_support::installed("qemu-aarch64") {
        test_support::skip!("no doorbell for aarch64, or no qemu-aarch64");
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for name in ["h200-copies.doorbell", "h200-launches.doorbell"] {
        fs::copy(fixture(name), dir.join(name)).unwrap();
    }
    let program = assert_cmd::cargo::cargo_bin!("doorbell").to_str().unwrap();
    let sample = [program, "sample", "starve", "--gpu", "soft", "--duration", "200ms"];
    let recorded =
        output(here().args(["record", "--locks", "--gpu", "soft", "-o", "locks.doorbell"]).args(sample), dir);
    assert!(recorded.status.success(), "{}", lines(&recorded.stderr));
    for (name, hold) in [("before", "20us"), ("after", "90us")] {
        fs::write(dir.join("lock.toml"), experiment(hold)).unwrap();
        let measured = output(here().args(["bench", "lock.toml", "-o", name]), dir);
        assert!(measured.status.success(), "{}", lines(&measured.stderr));
    }
    let views = [
        "submissions",
        "copies",
        "launches",
        "kernels",
        "gpu-times",
        "channels",
        "locks",
        "calls",
        "python",
        "nvtx",
        "driver-calls",
        "graphs",
        "objects",
        "summary",
    ];
    let views = views.map(|view| format!("show --{view}"));
    let mut commands = Vec::new();
    for recording in ["h200-copies.doorbell", "h200-launches.doorbell", "locks.doorbell"] {
        for view in &views {
            commands.extend(["", " --json"].map(|json| format!("{view} {recording}{json}")));
        }
        for rest in
            ["export --jsonl FILE", "export --jsonl FILE -o out", "report FILE -o out", "redact FILE out", "plan FILE"]
        {
            commands.push(rest.replace("FILE", recording));
        }
    }
    commands.extend(
        [
            "diff locks.doorbell locks.doorbell",
            "diff h200-copies.doorbell locks.doorbell",
            "report before -o out",
            "report before --digest out",
            "report before after -o out",
            "report before after --markdown out",
            "compare before after",
            "compare before after --json",
            "compare before after --junit out",
            "compare --nodes before after before before",
            "show no.doorbell",
            "compare before no",
            "show lock.toml",
        ]
        .map(str::to_owned),
    );
    let (mut written, mut errors) = (0, 0);
    for line in commands {
        let arguments: Vec<&str> = line.split(' ').collect();
        let here = said(here(), &arguments, dir);
        let there = said(other().unwrap(), &arguments, dir);
        assert!(here == there, "{line}\nhere: {here:.2000?}\nthere: {there:.2000?}");
        written += usize::from(here.3.is_some());
        errors += usize::from(here.0 == Some(2));
    }
    // The two from an H200 have no locks, calls, Python frames and ranges (text and JSON are errors), no plan, and are too old for `redact`. The third has
    // no Python frames. Of the other commands four are wrong.
    assert_eq!((written, errors), (12, 2 * (4 * 2 + 1 + 1) + 2 + 4));
}

#[test]
#[ignore = "a build for aarch64; run by .ci/run --long"]
fn long_aarch64_refuses_by_name_what_needs_x86_64() {
    if other().is_none() || !test_support::installed("qemu-aarch64") {
        test_support::skip!("no doorbell for aarch64, or no qemu-aarch64");
    }
    let dir = tempfile::tempdir().unwrap();
    for (line, status, what) in [
        ("record --locks -o a ./app --app", 125, "recording"),
        ("run --lock-policy plan.toml ./app", 125, "running a program with other lock protocols"),
        ("bench copies -o run", 77, "measuring"),
        ("bench", 77, "measuring"),
        ("doctor --json", 77, "what `doctor` tries"),
        ("nvme identify qemu", 77, "driving a controller"),
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let (code, out, err, _) = said(other().unwrap(), &arguments, dir.path());
        assert_eq!((code, out.as_str()), (Some(status), ""), "{line}: {err}");
        assert!(err.starts_with(&format!("error: {what} needs x86-64; this is aarch64\nhint: ")), "{line}: {err}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Addresses and offsets of a traced `mmap(0x5503d40000,131072,PROT_READ,MAP_PRIVATE,3,0x10000) = ..` that no kernel with pages of 64 KiB
/// takes.
fn askew(trace: &str) -> Vec<&str> {
    let is_whole = |number: &str| match number.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).is_ok_and(|value| value.is_multiple_of(65536)),
        None => matches!(number, "0" | "NULL"),
    };
    let calls = trace.split("mmap(").skip(1).filter_map(|rest| rest.split(')').next());
    calls
        .filter(|call| [call.split(',').next(), call.rsplit(',').next()].into_iter().flatten().any(|n| !is_whole(n)))
        .collect()
}

#[test]
fn a_mapping_that_is_not_on_pages_of_64_kib_is_found() {
    let trace = "1 mmap(NULL,42771,PROT_READ,MAP_PRIVATE,3,0) = 0x0\n1 mmap(0x0000005503d40000,1,PROT_READ,MAP_FIXED,3,0x80000) = 0x1\n";
    assert_eq!(askew(trace), [""; 0]);
    let wrong = ["NULL,4096,PROT_READ,MAP_PRIVATE,3,0x1000", "0x0000005503d41000,1,PROT_READ,MAP_FIXED,-1,0"];
    assert_eq!(askew(&format!("{trace}1 mmap({}) = 0x2\n1 mmap({}) = 0x3\n", wrong[0], wrong[1])), wrong);
}

/// The emulator has pages of 64 KiB but accepts other mappings, too, so its trace is searched for them.
#[test]
#[ignore = "a build for aarch64; run by .ci/run --long"]
fn long_aarch64_maps_whole_pages_of_64_kib() {
    let dir = tempfile::tempdir().unwrap();
    let recording = fixture("h200-copies.doorbell");
    let recording = recording.to_str().unwrap();
    let run = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/report/run.json");
    for line in [["show", recording, "--copies"], ["export", recording, "--jsonl"], ["report", run, "-oout"]] {
        let Some(mut command) = other().filter(|_| test_support::installed("qemu-aarch64")) else {
            test_support::skip!("no doorbell for aarch64, or no qemu-aarch64");
        };
        let traced = output(command.env("QEMU_STRACE", "1").args(line), dir.path());
        let trace = lines(&traced.stderr);
        assert!(traced.status.success() && trace.contains("mmap("), "{line:?}: {trace:.2000}");
        assert_eq!(askew(&trace), [""; 0], "{line:?}");
    }
}
