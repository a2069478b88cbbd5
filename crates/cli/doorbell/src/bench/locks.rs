//! `doorbell bench pthreads`: how pthread locks delay real-time threads, and how doorbell's protocols compare.

use crate::failure::Failure;
use crate::help::Page;
use crate::progress::Progress;
use crate::{result, units};
use environment::Environment;
use lock_bench::locks::{self, Access, Missing, Plan, Waits};
use measure::clock::Clock;
use std::process::ExitCode;
use std::time::Duration;
use terminal::locks_bench::Locks;
use terminal::number;
use terminal::table::Style;

/// What pthread locks do to real-time threads, and what better protocols make of it; needs no GPU
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell bench pthreads", "everything, about a minute"),
        ("doorbell bench pthreads --only inversion", "three SCHED_FIFO threads on one CPU"),
        ("doorbell bench pthreads --only starvation --timeout 5s", "waits count as endless after 5 s"),
        ("doorbell bench pthreads --only costs --threads 2,16,64 -o costs.json", ""),
    ])
    .list("Experiments:", &[
        ("starvation", "a writer behind readers whose sections overlap, then a reader behind writers: glibc's rwlock, its \
                        other kind, the unlock rule of glibc 2.4 to 2.24, and a phase-fair gate before glibc's"),
        ("inversion", "a low thread holds the lock that a high thread wants, while a middle thread burns 300 ms of the CPU; \
                       it needs SCHED_FIFO (root, CAP_SYS_NICE, or `ulimit -r 30`) and says so where that is not permitted"),
        ("costs", "a lock and an unlock, alone and contended; policies take turns in rounds within one run"),
    ])
    .statuses(&[(0, "done"), (2, "an error or a lock that failed"), (77, "nothing can be measured on this machine")])
)]
pub struct Args {
    /// Run only these experiments, with commas between them
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',')]
    only: Vec<Experiment>,
    /// Give up on a wait after this time: it counts as endless
    #[arg(long, value_name = units::TIME, default_value = "2s", value_parser = units::time)]
    timeout: Duration,
    /// Waits, and inversions, of each policy [default: 3 waits, 5 inversions]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: Option<u32>,
    /// Threads that hold the lock before the one that waits
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    crowd: u32,
    /// How long each of them holds it
    #[arg(long, value_name = units::TIME, default_value = "20ms", value_parser = units::time)]
    section: Duration,
    /// How many threads contend, in the costs: numbers with commas between them
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "2,4,8",
        value_parser = clap::value_parser!(u32).range(2..=128))]
    threads: Vec<u32>,
    /// Rounds of the costs
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Random seed for data and ordering
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    result: result::Args,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Experiment {
    Starvation,
    Inversion,
    Costs,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let plan = self.plan();
        let out = self.result.open(1 << 16)?;
        let clock = Clock::new();
        let gpu = environment::Gpu::Real { pci: None };
        let environment = Environment::gather(gpu, Some(clock.calibrated()), Vec::new()).seeded(self.seed);
        let progress = Progress::new();
        let wanted = |what| self.only.is_empty() || self.only.contains(&what);
        let starved = |who, waiter| {
            let show = &mut |policy: locks::Policy| progress.show(&format!("wait of a {who}, {}", policy.name()));
            wanted(Experiment::Starvation).then(|| locks::starvation(&plan, &clock, waiter, show))
        };
        let starvation = starved("writer", Access::Write);
        let reader_starvation = starved("reader", Access::Read);
        let inversion = wanted(Experiment::Inversion).then(|| {
            locks::inversion(&plan, &clock, &mut |policy| progress.show(&format!("inversion, {}", policy.name())))
        });
        let costs = wanted(Experiment::Costs).then(|| {
            let show = &mut |threads: u32| progress.show(&format!("costs, {}", number::of(threads.into(), "thread")));
            locks::costs(&plan, &clock, show)
        });
        drop(progress);
        let result = Locks {
            plan: &plan,
            environment: &environment,
            libc: &locks::libc_version(),
            starvation: starvation.as_deref(),
            reader_starvation: reader_starvation.as_deref(),
            inversion: inversion.as_ref(),
            costs: costs.as_deref(),
        };
        out.write(
            |out| terminal::locks_bench::write_json(out, &result),
            |out| terminal::locks_bench::write(out, &Style::of_stdout(), &result),
        )?;
        verdict(&result)
    }

    fn plan(&self) -> Plan {
        let usual = Plan::default();
        Plan {
            seed: self.seed,
            crowd: self.crowd,
            section: self.section,
            cap: self.timeout,
            repeats: self.repeats.unwrap_or(usual.repeats),
            inversions: self.repeats.unwrap_or(usual.inversions),
            rounds: self.rounds,
            threads: self.threads.clone(),
            ..usual
        }
    }
}

/// A lock that misbehaved is an error; so is a result without figures.
fn verdict(r: &Locks<'_>) -> anyhow::Result<ExitCode> {
    let inverted = r.inversion.and_then(|i| i.as_deref().ok());
    let waits = [r.starvation, r.reader_starvation, inverted].into_iter().flatten().flatten();
    let waits = waits.map(|w: &Waits| w.outcome.as_ref().err());
    let costs = r.costs.unwrap_or_default().iter().map(|cost| cost.outcome.as_ref().err());
    let all: Vec<Option<&Missing>> = waits.chain(costs).collect();
    let failed = all.iter().filter(|missing| matches!(missing, Some(Missing::Failed(_)))).count();
    if failed > 0 {
        let what = format!("{failed} of {} failed", number::of(all.len() as u64, "measurement"));
        return Err(Failure::new(what, "the result says which and why").into());
    }
    if all.iter().all(Option::is_some) {
        let reason = match r.inversion {
            Some(Err(reason)) => reason.clone(),
            _ => all.iter().find_map(|missing| missing.map(Missing::to_string)).unwrap_or_default(),
        };
        let what = format!("nothing could be measured: {reason}");
        return Err(Failure::impossible(what, "`--only starvation,costs` needs no privilege").into());
    }
    Ok(ExitCode::SUCCESS)
}
