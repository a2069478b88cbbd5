//! The folder, and the locks for writing to it.

use crate::Error;
use crate::lock::Lock;
use crate::part::{Part, Sample, Status};
use crate::samples::{self, Samples, Sum};
use experiment::{Experiment, Stage};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

const PART_SCHEMA: &str = "doorbell.part/1";
const EXPERIMENT: &str = "experiment.toml";
const PARTS: &str = "parts";
const SAMPLES: &str = "samples";
const TAPES: &str = "tapes";
/// The folder of pictures in that of a run.
pub const PLOTS: &str = "plots";
pub(crate) const RUN: &str = "run.json";

/// A folder with an experiment, and what was measured of it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    kind: &'static Kind,
    experiment: Experiment,
    stages: Vec<Stage>,
    /// The folder itself did not exist before this run.
    made: bool,
    /// None if it is only read.
    _lock: Option<Lock>,
}

/// What such a folder has: that of a run, or of a soak.
#[derive(Debug)]
pub(crate) struct Kind {
    /// The file that makes it one. It is written last, and removed last.
    pub marker: &'static str,
    /// Its other files and folders, besides the experiment.
    pub content: &'static [&'static str],
    /// The folders, the first with what was measured.
    pub folders: &'static [&'static str],
    /// Whether it is replaced only by force.
    pub is_kept: fn(&Path) -> bool,
}

const KIND: Kind = Kind {
    marker: EXPERIMENT,
    content: &[RUN, PLOTS, PARTS, SAMPLES, TAPES],
    folders: &[PARTS, SAMPLES],
    is_kept: |path| !Folder::open(path).is_ok_and(|there| there.is_in_vain()),
};

/// A part as stored in `parts`.
#[derive(Serialize, Deserialize)]
struct Written {
    schema: String,
    doorbell: String,
    samples: Sum,
    part: Part,
}

impl Folder {
    /// A new run, in a folder that is made if it does not exist. It replaces a run without any measurement; with `force` any run, finished or not.
    ///
    /// # Errors
    /// A run or other content exists; another run is writing there; it cannot be written.
    pub fn create(path: &Path, experiment: &Experiment, force: bool) -> Result<Folder, Error> {
        Folder::create_as(&KIND, path, experiment, force)
    }

    pub(crate) fn create_as(
        kind: &'static Kind,
        path: &Path,
        experiment: &Experiment,
        force: bool,
    ) -> Result<Folder, Error> {
        let made = !path.exists();
        may_create(kind, path, force)?;
        if made {
            fs::create_dir_all(path).map_err(Error::write(path))?;
        }
        let lock = Lock::of_run(path)?;
        // Another run may have used the folder in the meantime.
        may_create(kind, path, force)?;
        if path.join(kind.marker).exists() {
            kind.clear(path)?;
        }
        let folder = Folder { made, ..Folder::of(kind, path, experiment.clone(), Some(lock))? };
        folder.make_ready()?;
        whole(&path.join(EXPERIMENT), experiment.to_toml().as_bytes())?;
        Ok(folder)
    }

    /// Whether [`Folder::create`] would take the folder. Nothing is written.
    ///
    /// # Errors
    /// A run or other content exists; it cannot be read.
    pub fn may_create(path: &Path, force: bool) -> Result<(), Error> {
        may_create(&KIND, path, force)
    }

    /// No cell was measured: every cell of every part failed, or is not possible here.
    fn is_in_vain(&self) -> bool {
        let in_vain = |cell: &crate::part::PartCell| matches!(cell.status, Status::Failed(_) | Status::Unavailable(_));
        self.parts().is_ok_and(|parts| parts.iter().flat_map(|part| &part.cells).all(in_vain))
    }

    /// Removes a run without parts, and the folder too if this run made it. A run with parts stays.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub fn give_up(self) -> Result<(), Error> {
        if self.kind.is_measured(&self.path) {
            return Ok(());
        }
        self.kind.clear(&self.path)?;
        remove_folder(&self.path, self.made)
    }

    /// For a run that is to continue, or to be summarized again.
    ///
    /// # Errors
    /// There is none; another run is writing there.
    pub fn resume(path: &Path) -> Result<Folder, Error> {
        Folder::resume_as(&KIND, path)
    }

    pub(crate) fn resume_as(kind: &'static Kind, path: &Path) -> Result<Folder, Error> {
        let experiment = read_experiment(kind, path)?;
        let lock = Lock::of_run(path)?;
        let folder = Folder::of(kind, path, experiment, Some(lock))?;
        folder.make_ready()?;
        Ok(folder)
    }

    /// For writing parts of a run that another process leads.
    ///
    /// # Errors
    /// There is none.
    pub fn join(path: &Path) -> Result<Folder, Error> {
        Folder::join_as(&KIND, path)
    }

    pub(crate) fn join_as(kind: &'static Kind, path: &Path) -> Result<Folder, Error> {
        let experiment = read_experiment(kind, path)?;
        let lock = Lock::of_part(path)?;
        Folder::of(kind, path, experiment, Some(lock))
    }

    /// For reading it, finished or not.
    ///
    /// # Errors
    /// There is no run.
    pub fn open(path: &Path) -> Result<Folder, Error> {
        Folder::open_as(&KIND, path)
    }

    pub(crate) fn open_as(kind: &'static Kind, path: &Path) -> Result<Folder, Error> {
        Folder::of(kind, path, read_experiment(kind, path)?, None)
    }

    fn of(kind: &'static Kind, path: &Path, experiment: Experiment, lock: Option<Lock>) -> Result<Folder, Error> {
        let stages = experiment.stages().map_err(|e| Error::Experiment(Box::new(e)))?;
        Ok(Folder { path: path.into(), kind, experiment, stages, made: false, _lock: lock })
    }

    /// Makes the folders, and removes unfinished files of a killed run.
    fn make_ready(&self) -> Result<(), Error> {
        let is_recorded = self.stages.iter().any(|stage| !stage.run.record.is_no());
        let tapes = (is_recorded && self.kind.content.contains(&TAPES)).then_some(&TAPES);
        for folder in self.kind.folders.iter().chain(tapes).map(|name| self.path.join(name)).chain([self.path.clone()])
        {
            let ready = fs::create_dir_all(&folder).and_then(|()| output::remove_parts(&folder));
            ready.map_err(Error::write(&folder))?;
        }
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// The stages of the experiment, by number.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// # Errors
    /// The run is of another experiment.
    pub fn is_of(&self, experiment: &Experiment) -> Result<(), Error> {
        if *experiment == self.experiment {
            return Ok(());
        }
        let what = difference(&self.experiment, experiment);
        Err(Error::OtherExperiment { path: self.path.clone(), what })
    }

    pub fn has_part(&self, stage: u32, repeat: u32) -> bool {
        self.part_path(stage, repeat).exists()
    }

    fn part_path(&self, stage: u32, repeat: u32) -> PathBuf {
        self.path.join(PARTS).join(format!("{stage:04}-{repeat:02}.json"))
    }

    /// The path of a part's samples.
    pub fn samples_path(&self, stage: u32, repeat: u32) -> PathBuf {
        self.path.join(SAMPLES).join(format!("{stage:04}-{repeat:02}.parquet"))
    }

    /// The path of a part's recording, relative to the run's folder.
    pub fn tape_name(stage: u32, repeat: u32) -> String {
        format!("{TAPES}/{stage:04}-{repeat:02}.doorbell")
    }

    /// Writes a part again, with the same samples.
    ///
    /// # Errors
    /// There is none; it cannot be written, and the old part stays.
    pub fn replace_part(&self, part: &Part) -> Result<(), Error> {
        let path = self.part_path(part.stage, part.repeat);
        let all = Written { part: part.clone(), ..read_part(&path)? };
        whole(&path, &text_of(&all, &path)?)
    }

    /// The samples, one list each cell, then the part: a part that exists has its samples.
    ///
    /// # Errors
    /// It cannot be written; there is no part then.
    pub fn write_part(&self, part: &Part, cells: &[Vec<Sample>]) -> Result<(), Error> {
        let path = self.part_path(part.stage, part.repeat);
        let stage = self.stages.get(part.stage as usize);
        let samples = samples::write(&self.samples_path(part.stage, part.repeat), part, stage, cells)?;
        let all = Written { schema: PART_SCHEMA.into(), doorbell: VERSION.into(), samples, part: part.clone() };
        let text = text_of(&all, &path)?;
        let written = whole(&path, &text);
        if written.is_err() && !path.exists() {
            // Samples without a part: on a full disk the room may be needed.
            let _ = fs::remove_file(self.samples_path(part.stage, part.repeat));
        }
        written
    }

    /// By stage and repeat.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn parts(&self) -> Result<Vec<Part>, Error> {
        let folder = self.path.join(PARTS);
        let mut parts = Vec::new();
        let entries = match fs::read_dir(&folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(parts),
            entries => entries.map_err(Error::read(&folder))?,
        };
        for entry in entries {
            let path = entry.map_err(Error::read(&folder))?.path();
            if path.extension().is_some_and(|e| e == "json") {
                let part = read_part(&path)?.part;
                if path != self.part_path(part.stage, part.repeat) {
                    let what = format!("it is of stage {}, repeat {}, as its name should say", part.stage, part.repeat);
                    return Err(Error::Damaged { path, what });
                }
                parts.push(part);
            }
        }
        parts.sort_by_key(|p| (p.stage, p.repeat));
        Ok(parts)
    }

    /// The samples of a part, to be read cell by cell.
    ///
    /// # Errors
    /// There is no such part; its samples are missing or damaged.
    pub fn open_samples(&self, stage: u32, repeat: u32) -> Result<Samples, Error> {
        let sum = read_part(&self.part_path(stage, repeat))?.samples;
        Samples::open(&self.samples_path(stage, repeat), sum)
    }

    /// All samples of a part, by cell.
    ///
    /// # Errors
    /// As [`Folder::open_samples`].
    pub fn samples(&self, stage: u32, repeat: u32) -> Result<Vec<Vec<Sample>>, Error> {
        let cells = read_part(&self.part_path(stage, repeat))?.part.cells.len();
        let samples = self.open_samples(stage, repeat)?;
        (0..cells).map(|cell| samples.cell(cell)).collect()
    }
}

/// Whether there is nothing in this folder that only `force` replaces, and nothing that is not of this kind.
fn may_create(kind: &Kind, path: &Path, force: bool) -> Result<(), Error> {
    let is_empty = match is_free(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        is_empty => is_empty.map_err(Error::write(path))?,
    };
    let is_there = path.join(kind.marker).exists();
    match () {
        () if !is_there && !is_empty => Err(Error::NotOurs(path.into())),
        () if is_there && !force && (kind.is_kept)(path) => Err(Error::Exists(path.into())),
        () => Ok(()),
    }
}

impl Kind {
    /// Whether there is one that has measured anything.
    pub fn is_measured(&self, path: &Path) -> bool {
        path.join(self.marker).exists()
            && fs::read_dir(path.join(self.folders[0])).is_ok_and(|mut parts| parts.next().is_some())
    }

    /// Removes its files, the marker last, so that an interrupted removal can be repeated.
    fn clear(&self, path: &Path) -> Result<(), Error> {
        clear(path, self.content)?;
        clear(path, &[EXPERIMENT, self.marker])
    }
}

/// Removes these files and folders of a folder, in this order, if they exist.
///
/// # Errors
/// One cannot be removed.
pub fn clear(folder: &Path, content: &[&str]) -> Result<(), Error> {
    for path in content.iter().map(|name| folder.join(name)) {
        match if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) } {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::Write { path, cause: e }),
            _ => {}
        }
    }
    Ok(())
}

/// Whether a folder contains only files that a run leaves if it is killed at its very start.
///
/// # Errors
/// It cannot be read.
pub fn is_free(folder: &Path) -> io::Result<bool> {
    let names = fs::read_dir(folder)?.map(|e| Ok(e?.file_name())).collect::<io::Result<Vec<_>>>()?;
    Ok(names.iter().all(|name| is_left_over(name)))
}

/// After [`clear`]: removes the lock, and the folder if it is empty and `made` by the run.
///
/// # Errors
/// It cannot be removed.
pub fn remove_folder(folder: &Path, made: bool) -> Result<(), Error> {
    clear(folder, &[".lock"])?;
    match if made { fs::remove_dir(folder) } else { Ok(()) } {
        Err(cause) if cause.kind() != io::ErrorKind::DirectoryNotEmpty => {
            Err(Error::Write { path: folder.into(), cause })
        }
        _ => Ok(()),
    }
}

fn is_left_over(name: &OsStr) -> bool {
    name == ".lock" || name.to_str().is_some_and(output::is_part)
}

fn text_of(all: &Written, path: &Path) -> Result<Vec<u8>, Error> {
    let wrong = |e: serde_json::Error| Error::Write { path: path.into(), cause: e.into() };
    let text = serde_json::to_vec(all).map_err(wrong)?;
    // Values that JSON cannot hold (numbers that are not finite) are detected here, not when the run is summarized.
    serde_json::from_slice::<Written>(&text).map_err(wrong)?;
    Ok(text)
}

/// A file of these bytes, complete or absent.
pub(crate) fn whole(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    output::replace(path, |file| file.write_all(bytes)).map_err(Error::write(path))
}

fn read_experiment(kind: &Kind, folder: &Path) -> Result<Experiment, Error> {
    if !folder.join(kind.marker).exists() {
        return Err(Error::NoRun(folder.into(), kind.marker));
    }
    let path = folder.join(EXPERIMENT);
    let text = fs::read(&path).map_err(Error::read(&path))?;
    let text = String::from_utf8(text).map_err(|e| Error::damaged(&path, e))?;
    let experiment = experiment::read_stored(&text, &path.to_string_lossy());
    experiment.map_err(|e| Error::Experiment(Box::new(e)))
}

#[derive(Deserialize)]
struct Versioned {
    schema: String,
    doorbell: Option<String>,
}

/// JSON of this schema.
pub(crate) fn read_json<T: for<'a> Deserialize<'a>>(path: &Path, reads: &'static str) -> Result<T, Error> {
    let text = fs::read(path).map_err(Error::read(path))?;
    let Versioned { schema: found, doorbell: by } =
        serde_json::from_slice(&text).map_err(|e| Error::of_json(path, &text, &e))?;
    if found != reads {
        return Err(Error::Version { path: path.into(), found, reads, by });
    }
    serde_json::from_slice(&text).map_err(|e| Error::of_json(path, &text, &e))
}

fn read_part(path: &Path) -> Result<Written, Error> {
    read_json(path, PART_SCHEMA)
}

/// The first difference between two experiments, by its keys.
fn difference(old: &Experiment, new: &Experiment) -> String {
    let (there, now) = (old.run.repeats, new.run.repeats);
    if there != now {
        // The rounds, samples and times of a process follow from it.
        return format!("run.repeats is {there} there and {now} now");
    }
    let of = |e| serde_json::to_value(e).unwrap_or_default();
    let (old, new) = (of(old), of(new));
    let mut keys = vec![];
    let (a, b) = descend(&old, &new, &mut keys);
    format!("{} is {a} there and {b} now", keys.join("."))
}

fn descend<'a>(
    a: &'a serde_json::Value,
    b: &'a serde_json::Value,
    keys: &mut Vec<String>,
) -> (&'a serde_json::Value, &'a serde_json::Value) {
    use serde_json::Value::{Array, Object};
    let next = match (a, b) {
        (Object(x), Object(y)) if x.keys().eq(y.keys()) => {
            x.iter().zip(y).find(|(x, y)| x.1 != y.1).map(|(x, y)| (x.0.clone(), x.1, y.1))
        }
        (Array(x), Array(y)) if x.len() == y.len() => {
            x.iter().zip(y).enumerate().find(|(_, (x, y))| x != y).map(|(i, (x, y))| (i.to_string(), x, y))
        }
        _ => None,
    };
    match next {
        Some((key, a, b)) => {
            keys.push(key);
            descend(a, b, keys)
        }
        None => (a, b),
    }
}
