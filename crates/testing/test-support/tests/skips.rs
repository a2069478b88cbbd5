//! A skip is counted, and a program that hangs ends.

use std::process::Command;
use std::time::Duration;

fn asks() -> Option<u32> {
    test_support::skip!("no {}", "answer");
}

#[test]
#[ignore = "started by the test below"]
fn plays_skips() {
    assert_eq!(asks(), None);
    test_support::skip_part!("half of it");
    test_support::skip!("two\nlines");
}

#[test]
#[ignore = "started by the test below"]
fn plays_defects() {
    test_support::known_defect("skips", "this one is there", || panic!("as expected"));
    test_support::known_defect("skips", "this one is skipped", || test_support::skip!("nothing to see"));
    let gone = std::panic::catch_unwind(|| test_support::known_defect("skips", "this one is gone", || {}));
    assert!(gone.is_err_and(|e| e.downcast_ref::<String>().is_some_and(|text| text.contains("this one is gone"))));
}

#[test]
fn every_skip_is_a_line_with_the_tests_name_and_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let skips = dir.path().join("skips");
    let mut again = Command::new(std::env::current_exe().unwrap());
    again
        .args(["plays_skips", "--exact", "--ignored", "--nocapture", "--test-threads=2"])
        .env(test_support::SKIPS, &skips);
    for _ in 0..2 {
        let out = test_support::finished(&mut again, "the tests that skip");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && said.contains("skipped: skips::plays_skips: no answer"), "{said}");
    }
    let lines = std::fs::read_to_string(&skips).unwrap();
    let one = "skips::plays_skips: no answer\nskips::plays_skips: half of it\nskips::plays_skips: two lines\n";
    assert_eq!(lines, one.repeat(2));
}

#[test]
fn a_program_that_hangs_is_killed_with_what_it_started() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "sleep 1000 & echo $!; wait"]);
    assert!(test_support::finished_within(&mut shell, Duration::from_millis(300), "sh").is_none());
    let mut quick = Command::new("sh");
    let out = test_support::finished(quick.args(["-c", "exit 3"]), "sh");
    assert_eq!(out.status.code(), Some(3));
}

#[test]
fn installed_programs_are_found_in_the_path() {
    assert!(test_support::installed("sh") && !test_support::installed("no-such-program-anywhere"));
}

#[test]
fn a_known_defect_that_is_gone_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["plays_defects", "--exact", "--ignored"]).env(test_support::SKIPS, dir.path().join("skips"));
    let out = test_support::finished(&mut again, "the tests of defects");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    let lines = std::fs::read_to_string(dir.path().join("skips")).unwrap();
    let (first, second) = lines.trim().split_once('\n').unwrap();
    assert!(first.ends_with("known defect: this one is there (as expected)"), "{first}");
    assert!(second.ends_with("nothing to see"), "{second}");
}
