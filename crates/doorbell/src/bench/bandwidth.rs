//! `doorbell bench bandwidth`: copies back to back, CUDA's and our own, in turns.

use super::{Where, machine as routes};
use crate::failure::Failure;
use crate::help::Page;
use crate::progress::Progress;
use crate::record::Gpu;
use crate::{result, units};
use copy::{Machine, back_to_back};
use environment::Environment;
use lab::bandwidth::{self, Cell, Plan};
use lab::clock::Clock;
use lab::samples::NoMemory;
use placement::Placement;
use report::bandwidth::Bandwidth;
use report::number;
use report::table::Style;
use std::process::ExitCode;
use std::time::Duration;

/// How much CUDA and each copy engine move in a second: copies back to back, in turns
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell bench bandwidth", "20 copies of 64 MiB, 30 rounds, both directions"),
        ("doorbell bench bandwidth --bytes 1MiB --count 200 -o bandwidth.json", ""),
        ("doorbell bench bandwidth --gpu soft", "whether it works, never how fast"),
    ])
    .text("CUDA's copies wait behind a kernel until all of them are enqueued. Those of our own channels, on each copy engine \
           that runs beside kernels, are submitted faster than they run. Both are timed by the GPU's clock, from before the \
           first copy to the end of the last. In each round every way has its turn, and ratios are taken within rounds. \
           The copied data is compared.")
    .statuses(&[(0, "done"), (2, "an error or a way that failed"), (77, "nothing can be measured on this machine")])
)]
pub struct Args {
    /// Size of one copy, at most 1GiB [default: 64MiB; on the software GPU 1MiB]
    #[arg(long, value_name = units::SIZE, value_parser = units::size_in(1..=1 << 30))]
    bytes: Option<u64>,
    /// Copies back to back, 1 to 256 [default: 20; on the software GPU 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    count: Option<u32>,
    /// How often the ways take turns [default: 30; on the software GPU 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: Option<u32>,
    /// Which GPU
    #[arg(long, value_enum, value_name = "GPU", default_value_t = Gpu::Real)]
    gpu: Gpu,
    #[command(flatten)]
    result: result::Args,
    #[command(flatten)]
    place: Where,
    /// Random seed for data and ordering
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Give up on the copies of a round after this time
    #[arg(long, value_name = units::TIME, default_value = "10s", value_parser = units::time)]
    timeout: Duration,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let bytes = self.bytes.unwrap_or(if self.gpu == Gpu::Soft { 1 << 20 } else { 64 << 20 });
        self.place.check()?;
        if self.gpu == Gpu::Soft {
            crate::sample::with_softgpu()?;
        }
        let machine = routes::open(self.gpu)?;
        let plan = self.plan(bytes, ways(&machine))?;
        let room = (1 << 14) + ((plan.routes.len() as u64) << 12);
        let out = self.result.open(room)?;
        let clock = Clock::new();
        let placed = Placement::take(self.place.wish());
        let pci = machine.context().ok().and_then(|c| c.device().pci_address().ok());
        let gpu = match self.gpu {
            Gpu::Soft => environment::Gpu::Soft,
            Gpu::Real => environment::Gpu::Real { pci: pci.as_deref() },
        };
        let environment = Environment::gather(gpu, clock.calibrated(), plan.seed, placed.notes.clone());
        let progress = Progress::new();
        let open = |name: &str, capacity| back_to_back::open(&machine, name, capacity);
        let cells = bandwidth::run(&plan, &clock, open, |round| {
            progress.show(&format!("round {} of {}", round + 1, plan.rounds));
        });
        drop(progress);
        drop(placed);
        let result = Bandwidth { plan: &plan, environment: &environment, cells: &cells };
        out.write(
            |out| report::bandwidth::write_json(out, &result),
            |out| report::bandwidth::write(out, &Style::of_stdout(), &result),
        )?;
        verdict(&cells)
    }

    fn plan(&self, bytes: u64, routes: Vec<String>) -> anyhow::Result<Plan> {
        let soft = self.gpu == Gpu::Soft;
        NoMemory::data(bytes, routes.len() as u64).map_err(|e| {
            Failure::new(e.to_string(), "every way has its own source and destination; take fewer --bytes")
        })?;
        Ok(Plan {
            compare: routes::compare(&routes, None),
            routes,
            bytes,
            copies: self.count.unwrap_or(if soft { 4 } else { 20 }),
            rounds: self.rounds.unwrap_or(if soft { 2 } else { 30 }),
            seed: self.seed,
            timeout: self.timeout,
            functional: soft,
        })
    }
}

/// Both ways CUDA's copies first, which the others are compared with, then each copy engine that runs beside kernels.
fn ways(machine: &Machine) -> Vec<String> {
    let engines = machine.copy_engines().unwrap_or_default().iter().filter(|engine| engine.is_asynchronous());
    let mut executors = vec!["cuda".to_owned()];
    executors.extend(engines.flat_map(|e| [format!("ce{}", e.number), format!("ce{}[pipelined]", e.number)]));
    let gpu = machine.index();
    let to_gpu = executors.iter().map(|executor| format!("host->{executor}->gpu{gpu}"));
    let to_host = executors.iter().map(|executor| format!("gpu{gpu}->{executor}->host"));
    to_gpu.chain(to_host).collect()
}

/// What the cells say as an exit status.
fn verdict(cells: &[Cell]) -> anyhow::Result<ExitCode> {
    let failed = cells.iter().filter(|cell| cell.failed.is_some()).count();
    if failed > 0 {
        let what = format!("{failed} of {} failed", number::of(cells.len() as u64, "way"));
        return Err(Failure::new(what, "the result says which and why").into());
    }
    if cells.iter().all(|cell| cell.unavailable.is_some()) {
        let hint = "the result has the reason of each; `doorbell doctor` says what works here";
        return Err(Failure::impossible("none of these ways can be measured here", hint).into());
    }
    Ok(ExitCode::SUCCESS)
}
