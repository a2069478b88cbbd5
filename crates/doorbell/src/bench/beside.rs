//! `doorbell bench beside`: CUDA and every kind of channel of ours at the same time, every byte compared.

use super::machine as routes;
use crate::failure::Failure;
use crate::help::Page;
use crate::progress::Progress;
use crate::record::Gpu;
use crate::{result, units};
use copy::Machine;
use environment::Environment;
use lab::beside::{self, Outcome, Plan, kernel_log};
use lab::clock::Clock;
use report::beside::Run;
use report::number;
use report::table::Style;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// CUDA and every kind of channel of ours beside one another, all data compared
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell bench beside -o beside.json", "five minutes"),
        ("doorbell bench beside --duration 20s", ""),
        ("doorbell bench beside --gpu soft --duration 2s", "our own part, on the software GPU"),
    ])
    .text("Each worker is a thread: CUDA kernels, memsets, copies and graphs on streams of their own, with results that are \
           compared with the CPU's; every copy engine plain, pipelined and folded, in both directions; inline copies in a \
           group of our own and in CUDA's; stores and loads through BAR1. Two more create and destroy channels, and pin, \
           unpin and free CUDA's memory while our copies are under way: copies in flight are waited for, later ones are \
           refused.")
    .text("A worker that does nothing for --patience hangs: the run ends then, without it. The kernel's log is searched for \
           new Xid errors before and after, where that is permitted.")
    .statuses(&[
        (0, "all that is possible here was right and everything was given back"),
        (2, "wrong data, an error, a hang or an Xid"),
        (77, "nothing of it is possible on this machine"),
    ])
)]
pub struct Args {
    /// How long to run
    #[arg(long, value_name = units::TIME, default_value = "300s", value_parser = units::time)]
    duration: Duration,
    /// A worker that does nothing for this long counts as hung
    #[arg(long, value_name = units::TIME, default_value = "5s", value_parser = units::time)]
    patience: Duration,
    /// The largest transfer, at most 4MiB [default: 4MiB; on the software GPU 64KiB]
    #[arg(long, value_name = units::SIZE, value_parser = units::size_in(1..=MOST))]
    bytes: Option<u64>,
    /// Which GPU
    #[arg(long, value_enum, value_name = "GPU", default_value_t = Gpu::Real)]
    gpu: Gpu,
    #[command(flatten)]
    result: result::Args,
    /// Random seed for data and ordering
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// The largest transfer that every route can make: what an inline copy carries in one submission.
const MOST: u64 = 4 << 20;
/// After this the process ends by a signal, whatever holds it up in giving things back.
const GIVE_BACK_S: u32 = 120;
/// The same, where a thread hangs.
const LEAVE_S: u32 = 15;

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let capacity = self.bytes.unwrap_or(if self.gpu == Gpu::Soft { 64 << 10 } else { MOST });
        if self.gpu == Gpu::Soft {
            crate::sample::with_softgpu()?;
        }
        let out = self.result.open(1 << 16)?;
        let plan = Plan { duration: self.duration, patience: self.patience, capacity, seed: self.seed };
        let before = self.reports();
        let machine = Arc::new(routes::open(self.gpu)?);
        let progress = Progress::new();
        let tell = |p: beside::Progress| {
            let beside::Progress { elapsed, workers, rounds, bytes, wrong } = p;
            let (elapsed, all) = (elapsed.as_secs(), plan.duration.as_secs_f64());
            let (rounds, bytes) = (number::count(rounds), number::bytes(bytes));
            progress.show(&format!(
                "{elapsed} of {all} s, {workers} workers, {rounds} rounds, {bytes} compared, {wrong} wrong"
            ));
        };
        let hangs = || channels(&machine, self.gpu);
        let outcome = beside::run(beside::jobs(&machine, &plan), &plan, tell, hangs);
        drop(progress);
        let pci = machine.context().ok().and_then(|c| c.device().pci_address().ok());
        let gpu = match self.gpu {
            Gpu::Soft => environment::Gpu::Soft,
            Gpu::Real => environment::Gpu::Real { pci: pci.as_deref() },
        };
        let environment = Environment::gather(gpu, Clock::new().calibrated(), self.seed, Vec::new());
        let given_back = give_back(machine, &outcome);
        let reports = kernel_log::new(&before, &self.reports());

        let functional = self.gpu == Gpu::Soft;
        let run = Run { environment: &environment, functional, outcome: &outcome, reports: &reports, given_back };
        out.write(
            |out| report::beside::write_json(out, &run),
            |out| report::beside::write(out, &Style::of_stdout(), &run),
        )?;
        verdict(&run)
    }

    /// The software GPU reports nothing to the kernel.
    fn reports(&self) -> kernel_log::Reports {
        match self.gpu {
            Gpu::Soft => Err("the software GPU reports nothing to the kernel's log".into()),
            Gpu::Real => kernel_log::reports(),
        }
    }
}

/// Drops everything in order, and says how long it took; not where a thread hangs, which holds what it has.
fn give_back(machine: Arc<Machine>, outcome: &Outcome) -> Option<f64> {
    // SAFETY: alarm takes a number of seconds; its signal ends the process, as no handler is set for it.
    let limit = |seconds| unsafe { libc::alarm(seconds) };
    if outcome.hangs() {
        limit(LEAVE_S);
        std::mem::forget(machine);
        return None;
    }
    limit(GIVE_BACK_S);
    let began = Instant::now();
    // The workers have ended, and what they held of it with them.
    let given = Arc::into_inner(machine).is_some();
    limit(0);
    given.then(|| began.elapsed().as_secs_f64())
}

fn verdict(run: &Run<'_>) -> anyhow::Result<ExitCode> {
    let wrong = run.outcome.wrong() as u64;
    let xids = run.reports.as_ref().map_or(0, |r| r.len() as u64);
    if run.outcome.hangs() {
        return Err(Failure::new("a worker hangs", "the result says which; the process ends without it").into());
    }
    if run.given_back.is_none() {
        return Err(Failure::new("not everything was given back", "a worker that ended still holds the GPU").into());
    }
    if wrong + xids > 0 {
        let what =
            format!("{} went wrong, {} in the kernel's log", number::of(wrong, "worker"), number::of(xids, "Xid"));
        return Err(Failure::new(what, "the result says which and why").into());
    }
    if run.outcome.accounts.iter().all(|a| a.rounds == 0) {
        let hint = "the result has the reason of each; `doorbell doctor` says what works here";
        return Err(Failure::impossible("nothing of this is possible here", hint).into());
    }
    Ok(ExitCode::SUCCESS)
}

/// Locks that are asked for here may be what the silent worker waits for.
const LOCKS: Duration = Duration::from_secs(2);

/// Where a worker hangs, before the others are stopped: how far every channel is, ours and CUDA's.
fn channels(machine: &Arc<Machine>, gpu: Gpu) {
    let (tell, told) = std::sync::mpsc::channel();
    let machine = machine.clone();
    let asks = move || {
        let libcuda = if gpu == Gpu::Real { gpu::Libcuda::open().ok() } else { None };
        let ours = match &libcuda {
            Some(libcuda) => libcuda.watched().in_flight(),
            None => machine.space().map(|space| space.in_flight()).unwrap_or_default(),
        };
        for c in ours {
            let lost = if c.lost { ", given up when memory was freed" } else { "" };
            eprintln!(
                "our channel, token {:#x}: {} of {} submissions done{lost}; GP_GET {} of GP_PUT {}",
                c.token, c.reached, c.submitted, c.get, c.put
            );
        }
        for c in libcuda.map(|libcuda| libcuda.watched().unconsumed()).unwrap_or_default() {
            let token = c.token.map_or("unknown".into(), |token| format!("{token:#x}"));
            eprintln!(
                "CUDA's channel {:#x} ({}, token {token}) stands at entry {} of {}",
                c.handle, c.engine, c.get, c.put
            );
        }
        let _ = tell.send(());
    };
    let asking = std::thread::Builder::new().name("how far".into()).spawn(asks);
    if asking.is_ok() && told.recv_timeout(LOCKS).is_err() {
        eprintln!("how far the channels are cannot be asked: a lock of the channels' is held");
    }
}
