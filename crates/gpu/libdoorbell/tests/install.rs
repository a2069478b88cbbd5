//! What install.sh installs is found by pkg-config, links shared and static, and is what Python finds. And the library shows
//! nothing but what the header says.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

fn good(command: &mut Command) -> Output {
    let out = test_support::finished(command, "a step");
    let [said, wrong] = [&out.stdout, &out.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(out.status.success(), "{command:?}: {said}{wrong}");
    out
}

fn words(out: &Output) -> Vec<String> {
    String::from_utf8_lossy(&out.stdout).split_whitespace().map(str::to_owned).collect()
}

/// The major version, before 1.0 with the minor one.
fn interface() -> String {
    match env!("CARGO_PKG_VERSION_MAJOR") {
        "0" => format!("0.{}", env!("CARGO_PKG_VERSION_MINOR")),
        major => major.to_owned(),
    }
}

#[test]
fn a_prefix_has_all_that_programs_need() {
    for need in ["cc", "sed", "install"] {
        if !test_support::installed(need) {
            test_support::skip!("no {need}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("prefix");
    let built = folder.path().join("built");
    std::fs::create_dir(&built).unwrap();
    std::os::unix::fs::symlink(libraries().join("libdoorbell.a"), built.join("libdoorbell.a")).unwrap();
    good(Command::new("sh").arg(root().join("install.sh")).arg("--prefix").arg(&prefix).arg("--from").arg(&built));
    let preload = libraries().join("libdoorbell_softgpu.so");
    let soft = |mut command: Command| {
        command.env("LD_PRELOAD", &preload).env("DOORBELL_SOFTGPU", "poll");
        good(&mut command)
    };
    let source = root().join("../../../examples/c/parameters.c");
    let build = |name: &str, arguments: &[String]| {
        let to = folder.path().join(name);
        good(Command::new("cc").arg("-I").arg(prefix.join("include")).arg(&source).arg("-o").arg(&to).args(arguments));
        to
    };
    let fixed = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let archive = prefix.join("lib/libdoorbell.a").to_str().unwrap().to_owned();
    let alone = build("static", &fixed(&[&archive, "-ldl", "-lpthread", "-lm", "-lgcc_s"]));
    let mut command = Command::new(&alone);
    command.arg("20");
    soft(command);
    if test_support::installed("pkg-config") {
        let ask = |what: &str| {
            let mut command = Command::new("pkg-config");
            command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args([what, "doorbell"]);
            words(&good(&mut command))
        };
        assert_eq!(ask("--modversion"), [env!("CARGO_PKG_VERSION")]);
        let flags = [ask("--cflags"), ask("--libs")].concat();
        let shared = build("shared", &flags);
        if test_support::installed("nm") {
            let needs = words(&good(Command::new("nm").args(["-D", "--undefined-only"]).arg(&shared)));
            let of_doorbell: Vec<_> = needs.iter().filter(|name| name.starts_with("doorbell_")).collect();
            let version = format!("@DOORBELL_{}", interface());
            assert!(
                !of_doorbell.is_empty() && of_doorbell.iter().all(|name| name.ends_with(&version)),
                "{of_doorbell:?}"
            );
        }
        let mut command = Command::new(&shared);
        command.arg("20").env("LD_LIBRARY_PATH", prefix.join("lib"));
        soft(command);
    } else {
        test_support::skip_part!("no pkg-config");
    }
    if test_support::installed("python3") {
        let mut command = Command::new("python3");
        command.args(["-c", "import doorbell; print(doorbell.version())"]).env_remove("DOORBELL_LIB");
        command.env("PYTHONPATH", prefix.join("share/doorbell/python")).env("PYTHONDONTWRITEBYTECODE", "1");
        assert_eq!(words(&soft(command)), ["(0,", "9,", "0)"]);
        let mut command = Command::new("python3");
        command
            .args(["-m", "doorbell.fleet", "/nonexistent"])
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("DOORBELL", "sh");
        let out = command.env("PYTHONPATH", prefix.join("share/doorbell/python")).output().unwrap();
        assert!(String::from_utf8_lossy(&out.stderr).contains("no such folder"), "{out:?}");
    } else {
        test_support::skip_part!("no python3");
    }
}

/// Names like `doorbell_wait` in a text, where `is_end` follows.
fn names(text: &str, is_end: impl Fn(&str) -> bool) -> BTreeSet<&str> {
    let starts = text.match_indices("doorbell_").map(|(at, _)| at);
    let word = |at: usize| {
        let rest = &text[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        is_end(&rest[end..]).then_some(&rest[..end])
    };
    starts.filter_map(word).collect()
}

#[test]
fn the_library_has_the_functions_of_the_header() {
    let header = std::fs::read_to_string(root().join("include/doorbell.h")).unwrap();
    // (These are in the header alone.)
    let (header, _) = header.split_once("/* ======== Orders in one call").unwrap();
    // In comments they are followed by `()`.
    let declared = names(header, |rest| rest.starts_with('(') && !rest.starts_with("()"));
    assert!(declared.len() > 20 && declared.contains("doorbell_transfer_async"), "{declared:?}");
    if !test_support::installed("nm") {
        test_support::skip_part!("no nm");
        return;
    }
    let out = good(Command::new("nm").args(["-D", "--defined-only"]).arg(libraries().join("libdoorbell.so")));
    let text = String::from_utf8_lossy(&out.stdout);
    let exported: BTreeSet<_> = text.lines().filter_map(|line| line.split_whitespace().last()).collect();
    let removed = ["doorbell_learner_create", "doorbell_learner_launch", "doorbell_learner_free"];
    assert_eq!(exported, declared.into_iter().chain(removed).collect(), "libdoorbell.so");
}
