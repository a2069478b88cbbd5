//! What doorbell itself costs, compared with the bare program in the same run.
//!
//! Bare runs and doorbell's ways take turns, round by round, each in a separate process, so that a machine that changes its speed changes it for all. The
//! added cost is the median of the rounds' differences. The measured loops ([`pairs`], [`ring_loop`], [`calls`], [`ranges`]) are separate programs, which
//! the command line starts under doorbell. [`subjects`] is the table of what is measured; [`tap`] has its own table.

use anyhow::Context;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub mod calls;
mod launches;
pub mod pairs;
pub mod ranges;
pub mod ring_loop;
mod rounds;
pub mod subjects;
pub mod tap;

/// Options of every measurement here.
#[derive(Clone, Debug)]
pub struct Plan {
    /// doorbell's own program: it starts the loops, and records them.
    pub doorbell: PathBuf,
    /// Number of rounds.
    pub rounds: u32,
    /// Doorbells, pairs or calls of each run.
    pub count: u32,
    /// The measured loops run on this CPU.
    pub cpu: Option<usize>,
}

/// As [`statistics::median`], but 0 for no values.
fn median(mut v: Vec<f64>) -> f64 {
    statistics::median(&mut v).unwrap_or(0.0)
}

/// The machine, for results.
fn machine() -> Value {
    let m = recorder::machine();
    json!({ "gpu": m.gpu, "driver": m.driver, "cpu": m.cpu, "kernel": m.kernel, "doorbell": env!("CARGO_PKG_VERSION") })
}

/// Keeps this process on one CPU, if one is given.
pub fn stay_on(cpu: Option<usize>) -> anyhow::Result<()> {
    let Some(cpu) = cpu else { return Ok(()) };
    // SAFETY: a zeroed set is an empty set, and cpu is checked against its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        anyhow::ensure!(cpu < libc::CPU_SETSIZE as usize, "CPU {cpu} is out of range");
        libc::CPU_SET(cpu, &mut set);
        if libc::sched_setaffinity(0, size_of_val(&set), &set) != 0 {
            return Err(std::io::Error::last_os_error()).with_context(|| format!("CPU {cpu}"));
        }
    }
    Ok(())
}

/// Calls that are timed together.
const BATCH: u32 = 1000;
/// Batches between pauses in which the recorder empties the ring.
const A_WAIT: u32 = 8;

/// Nanoseconds of one call in a batch.
#[inline(always)]
fn batch(mut f: impl FnMut()) -> f64 {
    let from = Instant::now();
    (0..BATCH).for_each(|_| f());
    from.elapsed().as_nanos() as f64 / f64::from(BATCH)
}

/// A measured loop: its name, and what times one batch of it.
type Timed<'l> = (&'static str, &'l mut dyn FnMut() -> f64);

/// Medians over the batches of each loop, by name, ns. `count` calls each, in turns: the order rotates by one each time.
fn in_turns(count: u32, loops: &mut [Timed<'_>]) -> Map<String, Value> {
    let mut times = vec![Vec::new(); loops.len()];
    for i in 0..count.div_ceil(BATCH) {
        for k in 0..loops.len() {
            let at = (i as usize + k) % loops.len();
            times[at].push(loops[at].1());
        }
        if i % A_WAIT == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    loops.iter().zip(times).map(|((name, _), times)| ((*name).to_owned(), json!(median(times)))).collect()
}

/// Prints what a loop measured, as `rounds` reads it.
fn print(loops: Map<String, Value>) {
    println!("{}", json!({ "loops": loops }));
}

/// The time stamp counter.
fn clock() -> u64 {
    // SAFETY: rdtsc is there on every x86-64.
    unsafe { core::arch::x86_64::_rdtsc() }
}

fn two_clock_reads() {
    std::hint::black_box(clock());
    std::hint::black_box(clock());
}
