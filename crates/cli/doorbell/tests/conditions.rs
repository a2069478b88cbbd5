//! Programs under limits, filters and sanitizers, and with very many threads. Recorded and under each policy they behave as
//! without doorbell, or doorbell refuses them with a reason.
//!
//! The programs are the C files in `programs/`, compiled here.

use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use test_support::Source;

/// A hang is a failure that takes this long; on a busy machine 10,000 threads take 20 s and more.
const PATIENCE: Duration = Duration::from_secs(120);
const POLICIES: [&str; 7] = ["stock", "ticket", "pi", "phase-fair", "boost", "pi,phase-fair", "guard"];
/// Exit statuses of doorbell's own failures.
const REFUSED: [i32; 5] = [2, 77, 125, 126, 127];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The status as a shell shows it.
fn status(out: &Output) -> i32 {
    out.status.code().unwrap_or_else(|| 128 + out.status.signal().unwrap_or(127))
}

/// A program, and how it is started.
struct Trial {
    dir: tempfile::TempDir,
    program: PathBuf,
    arguments: Vec<String>,
    /// A shell command before it: `ulimit -f 1`.
    limit: String,
    envs: Vec<(&'static str, &'static str)>,
}

impl Trial {
    fn compiled(name: &str, compiler: &str, flags: &[&str]) -> Result<Trial, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name).with_extension("c");
        let program = Source { file: &file, compiler, flags }.compile(dir.path())?;
        // For programs that become an ordinary user.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), open).unwrap();
        Ok(Trial { dir, program, arguments: Vec::new(), limit: ":".into(), envs: Vec::new() })
    }

    fn of(name: &str) -> Result<Trial, String> {
        Trial::compiled(name, "cc", &[])
    }

    fn with(mut self, arguments: &[&str]) -> Trial {
        self.arguments = arguments.iter().map(|a| (*a).to_owned()).collect();
        self
    }

    fn limited(mut self, limit: &str) -> Trial {
        self.limit = limit.into();
        self
    }

    fn tape(&self) -> PathBuf {
        self.dir.path().join("tape.doorbell")
    }

    /// The command for one way: `bare`, `record` or a policy.
    fn command(&self, mode: &str) -> Command {
        let mut c = Command::new("sh");
        c.current_dir(self.dir.path()).args(["-c", &format!("{} && exec \"$@\"", self.limit), "sh"]);
        let doorbell = assert_cmd::cargo::cargo_bin!("doorbell");
        match mode {
            "bare" => {}
            "record" => {
                let _ = std::fs::remove_file(self.tape());
                c.arg(doorbell)
                    .args(["record", "--force", "--locks", "--tap", "off", "-q", "-o"])
                    .arg(self.tape())
                    .arg("--");
            }
            policy => {
                c.arg(doorbell).args(["run", "--lock-policy", policy, "--"]);
            }
        }
        c.arg(&self.program).args(&self.arguments).envs(self.envs.iter().copied());
        c
    }

    fn run(&self, mode: &str) -> Option<Output> {
        test_support::finished_within(&mut self.command(mode), PATIENCE, mode)
    }

    /// Runs it bare, then each way. `refusal`: words, one of which a refusal's message must have.
    fn as_bare_under(&self, modes: &[&str], refusal: &[&str]) {
        let bare = self.run("bare").expect("the program itself ends");
        if status(&bare) == 77 {
            test_support::skip!("{}", text(&bare.stderr).trim());
        }
        assert_eq!(status(&bare), 0, "the program itself: {}{}", text(&bare.stdout), text(&bare.stderr));
        let mut wrong = Vec::new();
        for mode in modes {
            let Some(out) = self.run(mode) else {
                wrong.push(format!("{mode}: still running after {PATIENCE:?}"));
                continue;
            };
            let said = text(&out.stderr);
            let refused = REFUSED.contains(&status(&out))
                && out.stdout.is_empty()
                && refusal.iter().any(|word| said.to_lowercase().contains(word));
            if !refused && (status(&out), &out.stdout) != (status(&bare), &bare.stdout) {
                let last = said.lines().last().unwrap_or_default().to_owned();
                wrong.push(format!("{mode}: status {}, {:?} {last:?}", status(&out), text(&out.stdout)));
            }
        }
        assert!(wrong.is_empty(), "bare {:?}; {}", text(&bare.stdout), wrong.join("; "));
    }

    fn as_bare(&self) {
        let all: Vec<&str> = std::iter::once("record").chain(POLICIES).collect();
        self.as_bare_under(&all, &[]);
    }

    fn shown(&self) -> Value {
        let mut show = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
        let out = test_support::finished(show.args(["show", "--locks", "--json"]).arg(self.tape()), "show");
        assert!(out.status.success(), "{}", text(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    }
}

/// The trial, or a skip.
macro_rules! needs {
    ($trial:expr) => {
        match $trial {
            Ok(trial) => trial,
            Err(reason) => test_support::skip!("{reason}"),
        }
    };
}

// ---- locked memory

#[test]
fn mlockall_locks_no_memory_of_threads_that_never_come() {
    let t = needs!(Trial::of("mlockall"));
    t.as_bare();
    let out = t.run("record").unwrap();
    let locked: u64 = text(&out.stderr).split_whitespace().find_map(|w| w.parse().ok()).expect("a size");
    assert!(locked < 128 << 10, "{locked} KiB locked");
}

#[test]
fn an_ordinary_user_may_lock_memory_within_the_limit() {
    let t = needs!(Trial::of("mlockall")).with(&["user"]);
    t.as_bare();
    // doorbell's memory does not count: the limit would keep threads from starting.
    let locked = |mode: &str| {
        let said = text(&t.run(mode).unwrap().stderr);
        said.split_whitespace().find_map(|w| w.parse::<u64>().ok()).expect("a size")
    };
    let (bare, recorded) = (locked("bare"), locked("record"));
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } == 0 {
        assert!(recorded < bare + 1024, "{recorded} KiB locked, bare {bare}");
    }
}

// ---- many threads

/// Maximum memory in a recorder's shared files while it lived, in MiB.
fn peak_of(recorder: u32) -> std::thread::JoinHandle<u64> {
    use std::os::unix::fs::MetadataExt;
    std::thread::spawn(move || {
        let mut peak = 0;
        while let Ok(open) = std::fs::read_dir(format!("/proc/{recorder}/fd")) {
            let shared =
                |f: &PathBuf| std::fs::read_link(f).is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:doorbell"));
            let files = open.flatten().map(|f| f.path()).filter(shared);
            let now: u64 = files.filter_map(|f| Some(std::fs::metadata(f).ok()?.blocks() * 512)).sum();
            peak = peak.max(now);
            // (All of it may last 60 ms.)
            std::thread::sleep(Duration::from_millis(2));
        }
        peak >> 20
    })
}

fn short_threads(all: u32, side_by_side: u32) {
    let t = needs!(Trial::of("short_threads")).with(&[&all.to_string(), &side_by_side.to_string()]);
    let begun = Instant::now();
    let bare = t.run("bare").expect("the program itself ends");
    let alone = begun.elapsed();
    let begun = Instant::now();
    let mut child = t.command("record").stdout(std::process::Stdio::piped()).spawn().unwrap();
    let peak = peak_of(child.id());
    // A bounded wait, but long enough for a busy machine.
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            test_support::kill_tree(child.id() as i32);
            panic!("still running after {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let recorded = begun.elapsed();
    let out = child.wait_with_output().unwrap();
    assert_eq!((status(&out), text(&out.stdout)), (0, text(&bare.stdout)));
    let (locks, peak) = (t.shown(), peak.join().unwrap());
    println!("{all} threads: bare {alone:?}, recorded {recorded:?}, at most {peak} MiB");
    assert_eq!(locks["lost_events"], 0, "events were lost");
    assert_eq!(locks["operations"]["mutex_lock"], 2 * all, "locks are missing");
    assert!((1..1200).contains(&peak), "the rings held {peak} MiB");
}

#[test]
fn threads_that_live_for_two_locks_lose_nothing_one_after_the_other() {
    short_threads(1000, 1);
}

#[test]
fn threads_that_live_for_two_locks_lose_nothing_side_by_side() {
    short_threads(4500, 50);
}

#[test]
#[ignore = "10,000 threads; run by .ci/run"]
fn ten_thousand_short_threads_lose_nothing() {
    short_threads(10_000, 100);
}

/// In turns, and the quickest of each: on a busy machine a single run takes between one and three times as long. More than
/// five turns if the machine has disturbed those.
#[test]
#[ignore = "10 runs of 10,000 threads; run by .ci/run"]
fn ten_thousand_short_threads_take_at_most_twice_as_long() {
    for side_by_side in ["1", "100"] {
        let t = needs!(Trial::of("short_threads")).with(&["10000", side_by_side]);
        let took = |mode: &str| {
            let begun = Instant::now();
            let out = t.run(mode).expect("it ends");
            let took = begun.elapsed();
            assert_eq!(status(&out), 0, "{}", text(&out.stderr));
            if mode == "record" {
                assert_eq!(t.shown()["lost_events"], 0, "events were lost");
            }
            took
        };
        let (mut bare, mut recorded) = (Duration::MAX, Duration::MAX);
        for turn in 0..20 {
            bare = bare.min(took("bare"));
            recorded = recorded.min(took("record"));
            if turn >= 4 && recorded <= bare * 2 {
                break;
            }
        }
        println!("{side_by_side} side by side: bare {bare:?}, recorded {recorded:?}");
        assert!(recorded <= bare * 2, "{side_by_side} side by side: bare {bare:?}, recorded {recorded:?}");
    }
}

// ---- system call filters

#[test]
fn a_filter_on_gettid_does_not_matter() {
    needs!(Trial::of("seccomp")).with(&["kill-gettid"]).as_bare();
    needs!(Trial::of("seccomp")).with(&["kill-gettid", "first"]).as_bare();
    needs!(Trial::of("seccomp")).with(&["kill-gettid", "starts"]).as_bare();
}

#[test]
fn a_gettid_that_fails_does_not_matter() {
    needs!(Trial::of("seccomp")).with(&["errno-gettid"]).as_bare();
}

/// Its child processes inherit the filter, and are followed.
#[test]
fn a_filter_that_allows_openat_and_not_open_does_not_matter() {
    let t = needs!(Trial::of("seccomp")).with(&["kill-open", "first"]);
    t.as_bare();
    t.run("record").expect("the recording ends");
    let shown = t.shown().to_string();
    assert!(!shown.contains("forbade itself system calls"), "{shown}");
    let t = needs!(Trial::of("seccomp")).with(&["kill-open", "starts"]);
    t.as_bare();
    t.run("record").expect("the recording ends");
    let mut show = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    let out = test_support::finished(show.args(["show", "--summary", "--json"]).arg(t.tape()), "show");
    let summary: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(summary["processes"].as_array().map(Vec::len), Some(2), "{summary}");
}

#[test]
fn a_sandbox_that_allows_only_what_the_program_needs_does_not_matter() {
    let t = needs!(Trial::of("seccomp")).with(&["sandbox", "first"]);
    t.as_bare();
    t.run("record").expect("the recording ends");
    let shown = t.shown().to_string();
    assert!(shown.contains("forbade itself system calls"), "{shown}");
    needs!(Trial::of("seccomp")).with(&["sandbox"]).as_bare();
}

#[test]
fn strict_mode_does_not_matter() {
    needs!(Trial::of("seccomp")).with(&["strict"]).as_bare();
    needs!(Trial::of("seccomp")).with(&["strict", "first"]).as_bare();
}

#[test]
fn a_forbidden_time_stamp_counter_does_not_matter() {
    needs!(Trial::of("seccomp")).with(&["notsc"]).as_bare();
    let t = needs!(Trial::of("seccomp")).with(&["notsc", "first"]);
    t.as_bare();
    needs!(Trial::of("seccomp")).with(&["child-notsc"]).as_bare();
    // Events from before are there, and the report has the reason why there are no later ones.
    let shown = t.shown().to_string();
    assert!(shown.contains("time stamp counter"), "{shown}");
}

// ---- sanitizers

/// The program built with a sanitizer. Its own output must not change: a report has its own exit status.
fn sanitized(sanitizer: &str, compiler: &str) -> Result<Trial, String> {
    if !test_support::installed(compiler) {
        return Err(format!("{compiler} is not installed"));
    }
    // A compiler may lack the library.
    let dir = tempfile::tempdir().unwrap();
    let (c, to) = (dir.path().join("empty.c"), dir.path().join("empty"));
    std::fs::write(&c, "int main(void) { return 0; }\n").unwrap();
    let flag = format!("-fsanitize={sanitizer}");
    let out = Command::new(compiler).arg(&flag).arg("-o").arg(&to).arg(&c).output().map_err(|e| e.to_string())?;
    let runs = out.status.success() && Command::new(&to).output().is_ok_and(|o| o.status.success());
    if !runs {
        return Err(format!("{compiler} {flag} does not work here"));
    }
    let t = Trial::compiled("contend", compiler, &[&flag, "-g"])?.with(&["4", "300"]);
    Ok(t)
}

fn sanitizers(sanitizer: &str) {
    let mut some = false;
    for compiler in ["gcc", "clang"] {
        match sanitized(sanitizer, compiler) {
            Ok(t) => {
                some = true;
                let all: Vec<&str> = std::iter::once("record").chain(POLICIES).collect();
                t.as_bare_under(&all, &["sanitizer"]);
            }
            Err(reason) => test_support::skip_part!("{reason}"),
        }
    }
    assert!(some || !test_support::installed("gcc"), "no compiler was tried");
}

#[test]
fn thread_sanitizer_finds_nothing_new_or_is_refused() {
    sanitizers("thread");
    let t = needs!(sanitized("thread", "gcc"));
    let mut run = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    run.args(["run", "--lock-policy", "pi,phase-fair", "--report", "--"]).arg(&t.program).args(&t.arguments);
    let said = text(&test_support::finished(&mut run, "run --report").stderr);
    for policy in ["no mutex follows pi: ", "no rwlock follows phase-fair: "] {
        let line = said.lines().find(|l| l.contains(policy)).unwrap_or_else(|| panic!("{policy:?} in {said}"));
        assert!(line.contains("ThreadSanitizer"), "{line}");
    }
}

#[test]
fn address_sanitizer_finds_nothing_new_or_is_refused() {
    sanitizers("address");
}

// ---- limits

fn within(limit: &str, reasons: &[&str]) {
    let t = needs!(Trial::of("contend")).limited(limit);
    let all: Vec<&str> = std::iter::once("record").chain(POLICIES).collect();
    t.as_bare_under(&all, reasons);
}

#[test]
fn a_limit_of_file_sizes_is_no_death_without_a_word() {
    for limit in ["ulimit -f 0", "ulimit -f 1"] {
        within(limit, &["ulimit -f", "file size", "size limit", "too large"]);
    }
}

#[test]
fn a_limit_of_address_space_is_kept_or_named() {
    within("ulimit -v 1000000", &["memory", "ulimit -v", "address space"]);
}

#[test]
fn a_limit_of_locked_memory_is_kept() {
    within("ulimit -l 0", &[]);
    within("ulimit -l 64", &[]);
}

// ---- real-time programs

fn real_time(program: &str, arguments: &[&str], sign: &str) {
    if !test_support::installed(program) {
        test_support::skip!("{program} is not installed");
    }
    let ran = |mode: &str| {
        let dir = tempfile::tempdir().unwrap();
        let program = PathBuf::from(program);
        let arguments = arguments.iter().map(|a| (*a).to_owned()).collect();
        let t = Trial { dir, program, arguments, limit: ":".into(), envs: Vec::new() };
        let out = t.run(mode).unwrap_or_else(|| panic!("{mode}: still running after {PATIENCE:?}"));
        (status(&out), format!("{}{}", text(&out.stdout), text(&out.stderr)))
    };
    let (bare, said) = ran("bare");
    if bare != 0 || !said.contains(sign) {
        test_support::skip!("{program} itself ends with {bare}: {}", said.trim());
    }
    for mode in std::iter::once("record").chain(POLICIES) {
        let (status, said) = ran(mode);
        assert!(status == 0 && said.contains(sign), "{mode}: status {status}: {said}");
    }
}

#[test]
#[ignore = "2 s under each policy; run by .ci/run"]
fn cyclictest_runs_with_its_memory_locked() {
    real_time("cyclictest", &["-m", "-q", "-D", "2"], "Max:");
}

#[test]
#[ignore = "some seconds; run by .ci/run"]
fn ptsematest_runs() {
    real_time("ptsematest", &["-l", "500", "-q"], "Max");
}
