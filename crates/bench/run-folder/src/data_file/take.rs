//! Makes the data file from the folder of a run.

use crate::data_file::model::{Origin, SCHEMA, SamplesFile};
use crate::data_file::{COMMANDS, Cell, Digest, Error, Load, Series, Stage, series};
use crate::run::observed;
use crate::samples::reads_counters;
use crate::{Folder, Part, Run, Samples, Status};
use experiment::{Arrival, Observe, What};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// `parts`: the parts to include (empty: the observed part of each subject).
///
/// # Errors
/// A part or its samples cannot be read.
pub fn of_folder(folder: &Folder, run: &Run, parts: &[Observe]) -> Result<Digest, Error> {
    let (mut files, mut stages) = (Vec::new(), Vec::new());
    let all_parts = folder.parts()?;
    for stage in folder.stages() {
        let of_stage: Vec<&Part> = all_parts.iter().filter(|part| part.stage == stage.number).collect();
        let of_run = run.stages.iter().find(|s| s.number == stage.number);
        let mut opened = Vec::new();
        for repeat in (0..stage.run.repeats).filter(|repeat| folder.has_part(stage.number, *repeat)) {
            let samples = folder.open_samples(stage.number, repeat)?;
            files.push(SamplesFile { stage: stage.number, repeat, sum: samples.sum() });
            opened.push((repeat, samples));
        }
        let mut cells = Vec::new();
        for (number, cell) in stage.cells.iter().enumerate() {
            let status = run.cells_of(stage.number).find(|c| c.cell as usize == number).map(|c| &c.status);
            cells.push(one(folder, stage, cell, number, status, (&of_stage, &opened), parts)?);
        }
        let load = |l: &crate::Loaded| Load {
            name: l.name.clone(),
            what: l.what.clone(),
            threads: l.threads,
            transfers: l.transfers,
            bytes: l.bytes,
            seconds: l.seconds,
            longest_ns: l.longest_ns,
        };
        stages.push(Stage {
            number: stage.number,
            point: stage.point.clone(),
            policy: stage.run.policy.clone(),
            rounds: stage.run.rounds,
            repeats: stage.run.repeats,
            seconds: of_run.map_or(0.0, |s| s.seconds),
            loads: of_run.map_or(Vec::new(), |s| s.loads.iter().map(load).collect()),
            cells,
        });
    }
    let experiment = folder.experiment();
    Ok(Digest {
        schema: SCHEMA.into(),
        origin: Origin {
            name: experiment.name.clone(),
            about: experiment.about.clone(),
            doorbell: run.doorbell.clone(),
            commit: run.commit.clone(),
            command: run.command.clone(),
            started: run.started.clone(),
            functional: run.functional,
            complete: run.complete,
            machine: Origin::facts(&run.environment),
            experiment: experiment.to_toml(),
        },
        samples: files,
        stages,
    })
}

fn one(
    folder: &Folder,
    stage: &experiment::Stage,
    cell: &experiment::Cell,
    number: usize,
    status: Option<&Status>,
    (all_parts, opened): (&[&Part], &[(u32, Samples)]),
    parts: &[Observe],
) -> Result<Cell, Error> {
    let subject = &cell.subject;
    let (What::Route(what) | What::Call(what)) = &subject.what;
    let missing = match status {
        Some(Status::Measured) => None,
        Some(Status::Unavailable(why)) => Some(format!("unavailable: {why}")),
        Some(Status::Failed(why)) => Some(format!("failed: {why}")),
        Some(Status::Invalid(why)) => Some(format!("invalid: {why}")),
        None => Some("not measured".into()),
    };
    let mut kept = Cell {
        subject: subject.name.clone(),
        what: what.clone(),
        bytes: cell.bytes,
        back_to_back: subject.back_to_back,
        observe: subject.observe,
        baseline: folder.experiment().baseline_of(&subject.name).map(str::to_owned),
        missing,
        period_ns: match subject.arrival {
            Arrival::Paced { period_ns } => Some(period_ns),
            Arrival::Closed { .. } => None,
        },
        spans_ns: None,
        done: None,
        submit: None,
        engine: None,
        commands: BTreeMap::new(),
    };
    if kept.missing.is_some() {
        return Ok(kept);
    }
    let rounds = (stage.run.rounds as usize, stage.run.repeats as usize);
    let parts = if parts.is_empty() { std::slice::from_ref(&subject.observe) } else { parts };
    let spans = kept.take(opened, number, rounds, stage.run.counters_every, parts, series::EXACT)?;
    if subject.arrival != (Arrival::Closed { depth: 1 }) {
        let length = |span: &Option<(u64, u64)>| span.map_or(0, |(first, last)| last.saturating_sub(first));
        kept.spans_ns = Some(spans.iter().map(length).collect());
    }
    kept.commands = commands(all_parts.iter().filter_map(|part| part.cells.get(number)?.commands.as_ref()));
    Ok(kept)
}

impl Cell {
    /// Stores these parts of its samples, by rounds of all repeats; returns the first release and the last end of each round.
    /// `counters_every`: rounds that read the kernel's counters are left out.
    fn take(
        &mut self,
        opened: &[(u32, Samples)],
        number: usize,
        (each, repeats): (usize, usize),
        counters_every: u32,
        parts: &[Observe],
        exact: usize,
    ) -> Result<Vec<Option<(u64, u64)>>, Error> {
        let mut spans = vec![None; each * repeats];
        // The values of each round, how many were cut short, and the smallest of these.
        let mut taken = vec![(vec![Vec::new(); each * repeats], 0, None); parts.len()];
        for (repeat, samples) in opened {
            samples.each(number, |some| {
                for s in some.iter().filter(|s| !reads_counters(s.round, counters_every)) {
                    let round = *repeat as usize * each + s.round as usize;
                    let Some(span) = spans.get_mut(round) else { continue };
                    let (first, last) = span.unwrap_or((s.release_ns, 0));
                    *span = Some((first.min(s.release_ns), last.max(s.done_ns)));
                    for (part, (rounds, capped, capped_from)) in parts.iter().zip(&mut taken) {
                        let Some(ns) = observed(s, *part) else { continue };
                        rounds[round].push(ns);
                        if s.capped {
                            *capped += 1;
                            *capped_from = Some(capped_from.map_or(ns, |least: u64| least.min(ns)));
                        }
                    }
                }
            })?;
        }
        for (part, (rounds, capped, capped_from)) in parts.iter().zip(taken) {
            let series = Series { capped, capped_from, ..Series::of(&rounds, exact) };
            let series = rounds.iter().any(|round| !round.is_empty()).then_some(series);
            match part {
                Observe::Done => self.done = series,
                Observe::Submit => self.submit = series,
                Observe::Engine => self.engine = series,
            }
        }
        Ok(spans)
    }
}

/// Where the samples of a data file are, if it has no rounds: in the folder `headline` next to `headline.json.gz`.
pub fn samples_folder(path: &Path) -> PathBuf {
    let path = path.to_string_lossy();
    let path = path.strip_suffix(".gz").unwrap_or(&path);
    PathBuf::from(path.strip_suffix(".json").unwrap_or(path))
}

fn file_name(file: &SamplesFile) -> String {
    format!("{:04}-{:02}.parquet", file.stage, file.repeat)
}

impl Digest {
    /// Copies the samples to this folder. The file then needs no rounds.
    ///
    /// # Errors
    /// A file cannot be copied.
    pub fn copy_samples(&mut self, from: &Folder, to: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(to)?;
        for file in &self.samples {
            std::fs::copy(from.samples_path(file.stage, file.repeat), to.join(file_name(file)))?;
        }
        for cell in self.stages.iter_mut().flat_map(|stage| &mut stage.cells) {
            (cell.done, cell.submit, cell.engine) = (None, None, None);
        }
        Ok(())
    }

    pub fn has_rounds(&self) -> bool {
        let cells = || self.stages.iter().flat_map(|stage| &stage.cells);
        cells().any(|cell| cell.done.is_some() || cell.submit.is_some() || cell.engine.is_some())
    }

    /// The rounds of the observed parts, each value as it was measured, from the samples in this folder.
    ///
    /// # Errors
    /// A file of samples is missing, or is not the one whose checksum is stored.
    pub fn read_samples(&mut self, folder: &Path) -> Result<(), Error> {
        for stage in &mut self.stages {
            let mut opened = Vec::new();
            for file in self.samples.iter().filter(|file| file.stage == stage.number) {
                opened.push((file.repeat, Samples::open(&folder.join(file_name(file)), file.sum)?));
            }
            let rounds = (stage.rounds as usize, stage.repeats as usize);
            for (number, cell) in stage.cells.iter_mut().enumerate().filter(|(_, cell)| cell.missing.is_none()) {
                let observed = cell.observe;
                cell.take(&opened, number, rounds, 0, &[observed], usize::MAX)?;
            }
        }
        Ok(())
    }
}

/// Commands of all repeats together.
fn commands<'a>(of_parts: impl Iterator<Item = &'a crate::commands::Commands>) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for c in of_parts {
        let spreads = [&c.doorbells, &c.entries, &c.pushbuffer_bytes, &c.inline_bytes, &c.locks];
        for (name, spread) in COMMANDS.iter().zip(spreads) {
            let values = all.entry((*name).to_owned()).or_default();
            values.extend(spread.each().flat_map(|(value, calls)| std::iter::repeat_n(value, calls as usize)));
        }
    }
    let text = |values: Vec<u64>| Series::of(&[values], usize::MAX).rounds.remove(0);
    all.into_iter().map(|(name, values)| (name, text(values))).collect()
}
