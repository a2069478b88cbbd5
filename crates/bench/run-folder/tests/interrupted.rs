//! A run that is killed at any moment, and a disk without room: only complete parts are left, and the run continues after them.

mod made;

use made::{experiment, part, samples};
use run_folder::{Error, Folder};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FOLDER: &str = "TEST_RUN_FOLDER";
const STAGES: u32 = 400;

fn cells(stage: u32) -> [Vec<run_folder::Sample>; 2] {
    [samples(1 + u64::from(stage), 300), samples(2 + u64::from(stage), 40)]
}

/// This test program again, in the part of `test`.
fn child(test: &str, folder: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]).env(FOLDER, folder);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Unfinished files, and files of samples and parts.
fn count(folder: &Path) -> [usize; 3] {
    let names = |of: &str| {
        let entries = fs::read_dir(folder.join(of)).into_iter().flatten();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    let half = [".", "parts", "samples"].iter().flat_map(|f| names(f)).filter(|n| output::is_part(n)).count();
    let whole = |of: &str| names(of).iter().filter(|n| !output::is_part(n)).count();
    [half, whole("samples"), whole("parts")]
}

#[test]
#[ignore = "a child of the test below"]
fn plays_a_run_until_it_is_killed() {
    let path = std::path::PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let folder = Folder::resume(&path).or_else(|_| Folder::create(&path, &experiment(), false)).unwrap();
    for stage in (0..STAGES).filter(|s| !folder.has_part(*s, 0)) {
        folder.write_part(&part(stage, 0, &cells(stage)), &cells(stage)).unwrap();
    }
}

#[test]
#[ignore = "5 s; run by .ci/run"]
fn a_killed_run_leaves_complete_parts_and_continues_after_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let mut random = fastrand::Rng::new();
    let (mut half, mut before) = (0, 0);
    for time in 0..1000 {
        // On a busy machine children get differently far.
        if time >= 40 && before >= 10 {
            break;
        }
        let mut child = child("plays_a_run_until_it_is_killed", &path);
        let begun = Instant::now();
        while !path.join("experiment.toml").exists() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(random.u64(0..40_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let [halves, of_samples, of_parts] = count(&path);
        half += halves;
        assert!(of_samples == of_parts || of_samples == of_parts + 1, "{of_samples} and {of_parts}");
        let folder = Folder::open(&path).unwrap();
        let parts = folder.parts().unwrap();
        assert!(parts.len() == of_parts && of_parts >= before, "none is lost");
        before = of_parts;
        for p in parts {
            assert!(p == part(p.stage, 0, &cells(p.stage)));
            assert!(folder.samples(p.stage, 0).unwrap() == cells(p.stage));
        }
    }
    assert!(before >= 10, "{before} parts");
    println!("{before} parts, {half} files cut short");
    drop(Folder::resume(&path).unwrap());
    assert_eq!(count(&path)[0], 0);
}

#[test]
#[ignore = "a child of the test below"]
fn plays_a_run_that_may_write_little() {
    let folder = Folder::open(Path::new(&std::env::var_os(FOLDER).unwrap())).unwrap();
    let limit = libc::rlimit { rlim_cur: 30_000, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a separate process, which sets its own limit and ignores one of its own signals.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
    }
    let large = [samples(1, 50_000)];
    let e = folder.write_part(&part(1, 0, &large), &large).unwrap_err();
    assert!(matches!(&e, Error::Write { path, .. } if path.ends_with("samples/0001-00.parquet")), "{e}");
    assert!(e.hint().contains("ulimit"), "{e}: {}", e.hint());
    let small = [samples(1, 500)];
    folder.write_part(&part(2, 0, &small), &small).unwrap();
    // Its samples fit, but the part does not.
    let mut part = part(3, 0, &small);
    part.notes = vec!["long ".repeat(10_000)];
    let e = folder.write_part(&part, &small).unwrap_err();
    assert!(matches!(&e, Error::Write { path, .. } if path.ends_with("parts/0003-00.json")), "{e}");
}

#[test]
fn an_incomplete_file_does_not_appear() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let folder = Folder::create(&path, &experiment(), false).unwrap();
    let status = child("plays_a_run_that_may_write_little", &path).wait().unwrap();
    assert!(status.success());
    assert_eq!(count(&path), [0, 1, 1]);
    let parts: Vec<_> = folder.parts().unwrap().iter().map(|p| p.stage).collect();
    assert_eq!(parts, [2]);
    folder.write_part(&part(3, 0, &cells(3)), &cells(3)).unwrap();
    assert!(folder.samples(3, 0).unwrap() == cells(3));
}

/// A disk of 256 KiB, in a separate mount namespace.
#[test]
fn a_full_disk_leaves_nothing_half_written() {
    let dir = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=256k none \"$1\" && exec \"$2\" --exact plays_a_run_on_a_small_disk --ignored --nocapture";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]);
    command.arg(dir.path()).arg(std::env::current_exe().unwrap()).env(FOLDER, dir.path().join("run"));
    let out = test_support::finished(&mut command, "unshare");
    let text = String::from_utf8_lossy(&out.stdout);
    if !text.contains("running 1 test") {
        test_support::skip!("no mount namespace: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
#[ignore = "a child of the test above"]
fn plays_a_run_on_a_small_disk() {
    let path = std::path::PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let folder = Folder::create(&path, &experiment(), false).unwrap();
    let mut written = 0;
    let e = loop {
        assert!(written < 10_000, "the disk is never full");
        let stage = written;
        match folder.write_part(&part(stage, 0, &cells(stage)), &cells(stage)) {
            Ok(()) => written += 1,
            Err(e) => break e,
        }
    };
    assert!(written > 3 && e.to_string().contains("No space left on device"), "{written}: {e}");
    assert!(e.hint().contains("free some space"), "{}", e.hint());
    let [half, of_samples, of_parts] = count(&path);
    assert!(half == 0 && of_parts == written as usize && of_samples - of_parts <= 1);
    for p in folder.parts().unwrap() {
        assert!(folder.samples(p.stage, 0).unwrap() == cells(p.stage));
    }
    fs::remove_file(folder.samples_path(0, 0)).unwrap();
    fs::remove_file(path.join("parts/0000-00.json")).unwrap();
    folder.write_part(&part(0, 0, &cells(0)), &cells(0)).unwrap();
}
