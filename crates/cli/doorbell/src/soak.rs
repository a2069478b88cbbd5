//! `doorbell soak`: an experiment for hours, in periods, with all that changes in that time.

mod child;

use crate::bench::{read_named, surroundings};
use crate::failure::Failure;
use crate::help::Page;
use crate::progress::Progress;
use crate::record::Gpu;
use crate::{signals, units};
use environment::Severity;
use experiment::Experiment;
use run_folder::soak::folder::Asked;
use run_folder::soak::lead::{Leader, News};
use run_folder::soak::measuring::Over;
use run_folder::soak::planted::Planted;
use run_folder::soak::{self, Folder, Soak};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use terminal::table::Style;

/// Run an experiment for hours: every transfer compared, leaks and drift found, a report whatever ends it
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell soak mixed --for 12h --every 10m -o night", "twelve hours, in 72 periods"),
        ("doorbell soak mixed --for 9m --every 10s -o short", "nine minutes, told as nine minutes"),
        ("doorbell soak my.toml --stop-above 50us -o hunt", "stop at the first transfer above 50 us"),
        ("doorbell soak -o night --resume", "go on after a crash or a reboot; so does the same command again"),
        ("doorbell soak --show night", "print the account so far"),
        ("doorbell soak mixed --gpu soft --for 1m --every 2s -o try", "whether it works, never how fast"),
    ])
    .text("One process measures the experiment again and again, so that leaks show; each period leaves its summary, a histogram \
           and its slowest transfers. SIGTERM and Ctrl-C end it with a complete report. Under systemd (Type=notify, WatchdogSec=) \
           it feeds the watchdog while the measurement goes on.")
    .statuses(&[
        (0, "measured for as long as was asked, without a fault"),
        (1, "a fault was found: a wrong byte, a leak, drift, a stall, a dead load, a transfer above the bound"),
        (2, "an error"),
        (77, "nothing can be measured on this machine"),
        (130, "stopped before its time, without a fault"),
    ])
)]
pub struct Args {
    /// A file, for example my.toml, or the name of a shipped experiment, for example soak
    #[arg(value_name = "EXPERIMENT")]
    experiment: Option<String>,
    /// A variant of the experiment, for example gpudirect
    #[arg(long, value_name = "NAME", requires = "experiment")]
    variant: Option<String>,
    /// How long to measure, for example 9m
    #[arg(long = "duration", visible_alias = "for", value_name = units::TIME, value_parser = units::long_time, default_value = "12h")]
    asked: Duration,
    /// How long a period is, for example 10s
    #[arg(long, value_name = units::TIME, value_parser = units::time, default_value = "10m")]
    every: Duration,
    /// Keep the soak in this folder, for example night [default: soak-EXPERIMENT]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Change a value of the experiment, for example run.cpus=last or matrix.bytes=4MiB
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Which GPU: --gpu soft is --set run.gpu=soft
    #[arg(long, value_enum, value_name = "GPU")]
    gpu: Option<Gpu>,
    /// Stop at the first transfer that takes longer, for example 50us, keep its recording, and say what delayed it
    #[arg(long, value_name = units::TIME, value_parser = units::time)]
    stop_above: Option<Duration>,
    /// With --stop-above: record nothing, so that nothing but the loads slows a transfer down. Nobody knows then who held a lock
    #[arg(long, requires = "stop_above")]
    bare: bool,
    /// A measuring process that says nothing for so long stands still: it is replaced, and that is a fault
    #[arg(long, value_name = units::TIME, value_parser = units::time, default_value = "60s")]
    stall_after: Duration,
    /// Go on with the soak in the folder of --out
    #[arg(long, requires = "out")]
    resume: bool,
    /// Replace the soak in the folder of --out
    #[arg(long, requires = "out", conflicts_with = "resume")]
    force: bool,
    /// Print the account as JSON, without tables
    #[arg(long)]
    json: bool,
    /// Measure nothing: print the account of a soak, finished or not, for example night
    #[arg(long, value_name = "RUN", conflicts_with_all = ["experiment", "out", "sets", "gpu", "stop_above"])]
    show: Option<PathBuf>,
    /// The measuring process of the soak in this folder
    #[arg(long, value_name = "FOLDER", hide = true)]
    child: Option<PathBuf>,
    #[arg(long, value_name = "N", hide = true, default_value_t = 0)]
    process: u32,
    /// The soak's clock goes on by so much with each lap, whatever it takes
    #[arg(long, value_name = "TIME", hide = true, value_parser = units::time)]
    simulate: Option<Duration>,
    /// A fault in the measuring process
    #[arg(long, value_name = "FAULT", hide = true)]
    plant: Vec<String>,
}

const EXPERIMENTS: &str =
    "`doorbell soak mixed` runs the shipped one; `doorbell bench --list` lists all; a file has a path or ends in .toml";

/// Maximum duration of a lap: a soak that is interrupted ends after its lap.
const LAP: Duration = Duration::from_secs(10);
/// Maximum number of samples of a cell in a lap: they stay in memory until the lap is over.
const SAMPLES: u64 = 200_000;

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(folder) = &self.child {
            let planted: Result<Vec<Planted>, String> = self.plant.iter().map(|text| Planted::parse(text)).collect();
            return child::run(folder, self.process, &planted.map_err(anyhow::Error::msg)?);
        }
        if let Some(path) = &self.show {
            // Computes the figures again from the folder, or reads soak.json alone.
            let soak = match Folder::is_there(path) {
                true => Folder::open(path)?.soak()?,
                false => soak::folder::read_soak(path)?,
            };
            self.print(&soak)?;
            return Ok(if soak.verdict.held { ExitCode::SUCCESS } else { ExitCode::from(1) });
        }
        // From before the first result until it is stored.
        let stop = signals::count_interrupts();
        let folder = self.folder()?;
        folder.asked().warnings.iter().for_each(|warning| say!("warning: {warning}"));
        let progress = Progress::new();
        let leader = Leader {
            folder: &folder,
            program: std::env::current_exe()?,
            more: self.plant.iter().flat_map(|planted| ["--plant".into(), planted.into()]).collect(),
            stop,
            stall_after: self.stall_after,
        };
        let name = folder.experiment().title();
        let mut line = String::new();
        let led = leader.run(&mut |news| match news {
            News::Doing(text) if line.is_empty() => progress.show(&format!("{name}: {text}")),
            News::Doing(_) => {}
            News::Lap { .. } => {
                line = soak::lead::status(&folder, &news);
                progress.show(&format!("{name}: {line}"));
            }
            News::Again(why) => progress.ended(&format!("a new process measures: {why}")),
        });
        progress.clear();
        if matches!(led, Ok(Over::Above(_))) {
            progress.show(&format!("{name}: reading the recording"));
            explain(&folder)?;
            progress.clear();
        }
        // The account is complete, whatever ended the soak.
        let soak = folder.soak()?;
        let written = folder.write_soak(&soak);
        let over = led?;
        written?;
        if let Over::Impossible(why) | Over::Renew(why) = &over
            && soak.periods.is_empty()
        {
            folder.give_up()?;
            return Err(match over {
                Over::Impossible(_) => Failure::impossible(why, crate::bench::machine::HINT),
                _ => {
                    let hint =
                        "`doorbell doctor` says what works here; `doorbell bench` with the same experiment says more";
                    Failure::new(format!("three processes in a row measured in vain: {why}"), hint)
                }
            }
            .into());
        }
        // The warnings were printed above already.
        self.print(&if self.json { soak.clone() } else { Soak { warnings: Vec::new(), ..soak.clone() } })?;
        Ok(ExitCode::from(match over {
            Over::Impossible(_) | Over::Renew(_) => crate::ERROR,
            _ if !soak.verdict.held => 1,
            Over::Stopped => STOPPED,
            Over::Done | Over::Above(_) => 0,
        }))
    }

    fn print(&self, soak: &Soak) -> anyhow::Result<()> {
        if self.json {
            let text = run_folder::json::to_vec(soak)?;
            return Ok(terminal::table::to_stdout(|out| out.write_all(&text))?);
        }
        Ok(terminal::table::text_to_stdout(Style::of_stdout(), |out| {
            terminal::soak::write(out, &Style::of_stdout(), soak)
        })?)
    }

    /// A new soak, or the one to resume.
    fn folder(&self) -> anyhow::Result<Folder> {
        let experiment = self.experiment()?;
        let path = match (&self.out, &experiment) {
            (Some(path), _) => path.clone(),
            (None, Some(experiment)) => PathBuf::from(format!("soak-{}", experiment.file_name())),
            (None, None) => return Err(Failure::new("no experiment is given", EXPERIMENTS).into()),
        };
        if self.resume || (Folder::is_there(&path) && !self.force) {
            match self.resumed(&path, experiment.as_ref()) {
                // A soak of another experiment that has measured nothing is replaced.
                Err(_) if !self.resume && !Folder::is_measured(&path) => {}
                resumed => return resumed,
            }
        }
        let Some(experiment) = experiment else {
            return Err(Failure::new("no experiment is given", EXPERIMENTS).into());
        };
        let before = surroundings(experiment.run.gpu);
        let warnings = before.warnings().into_iter().filter(|w| w.severity > Severity::Notice);
        let asked = Asked {
            doorbell: run_folder::folder::VERSION.into(),
            commit: before.text("run.commit").map(str::to_owned),
            command: std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect(),
            started: environment::utc_now().unwrap_or_default(),
            asked_s: self.asked.as_secs_f64(),
            every_s: self.every.as_secs_f64(),
            stop_above_ns: self.stop_above.map(|bound| bound.as_nanos() as u64),
            simulated_lap_s: self.simulate.map(|lap| lap.as_secs_f64()),
            warnings: match experiment.run.gpu {
                experiment::Gpu::Soft => Vec::new(),
                _ => warnings.map(|w| w.to_string()).collect(),
            },
            environment: serde_json::to_value(&before)?,
        };
        Ok(Folder::create(&path, &experiment, asked, self.force)?)
    }

    fn resumed(&self, path: &Path, experiment: Option<&Experiment>) -> anyhow::Result<Folder> {
        let mut folder = Folder::resume(path)?;
        let asked = folder.asked();
        // Without an experiment, the folder has all settings.
        if let Some(experiment) = experiment {
            folder.is_of(experiment)?;
            let bound = self.stop_above.map(|bound| bound.as_nanos() as u64);
            if asked.every_s != self.every.as_secs_f64() || asked.stop_above_ns != bound {
                let what = "--every or --stop-above differs".into();
                return Err(run_folder::Error::OtherExperiment { path: path.into(), what }.into());
            }
        }
        let done_s: f64 = folder.periods()?.iter().map(|period| period.seconds).sum();
        let wanted_s = if experiment.is_some() { self.asked.as_secs_f64() } else { asked.asked_s };
        if done_s >= wanted_s {
            return Err(run_folder::Error::Complete(path.into()).into());
        }
        if wanted_s != asked.asked_s {
            folder.ask_for(wanted_s)?;
        }
        Ok(folder)
    }

    /// The experiment in the form in which a soak runs it; `None` to take it from the folder.
    fn experiment(&self) -> anyhow::Result<Option<Experiment>> {
        let Some(name) = &self.experiment else { return Ok(None) };
        let mut sets = self.sets.clone();
        sets.extend(self.gpu.map(|gpu| if gpu == Gpu::Soft { "run.gpu=soft".into() } else { "run.gpu=real".into() }));
        let variant = self.variant.as_deref();
        let (text, mut experiment) = read_named(name, variant, &sets, experiment::Processes::One)?;
        if !soak::says_every(&text, variant, &sets) {
            experiment.verify.every = 1;
        }
        let stages = experiment.stages()?;
        let policies: std::collections::BTreeSet<&str> = stages.iter().map(|s| s.run.policy.as_str()).collect();
        if policies.len() > 1 || policies.contains("traced") {
            let all = policies.into_iter().collect::<Vec<_>>().join(", ");
            return Err(Failure::new(
                format!(
                    "one process measures a soak, under one lock policy and not recorded: this experiment has {all}"
                ),
                "choose one: --set matrix.policy=stock",
            )
            .into());
        }
        let run = &mut experiment.run;
        let most = LAP.min(self.every / stages.len().max(1) as u32).as_nanos() as u64;
        run.duration_ns = Some(run.duration_ns.map_or(most, |ns| ns.min(most)).max(1_000_000));
        run.samples = Some(run.samples.unwrap_or(SAMPLES).min(SAMPLES));
        (run.repeats, run.meter_ns) = (1, 0);
        // Only a process under `stock` can be recorded.
        let recorded =
            self.stop_above.is_some() && !self.bare && policies.contains(STOCK) && run.gpu != experiment::Gpu::None;
        run.record = if recorded { experiment::Record::Commands } else { experiment::Record::No };
        Ok(Some(experiment))
    }
}

/// Adds to the sample above the bound what the recording shows of that time.
fn explain(folder: &Folder) -> anyhow::Result<()> {
    let (Some(mut above), Some(tape)) = (folder.above()?, folder.recording()) else { return Ok(()) };
    let counter = above.counter.as_ref().ok_or(comparison::attribution::Error::NoCounter);
    let found = counter.and_then(|counter| {
        comparison::attribution::delay::of_sample(&decode::Recording::open(&tape)?, counter, &above.sample)
    });
    above.recording = tape.exists().then(|| soak::folder::RECORDING.into());
    match found {
        Ok(delay) => above.delay = Some(delay),
        Err(why) => above.not_joined = Some(why.to_string()),
    }
    Ok(folder.write_above(&above)?)
}

const STOCK: &str = "stock";

/// Exit status of a soak that a signal ended before its time.
const STOPPED: u8 = 130;
