//! Which line of Python makes each CUDA call, according to Python itself, with every version on this machine.

use decode::python_frames::{Found, Stacks};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use tape::call::{CallBody, function};
use tape::event::{Body, Events};
use tape::file::{Item, Reader};
use tape::python::DEPTH;
use test_support::Source;

fn tests(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// The folder of a library with CUDA's name; `None` without a C compiler.
fn library() -> Option<&'static Path> {
    static DIR: OnceLock<Result<tempfile::TempDir, String>> = OnceLock::new();
    let dir = DIR.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let library = |file: &str, name| {
            Source { file: &tests(file), compiler: "cc", flags: &[] }.compile_library(dir.path(), name)
        };
        library("calls/libcuda.c", "libcuda.so.1")?;
        library("python/loop.c", "libloop.so")?;
        Ok(dir)
    });
    match dir {
        Ok(dir) => Some(dir.path()),
        Err(reason) => test_support::skip!("{reason}"),
    }
}

/// An interpreter of each minor version, from those that are installed for all users or by pyenv.
fn interpreters() -> &'static BTreeMap<u32, PathBuf> {
    static ALL: OnceLock<BTreeMap<u32, PathBuf>> = OnceLock::new();
    ALL.get_or_init(look_for_interpreters)
}

fn look_for_interpreters() -> BTreeMap<u32, PathBuf> {
    let home = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    let versions = home.and_then(|home| std::fs::read_dir(home.join("versions")).ok());
    let by_pyenv = versions.into_iter().flatten().flatten().map(|v| v.path().join("bin/python3"));
    let usual = (9..15).map(|minor| PathBuf::from(format!("/usr/bin/python3.{minor}")));
    let mut out = BTreeMap::new();
    for path in by_pyenv.chain(usual).filter(|path| path.is_file()) {
        let said = Command::new(&path).args(["-c", "import sys; print(sys.version_info[1])"]).output().unwrap();
        if let Ok(minor) = String::from_utf8_lossy(&said.stdout).trim().parse() {
            out.insert(minor, path);
        }
    }
    out
}

/// Records a program; returns its output.
fn recorded(python: &Path, arguments: &[&str], tape: &Path, options: &[&str]) -> Option<Output> {
    let library = library()?;
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.args(["record", "--force", "--tap", "off", "--out"]).arg(tape).args(options).arg("--").arg(python);
    command.args(arguments).env("LD_LIBRARY_PATH", library).env("PYTHONIOENCODING", "utf-8");
    Some(test_support::finished(&mut command, "doorbell record"))
}

struct Call {
    name: &'static str,
    body: CallBody,
    process: u32,
}

fn read(tape: &Path) -> (Vec<Call>, Stacks) {
    let (mut calls, mut stacks) = (Vec::new(), Stacks::default());
    let mut reader = Reader::open(tape).unwrap();
    while let Some(item) = reader.item().unwrap() {
        let Item::Events { process, bytes, .. } = item else { continue };
        for e in Events::new(&bytes) {
            stacks.event(process, &e);
            if let Body::Call(body) = e.body {
                calls.push(Call { name: function(e.head.flags).unwrap().name, body, process });
            }
        }
    }
    stacks.finish();
    (calls, stacks)
}

/// File, line and function of each frame.
type Frames = Vec<(String, u32, String)>;

/// The frames that the program prints, by the numbers of its calls.
fn said(out: &Output) -> BTreeMap<u64, Frames> {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let rows = String::from_utf8(out.stdout.clone()).unwrap();
    let rows = rows.lines().map(|row| serde_json::from_str::<Value>(row).unwrap());
    let frame = |f: &Value| {
        let text = |i: usize| f[i].as_str().unwrap().to_owned();
        (text(0), f[1].as_u64().unwrap() as u32, text(2))
    };
    rows.map(|row| (row[0].as_u64().unwrap(), row[1].as_array().unwrap().iter().map(frame).collect())).collect()
}

/// A name in its stored form.
fn kept(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    match chars.len().saturating_sub(1024) {
        0 => name.into(),
        cut => format!("...{}", chars[cut..].iter().collect::<String>()),
    }
}

fn compare(minor: u32, out: &Output, tape: &Path) {
    let said = said(out);
    let (calls, stacks) = read(tape);
    let mut compared = 0;
    for call in &calls {
        let found = stacks.stack(call.process, call.body.python);
        let Some(frames) = said.get(&call.body.object).filter(|_| call.name == "cuMemFree") else {
            assert_eq!((call.name, found), ("cuCtxSynchronize", Found::None), "3.{minor}: a thread of C's own");
            continue;
        };
        let Found::Stack(stack) = found else { panic!("3.{minor}: {found:?}, should be {frames:?}") };
        let read = |f: &decode::python_frames::Frame| (f.code.file.clone(), f.line.unwrap(), f.code.function.clone());
        let read: Frames = stack.frames.iter().map(read).collect();
        let frames: Frames = frames.iter().take(DEPTH).map(|(a, b, c)| (kept(a), *b, c.clone())).collect();
        assert_eq!(read, frames, "3.{minor} call {}", call.body.object);
        assert_eq!(stack.deeper, said[&call.body.object].len() > DEPTH);
        compared += 1;
    }
    assert_eq!(compared, said.len(), "3.{minor}");
}

#[test]
fn every_call_has_the_frames_that_python_says() {
    let dir = tempfile::tempdir().unwrap();
    let program = tests("python/frames.py");
    let mut lacks = Vec::new();
    let all = interpreters();
    std::thread::scope(|scope| {
        for minor in 9..15 {
            let Some(python) = all.get(&minor) else {
                lacks.push(format!("3.{minor}"));
                continue;
            };
            let tape = dir.path().join(format!("{minor}.doorbell"));
            let program = program.to_str().unwrap();
            scope.spawn(move || {
                let Some(out) = recorded(python, &[program], &tape, &["--python"]) else { return };
                compare(minor, &out, &tape);
            });
        }
    });
    if !lacks.is_empty() {
        test_support::skip_part!("no Python {}", lacks.join(", "));
    }
}

/// A program that looks like an interpreter; returns what the recorder prints about it.
fn faked(flags: &[&str], version: &str, state: Option<&str>) -> Option<String> {
    let library = library()?;
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("fake");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-rdynamic"]).args(flags).arg(tests("python/fake.c")).arg(library.join("libcuda.so.1"));
    assert!(cc.arg("-o").arg(&program).status().unwrap().success());
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.args(["record", "--python", "--tap", "off", "--out"]).arg(dir.path().join("t.doorbell")).arg("--");
    command.arg(&program).env("LD_LIBRARY_PATH", library).env("FAKE_VERSION", version);
    state.map(|state| command.env("FAKE_STATE", state));
    let out = test_support::finished(&mut command, "doorbell record");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "done\n");
    let (calls, stacks) = read(&dir.path().join("t.doorbell"));
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|c| stacks.stack(c.process, c.body.python) == Found::None));
    Some(String::from_utf8(out.stderr).unwrap())
}

#[test]
fn interpreters_that_are_not_known_are_refused_by_name() {
    let layout = "its frames are not where its version has them";
    for (flags, version, state, why) in [
        (&[][..], "3.8.18 (default)", None, "its version is not one that is known"),
        (&[], "3.15.0 (main)", None, "its version is not one that is known"),
        (&[], "PyPy", None, "its version is not one that is known"),
        (&[], "3.13.0 experimental free-threading build (main)", None, "without the global interpreter lock"),
        (&["-DDEBUG_BUILD"], "3.12.1 (main)", None, "it is a debug build"),
        (&[], "3.11.7 (main)", None, layout),
        // A missing state, and one that is no address.
        (&[], "3.9.18 (main)", Some("10"), layout),
        (&[], "3.12.1 (main)", Some("1234567890abcdef"), layout),
    ] {
        let Some(said) = faked(flags, version, state) else { return };
        assert!(said.contains("no Python frames: ") && said.contains(why), "{version}: {said}");
    }
}

#[test]
fn a_recording_in_which_no_python_was_found_says_so() {
    let Some(library) = library() else { return };
    let dir = tempfile::tempdir().unwrap();
    let tape = dir.path().join("t.doorbell");
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.args(["record", "--python", "--tap", "off", "--out"]).arg(&tape).args(["--", "true"]);
    let out = test_support::finished(command.env("LD_LIBRARY_PATH", library), "doorbell record");
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("no Python frames: no call of CUDA's was made from Python"), "{said}");
    let mut show = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    let out = show.args(["show", "--python"]).arg(&tape).output().unwrap();
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(said.contains("no CUDA call was made from Python while it was watched"), "{said}");
}

/// Any interpreter whose frames are read.
fn any() -> Option<PathBuf> {
    let found = interpreters().iter().find(|(minor, _)| (9..15).contains(*minor)).map(|(_, path)| path.clone());
    if found.is_none() {
        test_support::skip!("no Python 3.9 to 3.14");
    }
    found
}

#[test]
fn views_name_the_line_and_redaction_removes_its_names() {
    let Some(python) = any() else { return };
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("secret_train.py");
    let text = "import ctypes\ncuda = ctypes.CDLL('libcuda.so.1')\n\ndef secret_step(n):\n    for _ in range(n):\n        \
                cuda.cuMemcpyHtoD_v2(1, 2, 64)\n\nsecret_step(5)\ncuda.cuGraphLaunch(1, 2)\n";
    std::fs::write(&program, text).unwrap();
    let tape = dir.path().join("t.doorbell");
    let Some(out) = recorded(&python, &[program.to_str().unwrap()], &tape, &["--python"]) else { return };
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("show --python"), "{said}");
    let show = |tape: &Path, options: &[&str]| {
        let mut show = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
        let out = show.arg("show").args(options).arg(tape).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../explain/decode/fixtures/h200-launches.doorbell");
    let mut without = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    let out = without.args(["show", "--python"]).arg(old).output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(!out.status.success() && said.contains("record --python"), "{said}");
    let text = show(&tape, &["--python"]);
    assert!(text.contains("secret_train.py:6  secret_step") && text.contains("secret_train.py:9  <module>"), "{text}");
    let json: Value = serde_json::from_str(&show(&tape, &["--python", "--json"])).unwrap();
    let row = |line: u64| json["lines"].as_array().unwrap().iter().find(|l| l["line"] == line).unwrap();
    assert_eq!((&row(6)["calls"], &row(6)["bytes"], &row(6)["launches"]), (&5.into(), &320.into(), &0.into()));
    assert_eq!((&row(9)["calls"], &row(9)["launches"], &row(9)["stacks"]), (&1.into(), &1.into(), &1.into()));
    assert_eq!(row(6)["stack"][1]["line"], 8);
    assert_eq!((&json["without"], &json["lost"]), (&0.into(), &0.into()));
    // The same line for each call, and the whole stack in a trace for PyTorch's tools.
    let calls: Value = serde_json::from_str(&show(&tape, &["--calls", "--json"])).unwrap();
    let call =
        |name: &str| calls["calls"].as_array().unwrap().iter().find(|c| c["call"] == name).unwrap()["python"].clone();
    let (copy, launch) = (call("cuMemcpyHtoD"), call("cuGraphLaunch"));
    assert_eq!((&copy["line"], &copy["times"], &copy["others"]), (&6.into(), &5.into(), &0.into()));
    assert_eq!((&copy["function"], &launch["line"]), (&"secret_step".into(), &9.into()));
    let text = show(&tape, &["--calls"]);
    assert!(text.contains("line of Python") && text.contains("secret_train.py:6"), "{text}");
    let mut export = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    let out = export.args(["export", "--kineto"]).arg(&tape).output().unwrap();
    let trace: Value = serde_json::from_slice(&out.stdout).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let stack = |e: &&Value| e["name"] == "cuMemcpyHtoD" && e["args"]["Call stack"].is_string();
    let copies: Vec<&str> = events.iter().filter(stack).map(|e| e["args"]["Call stack"].as_str().unwrap()).collect();
    assert_eq!(copies.len(), 5);
    assert!(
        copies[0].contains("secret_train.py(6): secret_step;") && copies[0].ends_with("(8): <module>"),
        "{copies:?}"
    );
    let clean = dir.path().join("clean.doorbell");
    let mut redact = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    assert!(redact.args(["redact"]).args([&tape, &clean]).status().unwrap().success());
    let text = show(&clean, &["--python"]);
    assert!(!text.contains("secret") && text.contains(":6  function_1") && text.contains(":9  <module>"), "{text}");
    let bytes = std::fs::read(&clean).unwrap();
    assert!(!bytes.windows(6).any(|w| w == b"secret"));
}

#[test]
fn forked_children_have_frames_of_their_own() {
    let Some(python) = any() else { return };
    let dir = tempfile::tempdir().unwrap();
    let tape = dir.path().join("t.doorbell");
    let program = "import ctypes, os\ncuda = ctypes.CDLL('libcuda.so.1')\ndef f(n): cuda.cuMemFree_v2(n)\nf(1)\n\
                   if os.fork() == 0:\n  f(2)\n  f(3); os._exit(0)\nos.wait()\nf(4)";
    let Some(out) = recorded(&python, &["-c", program], &tape, &["--python"]) else { return };
    assert!(out.status.success());
    let (calls, stacks) = read(&tape);
    let mut lines = BTreeMap::new();
    for c in &calls {
        let Found::Stack(stack) = stacks.stack(c.process, c.body.python) else { panic!("{:?}", c.body) };
        lines.insert(c.body.object, (c.process, stack.frames[1].line.unwrap()));
    }
    assert_eq!(lines, BTreeMap::from([(1, (0, 4)), (2, (1, 6)), (3, (1, 7)), (4, (0, 9))]));
}

/// Before 3.12 the interpreter has only a thread's first state, which is the one that entered the other interpreter.
#[test]
fn a_subinterpreters_call_has_its_line_or_the_one_that_entered_it() {
    let all = interpreters();
    let dir = tempfile::tempdir().unwrap();
    let program = "import sys\ntry: import _interpreters as subs\nexcept ImportError: import _xxsubinterpreters as subs\n\
                   how = {13: ('legacy',)}.get(sys.version_info[1], ())\n\
                   isolated = {'isolated': False} if sys.version_info[1] == 12 else {}\n\
                   i = subs.create(*how, **isolated)\n\
                   subs.run_string(i, \"import ctypes\\nctypes.CDLL('libcuda.so.1').cuMemFree_v2(7)\\n\")\n\
                   import ctypes\nctypes.CDLL('libcuda.so.1').cuMemFree_v2(8)\n";
    for (minor, python) in all.iter().filter(|(minor, _)| (9..15).contains(*minor)) {
        let tape = dir.path().join(format!("{minor}.doorbell"));
        let Some(out) = recorded(python, &["-c", program], &tape, &["--python"]) else { return };
        assert!(out.status.success(), "3.{minor}: {}", String::from_utf8_lossy(&out.stderr));
        let (calls, stacks) = read(&tape);
        let line = |c: &Call| match stacks.stack(c.process, c.body.python) {
            Found::Stack(s) => (c.body.object, s.frames.len(), s.frames[0].line.unwrap()),
            found => panic!("3.{minor}: {found:?}"),
        };
        let inside = if *minor < 12 { (7, 1, 7) } else { (7, 1, 2) };
        assert_eq!(calls.iter().map(line).collect::<Vec<_>>(), [inside, (8, 1, 9)], "3.{minor}");
    }
}

#[test]
fn an_interpreter_that_ends_while_threads_are_in_calls_is_left_alone() {
    let all = interpreters();
    let dir = tempfile::tempdir().unwrap();
    // Threads that the interpreter does not wait for, in C, without its lock; its end frees their states. (A thread that
    // returns to Python then is ended there, which crashes Python 3.10 itself once in a hundred times.)
    let program = "import ctypes, threading, time\ncuda = ctypes.CDLL('libcuda.so.1')\nlib = ctypes.CDLL('libloop.so')\n\
                   ready = threading.Barrier(5)\ndef work():\n  ready.wait()\n  lib.call_for_ever(cuda.cuCtxSynchronize)\n\
                   for _ in range(4): threading.Thread(target=work, daemon=True).start()\nready.wait(); time.sleep(0.01)\n\
                   print('done')";
    std::thread::scope(|scope| {
        for (minor, python) in all.iter().filter(|(minor, _)| (9..15).contains(*minor)) {
            let dir = dir.path();
            scope.spawn(move || {
                let tape = dir.join(format!("{minor}.doorbell"));
                let Some(out) = recorded(python, &["-c", program], &tape, &["--python"]) else { return };
                let said = String::from_utf8_lossy(&out.stderr);
                assert!(out.status.success(), "3.{minor}: {:?} {said}", out.status);
                assert_eq!(String::from_utf8_lossy(&out.stdout), "done\n", "3.{minor}");
            });
        }
    });
}
