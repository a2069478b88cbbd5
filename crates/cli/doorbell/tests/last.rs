//! A flight recorder (`record --last`): the events that make it write a file, and the file's contents.

use serde_json::Value;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use test_support::Source;

/// Longer than any step here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn doorbell() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("doorbell"))
}

fn show(view: &[&str], file: &Path) -> Value {
    let mut command = doorbell();
    command.args(view).arg("--json").arg(file);
    let out = test_support::finished(&mut command, "show");
    assert!(out.status.success(), "{view:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// The program, with its library in the same folder. `None` without a C compiler.
fn built() -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir().unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let (library, app) = (sources.join("why/libcuda.c"), sources.join("last/app.c"));
    let library =
        Source { file: &library, compiler: "cc", flags: &[] }.compile_library(dir.path(), "libcuda.so.1").ok()?;
    Source { file: &app, compiler: "cc", flags: &[library.to_str()?] }.compile(dir.path()).ok()?;
    Some(dir)
}

/// One program at a time: anything that takes its CPU makes it slow.
static ONE: Mutex<()> = Mutex::new(());

fn record(dir: &Path, how: &[&str], program: &[&str]) -> Command {
    let mut command = doorbell();
    command.args(["record", "--tap", "off"]).args(how).arg("--").args(program);
    command.current_dir(dir).env("LD_LIBRARY_PATH", dir).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn recorded(dir: &Path, how: &[&str], program: &[&str]) -> (Output, String) {
    let _alone = poison::ignore(ONE.lock());
    let out = record(dir, how, program).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    (out, said)
}

/// Its files, sorted by name; none may be unfinished.
fn files(dir: &Path) -> Vec<String> {
    let mut all: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    assert!(!all.iter().any(|name| output_is_part(name)), "{all:?}");
    all.retain(|name| name.ends_with(".doorbell"));
    all.sort();
    all
}

fn output_is_part(name: &str) -> bool {
    name.ends_with(".part")
}

/// A slow operation in a program, because of which a file is written.
struct Planted {
    event: &'static str,
    /// The operation that takes long, as the program calls it.
    plant: &'static str,
    /// A part of doorbell's line about the file.
    says: &'static str,
    /// Causes that `why` finds for calls that lost 10 ms, and a name among their details.
    causes: &'static [&'static str],
    names: &'static str,
}

#[test]
fn each_planted_stall_writes_a_file_in_which_why_finds_its_cause() {
    let Some(dir) = built() else { test_support::skip!("no C compiler") };
    let cases = [
        Planted {
            event: "call > 15ms",
            plant: "alloc",
            says: "15ms: cu",
            causes: &["memory", "lock"],
            names: "\"call\":\"cuMemAlloc\"",
        },
        Planted {
            event: "wait > 15ms",
            plant: "alloc",
            says: "for a lock",
            causes: &["memory", "lock"],
            names: "\"how\":\"held\"",
        },
        // (A wait for the GPU is not the fault of a call: it is only among the causes.)
        Planted { event: "call > 15ms", plant: "kernel", says: "cuCtxSynchronize ", causes: &["gpu"], names: "" },
        Planted {
            event: "call > 15ms",
            plant: "module",
            says: "15ms: cu",
            causes: &["code_loading", "lock"],
            names: "\"call\":\"cuModuleLoadData\"",
        },
        Planted {
            event: "call > 15ms",
            plant: "preempt",
            says: "cuLaunchKernel ",
            causes: &["preempted"],
            names: "(spinner)",
        },
    ];
    for Planted { event, plant, says, causes, names } in cases {
        let name = format!("{plant}-{}.doorbell", event.len());
        let how = ["--locks", "--last", "2MiB", "--save-when", event, "-o", &name];
        let (out, said) = recorded(dir.path(), &how, &["./app", plant, "exit"]);
        assert!(out.status.success() && out.stdout == b"done\n", "{said}");
        assert!(said.contains(&format!("({event}: ")) && said.contains(says), "{said}");
        let file = dir.path().join(&name);
        let s = show(&["show"], &file);
        assert_eq!((&s["saved"]["reason"], &s["saved"]["number"], &s["lost"]), (&event.into(), &1.into(), &0.into()));
        // The program ran for 200 ms: the file has half of that.
        assert_eq!(s["end"]["how"], "still running");
        let why = show(&["why", "--above", "10ms", "--starting"], &file);
        if plant == "preempt" && why["not_watched"].to_string().contains("context switches") {
            eprintln!("context switches cannot be seen here: {}", why["not_watched"]);
            continue;
        }
        assert!(why["saved_because"].as_str().unwrap().starts_with(&format!("{event}: ")), "{}", why["saved_because"]);
        let of = |list: &str| {
            let all = why[list].as_array().unwrap().iter();
            all.filter(|w| w["ns"].as_u64() > Some(10_000_000)).cloned().collect::<Vec<_>>()
        };
        let found: Vec<String> = [of("worst"), of("causes")].concat().iter().map(|w| w["cause"].to_string()).collect();
        for cause in causes {
            assert!(found.iter().any(|f| f.contains(cause)), "{event} {plant}: {cause} is not in {found:?}");
        }
        let details = Value::from(of("worst")).to_string();
        // (The spinning thread has its program's name until it sets another.)
        let is_named = details.contains(names) || plant == "preempt" && details.contains("(app)");
        assert!(is_named, "{event} {plant}: {names} is not in {details}");
        std::fs::remove_file(file).unwrap();
    }
}

/// The program of kernels, with CUDA in software in the same folder; or why there is none.
fn kernels() -> Result<tempfile::TempDir, String> {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/last/kernel.c");
    let name = test_support::link_softcuda(dir.path())?;
    let flags = [name.to_str().unwrap(), "-Wl,--allow-shlib-undefined"];
    Source { file: &source, compiler: "cc", flags: &flags }.compile(dir.path())?;
    Ok(dir)
}

/// Kernels are launched continuously, and a file is saved in between.
#[test]
fn a_saved_file_has_the_ends_of_the_kernels_that_were_launched_before_it() {
    let dir = match kernels() {
        Ok(dir) => dir,
        Err(why) => test_support::skip!("{why}"),
    };
    for last in ["30s", "200ms"] {
        let mut command = doorbell();
        command.args(["record", "--gpu", "soft", "--gpu-times", "--force", "--last", last, "-o", "r.doorbell", "--"]);
        command.args(["./kernel", "3000"]).current_dir(dir.path()).env("LD_LIBRARY_PATH", dir.path());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut half = [0; 5];
        child.stdout.as_mut().unwrap().read_exact(&mut half).unwrap();
        // SAFETY: a child of this test that was not waited for.
        unsafe { libc::kill(child.id() as i32, libc::SIGUSR1) };
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success() && out.stdout == b"done\n", "{}", String::from_utf8_lossy(&out.stderr));
        let file = dir.path().join("r.doorbell");
        let all = show(&["show", "--gpu-times"], &file);
        let times = &all["kernel_times"][0];
        assert!(times["kernels"].as_u64() > Some(20), "{times}");
        let reasons: Vec<_> = times["lacking"].as_array().unwrap().iter().map(|l| l["reason"].clone()).collect();
        if last == "30s" {
            // (The recorder does not wait for a GPU thread that has no CPU for 50 ms.)
            assert!(reasons.iter().all(|reason| reason == "not_ended"), "{times}");
            assert!(times["timed"].as_u64().unwrap() + 5 >= times["kernels"].as_u64().unwrap(), "{times}");
        } else {
            assert_eq!(reasons, ["uploaded_before"], "{times}");
        }
    }
}

/// The same kernel runs 100 times for microseconds, then once for much longer.
#[test]
fn a_kernel_that_takes_longer_than_its_median_writes_a_file_that_names_it() {
    let dir = match kernels() {
        Ok(dir) => dir,
        Err(why) => test_support::skip!("{why}"),
    };
    let event = "kernel > 20x median";
    let mut command = doorbell();
    command.args(["record", "--gpu", "soft", "--gpu-times", "--last", "30s", "--save-when", event, "-o", "k.doorbell"]);
    command.args(["--", "./kernel"]).current_dir(dir.path()).env("LD_LIBRARY_PATH", dir.path());
    // The slow kernel may be one of those whose start the recorder could not keep on a busy machine: it prints their number.
    let said = test_support::measured(|| {
        let out = test_support::finished(&mut command, "a kernel");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success() && out.stdout == b"done\n", "{said}");
        let missed =
            ["nothing happened", "is not known: they could save no file"].iter().all(|line| said.contains(line));
        if missed { Err(said) } else { Ok(said) }
    });
    assert!(said.contains("(kernel > 20x median: the kernel at 0x") && said.contains("times its median of"), "{said}");
    let file = dir.path().join("k.doorbell");
    let why = show(&["why", "--above", "1ms"], &file);
    let because = why["saved_because"].as_str().unwrap();
    let (_, code) = because.split_once("the kernel at ").unwrap();
    let code = code.split_whitespace().next().unwrap();
    // The slow run, whichever it was, is in the file (a CPU that is taken from the GPU's thread makes its kernels
    // slow).
    let all = show(&["show", "--gpu-times"], &file);
    let runs = all["runs"].as_array().unwrap();
    let mut ns: Vec<u64> = runs
        .iter()
        .filter(|r| format!("{:#x}", r["code"].as_u64().unwrap()) == code)
        .map(|r| {
            let at = |key: &str| r["gpu"][key].as_str().unwrap().parse::<u64>().unwrap();
            at("end_ns") - at("start_ns")
        })
        .collect();
    ns.sort_unstable();
    assert!(ns.len() > 30 && ns[ns.len() - 1] > 10 * ns[ns.len() / 2], "{because}: {ns:?}");
}

#[test]
fn a_crash_writes_a_file_and_a_good_end_writes_none() {
    let Some(dir) = built() else { test_support::skip!("no C compiler") };
    let (out, said) = recorded(dir.path(), &["--calls", "--last", "30s"], &["./app", "none", "exit"]);
    assert!(out.status.success() && said.contains("no file was written") && files(dir.path()).is_empty(), "{said}");
    let (out, said) = recorded(dir.path(), &["--calls", "--last", "30s"], &["./app", "none", "abort"]);
    assert_eq!(out.status.code(), Some(128 + libc::SIGABRT));
    assert!(said.contains("wrote app.doorbell") && said.contains("(crash: killed by signal 6)"), "{said}");
    let how = ["--calls", "--last", "1MiB", "--save-when", "exit", "-o", "e%n.doorbell"];
    let (_, said) = recorded(dir.path(), &how, &["./app", "none", "exit"]);
    assert!(said.contains("wrote e1.doorbell"), "{said}");
    // Only its owner may read it, and no file is overwritten.
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(dir.path().join("app.doorbell")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    recorded(dir.path(), &["--calls", "--last", "30s"], &["./app", "none", "abort"]);
    assert_eq!(files(dir.path()), ["app.2.doorbell", "app.doorbell", "e1.doorbell"]);
    let s = show(&["show"], &dir.path().join("app.doorbell"));
    assert_eq!((&s["saved"]["events"], &s["end"]["signal"]), (&0.into(), &libc::SIGABRT.into()), "{s}");
}

struct Running {
    child: Child,
    _alone: std::sync::MutexGuard<'static, ()>,
}

impl Running {
    fn begin(dir: &Path, how: &[&str], program: &[&str]) -> Running {
        let alone = poison::ignore(ONE.lock());
        let child = record(dir, how, program).spawn().unwrap();
        // (Before that, a signal would end the recorder.)
        wait_until("the program", || !test_support::children(child.id() as i32).is_empty());
        std::thread::sleep(Duration::from_millis(400));
        Running { child, _alone: alone }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a child of this test that was not waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    fn end(self) -> (Option<i32>, String) {
        let out = self.child.wait_with_output().unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    }
}

fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < PATIENCE, "{what} never came");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn sigusr1_writes_a_file_each_time_and_the_program_hears_nothing_of_it() {
    let Some(dir) = built() else { test_support::skip!("no C compiler") };
    let go = dir.path().join("go");
    let running = Running::begin(
        dir.path(),
        &["--calls", "--last", "1MiB", "-o", "s.doorbell"],
        &["./app", "none", go.to_str().unwrap()],
    );
    for n in 1..=3 {
        // (Two in quick succession count as one.)
        running.signal(libc::SIGUSR1);
        running.signal(libc::SIGUSR1);
        wait_until("a file", || files_or_parts(dir.path()) >= n);
        std::thread::sleep(Duration::from_millis(50));
    }
    std::fs::write(&go, "").unwrap();
    let (status, said) = running.end();
    // (The second of two may arrive after the first was handled.)
    let many = files(dir.path());
    assert!(status == Some(0) && (3..=6).contains(&many.len()), "{status:?} {many:?} {said}");
    assert_eq!(many.last().map(String::as_str), Some("s.doorbell"));
    for file in &many {
        let s = show(&["show"], &dir.path().join(file));
        assert_eq!((&s["saved"]["reason"], &s["damage"], &s["lost"]), (&"SIGUSR1".into(), &Value::Null, &0.into()));
        let calls = show(&["show", "--calls"], &dir.path().join(file));
        assert!(calls.to_string().contains("cuLaunchKernel"), "{calls}");
    }
}

fn files_or_parts(dir: &Path) -> usize {
    let whole = |e: &std::fs::DirEntry| {
        e.file_name().to_string_lossy().ends_with(".doorbell") && e.metadata().is_ok_and(|m| m.len() > 0)
    };
    std::fs::read_dir(dir).unwrap().filter_map(Result::ok).filter(whole).count()
}

/// If the recorder is killed, its memory is lost and the program continues. If the program is killed, it leaves a file.
#[test]
fn kill_9_of_the_program_leaves_a_file_and_of_the_recorder_none() {
    let Some(dir) = built() else { test_support::skip!("no C compiler") };
    let go = dir.path().join("go");
    let program = ["./app", "none", go.to_str().unwrap()];
    let running = Running::begin(dir.path(), &["--locks", "--last", "4MiB"], &program);
    let pid = test_support::children(running.child.id() as i32)[0];
    // SAFETY: a process that this test started.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    let (status, said) = running.end();
    assert_eq!((status, files(dir.path())), (Some(128 + libc::SIGKILL), vec!["app.doorbell".to_owned()]), "{said}");
    let s = show(&["show"], &dir.path().join("app.doorbell"));
    assert_eq!((&s["saved"]["what"], &s["lost"]), (&"killed by signal 9".into(), &0.into()), "{s}");
    std::fs::remove_file(dir.path().join("app.doorbell")).unwrap();

    let running = Running::begin(dir.path(), &["--locks", "--last", "4MiB"], &program);
    let pid = test_support::children(running.child.id() as i32)[0];
    running.signal(libc::SIGKILL);
    std::fs::write(&go, "").unwrap();
    wait_until("the program's end", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    });
    drop(running.end());
    assert!(files(dir.path()).is_empty(), "{:?}", files(dir.path()));
}

#[test]
fn what_cannot_be_written_is_said_once_and_the_recording_goes_on() {
    let Some(dir) = built() else { test_support::skip!("no C compiler") };
    let script = "mkdir -p disk && mount -t tmpfs -o size=100k none disk || exit 99
        head -c 200k /dev/zero > disk/fill 2> /dev/null
        \"$1\" record --tap off --locks --last 16MiB --save-when exit -o disk/a.doorbell -- ./app none \"$2\" & recorder=$!
        while [ -z \"$(cat /proc/$recorder/task/$recorder/children)\" ]; do sleep 0.05; done
        sleep 0.4; kill -USR1 $recorder; sleep 0.4; kill -USR1 $recorder; sleep 0.3; touch \"$2\"; wait $recorder; status=$?
        ls -A disk; exit $status";
    let mut command = Command::new("unshare");
    command.args(["-r", "-m", "sh", "-c", script, "sh"]).arg(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.arg(dir.path().join("go")).current_dir(dir.path()).env("LD_LIBRARY_PATH", dir.path());
    let _alone = poison::ignore(ONE.lock());
    let out = match command.output() {
        Ok(out) if out.status.code() != Some(99) && out.status.code() != Some(1) => out,
        _ => test_support::skip!("no file system can be mounted"),
    };
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && out.stdout == b"done\nfill\n", "{said}{}", String::from_utf8_lossy(&out.stdout));
    assert_eq!(said.matches("nothing was saved").count(), 1, "{said}");
    assert!(said.contains("the disk is full") && said.contains("3 files could not be written"), "{said}");
}

/// Processes and threads that end: those that ended before the kept part are left out, and no event is lost.
#[test]
fn processes_that_come_and_go_are_left_out_once_they_have_ended() {
    let Some(dir) = built() else { test_support::skip!("no C compiler") };
    let script = "for i in 1 2 3 4 5 6; do ./app none exit > /dev/null; done; ./app alloc exit";
    let how = ["--locks", "--last", "600ms", "--save-when", "exit", "-o", "p.doorbell"];
    let (out, said) = recorded(dir.path(), &how, &["sh", "-c", script]);
    assert!(out.status.success(), "{said}");
    let s = show(&["show"], &dir.path().join("p.doorbell"));
    let processes = s["processes"].as_array().unwrap().len() as u64;
    let before = s["saved"]["processes"].as_u64().unwrap();
    assert!(before >= 4 && processes + before == 8, "{processes} and {before}: {}", s["saved"]);
    assert_eq!((&s["lost"], &s["saved"]["forgotten"]), (&0.into(), &0.into()), "{}", s["saved"]);
    assert!((0.5..0.7).contains(&s["saved"]["seconds"].as_f64().unwrap()), "{}", s["saved"]);
}

/// With much more data than the memory holds, the newest part is kept, and the recorder uses no more than its limit.
#[test]
fn memory_is_bounded_and_the_newest_part_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("m.doorbell");
    let mut command = doorbell();
    command.args([
        "record",
        "--quiet",
        "--gpu",
        "soft",
        "--calls",
        "--last",
        "4MiB",
        "--save-when",
        "exit",
        "--on-full",
        "wait",
        "-o",
    ]);
    command.arg(&file).arg("--").arg(assert_cmd::cargo::cargo_bin!("doorbell"));
    command
        .args(["sample", "threads", "--gpu", "soft", "--count", "15000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let anonymous = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:")).unwrap_or_default().trim().to_owned();
        line.trim_end_matches(" kB").parse::<u64>().unwrap_or(0) << 10
    };
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        most = most.max(anonymous(child.id()));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(child.wait().unwrap().success());
    let s = show(&["show"], &file);
    let (left, has) = (s["saved"]["bytes"].as_u64().unwrap(), s["saved"]["doorbells"].as_u64().unwrap());
    println!("{most} bytes at most; {left} bytes of events left out, {has} doorbells");
    assert!(left > 60 << 20, "{}", s["saved"]);
    // Pieces in transit, the rings' chunks and the program itself are added to that.
    assert!(most < 54 << 20, "{most}");
    assert_eq!(
        (&s["lost"], &s["problems"]["bad_headers"], &s["complete"]),
        (&0.into(), &0.into(), &true.into()),
        "{s}"
    );
    assert!(std::fs::metadata(&file).unwrap().len() < 6 << 20);
}

#[test]
fn what_cannot_be_watched_is_an_error_with_examples() {
    for (options, says) in [
        (&["--last", "30"][..], "256MiB or 30s"),
        (&["--last", "30s", "--save-when", "kernel > 2x"], "'call > 5ms'"),
        (&["--last", "30s", "--save-when", "call > 5ms"], "add --calls"),
        (&["--calls", "--last", "30s", "--save-when", "kernel > 2x median"], "add --gpu-times"),
        (&["--last", "30s", "--max-size", "5MiB"], "--max-size"),
        (&["--save-when", "exit"], "--last"),
    ] {
        let out = doorbell().args(["record", "--gpu", "soft"]).args(options).args(["--", "true"]).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(125) && said.contains(says), "{options:?}: {said}");
    }
}

/// Starts a program that prints its process id and runs until it is killed. Returns its recorder and the id.
fn started(dir: &Path, how: &[&str]) -> (Child, String) {
    let mut command = record(dir, how, &["sh", "-c", "echo $$; exec sleep 600"]);
    let mut recorder = command.env("XDG_RUNTIME_DIR", dir).spawn().unwrap();
    let mut pid = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(recorder.stdout.as_mut().unwrap()), &mut pid).unwrap();
    let pid = pid.trim().to_owned();
    let (begun, socket) = (Instant::now(), dir.join(format!("doorbell/{pid}.sock")));
    while !socket.exists() {
        assert!(begun.elapsed() < PATIENCE, "no socket");
        std::thread::sleep(Duration::from_millis(5));
    }
    (recorder, pid)
}

#[test]
fn a_file_is_written_when_somebody_asks_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let save = |pid: &str| {
        let mut command = doorbell();
        command.env("XDG_RUNTIME_DIR", dir.path()).args(["save", pid, "--reason", "it is slow"]).output().unwrap()
    };
    let kill = |mut recorder: Child, pid: &str| {
        // (A shell's own `kill`: a small Debian has no other.)
        assert!(Command::new("sh").args(["-c", "kill $0", pid]).status().unwrap().success());
        recorder.wait().unwrap();
    };
    let (recorder, pid) = started(dir.path(), &["--locks", "--last", "4MiB", "--max-saves", "2", "-o", "a.doorbell"]);
    for name in ["a.doorbell", "a.2.doorbell"] {
        let out = save(&pid);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let file = dir.path().canonicalize().unwrap().join(name);
        assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), file.to_str().unwrap());
        let saved = &show(&["show", "--summary"], &file)["saved"];
        assert_eq!((&saved["reason"], &saved["what"]), (&"doorbell save".into(), &"it is slow".into()));
    }
    let out = save(&pid);
    assert!(!out.status.success() && String::from_utf8_lossy(&out.stderr).contains("2 files were written"), "{out:?}");
    kill(recorder, &pid);
    // A recorder that keeps everything has nothing to save.
    let (recorder, pid) = started(dir.path(), &["--locks", "-o", "b.doorbell"]);
    let out = save(&pid);
    assert!(!out.status.success() && String::from_utf8_lossy(&out.stderr).contains("keeps everything"), "{out:?}");
    kill(recorder, &pid);
}
