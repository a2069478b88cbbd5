//! What the harness reads: one line for each check, on the second serial line.

use std::fs::File;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// Writes a line; without the port, on the console.
pub fn line(text: &str) {
    let port = File::options().write(true).open("/dev/ttyS1");
    let line = format!("{}\n", text.replace('\n', " "));
    let written = port.and_then(|mut port| port.write_all(line.as_bytes()));
    if let Err(why) = written {
        println!("no /dev/ttyS1 ({why}): {line}");
    }
}

pub type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Runs a check; a panic is its failure.
pub fn check(name: &str, body: impl FnOnce() -> Outcome) {
    let started = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(body));
    let took = started.elapsed().as_millis();
    match result {
        Ok(Ok(())) => line(&format!("ok {name}")),
        Ok(Err(why)) => line(&format!("not ok {name} {why} (after {took} ms)")),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            line(&format!("not ok {name} panicked: {} (after {took} ms)", text.unwrap_or("without a text")));
        }
    }
}

/// An error of this text, unless it holds.
pub fn ensure(holds: bool, why: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(why().into()) }
}
