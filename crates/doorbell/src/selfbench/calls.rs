//! `selfbench calls`: what recording, and the guard, add to a call of CUDA.
//!
//! The call is a function of this program with the arguments of cuLaunchKernel, called by its address and through an
//! entry of the agent's: what is measured is the entry, the same on every machine, with or without a GPU.

use super::locks::median;
use crate::affinity;
use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use tape::event::{Body, Events};
use tape::file::{Item, Reader};

#[derive(Debug, clap::Args)]
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
        let bare = median(recorded.iter().chain(&guarded).map(|s| s.bare).collect());
        let (tapped, guard) = (of(&recorded, |s| s.tapped), of(&guarded, |s| s.tapped));
        let added = of(&recorded, |s| s.tapped - s.bare);
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
            println!("  {:<32}{tapped:>10.1}{added:>10.1}", "recorded");
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
        Ok(Sample { bare: at("bare_ns")?, tapped: at("tapped_ns")? })
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
    black_box((f, s, p));
    x as i32
}

/// Nanoseconds of one call.
fn timed(f: Launch) -> f64 {
    let from = Instant::now();
    for i in 0..BATCH {
        let r = f(0xf1, i, 1, 1, 32, 1, 1, 0, 0x51, 0, 0);
        assert_eq!(r, i as i32, "the call's result");
    }
    from.elapsed().as_nanos() as f64 / f64::from(BATCH)
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
        timed(tapped);
        timed(bare);
        let (mut b, mut t) = (Vec::new(), Vec::new());
        for i in 0..self.count.div_ceil(BATCH) {
            if i % 2 == 0 {
                b.push(timed(bare));
                t.push(timed(tapped));
            } else {
                t.push(timed(tapped));
                b.push(timed(bare));
            }
            if i % A_WAIT == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        println!("{}", json!({ "bare_ns": median(b), "tapped_ns": median(t) }));
        Ok(ExitCode::SUCCESS)
    }
}
