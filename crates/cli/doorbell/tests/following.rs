//! A program's child processes are followed, and neither they nor the program notice.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use test_support::{Source, finished, installed};

fn doorbell() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("doorbell"))
}

fn compile(dir: &Path, name: &str) -> Result<PathBuf, String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    Source { file: &file, compiler: "cc", flags: &["-w"] }.compile(dir)
}

/// The two programs, and a PATH that finds them.
struct Rig {
    dir: tempfile::TempDir,
    who: PathBuf,
    starts: PathBuf,
    path: String,
}

impl Rig {
    fn new() -> Result<Rig, String> {
        let dir = tempfile::tempdir().expect("a directory");
        let (who, starts) = (compile(dir.path(), "who.c")?, compile(dir.path(), "starts.c")?);
        let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap_or_default());
        Ok(Rig { dir, who, starts, path })
    }

    fn run(&self, command: &mut Command, what: &str) -> (String, Option<i32>) {
        let Output { status, stdout, stderr } = finished(command.env("PATH", &self.path), what);
        let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        (text, status.code())
    }

    /// Runs the shell's `command` bare and under doorbell: the output must be the same except for `loaded`.
    fn same(&self, under: &[&str], command: &[&str]) -> String {
        let (bare, bare_status) = self.run(Command::new(command[0]).args(&command[1..]), "bare");
        let (text, status) = self.run(doorbell().args(under).args(command), "under doorbell");
        assert_eq!(text.replace("loaded=1", "loaded=0"), bare, "{under:?} {command:?}");
        assert_eq!(status, bare_status, "{under:?} {command:?}: {text}");
        text
    }
}

/// The ways to run a program under doorbell that follow its child processes.
fn ways(dir: &Path) -> Vec<Vec<String>> {
    let tape = dir.join("following.doorbell").display().to_string();
    vec![
        ["run", "--lock-policy", "pi,phase-fair", "--"].map(str::to_owned).to_vec(),
        ["record", "--force", "-q", "--locks", "--gpu", "soft", "-o", &tape, "--"].map(str::to_owned).to_vec(),
    ]
}

fn each_way(rig: &Rig, check: impl Fn(&[&str])) {
    for way in ways(rig.dir.path()) {
        check(&way.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn every_way_to_start_a_program_is_followed() {
    let rig = match Rig::new() {
        Ok(r) => r,
        Err(why) => test_support::skip!("{why}"),
    };
    each_way(&rig, |way| {
        let text = rig.same(way, &[rig.starts.to_str().unwrap(), rig.who.to_str().unwrap()]);
        let loaded = text.lines().filter(|l| l.contains("loaded=1 visible=0")).count();
        assert_eq!(loaded, 18, "{text}");
    });
}

#[test]
fn shells_and_wrappers_are_followed() {
    let rig = match Rig::new() {
        Ok(r) => r,
        Err(why) => test_support::skip!("{why}"),
    };
    let who = rig.who.to_str().unwrap();
    let mut commands = vec![
        format!("{who} plain"),
        format!("env -i {who} cleared"),
        format!("timeout 100 nice env A=1 taskset -c 0 {who} wrappers"),
        format!("exec {who} exec"),
        format!("(({who} deep)); {who} last"),
        format!("printf '#!/bin/sh\\nexec {who} \"$@\"\\n' > shim; chmod +x shim; ./shim shim"),
    ];
    if installed("bash") {
        commands.push(format!("bash -c '{who} bash; exec {who} bash-exec'"));
    }
    if installed("python3") {
        commands.push(format!(
            "python3 -c \"import subprocess, os; subprocess.run(['{who}', 'subprocess'], env={{}}); \
             os.system('{who} os-system'); os.waitpid(os.posix_spawn('{who}', ['who', 'os-posix_spawn'], {{}}), 0)\""
        ));
    } else {
        test_support::skip_part!("no python3");
    }
    let commands: Vec<String> = commands.iter().map(|c| format!("cd {}; {c}", rig.dir.path().display())).collect();
    each_way(&rig, |way| {
        for command in &commands {
            let text = rig.same(way, &["sh", "-c", command]);
            let said = text.lines().filter(|l| l.contains("loaded=")).count();
            let loaded = text.lines().filter(|l| l.contains("loaded=1 visible=0")).count();
            assert!(said > 0 && said == loaded, "{command}: {text}");
        }
    });
}

#[test]
fn what_a_program_preloads_itself_stays() {
    let rig = match Rig::new() {
        Ok(r) => r,
        Err(why) => test_support::skip!("{why}"),
    };
    each_way(&rig, |way| {
        let command = "LD_PRELOAD=libm.so.6 sh -c 'echo $LD_PRELOAD; env | grep -c DOORBELL; env | grep LD_PRELOAD'";
        let text = rig.same(way, &["sh", "-c", command]);
        assert_eq!(text, "libm.so.6\n0\nLD_PRELOAD=libm.so.6\n");
    });
}

/// A recording's summary.
fn summary(tape: &Path) -> Value {
    let out = finished(doorbell().args(["show", "--summary", "--json"]).arg(tape), "show");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("JSON")
}

/// Records `launcher` starting a small program that uses the software GPU, and compares the output with the bare one.
fn launched(dir: &Path, launcher: &[&str], envs: &[(&str, &str)]) -> Value {
    let tape = dir.join("launched.doorbell");
    let sample = [assert_cmd::cargo::cargo_bin!("doorbell").to_str().unwrap(), "sample", "launches", "--gpu", "soft"];
    let mut bare = Command::new(launcher[0]);
    let bare = finished(bare.args(&launcher[1..]).args(sample).envs(envs.iter().copied()), "bare");
    let record = ["record", "--force", "-q", "--locks", "--gpu", "soft", "-o", tape.to_str().unwrap(), "--"];
    let out = finished(doorbell().args(record).args(launcher).args(sample).envs(envs.iter().copied()), "recorded");
    // (The lines of several ranks are printed in any order.)
    let lines = |out: &Output| {
        let mut lines: Vec<String> = String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!((out.status, lines(&out)), (bare.status, lines(&bare)), "{said}");
    summary(&tape)
}

/// The processes that used the GPU.
fn used(summary: &Value) -> Vec<&Value> {
    summary["processes"].as_array().unwrap().iter().filter(|p| p["submissions"] != 0).collect()
}

#[test]
fn the_ranks_of_open_mpi_are_recorded() {
    let ompi = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"].map(|name| (name, "1"));
    let mpirun = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2"];
    if !installed("mpirun") {
        test_support::skip!("no mpirun");
    }
    let works = finished(Command::new("mpirun").args(&mpirun[1..]).arg("true").envs(ompi), "mpirun true");
    if !works.status.success() {
        test_support::skip!("this mpirun is not Open MPI's, or starts nothing here");
    }
    let dir = tempfile::tempdir().unwrap();
    let s = launched(dir.path(), &mpirun, &ompi);
    assert_eq!((&s["complete"], &s["lost"]), (&true.into(), &0.into()), "{s}");
    let mut ranks: Vec<_> = used(&s).iter().map(|p| p["rank"].clone()).collect();
    ranks.sort_by_key(|r| r["rank"].as_u64());
    let rank = |n: u32| serde_json::json!({"rank": n, "local_rank": n, "world_size": 2, "launcher": "openmpi"});
    assert_eq!(ranks, [rank(0), rank(1)]);
    // Both are mpirun's children.
    assert!(used(&s).iter().all(|p| p["parent"] == 0), "{s}");
}

#[test]
fn what_uv_runs_is_recorded() {
    let uv = ["uv", "run", "--no-project", "--offline", "--no-config"];
    if !finished(Command::new("sh").args(["-c", "uv --version"]), "uv --version").status.success() {
        test_support::skip!("no uv");
    }
    let dir = tempfile::tempdir().unwrap();
    let s = launched(dir.path(), &uv, &[]);
    assert_eq!((&s["complete"], &s["lost"]), (&true.into(), &0.into()), "{s}");
    assert_eq!(used(&s).len(), 1, "{s}");
}

/// srun's tasks are started by a daemon, so the recording reports that they are not in it. Here a shell plays srun.
#[test]
fn a_program_whose_work_is_done_elsewhere_makes_a_recording_incomplete() {
    let dir = tempfile::tempdir().unwrap();
    let srun = dir.path().join("srun");
    std::fs::copy("/bin/sh", &srun).unwrap();
    let tape = dir.path().join("srun.doorbell");
    let srun = srun.to_str().unwrap();
    let again = format!("{srun} -c 'exit 3'; exit 4");
    for (command, status) in [(vec![srun, "-c", "exit 3"], 3), (vec!["sh", "-c", &again], 4)] {
        let record = ["record", "--force", "-q", "--gpu", "soft", "-o", tape.to_str().unwrap(), "--"];
        let out = finished(doorbell().args(record).args(&command), "srun");
        assert_eq!(out.status.code(), Some(status), "{}", String::from_utf8_lossy(&out.stderr));
        let s = summary(&tape);
        assert_eq!(s["complete"], false, "{s}");
        let why = s["incomplete_because"].to_string();
        assert!(why.contains("srun (what it starts is not its child)"), "{why}");
    }
}

/// The costs of each start, sorted: us from fork to wait, and us of CPU.
fn starts(said: &str, how: &str) -> [Vec<f64>; 2] {
    let of = |field: usize| {
        let lines = said.lines().filter_map(|l| l.strip_prefix(how)?.strip_prefix(' '));
        let mut all: Vec<f64> = lines.map(|l| l.split(' ').nth(field).unwrap().parse().unwrap()).collect();
        all.sort_by(f64::total_cmp);
        all
    };
    [of(0), of(1)]
}

/// One program starts `true` both ways in turns, so a busy machine is as busy for both.
#[test]
fn a_followed_child_that_records_nothing_costs_at_most_a_millisecond() {
    const RUNS: usize = 200;
    let dir = tempfile::tempdir().expect("a directory");
    let program = match compile(dir.path(), "starts_often.c") {
        Ok(p) => p,
        Err(why) => test_support::skip!("{why}"),
    };
    let tape = dir.path().join("t.doorbell");
    test_support::measured(|| {
        let mut record = doorbell();
        record.args(["record", "--force", "-q", "--locks", "--tap", "off", "-o"]).arg(&tape).arg("--").arg(&program);
        let out = finished(record.args([&RUNS.to_string(), "/bin/true"]), "starts_often");
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
        // Each had the agent in it, but none is on the tape.
        let summary = summary(&tape);
        assert_eq!(summary["processes"].as_array().map(Vec::len), Some(1), "{summary}");
        let (bare, followed) = (starts(&said, "bare"), starts(&said, "followed"));
        let both = [(0, "from fork to wait"), (1, "of CPU")].map(|(i, what)| {
            assert_eq!((bare[i].len(), followed[i].len()), (RUNS, RUNS));
            let [p50, p99] = [50, 99].map(|p| (bare[i][RUNS * p / 100], followed[i][RUNS * p / 100]));
            println!("us {what}: bare p50 {:.0} p99 {:.0}, followed p50 {:.0} p99 {:.0}", p50.0, p99.0, p50.1, p99.1);
            p50
        });
        // (On a busy machine the time from fork to wait measures the machine: each start then waits for a CPU, and one that
        // takes longer waits more often.)
        let [_, (bare, followed)] = both;
        assert!(followed > bare, "is it followed? bare {bare:.0} us, followed {followed:.0} us of CPU");
        if followed - bare < 1000.0 {
            Ok(())
        } else {
            Err(format!("bare {bare:.0} us, followed {followed:.0} us of CPU"))
        }
    });
}

/// A page that a forked child writes to is copied for it. The agent's tables are large: only their used part may be touched.
#[test]
fn a_recorded_child_touches_few_pages() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = match compile(dir.path(), "forks.c") {
        Ok(p) => p,
        Err(why) => test_support::skip!("{why}"),
    };
    let pages = |command: &mut Command| -> u64 {
        let out = finished(command.arg("30"), "forks");
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
        said.trim().strip_prefix("pages ").and_then(|n| n.parse().ok()).expect("a number")
    };
    let bare = pages(&mut Command::new(&program));
    let tape = dir.path().join("t.doorbell");
    let mut record = doorbell();
    record.args(["record", "-q", "--locks", "--tap", "off", "-o"]).arg(&tape).arg("--").arg(&program);
    let recorded = pages(&mut record);
    let mut run = doorbell();
    let policies = pages(run.args(["run", "--lock-policy", "ticket", "--"]).arg(&program));
    println!("pages of a child: bare {bare}, recorded {recorded}, under policies {policies}");
    assert_eq!(summary(&tape)["processes"].as_array().map(Vec::len), Some(31), "each child takes a lock");
    assert!(
        recorded < bare + 60 && policies < bare + 30,
        "bare {bare}, recorded {recorded}, under policies {policies}"
    );
}
