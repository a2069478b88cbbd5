//! `doorbell selfbench`: what doorbell itself costs, against the bare thing in the same run.

mod calls;
mod locks;
mod pairs;
mod ring_loop;
mod rounds;

use crate::preload;
use anyhow::Context;
use rounds::{Mode, Rounds, Runner};
use serde_json::json;
use std::ffi::OsString;
use std::process::ExitCode;

/// Measure what doorbell itself costs
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  doorbell selfbench tap                         one doorbell bare, rewritten and trapped; on a GPU CUDA's loops too
  doorbell selfbench tap --json --rounds 20
  doorbell selfbench locks --at-most 30          what `record --locks`, and each policy, adds to a lock and its unlock
  doorbell selfbench calls --at-most 40          what `record --calls` and the guard add to a call of CUDA
  doorbell selfbench tap -- python3 train.py     any program that prints {\"loops\":{\"step\":{\"p50_ns\":N,...}}}

Bare, rewritten and trapped runs take turns, round by round, so that a machine that changes its speed changes it for all.
Exit status 1 if --at-most was given and the rewritten tap costs more.")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// The doorbell tap: one new entry of 64 dwords
    Tap(TapArgs),
    /// Locks: what recording, and each policy, adds to an uncontended lock and its unlock
    Locks(locks::Args),
    /// Recording of CUDA's calls, and the guard: a call that does nothing
    Calls(calls::Args),
    /// (The loop that `calls` measures, as a program of its own.)
    #[command(hide = true)]
    CallLoop(calls::LoopArgs),
    /// (The loops that `locks` measures, as a program of their own.)
    #[command(hide = true)]
    Pairs(pairs::Args),
    /// (The loop that `tap` measures, as a program of its own.)
    #[command(hide = true)]
    Ring(ring_loop::Args),
}

#[derive(Debug, clap::Args)]
struct TapArgs {
    /// Numbers instead of a table
    #[arg(long)]
    json: bool,
    /// Write the numbers to this file as well
    #[arg(long, value_name = "FILE")]
    json_file: Option<std::path::PathBuf>,
    /// How often bare, rewritten and trapped take turns
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Doorbells (and CUDA calls) of each run
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    count: u32,
    /// Run the measured programs on this CPU
    #[arg(long)]
    cpu: Option<usize>,
    /// Leave the trapped runs out
    #[arg(long)]
    no_trap: bool,
    /// Exit with 1 if the rewritten tap's median doorbell takes longer, ns
    #[arg(long, value_name = "NS")]
    at_most: Option<u64>,
    /// Measure this program instead
    #[arg(last = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.what {
            What::Tap(t) => t.run(),
            What::Locks(l) => l.run(),
            What::Pairs(p) => p.run(),
            What::Calls(c) => c.run(),
            What::CallLoop(l) => l.run(),
            What::Ring(r) => r.run(),
        }
    }
}

impl TapArgs {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let me = std::env::current_exe().context("where doorbell itself lies")?;
        let mut runner = Runner::new(me.clone(), preload::SOFTGPU, self.cpu)?;
        runner.with_trap = !self.no_trap;
        let count = self.count.to_string();
        let words = |w: &[&str]| -> Vec<OsString> {
            std::iter::once(me.clone().into_os_string()).chain(w.iter().map(OsString::from)).collect()
        };
        let mut tables: Vec<(&str, Rounds)> = Vec::new();
        let mut whys: Vec<String> = Vec::new();
        if self.command.is_empty() {
            let r = runner.rounds(self.rounds, &words(&["selfbench", "ring", "--count", &count]), true)?;
            tables.push(("ring (software GPU's doorbell page as plain memory)", r));
            match recorder::driver_version() {
                Some(_) => {
                    let sample = words(&["sample", "bench", "--gpu", "real", "--count", &count]);
                    tables.push(("CUDA", runner.rounds(self.rounds, &sample, false)?));
                }
                None => whys.push("CUDA's loops: no NVIDIA driver on this machine".into()),
            }
        } else {
            tables.push(("program", runner.rounds(self.rounds, &self.command, false)?));
        }
        let ring = &tables[0].1;
        let p50 = |m: Mode| ring.p50("ring", m);
        if let Some(f) = &self.json_file {
            let text = format!("{:#}\n", self.as_json(&tables, &whys));
            std::fs::write(f, text).with_context(|| f.display().to_string())?;
        }
        if self.json {
            println!("{}", self.as_json(&tables, &whys));
        } else {
            for (title, r) in &tables {
                print!("{}", r.table(title));
            }
            for w in &whys {
                println!("{w}");
            }
        }
        let missed = self.at_most.zip(p50(Mode::Patch)).is_some_and(|(most, p)| p > most);
        if let Some(most) = self.at_most.filter(|_| missed) {
            eprintln!("the rewritten tap's median doorbell takes more than {most} ns");
        }
        Ok(ExitCode::from(u8::from(missed)))
    }

    fn as_json(&self, tables: &[(&str, Rounds)], whys: &[String]) -> serde_json::Value {
        let ring = &tables[0].1;
        let mut out = json!({
            "bench": "tap",
            "entry_dwords": ring_loop::DWORDS,
            "rounds": self.rounds,
            "count": self.count,
            "bare_ns": ring.p50("ring", Mode::Bare),
            "patch_ns": ring.p50("ring", Mode::Patch),
            "trap_ns": ring.p50("ring", Mode::Trap),
            "machine": machine(),
            "tables": tables.iter().map(|(t, r)| json!({ "what": t, "loops": r.as_json() })).collect::<Vec<_>>(),
        });
        let mut why = whys.to_vec();
        why.extend(tables.iter().flat_map(|(_, r)| r.whys()));
        if !why.is_empty() {
            out["why"] = json!(why);
        }
        out
    }
}

fn machine() -> serde_json::Value {
    let m = recorder::machine();
    json!({ "gpu": m.gpu, "driver": m.driver, "cpu": m.cpu, "kernel": m.kernel, "doorbell": env!("CARGO_PKG_VERSION") })
}
