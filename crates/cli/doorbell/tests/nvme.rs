//! `doorbell nvme` on the emulated controller: its speed is never shown, and it is written to only with the option for
//! that.

use assert_cmd::Command;
use serde_json::Value;
use std::path::Path;
use test_support::skip;

fn nvme(words: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.arg("nvme").args(words);
    command
}

fn said(words: &[&str], status: i32) -> (String, String) {
    let done = nvme(words).assert().code(status);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&done.get_output().stdout), text(&done.get_output().stderr))
}

fn json(words: &[&str]) -> Value {
    let value: Value = serde_json::from_str(&said(words, 0).0).unwrap();
    assert_eq!(value["functional"], true);
    let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
    let of_time = ["second", "rate", "iops", "time"];
    assert!(!keys.iter().any(|key| of_time.iter().any(|word| key.contains(word))), "{keys:?}");
    value
}

fn known(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + (at >> 9) * 7) as u8).collect()
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
fn blocks_go_to_an_image_and_come_back() {
    if !test_support::installed("qemu-system-x86_64") {
        skip!("qemu-system-x86_64 is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, data, back) =
        (path(folder.path(), "a,b.img"), path(folder.path(), "data"), path(folder.path(), "back"));
    std::fs::File::create(&image).unwrap().set_len(2 << 20).unwrap();
    std::fs::write(&data, known(64 << 10)).unwrap();
    let on_image = ["--image", &image, "--start-block", "3", "--into", "peer", "--json"];
    let written = [&["write", "qemu", &data, "--i-mean-to-overwrite", "qemu"], &on_image[..]].concat();
    let written = json(&written);
    assert_eq!((&written["bytes"], &written["target"]["path"]), (&65536.into(), &"C".into()));
    let read = [&["read", "qemu", "--bytes", "64KiB", "-o", &back], &on_image[..]].concat();
    assert_eq!(json(&read)["commands"], written["commands"]);
    assert_eq!(std::fs::read(&back).unwrap(), known(64 << 10));
    let mut expected = vec![0; 2 << 20];
    expected[3 * 512..3 * 512 + (64 << 10)].copy_from_slice(&known(64 << 10));
    assert!(std::fs::read(&image).unwrap() == expected, "the image has it, and nothing else was written");
    let (text, _) = said(&["identify", "qemu", "--format", "4096"], 0);
    assert!(text.contains("QEMU NVMe Ctrl") && text.contains("4096 B"), "{text}");
    assert!(text.ends_with("emulated: this shows that it works, not how fast\n"), "{text}");
}

#[test]
#[ignore = "ten machines are started; run by .ci/run"]
fn what_may_not_be_written_is_refused_with_a_hint() {
    if !test_support::installed("qemu-system-x86_64") {
        skip!("qemu-system-x86_64 is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, data) = (path(folder.path(), "disk.img"), path(folder.path(), "data"));
    std::fs::File::create(&image).unwrap().set_len(2 << 20).unwrap();
    std::fs::write(&data, known(4096)).unwrap();
    let refused = |more: &[&str], what: &str, hint: &str| {
        let (_, text) = said(&[&["write", "qemu", &data, "--image", &image], more].concat(), 2);
        assert!(text.contains(what) && text.lines().any(|l| l.starts_with("hint: ") && l.contains(hint)), "{text}");
    };
    let word = ["--i-mean-to-overwrite", "qemu"];
    refused(&[], "you have not confirmed", "--i-mean-to-overwrite qemu");
    refused(&["--i-mean-to-overwrite", "0000:04:00.0"], "your word is for 0000:04:00.0", "--i-mean-to-overwrite qemu");
    refused(&[&word[..], &["--start-block", "4090"]].concat(), "are not within the 4096 blocks", "--start-block and");
    let put = |at: u64, bytes: &[u8]| {
        use std::os::unix::fs::FileExt;
        std::fs::File::options().write(true).open(&image).unwrap().write_all_at(bytes, at).unwrap();
    };
    put(0, b"XFSB");
    refused(&word, "it holds xfs at byte 0x0", "--destroy xfs");
    put(512, b"LABELONE");
    refused(&[&word[..], &["--destroy", "xfs"]].concat(), "it holds lvm at byte 0x200", "wipefs");
    std::fs::write(&data, known(100)).unwrap();
    refused(&word, "has 100 B, which are not whole blocks", "truncate");
    // A pipe does not block the command, and an image with a header is not overwritten.
    let pipe = path(folder.path(), "pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (_, text) = said(&["write", "qemu", &pipe], 2);
    assert!(text.contains("pipe is no regular file"), "{text}");
    let other = path(folder.path(), "other.img");
    std::fs::write(&other, b"QFI\xfb and more").unwrap();
    let (_, text) = said(&["read", "qemu", "--image", &other], 2);
    assert!(text.contains("is qcow2, not raw") && text.contains("qemu-img convert"), "{text}");
    let (_, text) = said(&["read", "qemu", "--image", &image, "-o", &pipe], 2);
    assert!(text.contains("nobody reads from the pipe") && text.contains("hint: start its reader first"), "{text}");
    let (_, text) = said(&["read", "qemu", "--image", &path(folder.path(), "none.img")], 2);
    assert!(text.contains("hint: `truncate -s 64M disk.img` makes one"), "{text}");
    for (words, hint) in [
        (&["--bytes", "100"][..], "--bytes takes whole blocks: a multiple of 512 B"),
        (&["--namespace", "3"], "--namespace takes one of those"),
    ] {
        let (_, text) = said(&[&["read", "qemu", "--image", &image][..], words].concat(), 2);
        assert!(text.contains(&format!("hint: {hint}")), "{text}");
    }
    let deep = ["verify", "qemu", "--image", &image, "--threads", "64", "--depth", "1000"];
    assert!(said(&deep, 2).1.contains("hint: fewer --threads, a smaller --depth"));
    // A failure leaves an old file as it was, and no new one.
    let old = path(folder.path(), "old");
    std::fs::write(&old, "old").unwrap();
    let beyond = ["read", "qemu", "--image", &image, "--start-block", "4090", "--bytes", "1MiB", "-o"];
    said(&[&beyond[..], &[&old, "--force"]].concat(), 2);
    assert_eq!(std::fs::read(&old).unwrap(), b"old");
    let new = path(folder.path(), "new");
    said(&[&beyond[..], &[new.as_str()]].concat(), 2);
    assert!(!std::path::Path::new(&new).exists());
    let before = std::fs::read(&image).unwrap();
    let (text, _) = said(&["verify", "qemu", "--image", &image, "--bytes", "1MiB", "--depth", "4"], 0);
    assert!(text.contains("0 writes") && text.contains("every byte right"), "{text}");
    assert!(std::fs::read(&image).unwrap() == before);
}

/// The software GPU is not part of the emulated machine: the controller does not reach its memory, and the result
/// reports that.
#[test]
#[ignore = "machines and the software GPU are started; run by .ci/run"]
fn a_gpu_out_of_reach_gets_its_data_through_host_memory() {
    if !test_support::installed("qemu-system-x86_64") {
        skip!("qemu-system-x86_64 is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, back) = (path(folder.path(), "disk.img"), path(folder.path(), "back"));
    std::fs::write(&image, known(2 << 20)).unwrap();
    let on_gpu = ["--image", &image, "--into", "gpu0", "--gpu", "soft"];
    let read = json(&[&["read", "qemu", "--bytes", "1MiB", "-o", &back, "--json"], &on_gpu[..]].concat());
    assert_eq!(read["target"]["path"], "B");
    assert!(read["target"]["instead_of_c"].as_str().unwrap().contains("cannot reach"), "{read}");
    assert!(std::fs::read(&back).unwrap() == known(1 << 20));
    let (text, _) =
        said(
            &[
                &[
                    "verify",
                    "qemu",
                    "--bytes",
                    "4MiB",
                    "--threads",
                    "2",
                    "--depth",
                    "8",
                    "--i-mean-to-overwrite",
                    "qemu",
                ][..],
                &["--destroy", "unknown"][..],
                &on_gpu[..],
            ]
            .concat(),
            0,
        );
    assert!(text.contains("gpu0 by path B") && text.contains("every byte right"), "{text}");
    assert!(text.contains("through host memory, because"), "{text}");
}

/// A `qemu-system-x86_64` that logs its controller's commands and answers; and that log.
struct Watched {
    folder: tempfile::TempDir,
}

impl Watched {
    fn new() -> Watched {
        let folder = tempfile::tempdir().unwrap();
        let path = std::env::var_os("PATH").unwrap();
        let real =
            std::env::split_paths(&path).map(|at| at.join("qemu-system-x86_64")).find(|at| at.is_file()).unwrap();
        let traced = "-trace pci_nvme_io_cmd -trace pci_nvme_enqueue_req_completion -trace 'pci_nvme_mmio_s*'";
        let log = folder.path().join("trace");
        let text =
            format!("#!/bin/sh\necho last words >&2\nexec {} \"$@\" -D {} {traced}\n", real.display(), log.display());
        let program = folder.path().join("qemu-system-x86_64");
        std::fs::write(&program, text).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        Watched { folder }
    }

    fn path(&self) -> std::ffi::OsString {
        let path = std::env::var_os("PATH").unwrap();
        let with = std::iter::once(self.folder.path().to_owned()).chain(std::env::split_paths(&path));
        std::env::join_paths(with).unwrap()
    }

    fn trace(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("trace")).unwrap_or_default()
    }

    /// Commands on I/O queues so far, and those that have ended.
    fn commands(&self) -> (usize, usize) {
        let trace = self.trace();
        let ended = |line: &&str| line.starts_with("pci_nvme_enqueue_req_completion") && !line.contains(" cqid 0 ");
        (trace.lines().filter(|line| line.starts_with("pci_nvme_io_cmd")).count(), trace.lines().filter(ended).count())
    }
}

/// `doorbell nvme` in a separate process group, once it has sent 200 commands, and its emulator.
fn working(watched: &Watched, words: &[&str]) -> (std::process::Child, i32) {
    use std::os::unix::process::CommandExt;
    use std::process::Stdio;
    use std::time::{Duration, Instant};
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.arg("nvme").args(words).env("PATH", watched.path()).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let doorbell = command.spawn().unwrap();
    let id = doorbell.id() as i32;
    let begun = Instant::now();
    while watched.commands().0 < 200 {
        if begun.elapsed() > Duration::from_secs(60) {
            test_support::kill_tree(id);
            panic!("{words:?} sends no commands: {:?}", doorbell.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let emulators = test_support::children(id);
    assert_eq!(emulators.len(), 1, "{words:?} has one emulator");
    (doorbell, emulators[0])
}

/// Its output until it ends, which it does soon.
fn ended(doorbell: std::process::Child) -> std::process::Output {
    let id = doorbell.id() as i32;
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(doorbell.wait_with_output()));
    match ended.recv_timeout(std::time::Duration::from_secs(30)) {
        Ok(ended) => ended.unwrap(),
        Err(_) => {
            test_support::kill_tree(id);
            panic!("it does not end");
        }
    }
}

/// The whole process group gets the signal, as from a terminal.
fn stopped_by(signal: i32, words: &[&str]) -> std::process::Output {
    let watched = Watched::new();
    let (doorbell, emulator) = working(&watched, words);
    // SAFETY: the group of a process that this test started and has not waited for.
    unsafe { libc::kill(-(doorbell.id() as i32), signal) };
    let ended = ended(doorbell);
    let left = std::path::Path::new(&format!("/proc/{emulator}")).exists();
    assert!(!left, "the emulator of {words:?} lives on after signal {signal}");
    // Each command has ended, and the controller was shut down and stopped before the emulator was.
    let (begun, ended_commands) = watched.commands();
    assert_eq!(begun, ended_commands, "commands and completions of {words:?} at signal {signal}");
    let trace = watched.trace();
    let last: Vec<&str> = trace.lines().rev().take(2).collect();
    assert!(last[1].starts_with("pci_nvme_mmio_shutdown_set"), "{last:?}");
    assert!(last[0].starts_with("pci_nvme_mmio_stopped"), "{last:?}");
    ended
}

#[test]
fn the_first_signal_ends_commands_with_nothing_in_flight() {
    if !test_support::installed("qemu-system-x86_64") {
        skip!("qemu-system-x86_64 is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name| path(folder.path(), name);
    let (image, data, out) = (path("disk.img"), path("data"), path("out"));
    for name in [&image, &data] {
        std::fs::File::create(name).unwrap().set_len(512 << 20).unwrap();
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let verify =
        ["verify", "qemu", "--bytes", "64GiB", "--threads", "2", "--depth", "8", "--i-mean-to-overwrite", "qemu"];
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let ended = stopped_by(signal, &verify);
        assert_eq!(ended.status.code(), Some(130), "{ended:?}");
        let said = text(&ended.stdout);
        assert!(said.contains("every byte right") && said.contains("with nothing in flight"), "{said}");
    }
    // 512 MiB in turns of 16 MiB.
    std::fs::write(&out, "old").unwrap();
    let read = ["read", "qemu", "--image", &image, "--bytes", "512MiB", "-o", &out, "--force"];
    let ended = stopped_by(libc::SIGTERM, &read);
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    assert!(text(&ended.stderr).contains("stopped by a signal after"), "{ended:?}");
    assert_eq!(std::fs::read(&out).unwrap(), b"old");
    let write = ["write", "qemu", &data, "--image", &image, "--i-mean-to-overwrite", "qemu"];
    let ended = stopped_by(libc::SIGINT, &write);
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    assert!(text(&ended.stderr).contains("of 512 MiB"), "{ended:?}");
}

#[test]
fn an_emulator_that_dies_is_told_with_its_status_and_last_words() {
    if !test_support::installed("qemu-system-x86_64") {
        skip!("qemu-system-x86_64 is not installed");
    }
    let watched = Watched::new();
    let words = ["verify", "qemu", "--bytes", "64GiB", "--span", "4MiB", "--i-mean-to-overwrite", "qemu"];
    let (doorbell, emulator) = working(&watched, &words);
    // SAFETY: a child of a process that this test started and has not waited for.
    unsafe { libc::kill(emulator, libc::SIGKILL) };
    let ended = ended(doorbell);
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    let text = String::from_utf8(ended.stderr).unwrap();
    assert!(
        text.contains("is gone with the machine that emulated it") && text.contains("(signal: 9 (SIGKILL))"),
        "{text}"
    );
    assert!(text.contains("it said: last words") && !text.contains("pulled out"), "{text}");
    assert!(text.starts_with("error: after ") && text.contains(" writes ("), "{text}");
    assert!(text.contains("hint: run it again: each command starts a machine of its own"), "{text}");
}
