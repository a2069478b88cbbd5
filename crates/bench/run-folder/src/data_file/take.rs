//! Makes the data file from the folder of a run.

use crate::data_file::model::{Origin, SCHEMA, SamplesFile};
use crate::data_file::{COMMANDS, Cell, Digest, Error, Load, Series, Stage, series};
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
    let mut kept = Cell {
        subject: subject.name.clone(),
        what: what.clone(),
        bytes: cell.bytes,
        back_to_back: subject.back_to_back,
        observe: subject.observe,
        baseline: folder.experiment().baseline_of(&subject.name).map(str::to_owned),
        missing: None,
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
    kept.missing = match status {
        Some(Status::Measured) => None,
        Some(Status::Unavailable(why)) => Some(format!("unavailable: {why}")),
        Some(Status::Failed(why)) => Some(format!("failed: {why}")),
        Some(Status::Invalid(why)) => Some(format!("invalid: {why}")),
        None => Some("not measured".into()),
    };
    if kept.missing.is_some() {
        return Ok(kept);
    }
    let (each, repeats) = (stage.run.rounds as usize, stage.run.repeats as usize);
    let Taken { done, submit, engine, spans } = taken(opened, number, (each, repeats), stage.run.counters_every)?;
    let is_kept = |part: Observe| match parts {
        [] => part == subject.observe,
        parts => parts.contains(&part),
    };
    if subject.arrival != (Arrival::Closed { depth: 1 }) {
        let length = |span: &Option<(u64, u64)>| span.map_or(0, |(first, last)| last.saturating_sub(first));
        kept.spans_ns = Some(spans.iter().map(length).collect());
    }
    kept.done = done.series(series::EXACT).filter(|_| is_kept(Observe::Done));
    kept.submit = submit.series(series::EXACT).filter(|_| is_kept(Observe::Submit));
    kept.engine = engine.series(series::EXACT).filter(|_| is_kept(Observe::Engine));
    kept.commands = commands(all_parts.iter().filter_map(|part| part.cells.get(number)?.commands.as_ref()))?;
    Ok(kept)
}

/// The samples of one cell, by rounds of all repeats.
struct Taken {
    done: Gathered,
    submit: Gathered,
    engine: Gathered,
    spans: Vec<Option<(u64, u64)>>,
}

/// `counters_every`: rounds that read the kernel's counters are left out.
fn taken(
    opened: &[(u32, Samples)],
    number: usize,
    (each, repeats): (usize, usize),
    counters_every: u32,
) -> Result<Taken, Error> {
    let gathered = || Gathered::new(each * repeats);
    let mut all = Taken { done: gathered(), submit: gathered(), engine: gathered(), spans: vec![None; each * repeats] };
    for (repeat, samples) in opened {
        samples.each(number, |some| {
            for s in some.iter().filter(|s| !reads_counters(s.round, counters_every)) {
                let round = *repeat as usize * each + s.round as usize;
                let Some(span) = all.spans.get_mut(round) else { continue };
                let (first, last) = span.unwrap_or((s.release_ns, 0));
                *span = Some((first.min(s.release_ns), last.max(s.done_ns)));
                all.done.add(round, s.done(), s.capped);
                all.submit.add(round, s.submit(), s.capped);
                if let Some(ns) = s.engine() {
                    all.engine.add(round, ns, s.capped);
                }
            }
        })?;
    }
    Ok(all)
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
                let taken = taken(&opened, number, rounds, 0)?;
                match cell.observe {
                    Observe::Done => cell.done = taken.done.series(usize::MAX),
                    Observe::Submit => cell.submit = taken.submit.series(usize::MAX),
                    Observe::Engine => cell.engine = taken.engine.series(usize::MAX),
                }
            }
        }
        Ok(())
    }
}

/// Commands of all repeats together.
fn commands<'a>(
    of_parts: impl Iterator<Item = &'a crate::commands::Commands>,
) -> Result<BTreeMap<String, String>, Error> {
    let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for commands in of_parts {
        let spreads = [
            &commands.doorbells,
            &commands.entries,
            &commands.pushbuffer_bytes,
            &commands.inline_bytes,
            &commands.locks,
        ];
        for (name, spread) in COMMANDS.iter().zip(spreads) {
            let calls: BTreeMap<u64, u64> = serde_json::from_value(serde_json::to_value(spread)?)?;
            let values = all.entry((*name).to_owned()).or_default();
            calls.iter().for_each(|(value, calls)| values.extend(std::iter::repeat_n(*value, *calls as usize)));
        }
    }
    let text = |values: Vec<u64>| Series::of(&[values], usize::MAX).rounds.remove(0);
    Ok(all.into_iter().map(|(name, values)| (name, text(values))).collect())
}

/// One part of a cell's samples.
struct Gathered {
    rounds: Vec<Vec<u64>>,
    capped: u64,
    capped_from: Option<u64>,
}

impl Gathered {
    fn new(rounds: usize) -> Gathered {
        Gathered { rounds: vec![Vec::new(); rounds], capped: 0, capped_from: None }
    }

    fn add(&mut self, round: usize, ns: u64, capped: bool) {
        self.rounds[round].push(ns);
        if capped {
            self.capped += 1;
            self.capped_from = Some(self.capped_from.map_or(ns, |least| least.min(ns)));
        }
    }

    fn series(&self, exact: usize) -> Option<Series> {
        let Gathered { rounds, capped, capped_from } = self;
        let series = Series::of(rounds, exact);
        rounds.iter().any(|r| !r.is_empty()).then_some(Series { capped: *capped, capped_from: *capped_from, ..series })
    }
}
