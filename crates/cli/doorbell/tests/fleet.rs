//! The Python module `doorbell.fleet`: its own tests, with this command, on jobs of the software GPU.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(300);

fn tests(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../python/tests").join(name)
}

/// The tests of one file, by `FLEET_PYTHON` (an interpreter that has Dask, DuckDB and pandas) or `python3`. `None` without
/// one, printed where skips are counted.
fn ran(name: &str) -> Option<Output> {
    let named = std::env::var("FLEET_PYTHON").unwrap_or_else(|_| "python3".into());
    if !test_support::installed(&named) {
        test_support::skip_part!("no {named}");
        return None;
    }
    let library = std::env::current_exe().unwrap().with_file_name("libsoftcuda.so");
    let mut command = Command::new(named);
    command.arg(tests(name)).arg("-v").env("PYTHONDONTWRITEBYTECODE", "1").env_remove("DOORBELL_LIB");
    command.env("DOORBELL", assert_cmd::cargo::cargo_bin!("doorbell")).env("DOORBELL_SOFTCUDA", library);
    let out = test_support::finished_within(&mut command, PATIENCE, "python3").expect("still running");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success() && said.contains("\nRan "), "{said}");
    for line in said.lines().filter(|line| line.contains(" skipped ")) {
        test_support::skip_part!("{line}");
    }
    Some(out)
}

#[test]
fn sums_clocks_and_verdicts() {
    ran("test_fleet.py");
}

#[test]
#[ignore = "30 s; run by .ci/run"]
fn planted_differences_among_64_ranks_are_named() {
    ran("test_fleet_jobs.py");
}
