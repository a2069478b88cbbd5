//! Recording that is switched on and off from outside: `record --dormant`, `attach`, `top`, and errors of the control
//! socket.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use test_support::{finished, program_with_cuda};

const PATIENCE: Duration = Duration::from_secs(60);

fn doorbell() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("doorbell"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kill(pid: i32, signal: i32) {
    // SAFETY: a process that this test has started and not waited for.
    unsafe { libc::kill(pid, signal) };
}

/// A folder with the program, a library with CUDA's name, and the folder for sockets. `Err` without a C compiler.
fn built() -> Result<tempfile::TempDir, String> {
    built_from("attach/app.c")
}

/// As [`built`], with another program.
fn built_from(program: &str) -> Result<tempfile::TempDir, String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    program_with_cuda(&sources.join("calls/libcuda.c"), &sources.join(program))
}

/// A recorded program.
struct Recorded<'a> {
    dir: &'a Path,
    recorder: Child,
    /// The program.
    pid: i32,
    first_line: String,
}

impl<'a> Recorded<'a> {
    fn start(dir: &'a Path, options: &[&str]) -> Recorded<'a> {
        Recorded::start_program(dir, options, "./app")
    }

    fn start_program(dir: &'a Path, options: &[&str], program: &str) -> Recorded<'a> {
        let mut record = in_folder(dir, "record");
        record.args(["--quiet", "--force", "--tap", "off", "-o", "a.doorbell"]).args(options).args(["--", program]);
        let mut recorder = record.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first_line = String::new();
        BufReader::new(recorder.stdout.as_mut().unwrap()).read_line(&mut first_line).unwrap();
        let pid = test_support::children(recorder.id() as i32).first().copied();
        let Some(pid) = pid else {
            let mut why = String::new();
            recorder.stderr.unwrap().read_to_string(&mut why).unwrap();
            panic!("{why}");
        };
        let r = Recorded { dir, recorder, pid, first_line };
        until("a socket", || r.socket().exists());
        r
    }

    fn socket(&self) -> PathBuf {
        self.dir.join(format!("run/doorbell/{}.sock", self.pid))
    }

    fn run(&self, command: &str, words: &[&str]) -> Output {
        finished(in_folder(self.dir, command).args(words), command)
    }

    fn attach(&self, words: &[&str]) -> Output {
        self.run("attach", &[&[self.pid.to_string().as_str()], words].concat())
    }

    fn connect(&self) -> UnixStream {
        let s = UnixStream::connect(self.socket()).unwrap();
        s.set_read_timeout(Some(PATIENCE)).unwrap();
        s
    }

    fn ask(&self, request: &str) -> Value {
        let s = self.connect();
        ask(&s, request)
    }

    fn state(&self) -> String {
        self.ask("status")["status"]["state"].as_str().unwrap().to_owned()
    }

    /// Ends the program, and with it its recorder.
    fn end(mut self) {
        kill(self.pid, libc::SIGTERM);
        let status = self.recorder.wait().unwrap();
        assert_eq!(status.code(), Some(128 + libc::SIGTERM));
        assert!(!self.socket().exists());
    }
}

impl Drop for Recorded<'_> {
    fn drop(&mut self) {
        if matches!(self.recorder.try_wait(), Ok(None)) {
            kill(self.recorder.id() as i32, libc::SIGCONT);
            test_support::kill_tree(self.recorder.id() as i32);
            let _ = self.recorder.wait();
        }
    }
}

fn ask(mut s: &UnixStream, request: &str) -> Value {
    s.write_all(format!("{request}\n").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(s).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

fn in_folder(dir: &Path, command: &str) -> Command {
    let mut c = doorbell();
    c.arg(command).current_dir(dir).env("LD_LIBRARY_PATH", dir).env("XDG_RUNTIME_DIR", dir.join("run"));
    c
}

fn summary(dir: &Path, file: &str) -> Value {
    let out = finished(in_folder(dir, "show").args(["--json", file]), "show");
    assert!(out.status.success(), "{}", text(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// The program's first output without doorbell.
fn unrecorded(dir: &Path) -> String {
    let mut app = Command::new(dir.join("app"));
    app.current_dir(dir).env("LD_LIBRARY_PATH", dir).env("XDG_RUNTIME_DIR", dir.join("run"));
    let mut app = app.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(app.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    app.kill().unwrap();
    app.wait().unwrap();
    line
}

/// Launches in a recording, and its pauses.
fn launches(dir: &Path, file: &str) -> (usize, u64) {
    let out = finished(in_folder(dir, "export").args(["--jsonl", file]), "export");
    assert!(out.status.success(), "{}", text(&out.stderr));
    let n = text(&out.stdout).lines().filter(|l| l.contains("cuLaunchKernel") && l.contains("cuda_call")).count();
    (n, summary(dir, file)["pauses"]["count"].as_u64().unwrap_or(0))
}

macro_rules! built {
    () => {
        match built() {
            Ok(dir) => dir,
            Err(why) => test_support::skip!("{why}"),
        }
    };
}

#[test]
fn a_dormant_program_is_recorded_while_somebody_is_attached() {
    let dir = built!();
    let r = Recorded::start(dir.path(), &["--dormant", "--locks"]);
    let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&r.socket()), mode(r.socket().parent().unwrap())), (0o600, 0o700));
    assert_eq!(r.state(), "dormant");
    assert_eq!(r.first_line, unrecorded(dir.path()), "descriptors and environment are the program's own");
    let out = r.attach(&["--for", "700ms", "--locks", "-o", "one.doorbell"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_eq!(r.state(), "dormant");
    assert!(text(&out.stderr).contains("`doorbell show --locks one.doorbell` explains it"), "{}", text(&out.stderr));
    let (first, _) = launches(dir.path(), "one.doorbell");
    assert!(first > 0);
    let one = summary(dir.path(), "one.doorbell");
    assert!(one["incomplete_because"].to_string().contains("of its recording in"), "{one}");
    assert_eq!((&one["end"]["how"], &one["problems"]["bad_headers"]), (&"still running".into(), &0.into()), "{one}");
    // A second time: its file has no event of the first part.
    std::thread::sleep(Duration::from_millis(300));
    assert!(r.attach(&["--for", "300ms", "-o", "two.doorbell", "-q"]).status.success());
    let (second, _) = launches(dir.path(), "two.doorbell");
    let two = summary(dir.path(), "two.doorbell");
    assert_eq!((&two["saved"]["reason"], &two["lost"]), (&"doorbell attach".into(), &0.into()), "{two}");
    assert!(second > 0 && two["saved"]["events"].as_u64().unwrap() >= first as u64, "{second} {first} {two}");
    // An option that was not prepared is refused with a reason.
    let out = r.attach(&["--gpu-times", "-o", "three.doorbell"]);
    assert_eq!(out.status.code(), Some(2));
    let why = text(&out.stderr);
    assert!(why.contains("gpu-times cannot be switched on") && why.contains("--dormant --gpu-times"), "{why}");
    assert!(!dir.path().join("three.doorbell").exists());
    r.end();
    let (all, _) = launches(dir.path(), "a.doorbell");
    assert_eq!(all, first + second, "nothing was recorded outside of them");
    let all = summary(dir.path(), "a.doorbell");
    assert!(all["recorder"]["peak_memory_bytes"].as_u64().unwrap() > 1 << 20, "{}", all["recorder"]);
    assert!(all["recorder"]["user_seconds"].as_f64().unwrap() > 0.0);
}

/// What a command prints as JSON.
fn json(dir: &Path, command: &str, words: &[&str]) -> Value {
    let out = finished(in_folder(dir, command).args(words), command);
    assert!(out.status.success(), "{}", text(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn waits_that_began_before_an_attach_are_shown_with_the_thread_that_the_lock_names() {
    let dir = match built_from("attach/hangs.c") {
        Ok(dir) => dir,
        Err(why) => test_support::skip!("{why}"),
    };
    for option in ["--locks=waits", "--locks"] {
        let r = Recorded::start_program(dir.path(), &["--dormant", "--calls", option], "./hangs");
        let begun = Instant::now();
        assert!(r.attach(&["--for", "200ms", "-o", "one.doorbell", "--force"]).status.success());
        let locks = json(dir.path(), "show", &["--locks", "--json", "one.doorbell"]);
        let wait = |waiter: &str| {
            let waits = locks["waits"].as_array().unwrap().iter();
            let of: Vec<&Value> = waits.filter(|w| w["thread"] == waiter).collect();
            let [wait] = of[..] else { panic!("{waiter}: {locks:#}") };
            (wait, wait["holders"][0]["thread"].as_str().unwrap_or("nobody").to_owned())
        };
        for (waiter, holder, operation) in [
            ("left", "right", "mutex_lock"),
            ("right", "left", "mutex_lock"),
            ("caller", "keeps", "mutex_lock"),
            ("wants to read", "keeps", "rwlock_rdlock"),
            ("goes on", "keeps", "mutex_lock"),
        ] {
            let (row, of) = wait(waiter);
            assert_eq!((of.as_str(), &row["operation"]), (holder, &operation.into()), "{row:#}");
            assert!(row["unfinished"] == true && row["wait_ns"].as_u64().unwrap() > 350_000_000, "{row:#}");
            assert!(row["holders"][0]["site"] == "" && row["site"].as_str().unwrap().starts_with("hangs"), "{row:#}");
        }
        assert_eq!(locks["contended"], 5);
        assert_eq!(locks["cycles"].as_array().unwrap().len(), 1, "{:#}", locks["cycles"]);
        if option == "--locks=waits" {
            r.end();
            continue;
        }
        let shown = text(&r.run("show", &["--locks", "one.doorbell"]).stdout);
        assert!(
            shown.contains("(wants to read) waited at least ") && shown.contains("(keeps) holds in_calls/mutex, as "),
            "{shown}"
        );
        // The call that waits for such a lock, and why.
        let why = json(dir.path(), "why", &["--json", "one.doorbell"]);
        assert_eq!(why["unfinished"], 1, "{why:#}");
        let call = &why["worst"][0];
        assert_eq!(
            (&call["call"], &call["thread"], &call["cause"]),
            (&"cuLaunchKernel".into(), &"caller".into(), &"lock".into())
        );
        assert!(call["ns"].as_u64().unwrap() > 350_000_000, "{call:#}");
        assert_eq!(call["parts"][0]["of"][0]["because"][0]["thread"], "keeps", "{call:#}");
        // One of the waits ends while another part is recorded: it has its whole time there.
        let second = in_folder(dir.path(), "attach")
            .args([&r.pid.to_string(), "--for", "400ms", "-o", "two.doorbell", "--force"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("recording", || r.state() == "recording");
        kill(r.pid, libc::SIGUSR1);
        assert!(second.wait_with_output().unwrap().status.success());
        let after = begun.elapsed().as_nanos() as u64;
        let locks = json(dir.path(), "show", &["--locks", "--json", "two.doorbell"]);
        let waits = locks["waits"].as_array().unwrap();
        let ended: Vec<&Value> = waits.iter().filter(|w| w["unfinished"] == false).collect();
        assert!(ended.len() == 1 && ended[0]["thread"] == "goes on" && waits.len() == 5, "{locks:#}");
        let took = ended[0]["wait_ns"].as_u64().unwrap();
        assert!(took > 400_000_000 && took < after + 400_000_000, "{took} {after}");
        r.end();
        // In the whole recording no wait is counted twice.
        let all = json(dir.path(), "show", &["--locks", "--json", "a.doorbell"]);
        assert_eq!(all["contended"], 5, "{all:#}");
        let all = json(dir.path(), "why", &["--json", "a.doorbell"]);
        assert_eq!((&all["calls"], &all["unfinished"]), (&1.into(), &1.into()), "{all:#}");
        assert_eq!(all["worst"][0]["parts"][0]["of"][0]["because"][0]["thread"], "keeps", "{all:#}");
    }
}

#[test]
fn recording_ends_with_who_switched_it_on() {
    let dir = built!();
    let r = Recorded::start(dir.path(), &["--dormant", "--calls"]);
    for signal in [libc::SIGKILL, libc::SIGINT] {
        let mut attached =
            in_folder(dir.path(), "attach").arg(r.pid.to_string()).stderr(Stdio::piped()).spawn().unwrap();
        until("recording", || r.state() == "recording");
        // Only one at a time.
        let out = r.attach(&["--for", "1s"]);
        let why = text(&out.stderr);
        assert!(out.status.code() == Some(2) && why.contains("is attached already"), "{why}");
        // A pause from another process, and its end.
        assert_eq!(r.ask("status")["status"]["attached"], attached.id());
        kill(attached.id() as i32, signal);
        let status = attached.wait().unwrap();
        assert_eq!(status.success(), signal == libc::SIGINT);
        until("dormant", || r.state() == "dormant");
    }
    // `resume` lasts longer than its peer.
    assert_eq!(r.ask("resume")["ok"], true);
    assert_eq!(r.state(), "recording");
    assert!(text(&r.attach(&[]).stderr).contains("is being recorded already"));
    assert!(r.ask("pause")["written"]["bytes"].as_u64().unwrap() > 0);
    assert_eq!(r.state(), "dormant");
    assert!(r.ask("save now")["error"].as_str().unwrap().contains("keeps everything"));
    r.end();
}

#[test]
fn a_recording_that_is_on_can_be_paused() {
    let dir = built!();
    let r = Recorded::start(dir.path(), &["--calls"]);
    assert_eq!(r.state(), "recording");
    assert_eq!(r.ask("pause")["ok"], true);
    assert_eq!(r.state(), "paused");
    r.end();
    let s = summary(dir.path(), "a.doorbell");
    assert_eq!(s["pauses"]["count"], 1, "{s}");
}

#[test]
fn attach_says_when_the_program_has_ended() {
    let dir = built!();
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        let r = Recorded::start(dir.path(), &["--dormant", "--calls"]);
        let attached = in_folder(dir.path(), "attach")
            .args([&r.pid.to_string(), "--force", "-o", "b.doorbell"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        until("recording", || r.state() == "recording");
        std::thread::sleep(Duration::from_millis(100));
        kill(r.pid, signal);
        let out = attached.wait_with_output().unwrap();
        assert!(out.status.success() && text(&out.stderr).contains("it has ended"), "{}", text(&out.stderr));
        assert!(launches(dir.path(), "b.doorbell").0 > 0);
        assert_eq!(summary(dir.path(), "b.doorbell")["end"]["signal"], signal);
    }
}

#[test]
fn top_counts_what_passes_and_ends_with_the_program() {
    let dir = built!();
    let r = Recorded::start(dir.path(), &["--locks"]);
    let out = r.run("top", &["--json", "--for", "2500ms"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let lines: Vec<Value> = text(&out.stdout).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!((1..=2).contains(&lines.len()), "{lines:?}");
    let last = lines.last().unwrap();
    assert_eq!((&last["schema"], &last["pid"]), (&"doorbell.top/1".into(), &r.pid.into()));
    assert!(last["calls_per_second"].as_f64().unwrap() > 10.0, "{last}");
    assert_eq!(last["worst_call"]["name"], "cuLaunchKernel", "{last}");
    assert!(last["lock_waits_per_second"].as_f64().unwrap() > 1.0, "{last}");
    let worst = &last["worst_lock_wait"];
    assert!(worst["ms"].as_f64().unwrap() > 0.1 && worst["name"].as_str().unwrap().starts_with("mutex 0x"), "{last}");
    assert!(["worker", "main one"].contains(&worst["thread"].as_str().unwrap()), "{last}");
    // No terminal: no escapes, and 80 columns.
    let second = in_folder(dir.path(), "top").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    r.end();
    let out = second.wait_with_output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    let shown = text(&out.stdout);
    assert!(shown.contains("CUDA calls") && shown.contains("cuLaunchKernel"), "{shown}");
    assert!(!shown.contains('\x1b') && shown.lines().all(|l| l.chars().count() < 80), "{shown}");
    assert_eq!(text(&out.stderr), "");
    // The recording has ended by now.
    let out = finished(&mut in_folder(dir.path(), "top"), "top");
    assert!(out.status.code() == Some(2) && text(&out.stderr).contains("no program of this user is being recorded"));
}

#[test]
fn of_several_programs_top_prints_a_list() {
    let dir = built!();
    let (a, b) = (Recorded::start(dir.path(), &["--dormant", "--calls"]), {
        let mut record = in_folder(dir.path(), "record");
        record.args(["--quiet", "--force", "--tap", "off", "--calls", "-o", "b.doorbell", "--", "./app"]);
        record.stdout(Stdio::null()).spawn().unwrap()
    });
    until("two sockets", || std::fs::read_dir(dir.path().join("run/doorbell")).unwrap().count() == 2);
    let out = a.run("top", &[]);
    let list = text(&out.stdout);
    assert!(out.status.success() && list.contains(&format!("{:>8}  dormant", a.pid)), "{list}");
    assert!(list.contains("recording") && list.contains("./app"), "{list}");
    let out = a.run("top", &["--json"]);
    assert!(out.status.code() == Some(2) && text(&out.stderr).contains("2 programs are being recorded"));
    let mut b = b;
    test_support::children(b.id() as i32).into_iter().for_each(|pid| kill(pid, libc::SIGTERM));
    b.wait().unwrap();
    a.end();
}

#[test]
fn a_killed_recorder_leaves_a_socket_that_the_next_one_removes() {
    let dir = built!();
    let mut r = Recorded::start(dir.path(), &["--dormant", "--calls"]);
    let attached = in_folder(dir.path(), "attach").arg(r.pid.to_string()).stderr(Stdio::piped()).spawn().unwrap();
    until("recording", || r.state() == "recording");
    kill(r.recorder.id() as i32, libc::SIGKILL);
    r.recorder.wait().unwrap();
    let out = attached.wait_with_output().unwrap();
    // (The recording ends without an end: the last 100 ms are missing.)
    assert!(out.status.success() && text(&out.stderr).contains("it has ended"), "{}", text(&out.stderr));
    assert!(r.socket().exists());
    let out = r.attach(&[]);
    assert!(out.status.code() == Some(2) && text(&out.stderr).contains("is gone"), "{}", text(&out.stderr));
    assert!(text(&r.run("top", &[]).stderr).contains("no program of this user"));
    let next = Recorded::start(dir.path(), &["--dormant", "--calls"]);
    assert!(!r.socket().exists() && next.socket().exists());
    kill(r.pid, libc::SIGKILL);
    next.end();
}

#[test]
fn a_stopped_recorder_is_not_waited_for_for_ever() {
    let dir = built!();
    let r = Recorded::start(dir.path(), &["--dormant", "--calls"]);
    let waiting = r.connect();
    kill(r.recorder.id() as i32, libc::SIGSTOP);
    let begun = Instant::now();
    let out = r.run("top", &[&r.pid.to_string()]);
    let why = text(&out.stderr);
    assert!(out.status.code() == Some(2) && why.contains("does not answer: is it stopped?"), "{why}");
    assert!(begun.elapsed() < Duration::from_secs(30));
    kill(r.recorder.id() as i32, libc::SIGCONT);
    assert_eq!(ask(&waiting, "status")["status"]["state"], "dormant");
    r.end();
}

#[test]
fn peers_that_behave_badly_do_not_keep_others_from_a_recorder() {
    let dir = built!();
    let r = Recorded::start(dir.path(), &["--calls"]);
    let _ = r.connect().write_all(&[b'x'; 1 << 16]);
    let _ = r.connect().write_all(b"\0\xff\n\n\nstatus");
    let mut never_reads = r.connect();
    never_reads.set_nonblocking(true).unwrap();
    while never_reads.write(&b"status\n".repeat(100)).is_ok() {}
    assert_eq!(r.ask("status")["ok"], true);
    let crowd: Vec<UnixStream> = (0..20).map(|_| r.connect()).collect();
    drop(crowd);
    until("a place", || r.ask("status")["ok"] == true);
    drop(never_reads);
    r.end();
    let s = summary(dir.path(), "a.doorbell");
    assert_eq!((&s["lost"], &s["end"]["signal"]), (&0.into(), &libc::SIGTERM.into()), "{s}");
    assert_eq!(s["incomplete_because"].as_array().unwrap().len(), 1, "only the tap, which was off: {s}");
}

/// Runs a shell with a private /tmp, without XDG_RUNTIME_DIR. `Err`: this user may not mount.
fn with_own_tmp(dir: &Path, mount: &str, script: &str) -> Result<Output, String> {
    let script = format!("mount -t tmpfs {mount} none /tmp 2>/dev/null || exit 99; {script}");
    let mut unshare = Command::new("unshare");
    unshare
        .args(["-m", "sh", "-c", &script])
        .current_dir(dir)
        .env_remove("XDG_RUNTIME_DIR")
        .env("LD_LIBRARY_PATH", dir);
    let bin = assert_cmd::cargo::cargo_bin!("doorbell");
    let out = finished(unshare.env("DOORBELL", bin), "unshare");
    match out.status.code() {
        Some(99 | 1) => Err(format!("no mount namespace: {}", text(&out.stderr))),
        _ => Ok(out),
    }
}

#[test]
fn without_a_place_for_its_socket_a_program_is_recorded_all_the_same() {
    // (Not in /tmp, which is another folder inside.)
    let root = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let dir = tempfile::tempdir_in(root).unwrap();
    let record =
        |options: &str| format!("$DOORBELL record --force --tap off {options} -o a.doorbell true; echo status $?");
    let refused = record("--dormant --calls");
    for (mount, before, why) in [
        ("-o nr_inodes=1", "true", "No space left on device"),
        ("-o nr_inodes=2", "true", "No space left on device"),
        (
            "-o mode=1777",
            "mkdir -m 700 /tmp/doorbell-$(id -u); chown 65534 /tmp/doorbell-$(id -u)",
            "belongs to user 65534",
        ),
        ("-o mode=1777", "mkdir -m 777 /tmp/doorbell-$(id -u)", "others can get at it"),
        ("-o mode=1777", "ln -s /etc /tmp/doorbell-$(id -u)", "is a link"),
        ("-o mode=777", "true", "others can change"),
    ] {
        let recorded = record("--calls");
        let script = format!("{before}; {recorded}; {refused}");
        let out = match with_own_tmp(dir.path(), mount, &script) {
            Ok(out) => out,
            Err(why) => test_support::skip!("{why}"),
        };
        let (said, err) = (text(&out.stdout), text(&out.stderr));
        assert_eq!(said, "status 0\nstatus 125\n", "{before}: {err}");
        assert!(err.contains("could not reach it: ") && err.contains("nobody could attach to it"), "{before}: {err}");
        assert_eq!(err.matches(why).count(), 2, "{before}: {err}");
        assert!(err.contains("hint: set XDG_RUNTIME_DIR"), "{err}");
    }
    // And if there is one, no warning is printed.
    let out = with_own_tmp(dir.path(), "-o mode=1777", &format!("{refused}; ls -A /tmp/doorbell-$(id -u)")).unwrap();
    assert_eq!(text(&out.stdout), "status 0\n", "{}", text(&out.stderr));
    assert!(!text(&out.stderr).contains("reach"), "{}", text(&out.stderr));
}

#[test]
fn a_socket_of_somebody_else_is_not_asked() {
    let dir = built!();
    let folder = dir.path().join("run/doorbell");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let me = std::process::id();
    let _listener = UnixListener::bind(folder.join(format!("{me}.sock"))).unwrap();
    let out = finished(in_folder(dir.path(), "top").arg(me.to_string()), "top");
    let why = text(&out.stderr);
    assert!(out.status.code() == Some(2) && why.contains("is not recorded by doorbell"), "{why}");
    let out = finished(in_folder(dir.path(), "attach").arg(i32::MAX.to_string()), "attach");
    assert!(text(&out.stderr).contains("there is no process"), "{}", text(&out.stderr));
}
