//! Skips: printed, and written to a file that outlives the test.

use std::fs::OpenOptions;
use std::io::Write;

/// The environment variable that names the file of skips. (Not `DOORBELL_..`: tests compare environments.)
pub const SKIPS: &str = "TEST_SKIPS";

/// Notes that the calling test is skipped and returns from it. The function's result is its type's default: `()`, `None`, `false`.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        $crate::skip_part!($($reason)+);
        return Default::default()
    }};
}

/// Notes that a part of the calling test is skipped. The rest goes on.
#[macro_export]
macro_rules! skip_part {
    ($($reason:tt)+) => {
        $crate::note(env!("CARGO_CRATE_NAME"), concat!(file!(), ":", line!()), &format!($($reason)+))
    };
}

/// What the two macros call: `suite` is the test binary, `place` the line that skips.
pub fn note(suite: &str, place: &str, reason: &str) {
    // The test harness names each test's thread after the test. Threads that the test starts have no name.
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main").unwrap_or(place);
    let line = format!("{suite}::{test}: {}\n", reason.replace('\n', " "));
    eprint!("skipped: {line}");
    let Some(path) = std::env::var_os(SKIPS) else { return };
    let file = OpenOptions::new().create(true).append(true).open(&path);
    // One write: tests of several processes append to the same file.
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|e| panic!("{SKIPS}={}: {e}", path.display()));
}
