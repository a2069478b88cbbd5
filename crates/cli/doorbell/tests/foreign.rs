//! Names of a program cannot act on the terminal in which a recording is made or read.

use std::path::Path;
use std::process::Command;
use test_support::{Source, finished};

/// Sets the terminal's title, its colour, goes back, turns the line's order, and begins a line.
const NAME: &str = "x\x1b]0;TITLE\x07\x1b[31mRED\x08\x08\u{202e}\u{9b}2J\nforged";

#[test]
fn a_hostile_name_reaches_no_terminal_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let who = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/becomes.c");
    let built = match (Source { file: &who, compiler: "cc", flags: &["-w"] }).compile(dir.path()) {
        Ok(built) => built,
        Err(why) => test_support::skip!("{why}"),
    };
    let (program, fixed) = (dir.path().join(NAME), dir.path().join(format!("s{NAME}")));
    std::fs::copy(built, &program).unwrap();
    let fixed_is_there =
        (Source { file: &who, compiler: "cc", flags: &["-w", "-static"] }).compile(&dir.path().join("."));
    std::fs::copy(fixed_is_there.unwrap_or_else(|_| program.clone()), &fixed).unwrap();
    let run = |words: &[&str]| {
        let out = finished(Command::new(env!("CARGO_BIN_EXE_doorbell")).args(words).current_dir(dir.path()), words[0]);
        format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
    };
    let tape = format!("t{NAME}.doorbell");
    let mut said =
        vec![run(&["record", "--locks", "--calls", "-o", &tape, "sh", "-c", "./x* end .; ./sx* end .; true"])];
    for view in ["--summary", "--locks", "--calls"] {
        said.push(run(&["show", view, "--color", "always", &tape]));
        said.push(run(&["show", view, "--json", &tape]));
    }
    said.extend([run(&["why", &tape]), run(&["show", &format!("{NAME}.no")]), run(&["plan", &tape])]);
    for text in &said {
        let own =
            ["\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m"].iter().fold(text.clone(), |text, own| text.replace(own, ""));
        let bad = own.chars().find(|c| (c.is_control() && !"\n\t".contains(*c)) || *c == '\u{202e}');
        assert_eq!(bad, None, "{text:?}");
    }
    let names = |text: &String| text.contains("TITLE");
    assert!(names(&said[0]) && names(&said[1]) && names(&said[3]), "the views have the name: {said:#?}");
    let summary: serde_json::Value = serde_json::from_str(&said[2]).unwrap();
    assert!(summary["processes"].to_string().contains("TITLE"), "{summary}");
}
