//! `doorbell why --now` under stress: programs and recorders that die, many looks, many threads, many processes. Each look gives an
//! answer or a clear error within [`LIMIT`], and no file, process or thread stays after it.

use recorder::control::messages::{Answer, Request};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use test_support::{Source, finished, private_folder, program_with_cuda};

/// The most that a look may take, by the clock of the command that makes it. (Its start and end are not doorbell's to hasten.)
const LIMIT: Duration = Duration::from_secs(2);
/// Looks that are made at the same time. (A recorder has room for eight peers.)
const AT_ONCE: usize = 3;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn len(list: &Value) -> usize {
    list.as_array().map_or(0, Vec::len)
}

fn answer(now: &Value) -> Vec<&str> {
    now["answer"].as_array().unwrap().iter().filter_map(Value::as_str).collect()
}

fn kill(pid: i32, signal: i32) {
    // SAFETY: a process that this test has started, or one of that process's children.
    unsafe { libc::kill(pid, signal) };
}

/// Numbers that look random, the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// The program in a folder of its own, which also has what doorbell leaves in the folders for sockets and temporary files.
struct Ground(tempfile::TempDir);

impl Ground {
    fn new() -> Result<Ground, String> {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/now_many");
        let dir = program_with_cuda(&sources.join("libcuda.c"), &sources.join("many.c"))?;
        private_folder(dir.path(), "tmp");
        Ok(Ground(dir))
    }

    fn doorbell(&self) -> Command {
        let mut c = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
        let dir = self.0.path();
        c.current_dir(dir).env("LD_LIBRARY_PATH", dir).env("XDG_RUNTIME_DIR", dir.join("run"));
        c.env("TMPDIR", dir.join("tmp"));
        c
    }

    fn record(&self, options: &[&str], arguments: &[&str]) -> Recorded<'_> {
        let mut record = self.doorbell();
        record.args(["record", "--quiet", "--force", "--tap", "off", "-o", "a.doorbell"]).args(options);
        record.args(["--", "./many"]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let said = std::fs::File::create(self.0.path().join("said")).unwrap();
        let mut recorder = record.stderr(said).spawn().unwrap();
        let (input, output) = (recorder.stdin.take().unwrap(), BufReader::new(recorder.stdout.take().unwrap()));
        let mut r = Recorded { ground: self, recorder, input, output, pid: 0, named: 0 };
        r.named = r.line();
        r.pid = test_support::children(r.recorder.id() as i32).first().copied().unwrap_or(0);
        r
    }

    fn look(&self, pid: i32, words: &[&str]) -> (Output, Duration) {
        let begun = Instant::now();
        let mut why = self.doorbell();
        why.args(["why", "--now", &pid.to_string(), "--json"]).args(words);
        let out = finished(&mut why, "why --now");
        (out, begun.elapsed())
    }

    /// Files in the folders for sockets and for temporary files.
    fn left(&self) -> Vec<String> {
        let names = |folder: &str| {
            let all = std::fs::read_dir(self.0.path().join(folder)).into_iter().flatten();
            all.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        [names("run/doorbell"), names("tmp")].concat()
    }
}

macro_rules! ground {
    () => {
        match Ground::new() {
            Ok(ground) => ground,
            Err(why) => test_support::skip!("{why}"),
        }
    };
}

/// A recorded program, which has printed its first line.
struct Recorded<'a> {
    ground: &'a Ground,
    recorder: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pid: i32,
    /// The process that its line names.
    named: i32,
}

impl Recorded<'_> {
    fn line(&mut self) -> i32 {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let said = || std::fs::read_to_string(self.ground.0.path().join("said")).unwrap_or_default();
        line.trim().strip_prefix("ready ").and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{line}: {}", said()))
    }

    fn now(&self) -> (Value, Duration) {
        let (out, took) = self.ground.look(self.pid, &[]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        (serde_json::from_slice(&out.stdout).unwrap(), took)
    }

    /// Calls that were recorded. (They are counted from the first time that this is asked on.)
    fn calls(&self) -> u64 {
        let socket = self.ground.0.path().join(format!("run/doorbell/{}.sock", self.pid));
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.write_all(Request::Counters.line().as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str::<Answer>(&line).unwrap().counters.unwrap().calls
    }

    /// The recorder's threads, children, perf events (some for each CPU) and other descriptors. (Of these the number above what it has at rest and
    /// one for each of the latest 128 processes.)
    fn has(&self) -> [usize; 4] {
        let of = format!("/proc/{}", self.recorder.id());
        let files = std::fs::read_dir(format!("{of}/fd")).into_iter().flatten();
        let is_perf = |to: &PathBuf| to.as_os_str() == "anon_inode:[perf_event]";
        let (perf, others): (Vec<_>, Vec<_>) =
            files.filter_map(|f| std::fs::read_link(f.ok()?.path()).ok()).partition(is_perf);
        let threads = std::fs::read_dir(format!("{of}/task")).map_or(0, |d| d.count());
        let children = test_support::children(self.recorder.id() as i32).len();
        [threads, children, perf.len(), others.len().saturating_sub(128 + 32)]
    }

    /// What it has after a first look: what that needs stays, and all its threads have begun.
    fn at_rest(&self) -> [usize; 4] {
        self.now();
        self.has()
    }

    /// The recorder has no more than before, at latest after a few seconds. (One of its threads begins when a program starts others.)
    fn returns_to(&self, before: [usize; 4]) {
        let (begun, before) = (Instant::now(), [before[0] + 1, before[1], before[2], before[3]]);
        let is_more = |now: [usize; 4]| now.iter().zip(before).any(|(now, before)| *now > before);
        while is_more(self.has()) {
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?}, before {before:?}", self.has());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Recorded<'_> {
    fn drop(&mut self) {
        kill(self.recorder.id() as i32, libc::SIGCONT);
        test_support::kill_tree(self.recorder.id() as i32);
        let _ = self.recorder.wait();
        // (If the recorder was killed.)
        kill(self.pid, libc::SIGKILL);
        let said = std::fs::read_to_string(self.ground.0.path().join("said")).unwrap_or_default();
        assert!(std::thread::panicking() || !said.contains("panicked"), "{said}");
    }
}

/// What looks gave: how often each, and how long they took.
#[derive(Default)]
struct Tally {
    of: BTreeMap<&'static str, usize>,
    times: Vec<Duration>,
}

impl Tally {
    /// An answer without a cycle, or an error with its hint.
    fn add(&mut self, out: &Output, took: Duration) {
        const ERRORS: [(&str, &str); 5] = [
            ("there is no process", "these are being recorded: |no program of this user is being recorded"),
            ("is not recorded by doorbell", "these are being recorded: |no program of this user is being recorded"),
            ("is gone: its program has ended, or it was killed", "`doorbell show` reads what it has recorded"),
            ("does not answer: is it stopped?", "`ps` shows its state; `kill -CONT` wakes a stopped one"),
            ("others are connected; try again", "`doorbell top PID` shows what it does"),
        ];
        let why = text(&out.stderr);
        let what = if out.status.code() == Some(0) {
            let now: Value = serde_json::from_slice(&out.stdout).unwrap();
            assert_eq!((len(&now["cycles"]), why.as_str()), (0, ""), "{now:#}");
            "answers"
        } else {
            let is = |(error, hint): &&(&str, &str)| {
                why.contains(error) && hint.split('|').any(|h| why.contains(&format!("hint: {h}")))
            };
            let known = ERRORS.iter().find(is);
            assert!(out.status.code() == Some(2) && out.stdout.is_empty(), "{} {why}", out.status);
            known.unwrap_or_else(|| panic!("{why}")).0
        };
        *self.of.entry(what).or_default() += 1;
        self.times.push(took);
    }

    fn count(&self, what: &str) -> usize {
        self.of.get(what).copied().unwrap_or(0)
    }

    /// Prints it, and checks the times.
    fn ends(mut self, what: &str) {
        self.times.sort();
        let (n, at) = (self.times.len(), |part: usize| self.times[(self.times.len() - 1) * part / 100]);
        println!(
            "{what}: {n} looks: {:?}; half took {:?} or less, 99 % {:?}, at most {:?}",
            self.of,
            at(50),
            at(99),
            at(100)
        );
        assert!(at(100) < LIMIT, "{:?}", self.times);
    }
}

/// Looks at children of a recorded program that live for up to 300 ms, and end by themselves or are killed: before the looks, in them, between
/// them and after them. The recorder has nothing left of them.
fn looks_at_dying_children(looks: usize) {
    let ground = ground!();
    let mut r = ground.record(&["--locks", "--calls"], &["launches"]);
    let (before, files) = (r.at_rest(), ground.left());
    let (tally, dice) = (Mutex::new(Tally::default()), Mutex::new(Dice(1)));
    let of = Mutex::new((&mut r, looks));
    let child = || {
        let mut of = of.lock().unwrap();
        of.1 = of.1.checked_sub(1)?;
        let (life, how) = (dice.lock().unwrap().below(300_000), of.1 % 5);
        writeln!(of.0.input, "{life} {how}").unwrap();
        Some(of.0.line())
    };
    std::thread::scope(|s| {
        for _ in 0..AT_ONCE {
            s.spawn(|| {
                while let Some(pid) = child() {
                    let dies = Duration::from_micros(dice.lock().unwrap().below(600_000));
                    let (out, took) = std::thread::scope(|s| {
                        s.spawn(|| {
                            std::thread::sleep(dies);
                            kill(pid, libc::SIGKILL);
                        });
                        ground.look(pid, &[])
                    });
                    tally.lock().unwrap().add(&out, took);
                }
            });
        }
    });
    let tally = tally.into_inner().unwrap();
    assert_eq!(tally.times.len(), looks);
    assert!(tally.count("answers") > looks / 10, "{:?}", tally.of);
    tally.ends("children that die");
    let (r, _) = of.into_inner().unwrap();
    r.returns_to(before);
    assert_eq!(ground.left(), files);
    let (now, _) = r.now();
    assert_eq!(len(&now["cycles"]), 0, "{now:#}");
}

#[test]
fn looks_at_children_that_die() {
    looks_at_dying_children(60);
}

#[test]
#[ignore = "1,000 looks: a minute or two; run by .ci/run --long"]
fn long_looks_at_children_that_die() {
    looks_at_dying_children(1000);
}

/// Each look at a recording of its own: the program is killed or ends, the recorder is killed or stopped, at any moment.
fn looks_at_dying_recordings(looks: usize) {
    let ground = ground!();
    let (mut tally, mut dice) = (Tally::default(), Dice(2));
    for i in 0..looks {
        let life = if i % 5 == 1 { dice.below(300_000) + 1 } else { 0 }.to_string();
        let options: &[&str] =
            [&["--locks", "--calls"][..], &["--locks=waits", "--last", "5s"], &["--dormant", "--locks"]][i % 3];
        let mut r = ground.record(options, &["contended", &life]);
        let (program, recorder) = (r.pid, r.recorder.id() as i32);
        let dies = Duration::from_micros(dice.below(250_000));
        let (out, took) = std::thread::scope(|s| {
            s.spawn(move || {
                std::thread::sleep(dies);
                match i % 5 {
                    0 => kill(program, libc::SIGKILL),
                    1 => {}
                    2 => kill(recorder, libc::SIGKILL),
                    3 => kill(recorder, libc::SIGSTOP),
                    _ => kill(program, libc::SIGABRT),
                }
            });
            ground.look(program, &[])
        });
        tally.add(&out, took);
        if i % 5 == 3 {
            // It goes on, and looks are answered again. (It may need a moment for what it has missed.)
            kill(recorder, libc::SIGCONT);
            let begun = Instant::now();
            while !ground.look(program, &[]).0.status.success() {
                assert!(begun.elapsed() < Duration::from_secs(10), "{i}");
            }
            kill(program, libc::SIGKILL);
        }
        if i % 5 != 2 {
            r.recorder.wait().unwrap();
            assert_eq!(ground.left(), [""; 0]);
        } else {
            // The program goes on without its recorder. The next recorder removes the socket that is left.
            let (out, took) = ground.look(program, &[]);
            assert!(text(&out.stderr).contains("is gone: "), "{}", text(&out.stderr));
            tally.add(&out, took);
            assert!(ground.left().iter().all(|name| *name == format!("{program}.sock")), "{:?}", ground.left());
        }
    }
    assert!(tally.count("answers") > looks / 10, "{:?}", tally.of);
    tally.ends("recordings that die");
}

#[test]
fn looks_at_recordings_that_die() {
    looks_at_dying_recordings(20);
}

#[test]
#[ignore = "1,000 looks, each at a recording of its own: minutes; run by .ci/run --long"]
fn long_looks_at_recordings_that_die() {
    looks_at_dying_recordings(1000);
}

/// 256 threads: four cycles, two long chains, and threads that wait for one that is in a cycle.
#[test]
fn many_threads_in_cycles_and_long_chains() {
    let ground = ground!();
    for options in [&["--locks"][..], &["--dormant", "--locks"]] {
        let r = ground.record(options, &["chains"]);
        let before = r.at_rest();
        let (now, took) = r.now();
        let (cycles, chains) = (now["cycles"].as_array().unwrap(), now["chains"].as_array().unwrap());
        assert_eq!(cycles.iter().map(|c| len(&c["tids"])).collect::<Vec<_>>(), [16; 4], "{:#}", now["cycles"]);
        let longest: Vec<_> = chains.iter().map(|c| (len(&c["tids"]), c["end"].as_str().unwrap())).take(3).collect();
        assert_eq!(longest, [(80, "system_call"), (80, "system_call"), (2, "cycle")], "{:#}", now["chains"]);
        assert!(took < LIMIT, "{took:?}");
        println!("{options:?}: {took:?}");
        r.returns_to(before);
    }
}

/// More threads than are looked at: that is said.
#[test]
fn more_threads_than_are_looked_at() {
    let ground = ground!();
    let r = ground.record(&["--locks"], &["threads", "4200"]);
    let before = r.at_rest();
    let (now, took) = r.now();
    println!("{took:?}, {} threads", now["looked_at"]);
    assert!(now["not_followed"].to_string().contains("more threads than were looked at"), "{:#}", now["not_followed"]);
    assert_eq!(len(&now["cycles"]), 0);
    assert!(len(&now["chains"]) > 0 && now["looked_at"].as_u64().unwrap() <= 4000, "{:#}", now["answer"]);
    assert!(took < LIMIT, "{took:?}");
    r.returns_to(before);
}

/// 64 processes in a barrier that they share, without one.
#[test]
fn the_process_that_is_not_in_a_barrier_is_named() {
    let ground = ground!();
    for options in [&["--locks"][..], &["--calls"]] {
        let r = ground.record(options, &["ranks"]);
        let before = r.at_rest();
        let (now, took) = r.now();
        println!("{options:?}: {took:?}\n{}", answer(&now).join("\n"));
        let absent = r.named.to_string();
        assert!(answer(&now)[0].contains(&absent), "{absent} {:#}", now["answer"]);
        assert!(took < LIMIT, "{took:?}");
        r.returns_to(before);
    }
}

/// Looks at a program with a process whose memory the kernel does not give. The other process is seen and recorded, and the recorder's
/// threads do not become more with each look.
fn looks_while_a_process_hangs(ground: &Ground, arguments: &[&str], server: Option<Server>) {
    let r = ground.record(&["--locks", "--calls"], &[&["hangs"], arguments].concat());
    let (mut tally, mut threads) = (Tally::default(), Vec::new());
    // (It ends before the recording does, which else waits for the process.)
    let server = server;
    let before = r.has();
    for i in 0..12 {
        let words: &[&str] = if i % 4 == 3 { &["--stacks"] } else { &[] };
        let (out, took) = ground.look(r.pid, words);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let now: Value = serde_json::from_slice(&out.stdout).unwrap();
        let of: Vec<_> = now["cycles"].as_array().unwrap().iter().map(|c| len(&c["tids"])).collect();
        assert_eq!(of, [2], "{i} {now:#}");
        tally.times.push(took);
        threads.push(r.has()[0]);
    }
    tally.ends("a process that hangs");
    println!("threads of the recorder: {threads:?}, before {before:?}");
    assert!(threads[11] <= threads[3] && threads[11] < before[0] + 12, "{threads:?}");
    let calls = r.calls();
    std::thread::sleep(Duration::from_millis(500));
    assert!(r.calls() > calls + 100, "{calls}, {}", r.calls());
    test_support::children(r.pid).into_iter().for_each(|child| kill(child, libc::SIGKILL));
    drop(server);
    r.returns_to(before);
}

#[test]
fn a_process_whose_memory_cannot_be_read() {
    let ground = ground!();
    looks_while_a_process_hangs(&ground, &[], None);
}

#[test]
fn a_process_that_hangs_in_the_kernel_while_it_changes_its_mappings() {
    let ground = ground!();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/now_many/stalls.c");
    let program = Source { file: &source, compiler: "cc", flags: &[] }.compile(ground.0.path()).unwrap();
    let folder = ground.0.path().join("stalls-here");
    std::fs::create_dir(&folder).unwrap();
    let mut server = Command::new(program).arg(&folder).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if !line.starts_with("ready ") {
        server.wait().unwrap();
        test_support::skip!("{line}");
    }
    let file = format!("/proc/{}/root{}/file", server.id(), folder.display());
    looks_while_a_process_hangs(&ground, &[&file], Some(Server(server)));
}

/// The file system. When it ends, what hangs goes on.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Threads that take locks and give two streams work, each of which waits for events of the other: no look shows a cycle.
#[test]
fn a_healthy_program_with_locks_and_streams_has_no_cycle() {
    let ground = ground!();
    let r = ground.record(&["--locks", "--calls"], &["contended"]);
    let (before, left, tally) = (r.at_rest(), AtomicUsize::new(200), Mutex::new(Tally::default()));
    let waited = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                while left.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_ok() {
                    let (out, took) = ground.look(r.pid, &[]);
                    tally.lock().unwrap().add(&out, took);
                    let now: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
                    waited.fetch_add(
                        usize::from(now["short_waits"].as_u64() > Some(0) || len(&now["chains"]) > 0),
                        Relaxed,
                    );
                }
            });
        }
    });
    let tally = tally.into_inner().unwrap();
    assert_eq!(tally.count("answers"), 200, "{:?}", tally.of);
    println!("{waited:?} looks saw a wait");
    assert!(waited.load(Relaxed) > 150, "{waited:?}");
    tally.ends("a healthy program");
    r.returns_to(before);
}
