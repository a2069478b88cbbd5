//! `doorbell bench worst`: the worst small transfer of a time, with other threads copying beside it.

use super::machine as routes;
use crate::failure::Failure;
use crate::help::Page;
use crate::progress::Progress;
use crate::record::Gpu;
use crate::{result, units};
use copy::Machine;
use environment::Environment;
use environment::Taken;
use gpu::Correlation;
use lab::clock::Clock;
use lab::interference::{self, Load, Running};
use lab::launch;
use lab::noise::{Gaps, gaps};
use lab::worst::{self, Contender, Kind, Missing, Plan, Stage};
use placement::Placement;
use report::number;
use report::table::Style;
use report::worst::Run;
use std::process::ExitCode;
use std::time::Duration;

/// Measure the worst small transfer of a minute, while other threads copy
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell bench worst -o worst.json", "64 threads of cuMemcpyHtoDAsync, a minute"),
        ("doorbell bench worst --threads 0 --duration 10s", "without load"),
        ("doorbell bench worst --routes 'host->ce2->gpu0@8B,host->cuda->gpu0@4KiB,launch'", ""),
        ("doorbell bench worst --gpu soft --threads 2 --bytes 64KiB --duration 1s", ""),
    ])
    .text("What is measured takes turns on one thread, under SCHED_FIFO (where that is refused SCHED_DEADLINE, else nice \
           -20) on a CPU that the load leaves to it: first without load, then with it. A route has its size behind an @ \
           (8B if none is given); `launch` is the launch of a CUDA kernel. Before, between and after the turns of each stage \
           the same thread only reads the clock, and measures how long the machine keeps it away: the noise floor.")
    .text("Of the worst hundred of each the parts are kept. Of our copies: the submission, the time from the doorbell to the \
           engine's release by its own clock, and from there until it was seen. Of CUDA's: how long the thread slept (locks), \
           waited for a CPU, and was on one. What cannot be known is named.")
    .statuses(&[
        (0, "done"),
        (1, "none of our engine copies stayed within the limit (--within)"),
        (2, "an error"),
        (77, "nothing can be measured on this machine"),
    ])
)]
pub struct Args {
    /// Threads of the load
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(0..=1024))]
    threads: u16,
    /// Size of each transfer of the load
    #[arg(long, value_name = units::SIZE, default_value = "4MiB", value_parser = units::size)]
    bytes: u64,
    /// How each thread of the load copies [default: host->cuda->gpu0; on the software GPU host->ce0->gpu0]
    #[arg(long, value_name = "ROUTE")]
    load: Option<String>,
    /// How long to measure under load
    #[arg(long, value_name = units::TIME, default_value = "60s", value_parser = units::time)]
    duration: Duration,
    /// How long to measure without load
    #[arg(long, value_name = units::TIME, default_value = "5s", value_parser = units::time)]
    unloaded: Duration,
    /// How long to measure the machine's noise, twice a stage
    #[arg(long, value_name = units::TIME, default_value = "2s", value_parser = units::time)]
    noise: Duration,
    /// Measure on this CPU, and keep the load off it [default: the last one]
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
    /// What to measure: ROUTE@SIZE or launch, with commas between them [default: each of our ways, and CUDA's]
    #[arg(long, value_name = "LIST")]
    routes: Option<String>,
    /// Fail if our worst engine copy exceeds the noise floor by more than this, for example 100us
    #[arg(long, value_name = units::TIME, value_parser = units::time)]
    within: Option<Duration>,
    /// Which GPU
    #[arg(long, value_enum, value_name = "GPU", default_value_t = Gpu::Real)]
    gpu: Gpu,
    #[command(flatten)]
    result: result::Args,
    /// Random seed for data and ordering
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Give up on a transfer after this time
    #[arg(long, value_name = units::TIME, default_value = "10s", value_parser = units::time)]
    timeout: Duration,
}

/// What is shown as within where nothing is asked for.
const WITHIN: Duration = Duration::from_micros(100);
/// What opening and closing may take beyond the time of the measurement.
const HANGS_S: u32 = 180;
/// A turn of one route; see [`Plan::turn`].
const TURN: Duration = Duration::from_millis(1);
const MOST_PER_TURN: u32 = 100;
/// Asynchronous copy engines that are tried unless routes are given.
const ENGINES: usize = 4;
const GROUP: &str = "group=cuda";
const TIMED: &str = "release=engine";
/// A kernel answers, which spins meanwhile.
const ANSWERED: &str = "answered";
const MESSAGE: &str = "message";

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let wanted = self.routes.as_deref().map(asked).transpose()?;
        let load_route = match (&self.load, self.gpu) {
            (Some(name), _) => routes::one(name)?,
            (None, Gpu::Real) => "host->cuda->gpu0".into(),
            (None, Gpu::Soft) => "host->ce0->gpu0".into(),
        };
        let (cpu, others) = self.cpus()?;
        if self.gpu == Gpu::Soft {
            crate::sample::with_softgpu()?;
        }
        let out = self.result.open(1 << 20)?;
        // CUDA's waits have no end of their own: whatever hangs, the process ends by a signal.
        let all = self.duration + self.unloaded + self.noise * 4 + self.timeout * 4;
        // SAFETY: alarm takes a number of seconds; no handler is set for its signal.
        unsafe { libc::alarm(all.as_secs() as u32 + HANGS_S) };
        let machine = routes::open(self.gpu)?;
        let engines = Engines { machine: &machine };
        let wanted = wanted.unwrap_or_else(|| engines.usual());
        let mut contenders: Vec<Contender<'_>> = wanted.iter().map(|w| engines.open(w)).collect();
        let clock = Clock::new();
        worst::verified(&mut contenders, self.seed, self.timeout);
        if contenders.iter().all(|c| c.route.is_err()) {
            return Err(why_none(&contenders));
        }

        let load = Load {
            route: load_route,
            threads: self.threads.into(),
            bytes: self.bytes,
            cpus: others.clone(),
            nice: 0,
            seed: self.seed,
            timeout: self.timeout,
        };
        let plan =
            |duration| Plan { duration, turn: TURN, most: MOST_PER_TURN, seed: self.seed, timeout: self.timeout };
        plan(self.duration).fits(contenders.len()).map_err(|e| Failure::new(e.to_string(), "measure for less time"))?;
        let progress = Progress::new();
        let placed = Placement::real_time(cpu, self.fifo);
        let mut notes = placed.notes.clone();
        notes.extend(placed.class.map(|class| format!("the measuring thread: {class}")));
        notes.extend(alone(cpu, &others));
        let stage = |contenders: &mut [Contender<'_>], name: &str, duration, running: Option<&Running<'_>>| {
            let gpu_clock = machine.space().ok().map(|space| space.device().clock());
            let correlate = gpu_clock.as_ref().map(|c| move || -> Correlation { c.correlate() });
            let correlate = correlate.as_ref().map(|c| c as &dyn Fn() -> Correlation);
            progress.show(&format!("{name}: noise"));
            let (throttled, taken) = (placed.throttled(), cpu.and_then(Taken::now));
            let before = noise(&clock, self.noise);
            let mark = running.map(Running::mark);
            let tell =
                |at: Duration| progress.show(&format!("{name}: {} of {} s", at.as_secs(), duration_text(duration)));
            let phase = worst::run(&plan(duration), contenders, &clock, correlate, tell);
            let rate = running.zip(mark).map(|(running, mark)| running.since(&mark));
            progress.show(&format!("{name}: noise"));
            let after = noise(&clock, self.noise);
            let taken = cpu.and_then(Taken::now).zip(taken).map(|(now, then)| now.since(&then));
            Stage { load: rate, noise: [before, after], phase, taken, throttled: placed.throttled() - throttled }
        };
        let quiet = stage(&mut contenders, "without load", self.unloaded, None);
        let (loaded, ended) = if load.threads == 0 {
            (None, None)
        } else {
            progress.show(&format!("{} threads of load start", load.threads));
            let (stage, ended) = interference::under(&machine, &load, |running| {
                // libcuda may have started threads of its own meanwhile.
                let _ = placement::cpus::clear(&others);
                stage(&mut contenders, "under load", self.duration, Some(running))
            });
            (Some(stage), Some(ended))
        };
        let pci = machine.context().ok().and_then(|c| c.device().pci_address().ok());
        let gpu = match self.gpu {
            Gpu::Soft => environment::Gpu::Soft,
            Gpu::Real => environment::Gpu::Real { pci: pci.as_deref() },
        };
        let environment = Environment::gather(gpu, clock.calibrated(), self.seed, notes);
        drop(placed);
        drop(progress);

        let run = Run {
            environment: &environment,
            functional: self.gpu == Gpu::Soft,
            load: &load,
            ended: ended.as_ref(),
            quiet: &quiet,
            loaded: loaded.as_ref(),
            within_ns: self.within.unwrap_or(WITHIN).as_nanos() as u64,
        };
        out.write(
            |out| report::worst::write_json(out, &run),
            |out| report::worst::write(out, &Style::of_stdout(), &run),
        )?;
        self.verdict(&run)
    }

    /// The measuring CPU and those of the load.
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

    fn verdict(&self, run: &Run<'_>) -> anyhow::Result<ExitCode> {
        let stages = || run.loaded.iter().copied().chain([run.quiet]);
        let failed =
            stages().flat_map(|s| &s.phase.rows).filter(|r| matches!(r.missing, Some(Missing::Failed(_)))).count();
        let load_failed = run.ended.map_or(0, |e| e.failed.len());
        if failed + load_failed > 0 {
            let what = format!("{failed} of what is measured and {load_failed} of the load failed");
            return Err(Failure::new(what, "the result says which and why").into());
        }
        let Some(within) = self.within else { return Ok(ExitCode::SUCCESS) };
        let last = run.loaded.unwrap_or(run.quiet);
        let by_engine = |name: &str| copy::parse(name).is_ok_and(|s| matches!(s.executor.name, "ce" | "inline"));
        let mut copies = last.phase.rows.iter().filter(|r| r.kind == Kind::Own && by_engine(&r.name));
        Ok(ExitCode::from(u8::from(!copies.any(|row| last.is_within(row, within.as_nanos() as u64)))))
    }
}

fn noise(clock: &Clock, duration: Duration) -> Gaps {
    gaps(clock, duration)
}

fn duration_text(duration: Duration) -> String {
    format!("{}", duration.as_secs_f64())
}

fn one_size(option: &str, text: &str) -> anyhow::Result<u64> {
    match lab::sizes::parse(text).as_deref() {
        Ok([one]) => Ok(*one),
        Ok(_) => Err(Failure::new(format!("{option}: {text:?} is more than one size"), "give one, as 4MiB").into()),
        Err(e) => Err(Failure::new(format!("{option}: {e}"), "give one size, as 8B or 4MiB").into()),
    }
}

/// A route or `launch`, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    name: String,
    bytes: u64,
}

fn asked(list: &str) -> anyhow::Result<Vec<Wanted>> {
    let one = |text: &str| {
        let (name, size) = text.rsplit_once('@').unwrap_or((text, "8B"));
        if name == launch::NAME {
            return Ok(Wanted { name: name.into(), bytes: launch::BYTES });
        }
        Ok(Wanted { name: routes::one(name)?, bytes: one_size("--routes", size)? })
    };
    routes::split(list).into_iter().map(one).collect()
}

fn why_none(contenders: &[Contender<'_>]) -> anyhow::Error {
    let mut failed = false;
    let reasons = contenders.iter().filter_map(|c| match c.route.as_ref().err()? {
        Missing::Unavailable(reason) => Some(format!("{}: {reason}", c.name)),
        Missing::Failed(reason) => {
            failed = true;
            Some(format!("{}: {reason}", c.name))
        }
    });
    let what = format!("none of these can be measured here: {}", reasons.collect::<Vec<_>>().join("; "));
    let hint = "`doorbell doctor` says what works here";
    if failed { Failure::new(what, hint).into() } else { Failure::impossible(what, hint).into() }
}

/// Takes this process's other threads off the CPU, and says what became of that.
fn alone(cpu: Option<usize>, others: &[usize]) -> Vec<String> {
    let Some(cpu) = cpu else { return Vec::new() };
    if others.contains(&cpu) {
        return vec![format!("CPU {cpu} is the only one: what is measured shares it with the load")];
    }
    match placement::cpus::clear(others) {
        Ok((_, 0)) => vec![format!(
            "this process leaves CPU {cpu} to the measuring thread; whether other processes do, isolated_cpus says"
        )],
        Ok((_, stayed)) => vec![format!("{stayed} other threads of this process stayed on CPU {cpu}")],
        Err(e) => vec![format!("other threads of this process may be on CPU {cpu}: {e}")],
    }
}

/// What the copy engines of a machine are good for.
struct Engines<'m> {
    machine: &'m Machine,
}

impl<'m> Engines<'m> {
    fn open(&self, wanted: &Wanted) -> Contender<'m> {
        let Wanted { name, bytes } = wanted.clone();
        if name == launch::NAME {
            let route = launch::open(self.machine).map_err(Missing::from);
            let about = "the launch of a kernel of one thread, and the wait for it".into();
            return Contender { name, about, kind: Kind::Cuda, bytes, rests: false, route };
        }
        let spec = copy::parse(&name).ok();
        let executor = spec.as_ref().map_or("", |s| s.executor.name);
        let kind = if executor.starts_with("cuda") { Kind::Cuda } else { Kind::Own };
        let route = copy::open(self.machine, &name, bytes).map_err(Missing::from);
        let engine = spec.as_ref().filter(|s| s.executor.name == "ce").and_then(|s| s.executor.index);
        let about = match engine {
            Some(number) => self.list().into_iter().find(|e| e.number == number).map(|e| e.about()).unwrap_or_default(),
            None => String::new(),
        };
        let rests = spec.as_ref().is_some_and(|s| s.executor.has(ANSWERED) || s.executor.name == MESSAGE);
        Contender { name, about, kind, bytes, rests, route }
    }

    /// Each way of ours and each of CUDA's.
    fn usual(&self) -> Vec<Wanted> {
        let gpu = self.machine.index();
        let mut all = Vec::new();
        let mut add = |name: String, bytes| all.push(Wanted { name, bytes });
        let mut engines: Vec<Engine> = self.list().into_iter().filter(|e| e.asynchronous).collect();
        // First those on which CUDA has no channels and that share nothing with those where it has.
        engines.sort_by_key(|e| (e.cudas_channels.unwrap_or(0) > 0, e.shares, e.number));
        engines.truncate(ENGINES);
        let first = engines.first().map_or(0, |e| e.number);
        for number in engines.iter().map(|e| e.number) {
            add(format!("host->ce{number}->gpu{gpu}"), 8);
        }
        if engines.is_empty() {
            add(format!("host->ce0->gpu{gpu}"), 8);
        }
        add(format!("host->ce{first}->gpu{gpu}"), 4096);
        // As it is, and with a release that says when the engine was done.
        add(format!("host->inline->gpu{gpu}"), 8);
        add(format!("host->inline[{TIMED}]->gpu{gpu}"), 8);
        add(format!("host->inline[{TIMED},{GROUP}]->gpu{gpu}"), 8);
        add(format!("host->bar1->gpu{gpu}"), 8);
        add(format!("host->bar1[flush]->gpu{gpu}"), 8);
        add(format!("host->cuda->gpu{gpu}"), 8);
        add(format!("host->cuda->gpu{gpu}"), 4096);
        add(launch::NAME.into(), launch::BYTES);
        all
    }

    fn list(&self) -> Vec<Engine> {
        let Ok(found) = self.machine.space().map_err(drop).and_then(|s| s.device().engines().map_err(drop)) else {
            return Vec::new();
        };
        let channels = self.cudas_channels();
        let of = |number: u32| channels.as_ref().map(|c| c.iter().filter(|e| Some(**e) == engine_type(number)).count());
        let used = |e: &gpu::CopyEngine| of(e.number).unwrap_or(0) > 0;
        found
            .iter()
            .map(|e| Engine {
                number: e.number,
                asynchronous: e.is_asynchronous(),
                cudas_channels: of(e.number),
                shares: found.iter().any(|o| o.number != e.number && used(o) && e.shares_with(o) == Some(true)),
            })
            .collect()
    }

    /// Engine types of the channels that CUDA has; `None` where its calls were not seen.
    fn cudas_channels(&self) -> Option<Vec<u32>> {
        self.machine.context().ok()?;
        let libcuda = gpu::Libcuda::open().ok()?;
        let graph = libcuda.watched().graph();
        Some(graph.channels().iter().filter(|c| c.alive()).map(|c| c.engine).collect())
    }
}

fn engine_type(number: u32) -> Option<u32> {
    rm::class::engine::copy(number)
}

/// A copy engine, and what CUDA has on it.
struct Engine {
    number: u32,
    asynchronous: bool,
    cudas_channels: Option<usize>,
    /// A physical engine with one on which CUDA has channels.
    shares: bool,
}

impl Engine {
    fn about(&self) -> String {
        let kind = if self.asynchronous { "asynchronous" } else { "on graphics' runlist" };
        let channels = match self.cudas_channels {
            None => String::new(),
            Some(0) => "; CUDA has no channel on it".into(),
            Some(n) => format!("; CUDA has {} on it", number::of(n as u64, "channel")),
        };
        let shares = if self.shares { "; a physical engine in common with one where CUDA has channels" } else { "" };
        format!("copy engine {}, {kind}{channels}{shares}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_have_their_size_behind_an_at() {
        let found = asked("host->ce2[pipelined,userd=host]->gpu0@4KiB, launch,host->bar1->gpu0").unwrap();
        let text: Vec<_> = found.iter().map(|w| format!("{} {}", w.name, w.bytes)).collect();
        assert_eq!(text, ["host->ce2[pipelined,userd=host]->gpu0 4096", "launch 4", "host->bar1->gpu0 8"]);
        for wrong in ["host->warp->gpu0@8B", "host->ce0->gpu0@8..9", "host->ce0->gpu0@", ""] {
            assert!(asked(wrong).is_err(), "{wrong}");
        }
    }
}
