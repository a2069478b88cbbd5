//! The folder of a soak: the request (`asked.json`, `experiment.toml`), the periods (`periods/`), the processes that measured (`processes/`), and
//! the account of all together (`soak.json`).
//!
//! The invariant: every file appears complete or not at all. So a soak that was killed at any moment has all its periods, the last one as it was
//! when it was last written.

use crate::Lock;
use crate::soak::Error;
use crate::soak::account::{Above, Fault, Period, Process, SCHEMA, Soak};
use crate::versioned::{self, Broken};
use experiment::{Experiment, Stage};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const ASKED: &str = "asked.json";
const EXPERIMENT: &str = "experiment.toml";
const PERIODS: &str = "periods";
const PROCESSES: &str = "processes";
const SOAK: &str = "soak.json";
/// The recording of the measuring process, if there is one; kept if it has a sample above the bound.
pub const RECORDING: &str = "above.doorbell";
const ABOVE: &str = "above.json";

/// How long a measuring process may still live after its leader was killed.
const GOES: Duration = Duration::from_secs(2);

const ASKED_SCHEMA: &str = "doorbell.soak-asked/1";
const PERIOD_SCHEMA: &str = "doorbell.soak-period/1";
const ABOVE_SCHEMA: &str = "doorbell.soak-above/1";
const PROCESS_SCHEMA: &str = "doorbell.soak-process/1";

/// What a soak writes. The file that marks the folder as a soak is last, so that an interrupted removal can be repeated.
const CONTENT: [&str; 7] = [SOAK, RECORDING, ABOVE, PERIODS, PROCESSES, EXPERIMENT, ASKED];

/// The request of a soak: what to do, and on which GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    pub doorbell: String,
    pub commit: Option<String>,
    pub command: Vec<String>,
    /// UTC, RFC 3339.
    pub started: String,
    pub asked_s: f64,
    pub every_s: f64,
    /// The first sample above this value stops the soak.
    pub stop_above_ns: Option<u64>,
    /// The assumed time of each lap, s: a simulated clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated_lap_s: Option<f64>,
    pub environment: serde_json::Value,
    pub warnings: Vec<String>,
}

/// A process that measured, as stored in `processes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    #[serde(flatten)]
    pub process: Process,
    /// UTC, RFC 3339; null if it was killed together with the leading process.
    pub ended: Option<String>,
    /// Set if it did not end as it should.
    pub fault: Option<Fault>,
}

/// One soak.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    experiment: Experiment,
    stages: Vec<Stage>,
    asked: Asked,
    /// This run made the folder itself.
    made: bool,
    /// None where it is only read.
    _lock: Option<Lock>,
}

impl Folder {
    /// A new soak, in a folder that is made if it is missing. With `force` it replaces an existing one.
    ///
    /// # Errors
    /// There is a soak or something else already; another soak writes there; the folder cannot be written.
    pub fn create(path: &Path, experiment: &Experiment, asked: Asked, force: bool) -> Result<Folder, Error> {
        let made = !path.exists();
        fs::create_dir_all(path).map_err(Broken::write(path))?;
        let is_soak = path.join(ASKED).exists();
        if !is_soak && !crate::is_free(path).map_err(Broken::read(path))? {
            return Err(Error::NotOurs(path.into()));
        }
        if is_soak && !force && Folder::is_measured(path) {
            return Err(Error::Exists(path.into()));
        }
        let lock = Lock::of_run(path).map_err(Error::Lock)?;
        crate::clear(path, &CONTENT).map_err(Error::Lock)?;
        let folder = Folder { made, ..Folder::of(path, experiment.clone(), asked, Some(lock))? };
        folder.make_ready()?;
        whole(&path.join(EXPERIMENT), experiment.to_toml().as_bytes())?;
        folder.write_asked()?;
        Ok(folder)
    }

    /// A soak that is to go on.
    ///
    /// # Errors
    /// There is none; another one writes there.
    pub fn resume(path: &Path) -> Result<Folder, Error> {
        let (experiment, asked) = read_both(path)?;
        // The measuring process of a killed soak lives for a moment after it.
        let begun = Instant::now();
        let lock = loop {
            match Lock::of_run(path) {
                Err(crate::Error::Busy { .. }) if begun.elapsed() < GOES => std::thread::sleep(GOES / 100),
                lock => break lock.map_err(Error::Lock)?,
            }
        };
        let folder = Folder::of(path, experiment, asked, Some(lock))?;
        folder.make_ready()?;
        Ok(folder)
    }

    /// Opens a soak that another process leads, to write its periods.
    ///
    /// # Errors
    /// There is none.
    pub fn join(path: &Path) -> Result<Folder, Error> {
        let (experiment, asked) = read_both(path)?;
        let lock = Lock::of_part(path).map_err(Error::Lock)?;
        Folder::of(path, experiment, asked, Some(lock))
    }

    /// To read it, finished or not.
    ///
    /// # Errors
    /// There is no soak.
    pub fn open(path: &Path) -> Result<Folder, Error> {
        let (experiment, asked) = read_both(path)?;
        Folder::of(path, experiment, asked, None)
    }

    /// Whether there is a soak that has measured anything.
    pub fn is_measured(path: &Path) -> bool {
        Folder::is_there(path) && fs::read_dir(path.join(PERIODS)).is_ok_and(|mut all| all.next().is_some())
    }

    /// Removes a soak without measurements, and the folder with it if this soak made it. A soak that has measured stays.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub fn give_up(self) -> Result<(), Error> {
        if fs::read_dir(self.path.join(PERIODS)).is_ok_and(|mut all| all.next().is_some()) {
            return Ok(());
        }
        crate::clear(&self.path, &CONTENT).map_err(Error::Lock)?;
        crate::remove_folder(&self.path, self.made).map_err(Error::Lock)
    }

    /// Whether there is a soak.
    pub fn is_there(path: &Path) -> bool {
        path.join(ASKED).exists()
    }

    fn of(path: &Path, experiment: Experiment, asked: Asked, lock: Option<Lock>) -> Result<Folder, Error> {
        let stages = experiment.stages().map_err(|e| Error::Experiment(Box::new(e)))?;
        Ok(Folder { path: path.into(), experiment, stages, asked, made: false, _lock: lock })
    }

    /// Makes the folders, and removes what a killed soak was writing.
    fn make_ready(&self) -> Result<(), Error> {
        for folder in [self.path.clone(), self.path.join(PERIODS), self.path.join(PROCESSES)] {
            fs::create_dir_all(&folder).and_then(|()| output::remove_parts(&folder)).map_err(Broken::write(&folder))?;
        }
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    pub fn asked(&self) -> &Asked {
        &self.asked
    }

    /// Sets the total time to measure.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn ask_for(&mut self, seconds: f64) -> Result<(), Error> {
        self.asked.asked_s = seconds;
        self.write_asked()
    }

    fn write_asked(&self) -> Result<(), Error> {
        Ok(versioned::write(&self.path.join(ASKED), ASKED_SCHEMA, &self.asked)?)
    }

    fn period_path(&self, index: u32) -> PathBuf {
        self.path.join(PERIODS).join(format!("{index:04}.json"))
    }

    /// Replaces an earlier record of the same period.
    ///
    /// # Errors
    /// The file cannot be written; the earlier one stays.
    pub fn write_period(&self, period: &Period) -> Result<(), Error> {
        Ok(versioned::write(&self.path.join(PERIODS).join(format!("{:04}.json", period.index)), PERIOD_SCHEMA, period)?)
    }

    /// All of them, by number.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn periods(&self) -> Result<Vec<Period>, Error> {
        let mut periods: Vec<Period> = versioned::read_all(&self.path.join(PERIODS), PERIOD_SCHEMA)?;
        periods.sort_by_key(|period| period.index);
        match periods.iter().enumerate().find(|(n, period)| period.index as usize != *n) {
            None => Ok(periods),
            Some((n, _)) => {
                let what = "this period is missing, and later ones are there".into();
                Err(Broken::Damaged { path: self.period_path(n as u32), what }.into())
            }
        }
    }

    /// # Errors
    /// It cannot be written.
    pub fn write_process(&self, number: u32, process: &Measured) -> Result<(), Error> {
        Ok(versioned::write(&self.path.join(PROCESSES).join(format!("{number:04}.json")), PROCESS_SCHEMA, process)?)
    }

    /// All of them, by number.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn processes(&self) -> Result<Vec<Measured>, Error> {
        Ok(versioned::read_all(&self.path.join(PROCESSES), PROCESS_SCHEMA)?)
    }

    /// Where the measuring process is recorded; `None` if it is not.
    pub fn recording(&self) -> Option<PathBuf> {
        (!self.experiment.run.record.is_no()).then(|| self.path.join(RECORDING))
    }

    /// # Errors
    /// The file cannot be written; the earlier one stays.
    pub fn write_above(&self, above: &Above) -> Result<(), Error> {
        Ok(versioned::write(&self.path.join(ABOVE), ABOVE_SCHEMA, above)?)
    }

    /// The sample above the bound, if there was one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn above(&self) -> Result<Option<Above>, Error> {
        let path = self.path.join(ABOVE);
        Ok(if path.exists() { Some(versioned::read(&path, ABOVE_SCHEMA)?) } else { None })
    }

    /// # Errors
    /// The file cannot be written; the earlier one stays.
    pub fn write_soak(&self, soak: &Soak) -> Result<(), Error> {
        Ok(versioned::write_document(&self.path.join(SOAK), soak)?)
    }
}

/// `soak.json`, alone or in its folder.
///
/// # Errors
/// The file cannot be read, or another version wrote it.
pub fn read_soak(path: &Path) -> Result<Soak, Error> {
    let path = if path.is_dir() { path.join(SOAK) } else { path.into() };
    Ok(versioned::read_document(&path, SCHEMA)?)
}

fn read_both(path: &Path) -> Result<(Experiment, Asked), Error> {
    if !Folder::is_there(path) {
        return Err(Error::NoSoak(path.into()));
    }
    let asked = versioned::read(&path.join(ASKED), ASKED_SCHEMA)?;
    let path = path.join(EXPERIMENT);
    let text = fs::read_to_string(&path).map_err(Broken::read(&path))?;
    let experiment = experiment::read_stored(&text, &path.to_string_lossy());
    Ok((experiment.map_err(|e| Error::Experiment(Box::new(e)))?, asked))
}

fn whole(path: &Path, bytes: &[u8]) -> Result<(), Broken> {
    output::replace(path, |file| file.write_all(bytes)).map_err(Broken::write(path))
}
