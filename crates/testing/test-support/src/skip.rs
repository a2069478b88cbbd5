//! Skips: printed, and written to a file that outlives the test.

use std::cell::Cell;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::UnwindSafe;

/// The environment variable that names the file of skips. (Not `DOORBELL_..`: tests compare environments.)
pub const SKIPS: &str = "TEST_SKIPS";

/// Notes that the calling test is skipped and returns from it. The function's result is its type's default: `()`, `None`, `false`.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        $crate::skip_part!($($reason)+);
        $crate::skipped();
        return Default::default()
    }};
}

/// Notes that a part of the calling test is skipped. The rest continues.
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
    // (Not by a macro, whose output the harness keeps to itself when a test passes.)
    let _ = std::io::stderr().lock().write_all(format!("skipped: {line}").as_bytes());
    let Some(path) = std::env::var_os(SKIPS) else { return };
    let file = OpenOptions::new().create(true).append(true).open(&path);
    // One write: tests of several processes append to the same file.
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.unwrap_or_else(|e| panic!("{SKIPS}={}: {e}", path.display()));
}

thread_local! {
    /// The test of this thread was skipped as a whole.
    static SKIPPED: Cell<bool> = const { Cell::new(false) };
}

/// [`skip!`](crate::skip) calls this in addition to [`note`].
pub fn skipped() {
    SKIPPED.set(true);
}

/// Runs the test of a defect that is not fixed yet: it must fail, and is listed among the skips. When it passes, this panics:
/// the fix of the defect takes this call away.
pub fn known_defect(suite: &str, defect: &str, test: impl FnOnce() + UnwindSafe) {
    SKIPPED.set(false);
    match std::panic::catch_unwind(test) {
        Ok(()) if SKIPPED.get() => {}
        Ok(()) => panic!("this defect is fixed, remove known_defect: {defect}"),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            let first = text.unwrap_or_default().lines().next().unwrap_or_default();
            note(suite, "?", &format!("known defect: {defect} ({first})"));
        }
    }
}
