//! `doorbell why --now --all`: ranks of a job, each with its own recorder.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use test_support::{finished, program_with_cuda};

/// The most that a look at all may take.
const LIMIT: Duration = Duration::from_secs(2);
const COLLECTIVE: &str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";

fn doorbell(dir: &Path) -> Command {
    let mut c = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    c.current_dir(dir).env("LD_LIBRARY_PATH", dir).env("XDG_RUNTIME_DIR", dir.join("run"));
    for name in ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"] {
        c.env_remove(name);
    }
    c
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn kill(pid: i32, signal: i32) {
    // SAFETY: a process that this test has started and not waited for.
    unsafe { libc::kill(pid, signal) };
}

/// A folder with the program, a library with CUDA's name, and the folder for sockets. `Err` without a C compiler.
fn built() -> Result<tempfile::TempDir, String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    program_with_cuda(&sources.join("calls/libcuda.c"), &sources.join("now/rank.c"))
}

macro_rules! built {
    () => {
        match built() {
            Ok(dir) => dir,
            Err(why) => test_support::skip!("{why}"),
        }
    };
}

/// One job at a time: 64 ranks keep a machine busy.
static TURN: Mutex<()> = Mutex::new(());

/// A job: what each rank does. All have printed their line.
struct Job<'a> {
    _turn: MutexGuard<'static, ()>,
    dir: &'a Path,
    recorders: Vec<Child>,
    pids: Vec<i32>,
}

impl<'a> Job<'a> {
    /// `in_job`: the ranks have numbers.
    fn start(dir: &'a Path, options: &[&str], modes: &[&str], in_job: bool) -> Job<'a> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut job = Job { _turn: turn, dir, recorders: Vec::new(), pids: Vec::new() };
        let size = modes.len().to_string();
        for (n, mode) in modes.iter().enumerate() {
            let mut record = doorbell(dir);
            record.args(["record", "--quiet", "--force", "--tap", "off", "-o", &format!("{n}.doorbell")]).args(options);
            record.args(["--", "./rank", mode, "shared", &size]);
            if in_job {
                record.envs([("RANK", n.to_string().as_str()), ("WORLD_SIZE", &size)]);
            }
            let recorder = record.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            job.recorders.push(recorder);
            // (A rank that is to have a lock begins before those that wait for it.)
            if n == 0 {
                job.await_line(0);
            }
        }
        (1..modes.len()).for_each(|n| job.await_line(n));
        job.pids = job.recorders.iter().map(|r| test_support::children(r.id() as i32)[0]).collect();
        std::thread::sleep(Duration::from_millis(300));
        job
    }

    fn await_line(&mut self, n: usize) {
        let mut line = String::new();
        BufReader::new(self.recorders[n].stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "rank {n}");
    }

    fn look(&self, words: &[&str]) -> (Output, Duration) {
        let begun = Instant::now();
        let out = finished(doorbell(self.dir).args(["why", "--now", "--all"]).args(words), "why --now --all");
        (out, begun.elapsed())
    }

    fn now(&self) -> Value {
        let begun = Instant::now();
        let (mut out, mut took) = self.look(&["--json"]);
        // (On a busy machine no recorder may answer in time.)
        while !out.status.success() && begun.elapsed() < Duration::from_secs(20) {
            (out, took) = self.look(&["--json"]);
        }
        assert!(out.status.success(), "{}", text(&out.stderr));
        println!("{took:?}");
        serde_json::from_slice(&out.stdout).unwrap()
    }
}

impl Job<'_> {
    /// The first answer that is so. (On a busy machine a recorder may answer too late.)
    fn until(&self, is_so: impl Fn(&[&str]) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let now = self.now();
            if is_so(&answer(&now)) {
                return now;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{now:#}");
        }
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        for r in &mut self.recorders {
            kill(r.id() as i32, libc::SIGCONT);
            test_support::kill_tree(r.id() as i32);
            let _ = r.wait();
        }
    }
}

fn answer(now: &Value) -> Vec<&str> {
    now["answer"].as_array().unwrap().iter().filter_map(Value::as_str).collect()
}

#[test]
fn the_rank_that_has_not_launched_a_collective_is_named() {
    let dir = built!();
    let job = Job::start(dir.path(), &["--calls"], &["launches3", "launches3", "late2", "launches4"], true);
    let now = job.now();
    let said = answer(&now);
    let first = format!("rank 2 is behind: ranks 0, 1 and 3 have launched {COLLECTIVE} (number 3 of its stream), ");
    assert!(said[0].starts_with(&first) && said[0].ends_with(" ago, and it has not ended"), "{now:#}");
    assert!(said[1].starts_with("rank 2, ") && said[1].contains(&format!("{} (rank)", job.pids[2])), "{now:#}");
    let ranks = now["ranks"].as_array().unwrap();
    let row = |n: usize| (&ranks[n]["rank"], &ranks[n]["pid"], &ranks[n]["collectives"], &ranks[n]["behind"]);
    for (n, (launched, behind)) in [(3, 1), (3, 1), (2, 2), (4, 0)].into_iter().enumerate() {
        assert_eq!(row(n), (&n.into(), &job.pids[n].into(), &launched.into(), &behind.into()), "{now:#}");
    }
    assert_eq!((&ranks[0]["collective"]["name"], &ranks[0]["collective"]["number"]), (&COLLECTIVE.into(), &1.into()));
    assert_eq!(ranks[0]["call"]["name"], "cuStreamSynchronize", "{now:#}");
    let (out, took) = job.look(&[]);
    let shown = text(&out.stdout);
    assert!(took < LIMIT * 2 && shown.starts_with("rank 2 is behind: "), "{took:?} {shown}");
    assert!(shown.contains("behind by") && shown.contains("4 recorded programs: "), "{shown}");
    // One of them alone.
    let one = finished(doorbell(dir.path()).args(["why", "--now", &job.pids[0].to_string(), "--json"]), "why --now");
    let one: Value = serde_json::from_slice(&one.stdout).unwrap();
    assert!(one["ranks"].is_null() && one["recorders"].is_null(), "{one:#}");
}

#[test]
fn all_ranks_in_the_same_collective() {
    let dir = built!();
    let job = Job::start(dir.path(), &["--calls"], &["launches2", "launches2"], true);
    std::thread::sleep(Duration::from_secs(1));
    let now = job.now();
    assert!(
        answer(&now)[0].starts_with(&format!("all 2 ranks have launched {COLLECTIVE} (number 2 of its stream), ")),
        "{now:#}"
    );
    assert!(answer(&now)[0].ends_with("none of them is behind"), "{now:#}");
}

#[test]
fn a_rank_that_is_missing_in_a_barrier() {
    let dir = built!();
    let job = Job::start(dir.path(), &["--locks"], &["barrier", "absent", "barrier", "barrier"], false);
    let now = job.now();
    let chain = &now["chains"][0];
    assert_eq!(chain["kind"], "barrier", "{now:#}");
    let text = chain["text"].as_str().unwrap();
    assert!(text.contains("(3 of 4 are there)") && text.contains(&format!("thread {} (rank)", job.pids[1])), "{now:#}");
    assert!(text.contains("sleeps in pause"), "{now:#}");
    let pids: Vec<_> = now["ranks"].as_array().unwrap().iter().map(|r| r["pid"].as_i64().unwrap() as i32).collect();
    assert!(job.pids.iter().all(|pid| pids.contains(pid)), "{now:#}");
}

#[test]
fn a_lock_that_another_recorders_program_has() {
    let dir = built!();
    let job = Job::start(dir.path(), &["--locks"], &["lock", "lock"], false);
    let now = job.now();
    let text = answer(&now)[0];
    let (waiter, holder) = (format!("thread {} (rank)", job.pids[1]), format!("thread {} (rank)", job.pids[0]));
    assert!(text.starts_with(&format!("chain: {waiter}")), "{now:#}");
    assert!(text.contains(&format!("which {holder}")) && text.contains("sleeps in pause"), "{now:#}");
}

#[test]
fn stopped_ranks_and_stopped_recorders_hold_up_nobody() {
    let dir = built!();
    let job =
        Job::start(dir.path(), &["--calls"], &["launches2", "late1", "launches2", "launches2", "launches2"], true);
    kill(job.pids[1], libc::SIGSTOP);
    kill(job.recorders[2].id() as i32, libc::SIGSTOP);
    let now = job.until(|said| said[0].starts_with("rank 1 is behind: ranks 0, 3 and 4 have launched "));
    let said = answer(&now);
    assert!(said[1].ends_with(&format!("is stopped (SIGSTOP): process {}", job.pids[1])), "{now:#}");
    let silent = format!("the recorder of process {} does not answer: is it stopped?", job.pids[2]);
    assert!(said.contains(&silent.as_str()), "{now:#}");
    assert!(said.iter().any(|line| line.starts_with("rank 2 of 5 is not recorded here now")), "{now:#}");
    let recorder = now["recorders"].as_array().unwrap().iter().find(|r| r["pid"] == job.pids[2]).unwrap();
    assert_eq!(recorder["failure"], silent, "{now:#}");
    let (_, took) = job.look(&[]);
    assert!(took < LIMIT * 4, "{took:?}");
    // A rank that is killed leaves its recorder, too.
    kill(job.pids[3], libc::SIGKILL);
    job.until(|said| said.iter().any(|line| line.starts_with("ranks 2, 3 of 5 are not recorded here")));
}

#[test]
fn sixty_four_ranks() {
    let dir = built!();
    let mut modes = ["launches2"; 64];
    modes[41] = "late1";
    let job = Job::start(dir.path(), &["--calls"], &modes, true);
    let (out, took) = job.look(&["--json"]);
    println!("{took:?}");
    assert!(out.status.success(), "{}", text(&out.stderr));
    let now = job.until(|said| said[0].starts_with("rank 41 is behind: "));
    println!("{} ranks", now["ranks"].as_array().unwrap().len());
    // (Each has answered, or is named.)
    let named = now["recorders"].as_array().unwrap().iter().filter(|r| job.pids.iter().any(|pid| r["pid"] == *pid));
    assert_eq!(named.count(), 64, "{now:#}");
    // (64 recorders and programs share the machine with it, and the start of a program takes as long as its work.)
    assert!(took < LIMIT * 4, "{took:?}");
}

#[test]
fn all_takes_no_pid() {
    let dir = tempfile::tempdir().unwrap();
    let out = finished(doorbell(dir.path()).args(["why", "--now", "1", "--all"]), "why");
    assert!(out.status.code() == Some(2) && text(&out.stderr).contains("--all cannot be used with a PID"));
    let out = finished(doorbell(dir.path()).args(["why", "--all"]), "why");
    assert_eq!(out.status.code(), Some(2));
}
