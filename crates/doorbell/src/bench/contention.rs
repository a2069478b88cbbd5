//! `doorbell bench contention`: what CUDA's launches suffer from other threads, under each lock policy, beside copies of
//! ours that take no lock.

mod child;
mod policy;

use crate::failure::Failure;
use crate::help::Page;
use crate::progress::Progress;
use crate::record::Gpu;
use crate::{result, units};
use environment::Environment;
use lab::clock::Clock;
use lock_lab::contention::{Cell, Comparison, Set};
use policy::Policy;
use report::contention::Contention;
use report::table::Style;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Measure what other threads' copies and launches do to a real-time thread's launches, under each lock policy
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell bench contention -o contention.json", "the policies on seven cells, about five minutes"),
        ("doorbell bench contention --cells alone,sizes --policies stock --duration 10s", ""),
        ("doorbell bench contention --cells matrix --policies stock", "threads, sizes, pinned and pageable: 27 cells"),
        ("doorbell bench contention --cells worst --duration 60s", "64 threads that copy 4 MiB"),
        ("doorbell bench contention --cells inversion", "a copying thread that hogs keep from its CPU"),
        ("doorbell bench contention --quick", "a minute"),
        ("doorbell bench contention --cells 'copy=8x64KiB[pageable]+launch=32' --policies stock,pi+phase-fair", ""),
    ])
    .list("Cells:", &[
        ("alone", "nothing else runs"),
        ("sizes", "CUDA's copies, 4 KiB to 64 MiB"),
        ("copy=NxSIZE", "beside N threads that copy; [pageable] behind it for pageable memory"),
        ("launch=N", "beside N threads that launch; copy=...+launch=N for both"),
        ("setup+...", "how long it takes to create a stream and to allocate memory beside these"),
        ("inversion=NxSIZE+hogs=M@NICE", "beside copying threads whose CPU M hogs take"),
        ("sets", "matrix, full, policies, worst, inversion, setups"),
    ])
    .text("Policies: stock (no agent), agent (with the agent and no policy), traced (recorded with --locks; see --tapes), and \
           what `doorbell run --lock-policy` takes, several with a + between them. Each is a process of its own; they take \
           turns in rounds, in an order drawn anew for each.")
    .text("One thread is measured, real time on a CPU that all others leave to it (SCHED_FIFO, else SCHED_DEADLINE, else nice \
           -20; the result says which). It takes turns: a launch, the launch of a graph of 20 kernels, a copy of 4 KiB, and \
           prepared copies of 4 KiB of ours by a copy engine and inline. The kernel's counters around each call tell asleep \
           (locks) from ready without a CPU and on a CPU.")
    .statuses(&[(0, "done"), (2, "an error"), (77, "nothing can be measured on this machine")])
)]
pub struct Args {
    /// Cells and sets of them, with commas between them
    #[arg(long, value_name = "LIST", default_value = "policies")]
    cells: String,
    /// Policies, with commas between them
    #[arg(long, value_name = "LIST", default_value = "stock,pi,ticket,phase-fair,boost,guard")]
    policies: String,
    /// How long each cell is measured under each policy, all rounds together
    #[arg(long, value_name = units::TIME, default_value = "5s", value_parser = units::time)]
    duration: Duration,
    /// How often the policies take turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Two cells and half a second of each, in two rounds
    #[arg(long, conflicts_with_all = ["cells", "duration", "rounds"])]
    quick: bool,
    /// Measure on this CPU, and keep everything else off it [default: the last one]
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// SCHED_FIFO priority of the measuring thread
    #[arg(
        long,
        value_name = "PRIORITY",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = 80,
        default_missing_value = "80",
        value_parser = clap::value_parser!(i32).range(1..=99)
    )]
    fifo: i32,
    /// Directory for the recordings of `traced`, which replace older ones of the same name (for example tapes)
    #[arg(long, value_name = "DIR")]
    tapes: Option<PathBuf>,
    /// Which GPU
    #[arg(long, value_enum, value_name = "GPU", default_value_t = Gpu::Real)]
    gpu: Gpu,
    #[command(flatten)]
    result: result::Args,
    /// Random seed for data and ordering
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Give up on one of our transfers after this time
    #[arg(long, value_name = units::TIME, default_value = "10s", value_parser = units::time)]
    timeout: Duration,
    /// One process: measures every cell and writes one line of JSON for each
    #[arg(long, hide = true)]
    child: bool,
}

/// Of a result, about.
const ROOM: u64 = 1 << 20;

impl Args {
    pub fn run(mut self) -> anyhow::Result<ExitCode> {
        if self.quick {
            let cells = [Cell::Alone, Cell::WORST];
            self.cells = cells.map(|c| c.to_string()).join(",");
            (self.duration, self.rounds) = (Duration::from_secs(1), 2);
        }
        let cells = Set::read(&self.cells).map_err(|e| {
            let names: Vec<_> = Set::NAMES.iter().map(|(name, _)| *name).collect();
            Failure::new(format!("--cells: {e}"), format!("sets of cells: {}", names.join(", ")))
        })?;
        let (cpu, others) = self.cpus()?;
        if self.child {
            return child::run(&self, &cells, cpu, &others);
        }
        self.all(&cells)
    }

    fn all(&self, cells: &[Cell]) -> anyhow::Result<ExitCode> {
        let mut policies = Policy::read(&self.policies, self.tapes.as_deref())?;
        let mut out = self.result.open(ROOM)?;
        let clock = Clock::new();
        let gpu = match self.gpu {
            Gpu::Soft => environment::Gpu::Soft,
            Gpu::Real => environment::Gpu::Real { pci: None },
        };
        let environment = Environment::gather(gpu, clock.calibrated(), self.seed, Vec::new());
        let progress = Progress::new();
        if out.has_table() && self.gpu == Gpu::Real {
            let all = self.duration.as_secs_f64();
            eprintln!("{}", report::contention::estimate(cells.len(), policies.len(), self.rounds, all));
        }
        let mut comparison = Comparison::default();
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut impossible = None;
        'rounds: for round in 0..self.rounds {
            let mut order: Vec<usize> = (0..policies.len()).collect();
            random.shuffle(&mut order);
            for n in order {
                if policies[n].row.missing.is_some() {
                    continue;
                }
                let name = policies[n].row.name.clone();
                progress.show(&format!("round {} of {}: {name}", round + 1, self.rounds));
                let seed = random.u64(..);
                let mut rows: Vec<_> = policies.iter().map(|p| p.row.clone()).collect();
                let mut unwritten = None;
                let ended = policies[n].measure(self, cells, seed, round, |outcome| {
                    if self.gpu == Gpu::Real {
                        progress.ended(&report::contention::line(&name, &outcome));
                    }
                    comparison.add(&name, outcome);
                    let partial = self.summary(&environment, cells, &rows, &comparison, true);
                    unwritten = out.partial(|to| report::contention::write_json(to, &partial)).err();
                });
                if let Some(e) = unwritten {
                    return Err(e);
                }
                if let Err(why) = ended {
                    if why.impossible && comparison.rows.is_empty() {
                        impossible = Some(why.text);
                        break 'rounds;
                    }
                    progress.ended(&format!("{name}: {}", why.text));
                    policies[n].row.missing = Some(why.text);
                }
                rows = policies.iter().map(|p| p.row.clone()).collect();
                let partial = self.summary(&environment, cells, &rows, &comparison, true);
                out.partial(|to| report::contention::write_json(to, &partial))?;
            }
        }
        drop(progress);
        if let Some(why) = impossible {
            return Err(Failure::impossible(why, "`doorbell doctor` says what works here").into());
        }
        let rows: Vec<_> = policies.into_iter().map(|p| p.row).collect();
        let result = self.summary(&environment, cells, &rows, &comparison, false);
        out.write(
            |to| report::contention::write_json(to, &result),
            |to| report::contention::write(to, &Style::of_stdout(), &result),
        )?;
        verdict(&result)
    }

    fn summary<'a>(
        &self,
        environment: &'a Environment,
        cells: &'a [Cell],
        policies: &'a [report::contention::Policy],
        comparison: &'a Comparison,
        partial: bool,
    ) -> Contention<'a> {
        Contention {
            environment,
            functional: self.gpu == Gpu::Soft,
            policies,
            cells,
            comparison,
            seconds: self.duration.as_secs_f64(),
            rounds: self.rounds,
            partial,
        }
    }

    /// The measuring CPU and those of everything else.
    fn cpus(&self) -> anyhow::Result<(Option<usize>, Vec<usize>)> {
        let all = placement::affinity()?;
        let cpu = self.cpu.or(all.last().copied());
        if let Some(wrong) = self.cpu.filter(|cpu| !all.contains(cpu)) {
            let what = format!("--cpu: this process may not run on CPU {wrong}");
            return Err(Failure::new(what, "`taskset -p $$` shows the CPUs; leave --cpu out for the last").into());
        }
        let others: Vec<usize> = all.iter().copied().filter(|c| Some(*c) != cpu).collect();
        // One CPU is all that there is: the load shares it.
        Ok((cpu, if others.is_empty() { all } else { others }))
    }
}

fn verdict(result: &Contention<'_>) -> anyhow::Result<ExitCode> {
    let rows = &result.comparison.rows;
    let series = rows.iter().flat_map(|r| &r.outcome.series).filter(|s| s.failed.is_some()).count();
    let loads = rows.iter().flat_map(|r| &r.outcome.load).filter(|l| !l.failed.is_empty()).count();
    if series + loads > 0 {
        let what = format!("{series} of what is measured and {loads} of the loads failed");
        return Err(Failure::new(what, "the result says which and why").into());
    }
    if rows.is_empty() {
        let why = result.policies.iter().find_map(|p| p.missing.clone()).unwrap_or_default();
        return Err(
            Failure::new(format!("nothing was measured: {why}"), "`doorbell doctor` says what works here").into()
        );
    }
    Ok(ExitCode::SUCCESS)
}
