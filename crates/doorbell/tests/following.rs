//! What a program starts is followed, and neither it nor its parent notices.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use trial::{Source, finished, installed};

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

    /// `command`, a shell's, bare and under doorbell: the output must be the same but for `loaded`.
    fn same(&self, under: &[&str], command: &[&str]) -> String {
        let (bare, bare_status) = self.run(Command::new(command[0]).args(&command[1..]), "bare");
        let (text, status) = self.run(doorbell().args(under).args(command), "under doorbell");
        assert_eq!(text.replace("loaded=1", "loaded=0"), bare, "{under:?} {command:?}");
        assert_eq!(status, bare_status, "{under:?} {command:?}: {text}");
        text
    }
}

/// The ways to run a program under doorbell that follow what it starts.
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
        Err(why) => trial::skip!("{why}"),
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
        Err(why) => trial::skip!("{why}"),
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
    if installed("busybox") {
        commands.push(format!("busybox sh -c 'busybox env {who} static'"));
        commands.push(format!("env -i busybox env -i {who} static-cleared"));
    } else {
        trial::skip_part!("no busybox: no static program to follow through");
    }
    if installed("bash") {
        commands.push(format!("bash -c '{who} bash; exec {who} bash-exec'"));
    }
    if installed("python3") {
        commands.push(format!(
            "python3 -c \"import subprocess, os; subprocess.run(['{who}', 'subprocess'], env={{}}); \
             os.system('{who} os-system'); os.waitpid(os.posix_spawn('{who}', ['who', 'os-posix_spawn'], {{}}), 0)\""
        ));
    } else {
        trial::skip_part!("no python3");
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

/// It cannot be recorded, but what it starts can.
#[test]
fn a_static_program_is_passed_through() {
    let rig = match Rig::new() {
        Ok(r) => r,
        Err(why) => trial::skip!("{why}"),
    };
    if !installed("busybox") {
        trial::skip!("no busybox: no static program");
    }
    let who = rig.who.to_str().unwrap();
    let tape = rig.dir.path().join("static.doorbell").display().to_string();
    let record = ["record", "--force", "-q", "--gpu", "soft", "-o", &tape, "--"];
    let text = rig.same(&record, &["busybox", "env", who, "static"]);
    assert!(text.contains("loaded=1 visible=0"), "{text}");
}

#[test]
fn what_a_program_preloads_itself_stays() {
    let rig = match Rig::new() {
        Ok(r) => r,
        Err(why) => trial::skip!("{why}"),
    };
    each_way(&rig, |way| {
        let command = "LD_PRELOAD=libm.so.6 sh -c 'echo $LD_PRELOAD; env | grep -c DOORBELL; env | grep LD_PRELOAD'";
        let text = rig.same(way, &["sh", "-c", command]);
        assert_eq!(text, "libm.so.6\n0\nLD_PRELOAD=libm.so.6\n");
    });
}
