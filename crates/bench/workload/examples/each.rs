//! Does each call and route a few times on this machine's GPU, compares the results, and prints the times: a first check of new hardware, not a
//! measurement.
//!
//! `each` takes the texts of calls and routes, or no argument for all of them. `each --random TEXT..` uses another place each time;
//! `each --back-to-back TEXT..` submits 50 in a row. It prints one line for each; the exit status is 1 if anything was wrong.

use std::process::ExitCode;
use std::time::{Duration, Instant};
use workload::{Error, Machine, Subject, Waiting, Wanted, What, Wrong, calls, open};

const TIMEOUT: Duration = Duration::from_secs(20);
const TIMES: usize = 200;
/// Slow ones are done fewer times.
const FOR: Duration = Duration::from_secs(2);

/// CUDA's routes, doorbell's routes, and those that report when their engine began.
const ROUTES: [&str; 19] = [
    "host->cuda->gpu0",
    "gpu0->cuda->host",
    "host->cuda[sync]->gpu0",
    "host->cuda[polled]->gpu0",
    "gpu0->cuda[polled]->host",
    "host->cuda[graph]->gpu0",
    "host->cuda[graph,polled]->gpu0",
    "host->cuda[graph,polled=write]->gpu0",
    "gpu0->cuda[graph,polled]->host",
    "host->cuda[batch]->gpu0",
    "gpu0->cuda[batch,polled]->host",
    "host->ce2->gpu0",
    "host->ce2[timed]->gpu0",
    "gpu0->ce2[timed]->host",
    "host->ce2[folded,timed]->gpu0",
    "host->ce2[pipelined,timed]->gpu0",
    "host->inline->gpu0",
    "host->inline[timed]->gpu0",
    "host->inline[release=host,timed]->gpu0",
];

fn what(text: &str) -> What {
    if text.contains("->") { What::Route(text.into()) } else { What::Call(text.into()) }
}

/// Nanoseconds of the calls, until the ends, and of the engine.
#[derive(Default)]
struct Took {
    fire: Vec<u64>,
    done: Vec<u64>,
    engine: Vec<u64>,
    /// How often the engine's times were not between the call and its end.
    out_of_order: usize,
}

fn middle(mut all: Vec<u64>) -> f64 {
    all.sort_unstable();
    all.get(all.len() / 2).map_or(f64::NAN, |ns| *ns as f64 / 1000.0)
}

fn one(machine: &Machine, subject: &mut dyn Subject, took: &mut Took) -> Result<Option<Wrong>, Error> {
    let clock = machine.space().ok().map(|space| space.device().clock());
    subject.renew()?;
    let before = clock.as_ref().map_or(0, gpu::Clock::now);
    let called = Instant::now();
    subject.fire()?;
    let fired = called.elapsed();
    match subject.waiting() {
        Waiting::Called => subject.wait(TIMEOUT)?,
        Waiting::Polled => {
            while !subject.poll()? {
                if called.elapsed() > TIMEOUT {
                    return Err(Error::Late { bytes: 0, after: TIMEOUT });
                }
            }
        }
    }
    took.done.push(called.elapsed().as_nanos() as u64);
    took.fire.push(fired.as_nanos() as u64);
    let after = clock.as_ref().map_or(u64::MAX, gpu::Clock::now);
    if let Some(engine) = subject.engine() {
        let started = engine.started.unwrap_or(engine.ended);
        // The clock is read in steps.
        if started + 64 < before || engine.ended < started || engine.ended > after.saturating_add(64) {
            took.out_of_order += 1;
        }
        took.engine.extend(engine.started.map(|started| engine.ended.saturating_sub(started)));
    }
    subject.check()
}

fn all(machine: &Machine, text: &str, wanted: &Wanted, took: &mut Took) -> Result<Option<Wrong>, Error> {
    let mut opened = open(machine, &what(text), wanted)?;
    if let Some(wrong) = opened.verify(1, TIMEOUT)? {
        return Ok(Some(wrong));
    }
    let mut subject = opened.prepare(2)?;
    let begun = Instant::now();
    while took.done.len() < TIMES && (took.done.is_empty() || begun.elapsed() < FOR) {
        if let Some(wrong) = one(machine, &mut *subject, took)? {
            return Ok(Some(wrong));
        }
    }
    subject.rest()?;
    Ok(None)
}

fn main() -> ExitCode {
    let mut wanted = Wanted::of(0);
    let (options, mut texts): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|a| a.starts_with("--"));
    for option in options {
        match option.as_str() {
            "--random" => wanted.random_addresses = true,
            "--back-to-back" => wanted.back_to_back = 50,
            "--soft" => {}
            other => {
                eprintln!("{other}: the options are --random, --back-to-back and --soft");
                return ExitCode::from(2);
            }
        }
    }
    let place = if std::env::args().any(|a| a == "--soft") { copy::Where::Soft } else { copy::Where::Real };
    let machine = match Machine::open(place) {
        Ok(machine) => machine,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    if texts.is_empty() {
        texts = calls().iter().map(|call| call.name.to_string()).chain(ROUTES.map(String::from)).collect();
    }
    let mut wrong = false;
    for text in texts {
        let bytes: &[u64] = if text.contains("->") { &[8, 4096, 1 << 20] } else { &[0] };
        for bytes in bytes {
            let mut took = Took::default();
            let found = all(&machine, &text, &Wanted { bytes: *bytes, ..wanted.clone() }, &mut took);
            let verdict = match found {
                Ok(None) if took.out_of_order > 0 => format!("OUT OF ORDER {} times", took.out_of_order),
                Ok(None) => "right".into(),
                Ok(Some(wrong)) => format!("WRONG: {wrong}"),
                Err(Error::Unavailable(why)) => format!("unavailable: {why}"),
                Err(error) => format!("FAILED: {error}"),
            };
            wrong |= verdict.starts_with(|c: char| c.is_ascii_uppercase());
            if took.done.is_empty() {
                println!("{text:<42} {bytes:>8} B  {verdict}");
                continue;
            }
            let (times, fire, done) = (took.done.len(), middle(took.fire), middle(took.done));
            let engine =
                if took.engine.is_empty() { String::new() } else { format!(", engine {:.2}", middle(took.engine)) };
            println!("{text:<42} {bytes:>8} B x{times:<4} fire {fire:.2}, done {done:.2}{engine} us  {verdict}");
        }
    }
    ExitCode::from(u8::from(wrong))
}
