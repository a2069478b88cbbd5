//! The folder of a soak: the request (`asked.json`, `experiment.toml`), the periods (`periods/`), the processes that measured (`processes/`), and
//! the account of all together (`soak.json`).
//!
//! The invariant: every file appears complete or not at all. So a soak that was killed at any moment has all its periods, the last one as it was
//! when it was last written.

use crate::Error;
use crate::folder::Kind;
use crate::soak::account::{Above, Fault, Period, Process, SCHEMA, Soak};
use crate::versioned;
use experiment::Experiment;
use serde::{Deserialize, Serialize};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const ASKED: &str = "asked.json";
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

const KIND: Kind = Kind {
    marker: ASKED,
    content: &[SOAK, RECORDING, ABOVE, PERIODS, PROCESSES],
    folders: &[PERIODS, PROCESSES],
    is_kept: Folder::is_measured,
};

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
    of: crate::Folder,
    asked: Asked,
}

impl Deref for Folder {
    type Target = crate::Folder;

    fn deref(&self) -> &crate::Folder {
        &self.of
    }
}

impl Folder {
    /// A new soak, in a folder that is made if it is missing. With `force` it replaces an existing one.
    ///
    /// # Errors
    /// There is a soak or something else already; another soak writes there; the folder cannot be written.
    pub fn create(path: &Path, experiment: &Experiment, asked: Asked, force: bool) -> Result<Folder, Error> {
        let folder = Folder { of: crate::Folder::create_as(&KIND, path, experiment, force)?, asked };
        folder.write_asked()?;
        Ok(folder)
    }

    /// A soak that is to go on.
    ///
    /// # Errors
    /// There is none; another one writes there.
    pub fn resume(path: &Path) -> Result<Folder, Error> {
        // The measuring process of a killed soak lives for a moment after it.
        let begun = Instant::now();
        loop {
            match crate::Folder::resume_as(&KIND, path) {
                Err(Error::Busy { .. }) if begun.elapsed() < GOES => std::thread::sleep(GOES / 100),
                of => return Folder::of(of?),
            }
        }
    }

    /// Opens a soak that another process leads, to write its periods.
    ///
    /// # Errors
    /// There is none.
    pub fn join(path: &Path) -> Result<Folder, Error> {
        Folder::of(crate::Folder::join_as(&KIND, path)?)
    }

    /// To read it, finished or not.
    ///
    /// # Errors
    /// There is no soak.
    pub fn open(path: &Path) -> Result<Folder, Error> {
        Folder::of(crate::Folder::open_as(&KIND, path)?)
    }

    fn of(of: crate::Folder) -> Result<Folder, Error> {
        Ok(Folder { asked: versioned::read(&of.path().join(ASKED), ASKED_SCHEMA)?, of })
    }

    /// Whether there is a soak that has measured anything.
    pub fn is_measured(path: &Path) -> bool {
        KIND.is_measured(path)
    }

    /// Whether there is a soak.
    pub fn is_there(path: &Path) -> bool {
        path.join(ASKED).exists()
    }

    /// Removes a soak without measurements, and the folder with it if this soak made it. A soak that has measured stays.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub fn give_up(self) -> Result<(), Error> {
        self.of.give_up()
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
        versioned::write(&self.path().join(ASKED), ASKED_SCHEMA, &self.asked)
    }

    fn period_path(&self, index: u32) -> PathBuf {
        self.path().join(PERIODS).join(format!("{index:04}.json"))
    }

    /// Replaces an earlier record of the same period.
    ///
    /// # Errors
    /// The file cannot be written; the earlier one stays.
    pub fn write_period(&self, period: &Period) -> Result<(), Error> {
        versioned::write(&self.period_path(period.index), PERIOD_SCHEMA, period)
    }

    /// All of them, by number.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn periods(&self) -> Result<Vec<Period>, Error> {
        let mut periods: Vec<Period> = versioned::read_all(&self.path().join(PERIODS), PERIOD_SCHEMA)?;
        periods.sort_by_key(|period| period.index);
        match periods.iter().enumerate().find(|(n, period)| period.index as usize != *n) {
            None => Ok(periods),
            Some((n, _)) => {
                let what = "this period is missing, and later ones are there".into();
                Err(Error::Damaged { path: self.period_path(n as u32), what })
            }
        }
    }

    /// # Errors
    /// It cannot be written.
    pub fn write_process(&self, number: u32, process: &Measured) -> Result<(), Error> {
        versioned::write(&self.path().join(PROCESSES).join(format!("{number:04}.json")), PROCESS_SCHEMA, process)
    }

    /// All of them, by number.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn processes(&self) -> Result<Vec<Measured>, Error> {
        versioned::read_all(&self.path().join(PROCESSES), PROCESS_SCHEMA)
    }

    /// Where the measuring process is recorded; `None` if it is not.
    pub fn recording(&self) -> Option<PathBuf> {
        (!self.experiment().run.record.is_no()).then(|| self.path().join(RECORDING))
    }

    /// # Errors
    /// The file cannot be written; the earlier one stays.
    pub fn write_above(&self, above: &Above) -> Result<(), Error> {
        versioned::write(&self.path().join(ABOVE), ABOVE_SCHEMA, above)
    }

    /// The sample above the bound, if there was one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn above(&self) -> Result<Option<Above>, Error> {
        let path = self.path().join(ABOVE);
        Ok(if path.exists() { Some(versioned::read(&path, ABOVE_SCHEMA)?) } else { None })
    }

    /// # Errors
    /// The file cannot be written; the earlier one stays.
    pub fn write_soak(&self, soak: &Soak) -> Result<(), Error> {
        versioned::write_document(&self.path().join(SOAK), soak)
    }
}

/// `soak.json`, alone or in its folder.
///
/// # Errors
/// The file cannot be read, or another version wrote it.
pub fn read_soak(path: &Path) -> Result<Soak, Error> {
    let path = if path.is_dir() { path.join(SOAK) } else { path.into() };
    versioned::read(&path, SCHEMA)
}
