//! The closed loop on the command line.

use super::{Where, routes};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::record::Gpu;
use crate::{result, units};
use environment::Environment;
use lab::cells::{self, Count, Outcome, Plan};
use lab::clock::Clock;
use placement::Placement;
use report::bench::Bench;
use report::number;
use report::table::Style;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Routes, `source->executor->destination`, with commas between them; `all` for those that --list shows, `plain` for one
    /// of each executor and direction
    #[arg(long, value_name = "LIST", default_value = "plain")]
    routes: String,
    /// Sizes: 4B..64MiB doubles, 1KiB..31KiB/1KiB goes in steps; commas between several
    #[arg(long, value_name = "LIST", default_value = "4B..64MiB")]
    sizes: String,
    /// Transfers of each cell, whatever its size [default: 10000, fewer of big ones]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    samples: Option<u64>,
    /// Which GPU
    #[arg(long, value_enum, value_name = "GPU", default_value_t = Gpu::Real)]
    gpu: Gpu,
    #[command(flatten)]
    result: result::Args,
    /// List the routes of this machine and exit
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    place: Where,
    /// Random seed for data and ordering [default: another each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How often the routes take turns at each size
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: u64,
    /// End a cell after this time, with the samples that it has [default: 10s unless --samples is given]
    #[arg(long, value_name = units::TIME, value_parser = units::time)]
    time_per_cell: Option<Duration>,
    /// Also give each p50 as a ratio to this route's [default: the first route with the same direction]
    #[arg(long, value_name = "ROUTE")]
    compare: Option<String>,
    /// Measure the machine's own noise first, for this long (for example 10s)
    #[arg(long, value_name = units::TIME, value_parser = units::time)]
    noise: Option<Duration>,
    /// Give up on a transfer after this time; its route is not used again
    #[arg(long, value_name = units::TIME, default_value = "10s", value_parser = units::time)]
    timeout: Duration,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let sizes = match lab::sizes::parse(&self.sizes) {
            Ok(s) => s,
            Err(e) => return Err(Failure::new(format!("--sizes: {e}"), "`doorbell bench --help` has examples").into()),
        };
        self.place.check()?;
        if self.gpu == Gpu::Soft {
            crate::sample::with_softgpu()?;
        }
        let machine = routes::open_machine(self.gpu)?;
        if self.list {
            routes::list(&machine)?;
            return Ok(ExitCode::SUCCESS);
        }
        let names = routes::resolve(&machine, &self.routes)?;
        let plan = self.plan(names, sizes)?;
        let cells = plan.routes.len() as u64 * plan.sizes.len() as u64;
        let out = self.result.open((1 << 14) + (cells << 13))?;

        let clock = Clock::new();
        let mut opened = cells::open(&plan, |name, capacity| copy::open(&machine, name, capacity));
        let noise = self.noise.map(|t| lab::noise::measure(&clock, self.place.wish(), t));
        let placed = Placement::take(self.place.wish());
        let pci = machine.context().ok().and_then(|c| c.device().pci_address().ok());
        let gpu = match self.gpu {
            Gpu::Soft => environment::Gpu::Soft,
            Gpu::Real => environment::Gpu::Real { pci: pci.as_deref() },
        };
        let environment = Environment::gather(gpu, clock.calibrated(), plan.seed, placed.notes.clone());
        let progress = Progress::new();
        let measured = cells::run(&plan, &mut opened, &clock, |p| {
            let (size, of) = (number::bytes(p.bytes), p.size + 1);
            progress.show(&format!("{size}, size {of} of {}, round {} of {}", p.sizes, p.round, p.rounds));
        });
        drop(progress);
        drop(placed);

        let bench = Bench {
            plan: &plan,
            environment: &environment,
            functional: self.gpu == Gpu::Soft,
            noise: noise.as_ref(),
            cells: &measured,
        };
        out.write(
            |out| report::bench::write_json(out, &bench),
            |out| report::bench::write(out, &Style::of_stdout(), &bench),
        )?;
        verdict(&measured)
    }

    fn plan(&self, routes: Vec<String>, sizes: Vec<u64>) -> anyhow::Result<Plan> {
        let with = self.compare.as_deref().map(routes::one).transpose()?;
        if let Some(w) = with.as_deref().filter(|w| !routes.iter().any(|r| r == w)) {
            let hint = "add it to --routes";
            return Err(Failure::new(format!("--compare: {w} is not among the measured routes"), hint).into());
        }
        let (soft, samples) = (self.gpu == Gpu::Soft, self.samples);
        let unasked = match soft {
            true => Count::Moving { most: 100, least: 4, bytes: 64 << 20 },
            false => Count::Moving { most: 10_000, least: 200, bytes: 16 << 30 },
        };
        let time = Duration::from_secs(if soft { 1 } else { 10 });
        let plan = Plan {
            compare: routes::compare(&routes, with.as_deref()),
            routes,
            sizes,
            samples: samples.map_or(unasked, Count::Exactly),
            rounds: self.rounds,
            time_per_cell: self.time_per_cell.or(samples.is_none().then_some(time)),
            seed: self.seed.unwrap_or_else(seed),
            check_every: lab::cells::CHECK_EVERY,
            timeout: self.timeout,
        };
        match plan.fits() {
            Ok(()) => Ok(plan),
            Err(e) => {
                let hint = "every transfer is kept, 24 bytes each, and every route has its own source and destination";
                Err(Failure::new(e.to_string(), hint).into())
            }
        }
    }
}

/// Another one each time; of 32 bits, which every reader of JSON keeps whole.
fn seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::from(now.subsec_nanos() ^ now.as_secs() as u32)
}

/// What the cells say as an exit status.
fn verdict(cells: &[cells::Cell]) -> anyhow::Result<ExitCode> {
    let failed = cells.iter().filter(|c| matches!(c.outcome, Outcome::Failed(_))).count();
    if failed > 0 {
        let what = format!("{failed} of {} failed", number::of(cells.len() as u64, "cell"));
        return Err(Failure::new(what, "the result says which and why").into());
    }
    if cells.iter().all(|c| matches!(c.outcome, Outcome::Unavailable { .. })) {
        let hint = "the result has the reason of each; `doorbell doctor` says what works here";
        return Err(Failure::impossible("none of these routes can be measured here", hint).into());
    }
    Ok(ExitCode::SUCCESS)
}
