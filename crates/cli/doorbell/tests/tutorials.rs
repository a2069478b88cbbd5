//! The tutorials as a reader runs them: all blocks of a page, in order, in one shell and one folder, on the software GPU.
//!
//! - `sh` must succeed. With `# needs a GPU` as its first line it is not run; `src/printed.rs` still parses its commands.
//! - `python` or `c` that begins with a file's name is written to that file.
//! - `text` below an `sh` is its output. Numbers may differ.

mod pages;

use pages::{Block, NEEDS_GPU};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Commands that build files which this test finds next to itself.
const BUILT: &[&str] =
    &["crates/gpu/libdoorbell/install.sh --prefix target/prefix", "cargo build --release -p softcuda"];

/// A clone in which these were built, as far as the tutorials need it.
fn clone() -> tempfile::TempDir {
    let (dir, root) = (tempfile::tempdir().unwrap(), pages::root().canonicalize().unwrap());
    let target = dir.path().join("target");
    let built = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    for name in ["crates", "docs", "examples"] {
        symlink(root.join(name), dir.path().join(name)).unwrap();
    }
    fs::create_dir_all(target.join("prefix/lib")).unwrap();
    fs::create_dir_all(target.join("prefix/share/doorbell")).unwrap();
    symlink(&built, target.join("release")).unwrap();
    symlink(root.join("crates/gpu/libdoorbell/include"), target.join("prefix/include")).unwrap();
    symlink(built.join("libdoorbell.so"), target.join("prefix/lib/libdoorbell.so")).unwrap();
    symlink(root.join("python"), target.join("prefix/share/doorbell/python")).unwrap();
    dir
}

/// Runs a text as a shell does; returns its output, both streams together.
fn run(dir: &Path, script: &str, what: &str) -> String {
    let own = Path::new(env!("CARGO_BIN_EXE_doorbell")).parent().unwrap();
    let path = format!("{}:{}", own.display(), std::env::var("PATH").unwrap());
    fs::write(dir.join("script"), format!("exec 2>&1\nset -e\n{script}")).unwrap();
    let mut command = Command::new("sh");
    command.arg("script").current_dir(dir).env("PATH", path);
    // The library that install.sh links, next to the package.
    command.env("DOORBELL_LIB", dir.join("target/prefix/lib/libdoorbell.so"));
    let out = test_support::finished_within(&mut command, Duration::from_secs(300), what);
    let out = out.unwrap_or_else(|| panic!("{what} does not end"));
    let printed = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{what}: {}\n{printed}", out.status);
    printed
}

/// The name of the file that a block contains.
fn file_name(block: &Block) -> Option<&str> {
    let first = block.lines.first()?;
    let name = match block.kind.as_str() {
        "python" => first.strip_prefix("# ")?,
        "c" => first.strip_prefix("/* ")?.strip_suffix(" */")?,
        _ => return None,
    };
    (name.contains('.') && !name.contains(' ')).then_some(name)
}

/// A line without its numbers and their units.
fn shape(line: &str) -> String {
    let words =
        line.split_whitespace().filter(|word| !["ns", "us", "ms", "s", "B", "KiB", "MiB", "GiB"].contains(word));
    let words = words.map(|word| if word.contains(|c: char| c.is_ascii_digit()) { "N" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

fn is_run(block: &Block) -> bool {
    block.kind == "sh" && block.lines.first().is_none_or(|line| line != NEEDS_GPU)
}

#[test]
fn each_page_runs_from_its_first_block_to_its_last() {
    for needed in ["python3", "cc"] {
        if !test_support::installed(needed) {
            test_support::skip!("no {needed}");
        }
    }
    for page in pages::tutorials() {
        let (dir, blocks) = (clone(), pages::blocks(&page));
        let name = page.file_name().unwrap().to_string_lossy().into_owned();
        let mut script = String::new();
        for (n, block) in blocks.iter().enumerate() {
            if let Some(file) = file_name(block) {
                fs::write(dir.path().join(file), block.lines.join("\n") + "\n").unwrap();
            } else if is_run(block) {
                script += &format!("echo; echo '== block {n}'\n");
                for line in block.lines.iter().filter(|line| !BUILT.iter().any(|built| line.starts_with(built))) {
                    script += &format!("{line}\n");
                }
            }
        }
        let printed = run(dir.path(), &script, &name);
        // Output that differs from machine to machine is in guides, not in tutorials.
        if page.parent().unwrap().ends_with("guides") {
            continue;
        }
        for (n, pair) in blocks.windows(2).enumerate().filter(|(_, pair)| is_run(&pair[0]) && pair[1].kind == "text") {
            let from = printed.split(&format!("== block {n}\n")).nth(1).unwrap();
            let all: Vec<String> = from.split("\n== block ").next().unwrap().lines().map(shape).collect();
            for line in &pair[1].lines {
                let is_there = all.iter().any(|one| one.contains(&shape(line)));
                assert!(is_there, "{name}:{}: not printed: {line}\n{}", pair[1].line, all.join("\n"));
            }
        }
    }
}
