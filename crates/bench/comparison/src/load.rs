//! Cells of a run in the form in which they are compared: samples by rounds.

use crate::{Cell, Error, Key};
use environment::Environment;
use run_folder::commands::CommandsOfRun;
use run_folder::run::{CellOfRun, observed};
use run_folder::samples::reads_counters;
use run_folder::{Folder, Run, Samples, Status};
use statistics::Rounds;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// A run that can be compared.
pub struct Loaded {
    pub name: String,
    pub run: Run,
    /// `None` if only `run.json` is there.
    folder: Option<Folder>,
    /// Samples of the stage that was read last.
    open: HashMap<(u32, u32), Samples>,
    /// For each repeat the cells (stage and cell) that were requested but have no samples in it.
    lacking: BTreeMap<u32, BTreeSet<(u32, u32)>>,
    asked: BTreeSet<(u32, u32)>,
}

const HINT: &str = "give the folder that `doorbell bench -o` wrote, or its run.json";

impl Loaded {
    /// Opens a folder, or a `run.json`, which may be in one.
    pub fn open(path: &Path) -> Result<Loaded, Error> {
        let name = path.to_string_lossy().trim_end_matches('/').to_owned();
        if path.extension().is_some_and(|e| e == "doorbell") && path.is_file() {
            let what = format!("{name}: this is a recording, no run of `doorbell bench`");
            return Err(Error::refused(what, "`doorbell diff` compares the locks of two recordings"));
        }
        let is_folder = path.is_dir();
        let folder = if is_folder { Some(path.to_owned()) } else { path.parent().map(Path::to_owned) };
        let folder = folder.filter(|f| is_folder || path.file_name().is_some_and(|n| n == "run.json") && has_parts(f));
        let (run, folder) = match folder {
            Some(folder) => {
                let folder = Folder::open(if folder.as_os_str().is_empty() { Path::new(".") } else { &folder })?;
                if !folder.has_run() {
                    let what = format!("{name}: the run is not finished: it has no run.json");
                    let hint = format!("`doorbell bench -o {name} --resume` finishes it");
                    return Err(Error::refused(what, hint));
                }
                (folder.run()?, Some(folder))
            }
            None => (alone(path)?, None),
        };
        let (lacking, asked) = (BTreeMap::new(), BTreeSet::new());
        Ok(Loaded { name, run, folder, open: HashMap::new(), lacking, asked })
    }

    /// Computes this doorbell's figures from the samples; a `run.json` alone stays as it is. Also returns the folder, if
    /// there is one.
    pub fn summed_up_again(self) -> Result<(Run, Option<Folder>), Error> {
        let run = match &self.folder {
            Some(folder) => self.run.summed_up_again(folder)?,
            None => self.run.with_best(),
        };
        Ok((run, self.folder))
    }

    /// Repeats without samples, of the cells that were requested so far: one line each.
    pub fn repeats_missing(&self) -> impl Iterator<Item = String> {
        let all = self.asked.len();
        self.lacking.iter().map(move |(repeat, cells)| {
            format!("{}: repeat {repeat} has no samples of {} of {all} cells that are compared", self.name, cells.len())
        })
    }

    pub fn has_samples(&self) -> bool {
        self.folder.is_some()
    }

    /// Medians of rounds are compared after this, as for a `run.json` alone.
    pub fn forget_samples(&mut self) {
        self.folder = None;
    }

    pub fn environment(&self) -> Environment {
        serde_json::from_value(self.run.environment.clone()).unwrap_or_default()
    }

    /// Where the experiment of another run differs.
    pub fn experiment_differs(&self, other: &Loaded) -> Option<String> {
        if self.run.experiment == other.run.experiment {
            return None;
        }
        match &self.folder {
            Some(folder) => match folder.is_of(&other.run.experiment) {
                Err(run_folder::Error::OtherExperiment { what, .. }) => Some(what),
                _ => None,
            },
            None => Some("something differs".into()),
        }
    }

    pub fn keys(&self) -> Vec<Key> {
        self.run.cells.iter().map(Key::of).collect()
    }

    /// The commands of its calls, if the run was recorded.
    pub fn commands(&self, key: &Key) -> Option<&CommandsOfRun> {
        self.run.cells.iter().find(|c| Key::of(c) == *key)?.commands.as_ref()
    }

    /// The data of a cell.
    pub fn cell(&mut self, key: &Key) -> Result<Cell, Error> {
        let Some(cell) = self.run.cells.iter().find(|c| Key::of(c) == *key).cloned() else {
            return Ok(Cell::Absent("the other run's experiment has no such cell".into()));
        };
        match &cell.status {
            Status::Failed(why) => return Ok(Cell::Failed(why.clone())),
            Status::Invalid(why) => return Ok(Cell::Failed(why.clone())),
            Status::Unavailable(why) => return Ok(Cell::Absent(why.clone())),
            Status::Measured => {}
        }
        let rounds = self.rounds(&cell)?;
        if rounds.is_empty() {
            return Ok(Cell::Failed("it has no samples".into()));
        }
        let each = self.rounds_of_repeat(cell.stage);
        let sampled: BTreeSet<u32> = rounds.sampled().into_iter().map(|round| (round / each) as u32).collect();
        self.asked.insert((cell.stage, cell.cell));
        for repeat in (0..self.run.experiment.run.repeats).filter(|repeat| !sampled.contains(repeat)) {
            self.lacking.entry(repeat).or_default().insert((cell.stage, cell.cell));
        }
        Ok(Cell::Measured(rounds))
    }

    /// Samples of a cell, for comparisons of more than two runs.
    pub fn samples(&mut self, key: &Key) -> Result<Option<Rounds>, Error> {
        let found = self.run.cells.iter().find(|c| Key::of(c) == *key).cloned();
        let measured = found.filter(|c| c.status == Status::Measured);
        measured.map(|c| self.rounds(&c)).transpose().map(|r| r.filter(|r| !r.is_empty()))
    }

    /// The maximum of all stages if the stage is not known: numbers of rounds need only be different.
    fn rounds_of_repeat(&self, stage: u32) -> usize {
        let of_stage = self.folder.as_ref().and_then(|f| f.stages().get(stage as usize)).map(|s| s.run.rounds);
        let beyond = self.run.cells.iter().flat_map(|c| &c.per_round.round).max().map_or(1, |r| r + 1);
        of_stage.unwrap_or(beyond).max(1) as usize
    }

    fn rounds(&mut self, cell: &CellOfRun) -> Result<Rounds, Error> {
        let each = self.rounds_of_repeat(cell.stage);
        let Some(folder) = &self.folder else {
            let of = &cell.per_round;
            let last = of.repeat.iter().max().map_or(0, |r| *r as usize + 1);
            let mut rounds = vec![Vec::new(); last * each];
            for ((repeat, round), p50) in of.repeat.iter().zip(&of.round).zip(&of.p50) {
                rounds[*repeat as usize * each + *round as usize].push(*p50);
            }
            return Ok(Rounds::new(&rounds).in_repeats_of(each));
        };
        let Some(stage) = folder.stages().get(cell.stage as usize) else { return Ok(Rounds::new::<Vec<u64>>(&[])) };
        self.open.retain(|(of, _), _| *of == cell.stage);
        let mut rounds = vec![Vec::new(); each * stage.run.repeats as usize];
        for repeat in (0..stage.run.repeats).filter(|r| folder.has_part(cell.stage, *r)) {
            let samples = match self.open.entry((cell.stage, repeat)) {
                std::collections::hash_map::Entry::Occupied(there) => there.into_mut(),
                std::collections::hash_map::Entry::Vacant(free) => {
                    free.insert(folder.open_samples(cell.stage, repeat)?)
                }
            };
            samples.each(cell.cell as usize, |some| {
                for s in some.iter().filter(|s| !reads_counters(s.round, stage.run.counters_every)) {
                    if let Some(round) = rounds.get_mut(repeat as usize * each + s.round as usize) {
                        round.extend(observed(s, cell.observe));
                    }
                }
            })?;
        }
        Ok(Rounds::new(&rounds).in_repeats_of(each))
    }
}

impl Key {
    pub fn of(cell: &CellOfRun) -> Key {
        let point: Vec<String> = cell.point.iter().map(|c| format!("{}={}", c.name, c.value)).collect();
        Key { subject: cell.subject.clone(), bytes: cell.bytes, point: point.join(" ") }
    }
}

fn has_parts(folder: &Path) -> bool {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    folder.join("experiment.toml").is_file() && folder.join("parts").is_dir()
}

/// A `run.json` without its folder.
fn alone(path: &Path) -> Result<Run, Error> {
    use run_folder::Error::{Damaged, Invalid};
    let text = |what| format!("{}: no run.json: {what}", path.display());
    Run::read(path).map_err(|e| match e {
        // A file with a schema is a run; then the error describes what is wrong with it.
        Invalid { .. } if has_schema(path) => e.into(),
        Invalid { what, .. } | Damaged { what, .. } => Error::refused(text(what), HINT),
        e => Error::refused(e.to_string(), HINT),
    })
}

fn has_schema(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(run_folder::run::SCHEMA))
}

/// Names of runs for people: the last part of each path, or the whole paths if these parts are not all different.
pub fn names(paths: &[PathBuf]) -> Vec<String> {
    let shown = |p: &PathBuf| p.to_string_lossy().trim_end_matches('/').trim_end_matches("/run.json").to_owned();
    let whole: Vec<String> = paths.iter().map(shown).collect();
    let last = |w: &String| w.rsplit('/').next().unwrap_or(w).to_owned();
    let short: Vec<String> = whole.iter().map(last).collect();
    let mut different = short.clone();
    different.sort();
    different.dedup();
    if different.len() == short.len() { short } else { whole }
}
