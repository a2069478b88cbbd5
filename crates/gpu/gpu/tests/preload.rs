//! The example program under the preloaded software GPU, as a stranger would run it.

use doorbell_softgpu::Counters;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// The library and the example, which cargo builds next to the tests. If cargo ran only this file, the example is
/// missing or older than its sources. It is then built in a separate target directory: the outer cargo may hold its lock.
fn built() -> &'static (PathBuf, PathBuf) {
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    BUILT.get_or_init(|| {
        let here = std::env::current_exe().unwrap();
        let library = here.with_file_name("libdoorbell_softgpu.so");
        assert!(library.is_file(), "no {}", library.display());
        let program = here.parent().unwrap().with_file_name("examples").join("copy");
        if is_fresh(&program) {
            return (library, program);
        }
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("preload");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "-p", "gpu", "--example", "copy"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        let status = cargo.env("CARGO_TARGET_DIR", &target).env_remove("LD_PRELOAD").status().unwrap();
        assert!(status.success(), "{cargo:?}");
        (library, target.join("debug/examples/copy"))
    })
}

/// Whether a program is no older than the sources in cargo's list next to it.
fn is_fresh(program: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|m| m.modified()).ok();
    let Ok(list) = std::fs::read_to_string(program.with_extension("d")) else { return false };
    let Some(built) = changed(program) else { return false };
    let sources = list.split_whitespace().skip(1);
    sources.into_iter().all(|source| changed(Path::new(source)).is_some_and(|changed| changed <= built))
}

fn run(mode: &str, counters: Option<&Path>, arguments: &[&str]) -> Output {
    let (library, program) = built();
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", library).env("DOORBELL_SOFTGPU", mode);
    if let Some(counters) = counters {
        command.env("DOORBELL_SOFTGPU_COUNTERS", counters);
    }
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn strict_copies_are_right_and_counted_to_the_last_doorbell() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("counters-{}", std::process::id()));
    let output = run("strict", Some(&file), &["200", "4"]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("every byte right"));
    let counters = Counters::shared(&file).unwrap();
    let load = |c: &std::sync::atomic::AtomicU64| c.load(Ordering::Relaxed);
    // 200 rounds and the first SET_OBJECT on each of four channels.
    assert_eq!(load(&counters.doorbells), 4 * 201);
    assert_eq!((load(&counters.unknown_tokens), load(&counters.empty_doorbells), load(&counters.faults)), (0, 0, 0));
    assert_eq!((load(&counters.copies), load(&counters.inline_copies)), (2 * 2 * 200, 2 * 200));
    assert_eq!(counters.used().count(), 4);
    for channel in counters.used() {
        assert_eq!(channel.doorbells.load(Ordering::Relaxed), 201);
        assert_eq!(channel.progress().entries % 1024, u64::from(channel.rung_put.load(Ordering::Relaxed)));
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn counters_outlive_a_killed_program() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("killed-{}", std::process::id()));
    let (library, program) = built();
    let mut child = Command::new(program)
        .args(["1000000000", "2"])
        .env("LD_PRELOAD", library)
        .env("DOORBELL_SOFTGPU_COUNTERS", &file)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let start = std::time::Instant::now();
    let counters = loop {
        assert!(start.elapsed().as_secs() < 30, "the program does not get going");
        std::thread::sleep(std::time::Duration::from_millis(10));
        let Ok(counters) = Counters::shared(&file) else { continue };
        if counters.entries.load(Ordering::Relaxed) > 100 {
            break counters;
        }
    };
    child.kill().unwrap();
    child.wait().unwrap();
    let channel = counters.channel(0).unwrap();
    let (progress, rung) = (channel.progress(), channel.doorbells.load(Ordering::Relaxed));
    assert!(progress.entries > 100 && progress.dwords > progress.entries && progress.hash != 0);
    // Each submission waits for the previous one: at most the last was rung and not consumed. Two entries each, the
    // second of which is the release that ends it, besides the markers.
    assert!(
        progress.entries + 2 >= 2 * rung && progress.entries <= 2 * rung + rung / 127 + 2,
        "{progress:?}, {rung} doorbells"
    );
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn poll_copies_are_right() {
    let output = run("poll", None, &["50", "2"]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn without_the_library_there_is_no_gpu_or_it_is_refused() {
    let (_, program) = built();
    let output = Command::new(program).args(["1", "1"]).output().unwrap();
    assert!(!output.status.success());
    let error = text(&output.stderr);
    assert!(error.contains("nvidia") || error.contains("RealHardware"), "{error}");
}

#[test]
fn strangers_programs_run_as_if_nothing_were_there() {
    let (library, _) = built();
    for command in
        ["echo hello | cat", "ls / > /dev/null && echo hello", "cat /proc/self/maps | tail -1 > /dev/null; echo hello"]
    {
        let output = Command::new("sh").args(["-c", command]).env("LD_PRELOAD", library).output().unwrap();
        assert_eq!(text(&output.stdout), "hello\n", "{command}: {}", text(&output.stderr));
    }
}
