//! `doorbell bench raw`: the engines' own time, without the driver.

use super::Where;
use crate::failure::Failure;
use crate::help::Page;
use crate::progress::Progress;
use crate::record::Gpu;
use crate::{result, units};
use anyhow::Context;
use cuda::cupti::Cupti;
use environment::Environment;
use gpu::{AddressSpace, Device, DeviceOptions};
use measure::clock::Clock;
use measure::raw::profiler::{self, Reported};
use measure::raw::{self, Budget, Plan};
use placement::Placement;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use terminal::number;
use terminal::raw::Raw;
use terminal::table::Style;

/// The engines' own time, without the driver: many copies between two timestamps of one submission
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell bench raw", "inline and copy engine, 4 B to 64 MiB and 1 to 31 KiB"),
        ("doorbell bench raw --sizes 8B,4KiB --repeats 100 -o raw.json", ""),
        ("doorbell bench raw --profiler", "CUDA's copies beside them, as the profiler (CUPTI) times them"),
        ("doorbell bench raw --gpu soft", "whether it works, never how fast"),
    ])
    .text("One pushbuffer holds a warm-up, a release with the GPU's time, many equal copies, and another release; it is \
           submitted once. The time of a copy is the distance of the two over the count. Every way is verified at every \
           size. It runs in an address space of its own, without CUDA; with --profiler CUDA's copies come afterwards, in a \
           run of their own.")
    .statuses(&[(0, "done"), (2, "an error or a cell that failed"), (77, "nothing can be measured on this machine")])
)]
pub struct Args {
    /// Which GPU
    #[arg(long, value_enum, value_name = "GPU", default_value_t = Gpu::Real)]
    gpu: Gpu,
    /// Sizes: 4B..64MiB doubles, 1KiB..31KiB/1KiB goes in steps; commas between several [default: these two; with
    /// --profiler those of the paper's Table 2]
    #[arg(long, value_name = "LIST")]
    sizes: Option<String>,
    /// Submissions of each cell [default: 20; on the software GPU 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeats: Option<u32>,
    /// Number of the copy engine [default: the first that runs beside kernels]
    #[arg(long, value_name = "N")]
    ce: Option<u32>,
    /// Also ask the profiler (CUPTI) what CUDA's copies of these sizes take
    #[arg(long)]
    profiler: bool,
    /// Use this libcupti, for example /usr/local/cuda/lib64/libcupti.so
    #[arg(long, value_name = "FILE", requires = "profiler")]
    cupti: Option<PathBuf>,
    /// CUDA's copies of each size and direction under the profiler
    #[arg(long, value_name = "N", default_value_t = 100, requires = "profiler",
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    profiled: u32,
    #[command(flatten)]
    result: result::Args,
    #[command(flatten)]
    place: Where,
    /// Random seed for data and ordering
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Give up on a submission after this time
    #[arg(long, value_name = units::TIME, default_value = "10s", value_parser = units::time)]
    timeout: Duration,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let all = if self.profiler { raw::TABLE_2 } else { raw::SIZES };
        let sizes = settings::sizes::parse(self.sizes.as_deref().unwrap_or(all))
            .map_err(|e| Failure::new(format!("--sizes: {e}"), "`doorbell bench raw --help` has examples"))?;
        // One transfer of the copy engine counts its bytes in 32 bits, and the validator lets 1 GiB through.
        if let Some(&largest) = sizes.iter().find(|size| **size > 1 << 30) {
            let what = format!("--sizes: {} is more than one copy moves", number::bytes(largest));
            return Err(Failure::new(what, "1 GiB is the most").into());
        }
        self.place.check()?;
        if self.gpu == Gpu::Soft {
            crate::sample::with_softgpu()?;
        }
        let out = self.result.open((1 << 14) + ((sizes.len() as u64) << 12))?;
        let device = self.device()?;
        let plan = self.plan(sizes, &device)?;
        let space = AddressSpace::new(&device).context("an address space without CUDA")?;
        let clock = Clock::new();
        let placed = Placement::take(self.place.wish());
        let gpu = match self.gpu {
            Gpu::Soft => environment::Gpu::Soft,
            Gpu::Real => environment::Gpu::Real { pci: None },
        };
        let environment = Environment::gather(gpu, Some(clock.calibrated()), placed.notes.clone()).seeded(plan.seed);
        let functional = device.is_soft();
        let progress = Progress::new();
        let cells = raw::run(&space, &plan, |bytes| progress.show(&number::bytes(bytes))).context("the raw study")?;
        drop(progress);
        // doorbell's objects must be off the GPU before CUDA's turn.
        drop((space, device));
        let profiler = self.profiler.then(|| self.profile(&plan.sizes));
        drop(placed);
        let result =
            Raw { plan: &plan, environment: &environment, functional, cells: &cells, profiler: profiler.as_ref() };
        out.write(
            |out| terminal::raw::write_json(out, &result),
            |out| terminal::raw::write(out, &Style::of_stdout(), &result),
        )?;
        let failed = cells.iter().filter(|cell| cell.failed.is_some()).count();
        if failed > 0 {
            let what = format!("{failed} of {} failed", number::of(cells.len() as u64, "cell"));
            return Err(Failure::new(what, "the result says which and why").into());
        }
        Ok(ExitCode::SUCCESS)
    }

    fn device(&self) -> anyhow::Result<Arc<Device>> {
        let driver = Arc::new(rm::driver::Libc);
        let options = DeviceOptions::default().allow_real(self.gpu == Gpu::Real);
        options.open(driver, 0).map_err(|e| {
            let hint = match self.gpu {
                Gpu::Real => "`doorbell doctor` says what is missing; `--gpu soft` shows on any machine what works",
                Gpu::Soft => "`doorbell doctor` says what works here",
            };
            Failure::impossible(format!("no GPU to measure: {e}"), hint).into()
        })
    }

    fn plan(&self, sizes: Vec<u64>, device: &Device) -> anyhow::Result<Plan> {
        let engines = device.engines().context("which copy engines there are")?;
        let copy_engine =
            match self.ce {
                Some(n) if engines.iter().any(|engine| engine.number == n) => n,
                Some(n) => {
                    let there: Vec<String> = engines.iter().map(|engine| engine.number.to_string()).collect();
                    let hint = format!("there are {}", there.join(", "));
                    return Err(Failure::new(format!("--ce: this GPU has no copy engine {n}"), hint).into());
                }
                None => engines.iter().find(|engine| engine.is_asynchronous()).map(|engine| engine.number).ok_or_else(
                    || Failure::impossible("no copy engine runs beside kernels here", "--ce N takes one of graphics'"),
                )?,
            };
        let soft = device.is_soft();
        Ok(Plan {
            sizes,
            repeats: self.repeats.unwrap_or(if soft { 2 } else { 20 }),
            seed: self.seed,
            copy_engine,
            budget: if soft { Budget::SOFT } else { Budget::REAL },
            timeout: self.timeout,
        })
    }

    /// The profiler's results, or why it has none.
    fn profile(&self, sizes: &[u64]) -> Result<Vec<Reported>, String> {
        if self.gpu == Gpu::Soft {
            return Err("the software GPU has no CUDA, and nothing of it is a time".into());
        }
        let cupti = match &self.cupti {
            Some(file) => Cupti::load_file(file),
            None => Cupti::load(),
        };
        let cupti = cupti.map_err(|e| e.reason)?;
        let cuda = cuda::Cuda::load().map_err(|e| e.to_string())?;
        let context = cuda.device(0).and_then(|device| device.primary_context()).map_err(|e| e.to_string())?;
        profiler::run(&cupti, &context, sizes, self.profiled, self.seed).map_err(|e| e.to_string())
    }
}
