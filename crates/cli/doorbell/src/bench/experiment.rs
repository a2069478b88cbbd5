//! `doorbell bench EXPERIMENT`: an experiment from a file, or a shipped one.

use super::machine;
use crate::failure::Failure;
use crate::help::Page;
use crate::progress::Progress;
use crate::record::Gpu;
use crate::signals;
use comparison::Loaded;
use environment::Severity;
use experiment::{Device, Experiment, Processes, Stage};
use measure::clock::Clock;
use run_folder::run::{Context, Interrupted, Run};
use run_folder::runner::{End, Heard, News, Outcome, Runner};
use run_folder::{Folder, PLOTS, Status};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicU32;
use std::time::Instant;
use terminal::number;
use terminal::table::Style;

/// Run an experiment: every transfer a sample, what is compared takes turns
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell bench --list", "the experiments that come with doorbell"),
        ("doorbell bench smoke", "half a minute, on a machine with a GPU"),
        ("doorbell bench crossover -o crossover", "samples, figures and plots in a folder"),
        ("doorbell bench my.toml --dry-run", "what it would do, and how long that takes"),
        ("doorbell bench setups --set matrix.policy=stock,pi --set run.duration=2s", ""),
        ("doorbell bench -o crossover --resume", "go on with a run that was stopped"),
        ("doorbell bench --show crossover", "print a finished run again"),
        ("doorbell bench smoke --gpu soft", "whether it works, never how fast"),
    ])
    .text("An experiment is a TOML file: what is measured, beside which load, in which combinations. Copy a shipped one and \
           change it. A run is a folder: samples as Parquet, figures as JSON, plots. Ctrl-C keeps what is finished; a second one waits \
           for no process.")
    .statuses(&[
        (0, "done, and every bound of the experiment holds"),
        (1, "a bound of the experiment does not hold"),
        (2, "an error, or something that is measured failed"),
        (77, "nothing can be measured on this machine"),
        (130, "stopped by Ctrl-C"),
    ])
)]
pub struct Args {
    /// A file, for example my.toml, or the name of a shipped experiment, for example smoke
    #[arg(value_name = "EXPERIMENT")]
    experiment: Option<String>,
    /// A variant of the experiment, for example sweep; --list has them
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
    /// Keep samples, figures and plots in this folder, for example results/smoke
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Change a value of the experiment, for example run.duration=60s or matrix.policy=stock,pi
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Which GPU: --gpu soft is --set run.gpu=soft
    #[arg(long, value_enum, value_name = "GPU")]
    gpu: Option<Gpu>,
    /// What routes call device, for example edu (emulated by QEMU, with the software GPU) or xdma@0000:04:00.0 (an FPGA), as --set run.device=edu does
    #[arg(long, value_name = "DEVICE", value_parser = device)]
    device: Option<Device>,
    /// Drive the FPGA of --device although no IOMMU keeps it from other programs' memory
    #[arg(long, requires = "device")]
    without_iommu: bool,
    /// Say what would run and how long it takes, and exit
    #[arg(long)]
    dry_run: bool,
    /// Go on with the run in the folder of --out
    #[arg(long, requires = "out")]
    resume: bool,
    /// Replace the run in the folder of --out
    #[arg(long, requires = "out", conflicts_with = "resume")]
    force: bool,
    /// Print the result as JSON, without a table
    #[arg(long)]
    json: bool,
    /// List the shipped experiments, with the time that each takes, and exit
    #[arg(long)]
    list: bool,
    /// List the routes and calls that an experiment can name, with what this machine lacks, and exit
    #[arg(long)]
    routes: bool,
    /// Measure nothing: print a run again, for example results/smoke (summed up anew from its samples) or its run.json
    #[arg(long, value_name = "RUN", conflicts_with_all = ["experiment", "out", "sets", "gpu", "dry_run", "list", "routes"])]
    show: Option<PathBuf>,
    /// With --show: draw the pictures in the folder's plots/ again; of a run.json alone those that need no samples
    #[arg(long, requires = "show")]
    plots: bool,
    /// With --show: judge the asserts of this experiment instead, for example experiments/crossover.toml
    #[arg(long, requires = "show", value_name = "EXPERIMENT")]
    asserts: Option<String>,
    /// One process of a run: measures stages and leaves a part of each in this folder
    #[arg(long, value_name = "FOLDER", hide = true)]
    child: Option<PathBuf>,
    #[arg(long, value_name = "N", hide = true, default_value_t = 0)]
    repeat: u32,
    #[arg(long, value_name = "LIST", hide = true, value_delimiter = ',')]
    stages: Vec<u32>,
    /// One process of a load
    #[arg(long, value_name = "WORK", hide = true)]
    load: Option<String>,
}

fn device(text: &str) -> Result<Device, String> {
    text.parse().map_err(|e| format!("{e}: {}", Device::FORMS))
}

const EXPERIMENTS: &str = "`doorbell bench --list` lists the shipped experiments; a file has a path or ends in .toml";
const CPUS: &str = "give `cpus` that exist here, or \"last\" and \"others\", which every machine has";
const ROUTES: &str = "`doorbell bench --routes` lists the routes and calls";

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(folder) = &self.child {
            return super::child::run(folder, self.repeat, &self.stages);
        }
        if let Some(work) = &self.load {
            return super::child::load(work);
        }
        if self.list {
            return list(self.json);
        }
        if let Some(path) = &self.show {
            return self.again(path);
        }
        if self.routes {
            let device = self.device.clone().unwrap_or_default();
            let gpu = if device == Device::Edu { Gpu::Soft } else { Gpu::Real };
            // The list of names is the same without a GPU.
            let (machine, lacks) = machine::or_none(machine::with_device(self.gpu.unwrap_or(gpu), &device));
            return machine::list(&machine, lacks, self.json).map(|()| ExitCode::SUCCESS);
        }
        if let Some(out) = &self.out {
            crate::result::is_file("--out", out, "--json prints the result to standard output")?;
        }
        let asked = self.experiment()?;
        if self.dry_run {
            return self.plan(asked);
        }
        // From before the first result until it is stored.
        let stop = signals::count_interrupts();
        let temporary = tempfile::tempdir()?;
        let (folder, is_new) = match (&asked, self.resume) {
            (Some(experiment), false) => {
                let path = self.out.clone().unwrap_or_else(|| temporary.path().join(experiment.file_name()));
                (Folder::create(&path, experiment, self.force)?, true)
            }
            (asked, _) => {
                let folder = Folder::resume(self.folder()?)?;
                asked.iter().try_for_each(|experiment| folder.is_of(experiment))?;
                (folder, false)
            }
        };
        let done = self.measure(&folder, stop);
        if is_new && done.is_err() {
            folder.give_up()?;
        }
        done
    }

    /// Prints what would run, and what the run would refuse.
    fn plan(&self, asked: Option<Experiment>) -> anyhow::Result<ExitCode> {
        let asked = match (asked, self.resume) {
            (Some(experiment), false) => {
                self.out.iter().try_for_each(|out| Folder::may_create(out, self.force))?;
                experiment
            }
            (asked, _) => {
                let folder = Folder::open(self.folder()?)?;
                asked.iter().try_for_each(|experiment| folder.is_of(experiment))?;
                folder.experiment().clone()
            }
        };
        plan(&asked, self.json)?;
        for stage in asked.stages()? {
            let wrong = |why| Failure::new(format!("stage {}: {why}", stage.number), CPUS);
            measure::stage::check(&stage).map_err(wrong)?;
        }
        // (An experiment may be planned on another machine. The emulated card would take seconds to start.)
        if asked.run.gpu == experiment::Gpu::Real
            && asked.run.device != Device::Edu
            && let Err(e) = machine::of(asked.run.gpu, &asked.run.device)
        {
            say!("doorbell: on this machine it would be refused: {e:#}");
        }
        Ok(ExitCode::SUCCESS)
    }

    fn folder(&self) -> Result<&Path, Failure> {
        self.out.as_deref().ok_or_else(|| Failure::new("no experiment is given", EXPERIMENTS))
    }

    /// The experiment from the arguments; `None` to take it from the folder.
    fn experiment(&self) -> anyhow::Result<Option<Experiment>> {
        let Some(name) = &self.experiment else {
            return match self.resume && self.variant.is_none() {
                true => Ok(None),
                false => Err(Failure::new("no experiment is given", EXPERIMENTS).into()),
            };
        };
        let mut sets = Vec::new();
        // An emulated card takes seconds for microseconds of a real one.
        sets.extend((self.device == Some(Device::Edu)).then(|| "run.timeout=60s".to_owned()));
        sets.extend(self.sets.iter().cloned());
        // The emulated card reaches only the software GPU.
        let soft = (self.device == Some(Device::Edu)).then_some(Gpu::Soft);
        let gpu = self.gpu.or(soft);
        sets.extend(gpu.map(|gpu| if gpu == Gpu::Soft { "run.gpu=soft".into() } else { "run.gpu=real".into() }));
        let word =
            if self.without_iommu && matches!(self.device, Some(Device::Xdma(_))) { ",without-iommu" } else { "" };
        sets.extend(self.device.iter().map(|device| format!("run.device={device}{word}")));
        read_named(name, self.variant.as_deref(), &sets, Processes::Shared).map(|(_, experiment)| Some(experiment))
    }

    fn measure(&self, folder: &Folder, stop: &AtomicU32) -> anyhow::Result<ExitCode> {
        let started = environment::utc_now().unwrap_or_default();
        let gpu = folder.experiment().run.gpu;
        let before = surroundings(gpu);
        let warnings = before.warnings();
        // Serious warnings are printed before the run, so that the user can stop it, and not again below the tables.
        let serious = warnings.iter().filter(|w| gpu != experiment::Gpu::Soft && w.severity > Severity::Notice);
        let told: Vec<String> = serious.map(ToString::to_string).collect();
        told.iter().for_each(|warning| say!("warning: {warning}"));
        let (Outcome { end, lost }, left_behind) = self.parts(folder, stop)?;
        if let End::Impossible(why) = end {
            return Err(Failure::impossible(why, machine::HINT).into());
        }
        let reading = Progress::new();
        comparison::attribution::read_tapes(folder, &mut |what| reading.show(what))?;
        drop(reading);
        let is_lost = !lost.is_empty();
        let mut all: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        if left_behind {
            // The driver would answer only after the calls of those processes.
            all.push("a process did not end: what changed while the run lasted was not looked at".into());
        } else {
            let changed = environment::Environment::compare(&before, &surroundings(gpu));
            all.extend(changed.iter().map(|difference| format!("changed while it ran: {difference}")));
        }
        let interrupted = match end {
            End::Stopped { at } => Some(Interrupted { at }),
            _ => None,
        };
        let run = Run::from_folder(
            folder,
            Context {
                commit: before.text("run.commit").map(str::to_owned),
                command: std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect(),
                started,
                ended: environment::utc_now().unwrap_or_default(),
                environment: serde_json::to_value(&before)?,
                warnings: all,
                failed: lost,
                interrupted,
            },
        )?;
        folder.write_run(&run)?;
        if let Err(e) = Loaded::open(folder.path()).and_then(|mut run| comparison::keep(&mut run)) {
            say!("doorbell: how far processes differ is not stored for later comparisons: {e:#}");
        }
        if self.out.is_some() {
            html::plots(&run, Some(folder), &folder.path().join(PLOTS))?;
        }
        let run = match self.json {
            true => run,
            false => Run { warnings: run.warnings.iter().filter(|w| !told.contains(w)).cloned().collect(), ..run },
        };
        // A temporary folder is removed when this process ends, so it is not printed.
        self.print(&run, self.out.is_some().then(|| folder.path()))?;
        Ok(verdict(&run, &end, is_lost))
    }

    fn print(&self, run: &Run, kept: Option<&Path>) -> anyhow::Result<()> {
        if self.json {
            let text = run.to_json()?;
            return Ok(terminal::table::to_stdout(|out| out.write_all(&text))?);
        }
        let style = Style::of_stdout();
        Ok(terminal::table::text_to_stdout(style, |out| terminal::run::write(out, &style, run, kept))?)
    }

    /// Prints an earlier run. Only its pictures are written again.
    fn again(&self, path: &Path) -> anyhow::Result<ExitCode> {
        let (mut run, folder) = Loaded::open(path)?.summed_up_again()?;
        if let Some(name) = &self.asserts {
            run = run.judged_by(&read_named(name, self.variant.as_deref(), &[], Processes::Shared)?.1.asserts);
        }
        if self.plots {
            let at = folder.as_ref().map(Folder::path).or(path.parent()).unwrap_or(Path::new(""));
            html::plots(&run, folder.as_ref(), &at.join(PLOTS))?;
        }
        self.print(&run, folder.as_ref().map(Folder::path))?;
        Ok(verdict(&run, &End::Complete, false))
    }

    /// Measures the missing parts. Also returns whether a process was left behind that did not end.
    fn parts(&self, folder: &Folder, stop: &AtomicU32) -> anyhow::Result<(Outcome, bool)> {
        let progress = Progress::new();
        let begun = Instant::now();
        let before = std::cell::Cell::new(None::<usize>);
        let mut left_behind = false;
        let runner = Runner { folder, program: std::env::current_exe()?, stop };
        let mut hear = |heard: Heard<'_>| {
            let first = before.get().unwrap_or(heard.done);
            before.set(Some(first));
            let left = left(begun.elapsed().as_secs_f64(), heard.done - first, heard.of - heard.done);
            let place = place(heard.stage);
            match heard.what {
                News::Doing(text) => progress.show(&format!("{} of {} {place}: {text}{left}", heard.done, heard.of)),
                News::Finished => progress.show(&format!("{} of {}{left}", heard.done, heard.of)),
                News::Lost(why) => progress.ended(&format!("{place}: {why}")),
                News::Ending { process, at_most } => progress.ended(&format!(
                    "waiting for process {process}, which measures, to end: {} s at most; Ctrl-C: no longer",
                    at_most.as_secs()
                )),
                News::LeftBehind(processes) => {
                    left_behind = true;
                    let all: Vec<String> = processes.iter().map(u32::to_string).collect();
                    progress.ended(&format!(
                        "process {} was killed and has not ended: it is in a call of the kernel's. The run goes on without it",
                        all.join(", ")
                    ));
                }
            }
        };
        let outcome = runner.run(&mut hear)?;
        Ok((outcome, left_behind))
    }
}

/// A shipped experiment, or a file, or a variant of one: the file's text, and the parsed experiment, whose routes and calls exist.
pub fn read_named(
    name: &str,
    variant: Option<&str>,
    sets: &[String],
    processes: Processes,
) -> anyhow::Result<(String, Experiment)> {
    let is_file = name.contains('/') || name.ends_with(".toml");
    let text = match experiment::shipped_named(name).filter(|_| !is_file) {
        Some(shipped) => shipped.text.into(),
        None if is_file || Path::new(name).is_file() => std::fs::read_to_string(name)
            .map_err(|e| Failure::new(format!("{name}: {e}"), "the file must exist and be text"))?,
        None => return Err(Failure::new(format!("there is no experiment {name:?}"), EXPERIMENTS).into()),
    };
    let experiment = experiment::read_variant(&text, name, variant, sets, processes)?;
    for stage in experiment.stages()? {
        let subjects = stage.cells.iter().map(|cell| (&cell.subject.name, &cell.subject.what));
        for (of, what) in subjects.chain(stage.loads.iter().map(|load| (&load.name, &load.what))) {
            let wrong = |e: workload::SyntaxError| Failure::new(format!("{name}: `{of}`: {e}"), ROUTES);
            workload::check(what).map_err(wrong)?;
        }
    }
    Ok((text, experiment))
}

/// The environment of the measurement.
pub fn surroundings(gpu: experiment::Gpu) -> environment::Environment {
    environment::Environment::gather(measure::stage::gpu_of(gpu), Some(Clock::new().calibrated()), Vec::new())
}

/// Exit status of a run that Ctrl-C ended.
const STOPPED: u8 = 130;

fn verdict(run: &Run, ended: &End, lost: bool) -> ExitCode {
    let failed = run.cells.iter().any(|cell| matches!(cell.status, Status::Failed(_)));
    let invalid = run.cells.iter().any(|cell| matches!(cell.status, Status::Invalid(_)));
    let loads = run.stages.iter().flat_map(|stage| &stage.loads).any(|load| !load.failed.is_empty());
    let none = run.cells.iter().all(|cell| matches!(cell.status, Status::Unavailable(_)));
    ExitCode::from(match () {
        () if matches!(ended, End::Stopped { .. }) => STOPPED,
        () if failed || loads || lost => crate::ERROR,
        () if none => crate::IMPOSSIBLE,
        () if invalid || !run.asserts_held() => 1,
        () => 0,
    })
}

/// The remaining time, estimated from the parts so far.
fn left(seconds: f64, done: usize, left: usize) -> String {
    if done == 0 {
        return String::new();
    }
    let left = seconds / done as f64 * left as f64;
    format!(", {} left", about_time(left as u64))
}

fn about_time(seconds: u64) -> String {
    if seconds >= 120 { format!("{} min", (seconds + 30) / 60) } else { format!("{seconds} s") }
}

/// A stage's name for people.
fn place(stage: &Stage) -> String {
    let point: Vec<String> = stage.point.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if point.is_empty() { format!("stage {}", stage.number) } else { point.join(" ") }
}

fn list(json: bool) -> anyhow::Result<ExitCode> {
    let mut all = Vec::new();
    for shipped in experiment::shipped() {
        let read = shipped.read_all()?.into_iter();
        all.push(read.map(|one| one.estimate().map(|estimate| (one, estimate))).collect::<Result<Vec<_>, _>>()?);
    }
    if json {
        let one = |(read, estimate): &(Experiment, experiment::Estimate)| {
            serde_json::json!({
                "name": read.variant.as_ref().unwrap_or(&read.name),
                "about": read.about,
                "seconds": estimate.time_ns as f64 / 1e9,
                "stages": estimate.stages,
                "stages_bounded_by_samples_alone": estimate.stages_by_samples,
                "cells": estimate.cells,
            })
        };
        let file = |all: &Vec<(Experiment, experiment::Estimate)>| {
            let mut file = all.first().map(one).unwrap_or_default();
            file["variants"] = all.iter().skip(1).map(one).collect();
            file
        };
        let list = serde_json::json!({ "experiments": all.iter().map(file).collect::<Vec<_>>() });
        terminal::table::to_stdout(|out| writeln!(out, "{list:#}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let style = Style::of_stdout();
    let mut table = style.table(&["experiment", "takes about", "what it measures"]);
    for (read, estimate) in all.into_iter().flatten() {
        // Without a time limit, the machine decides how long the samples take.
        let more = if estimate.is_open() { " and more" } else { "" };
        table.add_row([
            read.variant.map_or(read.name, |variant| format!("  --variant {variant}")),
            format!("{}{more}", about_time(estimate.time_ns.div_ceil(1_000_000_000))),
            read.about,
        ]);
    }
    terminal::table::to_stdout(|out| terminal::table::write(out, &table, 0))?;
    Ok(ExitCode::SUCCESS)
}

fn plan(experiment: &Experiment, json: bool) -> anyhow::Result<()> {
    let (stages, estimate) = (experiment.stages()?, experiment.estimate()?);
    if json {
        let plan = serde_json::json!({
            "experiment": experiment,
            "stages": stages,
            "processes": estimate.processes,
            "seconds": estimate.time_ns as f64 / 1e9,
            "stages_bounded_by_samples_alone": estimate.stages_by_samples,
            "samples": estimate.samples,
            "sample_bytes": estimate.sample_bytes,
        });
        return Ok(terminal::table::to_stdout(|out| writeln!(out, "{plan:#}"))?);
    }
    let style = Style::of_stdout();
    let mut table = style.table(&["stage", "point", "policy", ">cells", "beside"]);
    for stage in &stages {
        let loads: Vec<String> = stage.loads.iter().map(|l| format!("{} x {}", l.count, l.name)).collect();
        let cells = number::count(stage.cells.len() as u64);
        table.add_row([stage.number.to_string(), place(stage), stage.run.policy.clone(), cells, loads.join(", ")]);
    }
    let open = match estimate.stages_by_samples {
        0 => String::new(),
        n => format!(", and what the machine needs for the samples of {}", number::of(n, "stage")),
    };
    let most = if estimate.samples_are_limited { "at most" } else { "about" };
    terminal::table::to_stdout(|out| {
        writeln!(out, "measured:")?;
        cell_names(stages.iter().flat_map(|stage| &stage.cells))
            .iter()
            .try_for_each(|name| writeln!(out, "  {name}"))?;
        writeln!(out)?;
        terminal::table::write(out, &table, 0)?;
        writeln!(
            out,
            "\n{} in {} of {}: about {}{open}; {most} {} samples, {} of files",
            number::of(estimate.cells, "cell"),
            number::of(estimate.stages, "stage"),
            number::of(estimate.processes, "process"),
            number::seconds(estimate.time_ns as f64 / 1e9),
            number::count(estimate.samples),
            number::bytes(estimate.sample_bytes),
        )?;
        Ok(())
    })
}

/// A line for each subject, with its sizes in all stages.
fn cell_names<'c>(cells: impl Iterator<Item = &'c experiment::Cell>) -> Vec<String> {
    let mut all: Vec<(&str, BTreeSet<u64>)> = Vec::new();
    for cell in cells {
        match all.iter_mut().find(|(name, _)| *name == cell.subject.name) {
            Some((_, sizes)) => drop(sizes.insert(cell.bytes)),
            None => all.push((&cell.subject.name, BTreeSet::from([cell.bytes]))),
        }
    }
    let line = |(name, sizes): &(&str, BTreeSet<u64>)| match (sizes.first(), sizes.last()) {
        (Some(0), Some(0)) => (*name).to_owned(),
        (Some(least), Some(most)) if sizes.len() > 6 => {
            let n = number::of(sizes.len() as u64, "size");
            format!("{name}: {n}, {} to {}", number::bytes(*least), number::bytes(*most))
        }
        _ => format!("{name}: {}", sizes.iter().map(|bytes| number::bytes(*bytes)).collect::<Vec<_>>().join(", ")),
    };
    all.iter().map(line).collect()
}
