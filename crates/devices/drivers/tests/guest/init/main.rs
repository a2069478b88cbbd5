//! The first program of a small Linux guest (`tests/guest`). It sets the machine up, and runs the checks of the part that the kernel's command line
//! names (`part=sysfs`). It prints `ok NAME` or `not ok NAME why` for each on the second serial line, and powers the machine off.
//!
//! It must never be run elsewhere: it ends at once where the first process is another program.

mod checks;
mod devices;
mod report;
mod setup;

use std::process::ExitCode;

fn main() -> ExitCode {
    if !std::fs::read_link("/proc/1/exe").is_ok_and(|first| first == std::path::Path::new("/init"))
        && std::process::id() != 1
    {
        eprintln!(
            "guest-init is the first program of a virtual machine: run `cargo test -p drivers --test guest -- --include-ignored`"
        );
        return ExitCode::from(2);
    }
    if std::process::id() != 1 {
        let words: Vec<String> = std::env::args().skip(1).collect();
        if let Err(why) = checks::child(&words) {
            println!("{why}");
        }
        return ExitCode::FAILURE;
    }
    // What a driver under test does to this process must not end it: the kernel stops when process 1 ends.
    match setup::machine() {
        Ok(line) => checks::run(&line),
        Err(why) => report::line(&format!("not ok setup {why}")),
    }
    setup::power_off()
}
