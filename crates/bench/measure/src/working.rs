//! The process of a load: it works until it is asked to end, and reports its counts.

use crate::clock::Clock;
use crate::load::{self, Running};
use crate::process::{EACH, GO, Line, Work};
use experiment::Gpu;
use run_folder::Loaded;
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use workload::Machine;

/// The last command.
const RESTS: u8 = 0;
const GOES: u8 = 1;
const ENDS: u8 = 2;

/// Works for a load until standard input ends. For a process that was started with the arguments of [`crate::process::starts_by`] and this text.
///
/// # Errors
/// An invalid text, and an end of standard output.
pub fn work(text: &str, open: impl FnOnce(Gpu) -> Result<Machine, String>) -> std::io::Result<()> {
    // SAFETY: takes numbers. The thread that started this process lives as long as the load.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let Work { load, cpus, seed, timeout_ns, gpu } = serde_json::from_str(text)?;
    let machine = match open(gpu) {
        Ok(machine) => machine,
        Err(why) => return say(&Line { unavailable: Some(why), ..Line::default() }),
    };
    let clock = Clock::new();
    let timeout = Duration::from_nanos(timeout_ns);
    let plan = load::Plan { loads: std::slice::from_ref(&load), cpus: vec![cpus], seed, timeout, clock: &clock, gpu };
    let told = &*Box::leak(Box::new(AtomicU8::new(RESTS)));
    // Not joined: it reads until the end of input.
    std::thread::spawn(|| {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            told.store(if line == GO { GOES } else { RESTS }, Ordering::Relaxed);
        }
        told.store(ENDS, Ordering::Relaxed);
    });
    let follow = |running: &Running<'_>| {
        let mark = running.mark();
        let mut said = Ok(());
        while said.is_ok() {
            match told.load(Ordering::Relaxed) {
                ENDS => break,
                now => running.rest(now == RESTS),
            }
            said = say(&running.so_far(0));
            std::thread::sleep(EACH);
        }
        running.rest(false);
        (said, running.since(&mark))
    };
    let (said, loaded) = load::beside(&machine, &plan, &|_| {}, follow);
    said?;
    let loaded = loaded.into_iter().next().unwrap_or_default();
    let failed = loaded.failed.first().map(|(why, _)| why.clone());
    let Loaded { transfers: done, bytes, longest_ns, checked, unavailable, .. } = loaded;
    say(&Line { done, bytes, longest_ns, checked, unavailable, failed })
}

fn say(line: &Line) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, line)?;
    out.write_all(b"\n")?;
    out.flush()
}
