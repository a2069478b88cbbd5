//! The commands in the README and the guides, run as they are printed, on the software GPU if they need one.
//!
//! Every one of them is run, or listed with the reason why not, or is in a block with the mark `# needs a GPU`.
//! (`src/printed.rs` checks that the command line accepts the arguments of all of them. `tutorials.rs` runs whole pages.)

mod pages;

use pages::Printed;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Changes that make a command run here, and quickly: how the command begins, a part of it, and that part's replacement.
const HERE: &[(&str, &str, &str)] = &[
    ("doorbell doctor", "", ""),
    ("doorbell show", "", ""),
    ("doorbell record --locks ./app", "", ""),
    ("doorbell record --locks -o app.doorbell ./app", "", ""),
    ("doorbell why app.doorbell", "", ""),
    ("doorbell record --locks --gpu-times -o waits.doorbell ./app", "", ""),
    ("doorbell why waits.doorbell", "", ""),
    ("doorbell export --perfetto -o app.pftrace", "", ""),
    ("doorbell record -o app.doorbell ./app", "record -o", "record --gpu soft -o"),
    ("unshare -r -n -m --pid --fork --mount-proc doorbell record", "record -o", "record --gpu soft -o"),
    ("doorbell record --agent-dir", "--agent-dir /dev/shm/doorbell", "--gpu soft --agent-dir ."),
    ("doorbell bench --list", "", ""),
    ("doorbell show crates/explain/decode/fixtures", "show crates", "show ROOT/crates"),
    ("doorbell files read model.bin --gpu soft", "", ""),
    ("doorbell files read model.bin --verify", "", " --gpu soft"),
    ("doorbell files read model.bin --depth", "", " --gpu soft"),
    ("doorbell files write out.bin", "1GiB", "1MiB --gpu soft"),
    ("doorbell record --locks --last 30s", "", ""),
    ("doorbell record --calls --last 256MiB", "", ""),
    ("doorbell calibrate --dry-run", "", ""),
];

/// Beginnings of commands that are only parsed, and the reasons.
const NOT_RUN: &[(&str, &str)] = &[
    ("cargo run --release -- demo", "builds all; .ci/fresh-clone runs it, and its own test the demo (demo)"),
    ("doorbell record python3 train.py", "needs PyTorch and a GPU"),
    ("doorbell why stall.doorbell", "a file of a stall; a test of its own makes some (last)"),
    ("doorbell why hang.doorbell", "a file of a hang; a test of its own makes some (now)"),
    ("doorbell why --now", "a program that hangs; its own tests look at some (now, now_ranks)"),
    ("doorbell show --copies --call", "the recording that is there has no calls"),
    ("doorbell record --dormant", "a server; its own test attaches to a program (attach)"),
    ("doorbell record --calls --last 30s", "the same server"),
    ("doorbell record --calls --gpu-times --last 30s", "a program that stalls; a test of its own plants stalls (last)"),
    ("doorbell save 1234", "the same server; a test of its own saves (last)"),
    ("doorbell record --calls --no-data --max-size", "a job"),
    ("doorbell why slow.doorbell", "the recording that `attach` has written"),
    ("doorbell attach 1234", "the server of the line before"),
    ("doorbell show --calls slow.doorbell", "the recording of the line before"),
    ("doorbell top", "nothing is being recorded; its own test looks at a program (attach)"),
    ("doorbell show --rank job/job.rank2.doorbell", "needs a job; its own test records some (fleet)"),
    ("doorbell show --locks job/job.rank2.doorbell", "needs a job; its own test records some (fleet)"),
    ("doorbell why job/job.rank2.doorbell", "the same"),
    ("docker run", "needs a container engine"),
    (
        "doorbell record --agent-dir /dev/shm/doorbell -o chroot.doorbell chroot",
        "needs root and a root directory; its own test makes one (containers)",
    ),
    ("doorbell bench smoke", "half a minute; other tests run it in part"),
    ("doorbell bench crossover", "minutes on a GPU"),
    ("doorbell bench device --variant fpga", "a card, or QEMU for minutes"),
    ("doorbell bench device --variant sweep", "needs a card"),
    ("doorbell bench worst --variant interference", "minutes on a GPU"),
    ("doorbell bench seed-2013", "minutes on a GPU"),
    ("doorbell bench noise", "87 s"),
    ("doorbell bench bandwidth", "minutes"),
    ("doorbell bench peer", "needs two GPUs"),
    ("doorbell calibrate", "minutes on a GPU; its own test runs it on the software GPU"),
    ("doorbell compare", "needs two runs; its own test makes them (compare)"),
    ("doorbell report", "needs runs; its own test makes them (report)"),
    ("doorbell soak", "minutes to hours; its own test runs it for seconds (soak)"),
    ("doorbell nvme", "QEMU or a drive; its own test runs it where QEMU is (nvme)"),
    ("doorbell files load", "needs a model; its own test makes one (files)"),
    ("doorbell files read model.bin --via cufile", "needs cuFile"),
];

/// The command as it runs here; `None` if it does not. `used` gets the entry that decides this.
fn here(printed: &Printed, used: &mut BTreeSet<&'static str>) -> Option<String> {
    let line = &printed.line;
    let longest = |starts: &mut dyn Iterator<Item = &'static str>| {
        starts.filter(|start| line.starts_with(start)).max_by_key(|start| start.len())
    };
    let run = longest(&mut HERE.iter().map(|(start, ..)| *start));
    let not = longest(&mut NOT_RUN.iter().map(|(start, _)| *start));
    assert!(run.is_some() || not.is_some(), "{}: `{line}` is neither run nor named with a reason", printed.at);
    if not.map(str::len) > run.map(str::len) {
        used.extend(not);
        return None;
    }
    used.extend(run);
    let (_, part, instead) = HERE.iter().find(|(start, ..)| Some(*start) == run)?;
    let (command, rest) = line
        .split_once([';', '|', '>', '&'])
        .map_or((line.as_str(), ""), |(command, _)| (command, &line[command.len()..]));
    let command =
        if part.is_empty() { format!("{}{instead}", command.trim_end()) } else { command.replace(part, instead) };
    // Uses the software GPU if the page leaves the choice to the reader.
    let needs_gpu = command.contains("doorbell sample starve") && !command.contains("--gpu");
    let soft = if needs_gpu { " --gpu soft" } else { "" };
    Some(format!("{command}{soft} {rest}").replace("ROOT", concat!(env!("CARGO_MANIFEST_DIR"), "/../../..")))
}

fn script(dir: &Path, name: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(dir.join(name), text).unwrap();
    fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o755)).unwrap();
}

fn sh(dir: &Path, line: &str) -> Output {
    let own = Path::new(env!("CARGO_BIN_EXE_doorbell")).parent().unwrap();
    let path = format!("{}:{}:{}", own.display(), std::env::var("PATH").unwrap(), dir.join("stubs").display());
    Command::new("sh").args(["-c", line]).current_dir(dir).env("PATH", path).output().unwrap()
}

/// A folder with the files that the pages expect.
fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("stubs")).unwrap();
    script(dir.path(), "stubs/jq", "#!/bin/sh\ncat\n");
    script(dir.path(), "app", "#!/bin/sh\nexec doorbell sample starve --gpu soft --duration 100ms --threads 2\n");
    fs::write(dir.path().join("model.bin"), vec![7; 1 << 20]).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    // A recording of a GPU's work, under the name that a guide gives it.
    fs::copy(root.join("crates/explain/decode/fixtures/h200-launches.doorbell"), dir.path().join("python3.doorbell"))
        .unwrap();
    dir
}

#[test]
fn what_the_pages_print_runs() {
    let (mut page, mut dir, mut ran) = (String::new(), place(), 0);
    let mut used = BTreeSet::new();
    for printed in pages::all().into_iter().filter(|printed| !printed.of_tutorial && !printed.needs_gpu) {
        // A command with its output on the page is also printed without it, or needs a machine with a GPU.
        let Some(line) = here(&printed, &mut used).filter(|_| !printed.has_output) else { continue };
        let name = printed.at.split(':').next().unwrap_or_default();
        if page != name {
            (page, dir) = (name.to_owned(), place());
        }
        if line.contains("unshare ")
            && !sh(dir.path(), "unshare -r -n -m --pid --fork --mount-proc true").status.success()
        {
            test_support::skip_part!("{}: `{line}`: no namespace may be entered here", printed.at);
            continue;
        }
        let out = sh(dir.path(), &line);
        let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        // "Not possible here" is a valid answer of doctor's.
        let is_other = line.starts_with("doorbell doctor") && out.status.code() == Some(77);
        assert!(out.status.success() || is_other, "{}: `{line}`: {}\n{said}", printed.at, out.status);
        ran += 1;
    }
    assert!(ran > 20, "{ran} ran");
    let all = HERE.iter().map(|(start, ..)| *start).chain(NOT_RUN.iter().map(|(start, _)| *start));
    let unused: Vec<&str> = all.filter(|start| !used.contains(start)).collect();
    assert!(unused.is_empty(), "no page prints these: {unused:?}");
}
