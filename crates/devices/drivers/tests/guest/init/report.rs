//! The messages for the harness: one line for each check on the second serial line, and requests to QEMU there.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
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

/// Has QEMU's monitor do something from outside of this machine, and waits until it has.
pub fn qemu(command: &str) -> Outcome {
    let mut port = File::options().read(true).write(true).custom_flags(libc::O_NOCTTY).open("/dev/ttyS1")?;
    // SAFETY: all zeroes is a value of this struct of numbers.
    let mut how: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is an open terminal, and the call fills the struct.
    ensure(unsafe { libc::tcgetattr(port.as_raw_fd(), &raw mut how) } == 0, || "tcgetattr fails".into())?;
    // The answer is not echoed.
    how.c_lflag &= !libc::ECHO;
    // SAFETY: as above.
    let set = unsafe { libc::tcsetattr(port.as_raw_fd(), libc::TCSANOW, &raw const how) };
    ensure(set == 0, || "tcsetattr fails".into())?;
    port.write_all(format!("qemu {command}\n").as_bytes())?;
    let mut answer = String::new();
    BufReader::new(port).read_line(&mut answer)?;
    ensure(answer.trim() == "done", || format!("QEMU's answer to {command}: {answer}"))
}

pub type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Runs a check; a panic is its failure.
pub fn check(name: &str, body: impl FnOnce() -> Outcome) {
    let started = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(body));
    let took = started.elapsed().as_millis();
    match result {
        Ok(Ok(())) => line(&format!("ok {name} ({took} ms)")),
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
