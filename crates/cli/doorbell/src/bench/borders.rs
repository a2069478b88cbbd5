//! `doorbell bench borders`: at which sizes copies change their executor, to the byte.

use super::experiment::read_named;
use crate::failure::Failure;
use crate::help::Page;
use crate::progress::Progress;
use crate::record::Gpu;
use crate::signals;
use comparison::attribution::borders::{Border, Borders, Search, executor};
use experiment::{Experiment, Record};
use run_folder::runner::{End, News, Runner};
use run_folder::{Context, Folder, Run, Status};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicU32;
use terminal::number;
use terminal::table::Style;

/// At which sizes copies change their executor, to the byte, read from recordings
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell bench borders", "CUDA's borders: direction, kind of memory, call; some minutes"),
        ("doorbell bench borders -o borders", "every pass in a folder, with its tapes"),
        ("doorbell bench borders my.toml --json", ""),
        ("doorbell bench borders --gpu soft", "without a GPU: the borders of a profile, by route auto"),
    ])
    .text("The sizes of each subject are where the search begins. Each pass is a run of its own, recorded; where two neighbouring \
           sizes went different ways, the next pass divides the gap between them. Sizes with the same remainder modulo 4 are searched by \
           themselves, so borders that depend on alignment are found, too.")
    .statuses(&[
        (0, "done"),
        (2, "an error, or something that was tried failed"),
        (77, "nothing can be tried on this machine"),
        (130, "stopped by Ctrl-C"),
    ])
)]
pub struct Args {
    /// A file, for example my.toml, or the name of a shipped experiment, with record = "commands"
    #[arg(value_name = "EXPERIMENT", default_value = CROSSOVER)]
    experiment: String,
    /// A variant of the experiment [default: thresholds, of crossover]
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
    /// Keep the runs of all passes in this folder, for example results/borders
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace the runs in the folder of --out
    #[arg(long, requires = "out")]
    force: bool,
    /// Change a value of the experiment, for example run.samples=5
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Which GPU: --gpu soft is --set run.gpu=soft
    #[arg(long, value_enum, value_name = "GPU")]
    gpu: Option<Gpu>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Maximum number of passes, enough for 4 GiB.
const PASSES: u32 = 16;
const SCHEMA: &str = "doorbell.borders/1";

/// The experiment that is searched by default.
const CROSSOVER: &str = "crossover";
const THRESHOLDS: &str = "thresholds";

/// One subject while it is searched.
struct One {
    subject: experiment::SubjectSpec,
    search: Search,
    /// Why no border was found, or where the search failed.
    why: Option<String>,
    failed: bool,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mut sets = self.sets.clone();
        // Of this experiment, only that variant is recorded.
        let variant = self.variant.as_deref().or((self.experiment == CROSSOVER).then_some(THRESHOLDS));
        sets.extend(self.gpu.map(|gpu| if gpu == Gpu::Soft { "run.gpu=soft".into() } else { "run.gpu=real".into() }));
        let experiment = read_named(&self.experiment, variant, &sets, experiment::Processes::One)?.1;
        if experiment.run.record != Record::Commands || !experiment.matrix.is_empty() {
            let what = format!("{}: borders are read from recordings of one stage", experiment.title());
            return Err(
                Failure::new(what, "`record = \"commands\"` in [run], sizes at the subjects, and no [matrix]").into()
            );
        }
        let temporary = tempfile::tempdir()?;
        let folder = self.out.clone().unwrap_or_else(|| temporary.path().to_owned());
        let is_taken = || folder.read_dir().map_or(folder.exists(), |mut all| all.next().is_some());
        if self.out.is_some() && !self.force && is_taken() {
            let what = format!("{} exists", folder.display());
            return Err(Failure::new(what, "--force replaces the runs in it").into());
        }
        let made = !folder.exists();
        std::fs::create_dir_all(&folder)?;
        let one = |subject: &experiment::SubjectSpec| One {
            search: Search::new(&subject.sizes),
            subject: subject.clone(),
            why: None,
            failed: false,
        };
        let mut all: Vec<One> = experiment.subjects.iter().map(one).collect();
        let stop = signals::count_interrupts();
        let mut passes = 0;
        while passes < PASSES {
            let subjects = next(&all);
            if subjects.is_empty() {
                break;
            }
            let pass = Experiment { subjects, ..experiment.clone() };
            let path = folder.join(format!("pass-{passes:02}"));
            let run = one_pass(&path, &pass, self.force, stop);
            if made && run.is_err() {
                // Removes the folder if the first pass measured nothing; a folder that is not empty stays.
                let _ = std::fs::remove_dir(&folder);
            }
            let Some(run) = run? else { return Ok(ExitCode::from(STOPPED)) };
            passes += 1;
            all.iter_mut().for_each(|one| one.learn(&run));
        }
        // Passes of an earlier, longer search that this one replaces.
        for left in (passes..PASSES).map(|pass| folder.join(format!("pass-{pass:02}"))) {
            if self.force && Folder::open(&left).is_ok() {
                std::fs::remove_dir_all(&left)?;
            }
        }
        self.print(&experiment, &all, passes)?;
        let failed = all.iter().any(|one| one.failed);
        let none = all.iter().all(|one| one.search.borders().is_none());
        Ok(ExitCode::from(if failed {
            crate::ERROR
        } else if none {
            crate::IMPOSSIBLE
        } else {
            0
        }))
    }

    fn print(&self, experiment: &Experiment, all: &[One], passes: u32) -> anyhow::Result<()> {
        if self.json {
            let one = |one: &One| {
                serde_json::json!({
                    "subject": one.subject.name,
                    "what": one.subject.what.text(),
                    "found": one.search.borders(),
                    "why": one.why,
                })
            };
            let environment = super::experiment::surroundings(experiment.run.gpu);
            let document = serde_json::json!({
                "schema": SCHEMA,
                "doorbell": env!("CARGO_PKG_VERSION"),
                "experiment": experiment.name,
                "variant": experiment.variant,
                "functional": Run::is_functional(experiment),
                "passes": passes,
                "environment": serde_json::to_value(&environment)?,
                "subjects": all.iter().map(one).collect::<Vec<_>>(),
            });
            return Ok(terminal::table::to_stdout(|out| Ok(writeln!(out, "{document:#}")?))?);
        }
        let style = Style::of_stdout();
        let mut t = style.table(&["what", ">up to", "by", ">from", "by", "sizes", ">tried", ">widest gap"]);
        for one in all {
            match one.search.borders() {
                Some(found) => {
                    for row in rows(&one.subject.name, &found) {
                        t.add_row(row);
                    }
                }
                None => {
                    t.add_row([one.subject.name.as_str(), "-"]);
                }
            }
        }
        Ok(terminal::table::to_stdout(|out| {
            terminal::table::write(out, &t, 0)?;
            writeln!(out)?;
            writeln!(
                out,
                "{}; between two tried sizes of one remainder modulo 4 that went the same way, up to the widest gap apart, no other is \
                 assumed",
                number::of(passes.into(), "pass").replace("passs", "passes")
            )?;
            for one in all {
                if let Some(why) = &one.why {
                    let failed = if one.failed { "FAILED" } else { "not tried" };
                    writeln!(out, "{}: {failed}: {why}", one.subject.name)?;
                }
            }
            Ok(())
        })?)
    }
}

fn rows(name: &str, found: &Borders) -> Vec<[String; 8]> {
    let mut all = Vec::new();
    let bytes = |n: u64| format!("{} B", number::count(n));
    let (tried, gap) = (number::count(found.sizes_tried), bytes(found.widest_gap));
    if found.borders.is_empty() {
        let all_sizes = format!("{} to {}", bytes(found.least), bytes(found.most));
        let begins = found.begins_with.clone();
        let range =
            [name.to_owned(), bytes(found.most), begins, "-".into(), "-".into(), all_sizes, tried.clone(), gap.clone()];
        all.push(range);
    }
    for (i, border) in found.borders.iter().enumerate() {
        let Border { last, first, from, to, remainder } = border;
        let sizes = match remainder {
            None => "all".to_owned(),
            Some(r) => format!("4 n + {r}"),
        };
        let irregular = if found.irregular { ", irregular" } else { "" };
        let first_of = |text: &str| if i == 0 { text.to_owned() } else { String::new() };
        all.push([
            first_of(name),
            bytes(*last),
            from.clone(),
            bytes(*first),
            to.clone(),
            format!("{sizes}{irregular}"),
            first_of(&tried),
            first_of(&gap),
        ]);
    }
    all
}

/// The subjects that still need sizes to be tried, with these sizes.
fn next(all: &[One]) -> Vec<experiment::SubjectSpec> {
    let wanted = |one: &One| {
        let sizes = if one.why.is_some() { Vec::new() } else { one.search.next() };
        (!sizes.is_empty()).then(|| experiment::SubjectSpec { sizes, ..one.subject.clone() })
    };
    all.iter().filter_map(wanted).collect()
}

/// Exit status of a search that Ctrl-C ended.
const STOPPED: u8 = 130;

/// Measures and reads the tapes; `None` if it was interrupted.
fn one_pass(path: &Path, experiment: &Experiment, force: bool, stop: &AtomicU32) -> anyhow::Result<Option<Run>> {
    let folder = Folder::create(path, experiment, force)?;
    let progress = Progress::new();
    let cells: usize = experiment.subjects.iter().map(|s| s.sizes.len()).sum();
    let runner = Runner { folder: &folder, program: std::env::current_exe()?, stop };
    let outcome = runner.run(&mut |heard| {
        if let News::Doing(text) = heard.what {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            progress.show(&format!("{name}, {}: {text}", number::of(cells as u64, "size")));
        }
    })?;
    match outcome.end {
        End::Stopped { .. } => return Ok(None),
        End::Impossible(why) => {
            folder.give_up()?;
            return Err(Failure::impossible(why, super::machine::HINT).into());
        }
        End::Complete => {}
    }
    comparison::attribution::read_tapes(&folder, &mut |what| progress.show(what))?;
    let run = Run::from_folder(&folder, Context { failed: outcome.lost, ..Context::default() })?;
    folder.write_run(&run)?;
    if let Some(why) = run.missing.first().map(|m| &m.why) {
        return Err(Failure::new(format!("{}: {why}", path.display()), "-o DIR keeps its files").into());
    }
    let not_joined = run.parts.iter().filter_map(|p| p.recorded.as_ref()?.not_joined.as_ref()).next();
    if let Some(why) = not_joined {
        return Err(Failure::new(format!("the recording says nothing: {why}"), "-o DIR keeps it").into());
    }
    Ok(Some(run))
}

impl One {
    /// Takes a pass's results for this subject.
    fn learn(&mut self, run: &Run) {
        for cell in run.cells.iter().filter(|c| c.subject == self.subject.name) {
            match (&cell.status, &cell.commands) {
                (Status::Measured, Some(commands)) => self.search.found(cell.bytes, &executor(commands, cell.bytes)),
                (Status::Unavailable(why), _) => {
                    self.search.unavailable(cell.bytes);
                    if self.search.borders().is_none() {
                        self.why.get_or_insert_with(|| why.clone());
                    }
                }
                (Status::Failed(why) | Status::Invalid(why), _) => {
                    self.failed = true;
                    self.why.get_or_insert_with(|| why.clone());
                }
                (Status::Measured, None) => {
                    self.why.get_or_insert_with(|| "its calls are not on the tape".into());
                }
            }
        }
        // Sizes that are unavailable do not matter if borders were found at others.
        if self.search.borders().is_some() && !self.failed {
            self.why = None;
        }
    }
}
