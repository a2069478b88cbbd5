//! `selfbench calls`: what recording, and the guard, add to a call of CUDA.
//!
//! The call is a function of this program with the arguments of cuLaunchKernel, called by its address and through an
//! entry of the agent's: what is measured is the entry, the same on every machine, with or without a GPU.

use super::locks::median;
use crate::affinity;
use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::arch::asm;
use std::ffi::OsString;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use tape::event::{Body, Events};
use tape::file::{Item, Reader};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
`two clock readings` is what the CPU's clock costs alone, `clock read twice` a bare call with these around it: what a recording
that knows how long a call took cannot go below. `over the clock` is what is left of a recorded call without them.")]
pub struct Args {
    /// Numbers instead of a table
    #[arg(long)]
    json: bool,
    /// How often bare, recorded and guarded calls take turns
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Calls of each run
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1000..=100_000_000))]
    count: u32,
    /// Run the measured loop on this CPU
    #[arg(long)]
    cpu: Option<usize>,
    /// Exit with 1 if recording adds more to a call, ns
    #[arg(long, value_name = "NS")]
    at_most: Option<f64>,
}

/// The loop, as a program of its own.
#[derive(Debug, clap::Args)]
pub struct LoopArgs {
    #[arg(long, default_value_t = 200_000)]
    count: u32,
    #[arg(long)]
    cpu: Option<usize>,
}

/// Calls that are timed together.
const BATCH: u32 = 1000;
/// Batches between pauses in which the recorder empties the ring.
const A_WAIT: u32 = 16;
/// cuLaunchKernel on tapes.
const LAUNCH: u32 = 1;

/// One run of the loop: medians over its batches, which take turns, ns.
#[derive(Clone, Copy, Debug)]
struct Sample {
    bare: f64,
    /// Bare, the clock read before and after.
    clocked: f64,
    /// The two readings alone.
    clocks: f64,
    tapped: f64,
}

impl Args {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let (mut recorded, mut guarded, mut lost) = (Vec::new(), Vec::new(), 0);
        for round in 0..self.rounds {
            for first in [round % 2 == 0, round % 2 != 0] {
                if first {
                    let (sample, gaps) = self.recorded()?;
                    recorded.push(sample);
                    lost += gaps;
                } else {
                    guarded.push(self.once(&["run", "--lock-policy", "guard", "--"].map(OsString::from))?);
                }
            }
        }
        let of = |v: &[Sample], f: fn(&Sample) -> f64| median(v.iter().map(f).collect());
        let both = |f: fn(&Sample) -> f64| median(recorded.iter().chain(&guarded).map(f).collect());
        let (bare, clocked, clocks) = (both(|s| s.bare), both(|s| s.clocked), both(|s| s.clocks));
        let clocked_added = both(|s| s.clocked - s.bare);
        let (tapped, guard) = (of(&recorded, |s| s.tapped), of(&guarded, |s| s.tapped));
        let added = of(&recorded, |s| s.tapped - s.bare);
        let over_clock = of(&recorded, |s| s.tapped - s.clocked);
        let added_by_guard = of(&guarded, |s| s.tapped - s.bare);
        if self.json {
            let m = recorder::machine();
            let out = json!({
                "bench": "calls",
                "rounds": self.rounds,
                "count": self.count,
                "bare_call_ns": bare,
                "tapped_call_ns": tapped,
                "added_call_ns": added,
                "two_clock_reads_ns": clocks,
                "clocked_call_ns": clocked,
                "clocked_added_call_ns": clocked_added,
                "over_clock_call_ns": over_clock,
                "guarded_call_ns": guard,
                "added_guarded_call_ns": added_by_guard,
                // Events that did not fit: what is not written costs less, so this says how far to trust the figures.
                "lost_events": lost,
                "machine": { "cpu": m.cpu, "kernel": m.kernel, "doorbell": env!("CARGO_PKG_VERSION") },
            });
            println!("{out}");
        } else {
            println!("{:<34}{:>10}{:>10}", "a call that does nothing, ns", "takes", "added");
            println!("  {:<32}{bare:>10.1}", "bare");
            println!("  {:<32}{clocks:>10.1}", "two clock readings");
            println!("  {:<32}{clocked:>10.1}{clocked_added:>10.1}", "bare, clock read twice");
            println!("  {:<32}{tapped:>10.1}{added:>10.1}", "recorded");
            println!("  {:<32}{:>10}{over_clock:>10.1}", "  over the clock", "");
            println!("  {:<32}{guard:>10.1}{added_by_guard:>10.1}", "guarded, nobody else inside");
            println!("medians of {} rounds; added: median of the rounds' differences", self.rounds);
            if lost > 0 {
                println!("{lost} events did not fit into the ring and cost less: give --cpu or a smaller --count");
            }
        }
        let missed = self.at_most.is_some_and(|most| added > most);
        if let Some(most) = self.at_most.filter(|_| missed) {
            eprintln!("recording adds {added:.1} ns to a call, more than {most} ns");
        }
        Ok(ExitCode::from(u8::from(missed)))
    }

    /// A run of the loop, under doorbell with these words.
    fn once(&self, doorbell: &[OsString]) -> anyhow::Result<Sample> {
        let me = std::env::current_exe().context("where doorbell itself lies")?;
        let mut command = Command::new(&me);
        command.args(doorbell).arg(&me).args(["selfbench", "call-loop", "--count"]).arg(self.count.to_string());
        if let Some(cpu) = self.cpu {
            command.arg("--cpu").arg(cpu.to_string());
        }
        let out = command.env_remove("DOORBELL_LOCK_POLICY").stdin(Stdio::null()).output()?;
        if !out.status.success() {
            bail!("the loop ended with {}: {}", out.status, String::from_utf8_lossy(&out.stderr).trim());
        }
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let v = text.lines().find_map(|l| serde_json::from_str::<Value>(l).ok()).context("the loop printed no JSON")?;
        let at = |k: &str| v[k].as_f64().with_context(|| format!("the loop said no {k}"));
        let (clocked, clocks) = (at("clocked_ns")?, at("clocks_ns")?);
        Ok(Sample { bare: at("bare_ns")?, clocked, clocks, tapped: at("tapped_ns")? })
    }

    fn recorded(&self) -> anyhow::Result<(Sample, u64)> {
        let tape: PathBuf = std::env::temp_dir().join(format!("doorbell-selfbench-{}.doorbell", std::process::id()));
        let mut words =
            ["record", "--calls", "--quiet", "--tap", "off", "--ring", "32", "-o"].map(OsString::from).to_vec();
        words.extend([tape.clone().into(), "--".into()]);
        let checked = self.once(&words).and_then(|sample| Ok((sample, self.check(&tape)?)));
        let _ = std::fs::remove_file(&tape);
        checked
    }

    /// Every call is on the tape or counted as lost: a tap that did not record would be cheap.
    fn check(&self, tape: &Path) -> anyhow::Result<u64> {
        let mut reader = Reader::open(tape)?;
        let (mut n, mut lost) = (0, 0);
        while let Some(item) = reader.item()? {
            match item {
                Item::Events { bytes, .. } => {
                    let launches = |e: &tape::event::Event<'_>| {
                        matches!(e.body, Body::Call(_)) && u32::from(e.head.flags) == LAUNCH
                    };
                    n += Events::new(&bytes).filter(launches).count() as u64;
                }
                Item::End(end) => lost = end.gap_events,
                _ => {}
            }
        }
        if n + lost < u64::from(self.count) {
            bail!("{n} calls are on the tape and {lost} counted as lost, {} were made", self.count);
        }
        Ok(lost)
    }
}

/// The arguments of cuLaunchKernel.
type Launch = extern "C" fn(u64, u32, u32, u32, u32, u32, u32, u32, u64, u64, u64) -> i32;

#[inline(never)]
#[allow(clippy::too_many_arguments)]
extern "C" fn launch(f: u64, x: u32, _: u32, _: u32, _: u32, _: u32, _: u32, _: u32, s: u64, p: u64, _: u64) -> i32 {
    // SAFETY: no instructions; the compiler has to call all the same.
    unsafe { asm!("/* {} {} {} */", in(reg) f, in(reg) s, in(reg) p, options(nostack, preserves_flags)) };
    x as i32
}

fn clock() -> u64 {
    // SAFETY: rdtsc is there on every x86-64.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Nanoseconds of one of a batch.
#[inline(always)]
fn timed(mut f: impl FnMut(u32)) -> f64 {
    let from = Instant::now();
    for i in 0..BATCH {
        f(i);
    }
    from.elapsed().as_nanos() as f64 / f64::from(BATCH)
}

#[inline(always)]
fn call(f: Launch, i: u32) {
    let r = f(0xf1, i, 1, 1, 32, 1, 1, 0, 0x51, 0, 0);
    assert_eq!(r, i as i32, "the call's result");
}

#[inline(never)]
fn calls(f: Launch) -> f64 {
    timed(|i| call(f, i))
}

#[inline(never)]
fn clocked_calls(f: Launch) -> f64 {
    timed(|i| {
        black_box(clock());
        call(f, i);
        black_box(clock());
    })
}

#[inline(never)]
fn clocks(_: Launch) -> f64 {
    timed(|_| {
        black_box(clock());
        black_box(clock());
    })
}

impl LoopArgs {
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        if let Some(cpu) = self.cpu {
            affinity::stay_on(cpu)?;
        }
        // SAFETY: NUL-terminated; the agent's function of that name has this type, and gives an entry for a function of
        // the type that it is told.
        let tapped: Launch = unsafe {
            let find = libc::dlsym(libc::RTLD_DEFAULT, c"doorbell_entry_of_call".as_ptr());
            if find.is_null() {
                bail!("this is the loop of `doorbell selfbench calls`, which starts it under the agent");
            }
            let find: extern "C" fn(u32, usize) -> usize = std::mem::transmute(find);
            match find(LAUNCH, launch as *const () as usize) {
                0 => bail!("the agent taps no calls here"),
                at => std::mem::transmute::<usize, Launch>(at),
            }
        };
        let bare = black_box(launch as Launch);
        // The first time maps the ring.
        calls(tapped);
        calls(bare);
        type Way = (&'static str, fn(Launch) -> f64, Launch);
        let ways: [Way; 4] = [
            ("bare_ns", calls, bare),
            ("clocked_ns", clocked_calls, bare),
            ("clocks_ns", clocks, bare),
            ("tapped_ns", calls, tapped),
        ];
        let mut times = ways.map(|_| Vec::new());
        for i in 0..self.count.div_ceil(BATCH) {
            for k in 0..ways.len() {
                // Who goes first moves on.
                let at = (i as usize + k) % ways.len();
                let (_, run, f) = ways[at];
                times[at].push(run(f));
            }
            if i % A_WAIT == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        let out: serde_json::Map<String, Value> =
            ways.iter().zip(times).map(|((name, ..), times)| ((*name).into(), json!(median(times)))).collect();
        println!("{}", Value::Object(out));
        Ok(ExitCode::SUCCESS)
    }
}
