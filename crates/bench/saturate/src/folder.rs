//! The folder of a run: the request (`asked.json`), a file for each cell of each repeat (`parts/`), and their summary (`saturate.json`).
//!
//! The invariant: every file is complete or absent, so a run that was killed at any moment continues after its last part.

use crate::Error;
use crate::account::{Part, SCHEMA, Saturated, Status};
use crate::plan::Plan;
use run_folder::Lock;
use run_folder::versioned::{self, Broken};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

const ASKED: &str = "asked.json";
const PARTS: &str = "parts";
pub const SATURATED: &str = "saturate.json";
const ASKED_SCHEMA: &str = "doorbell.saturate-asked/1";
const PART_SCHEMA: &str = "doorbell.saturate-part/2";

/// The files of a run. The one that makes it a run is last, so that an interrupted removal can be repeated.
const CONTENT: [&str; 3] = [SATURATED, PARTS, ASKED];

/// The request, and the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    pub doorbell: String,
    pub commit: Option<String>,
    pub command: Vec<String>,
    pub plan: Plan,
    /// Only the cells that decide the knee.
    pub find_knee: bool,
    /// UTC, RFC 3339.
    pub started: String,
    pub environment: serde_json::Value,
    pub warnings: Vec<String>,
}

/// One run.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    asked: Asked,
    /// The folder itself did not exist before this run.
    made: bool,
    /// None if it is only read.
    _lock: Option<Lock>,
}

impl Folder {
    /// A new run, in a folder that is made if it does not exist. With `force` it replaces an existing run.
    ///
    /// # Errors
    /// A run or other content exists; another run is writing there; it cannot be written.
    pub fn create(path: &Path, asked: Asked, force: bool) -> Result<Folder, Error> {
        let made = !path.exists();
        fs::create_dir_all(path).map_err(Broken::write(path))?;
        let is_run = Folder::is_there(path);
        if !is_run && !run_folder::is_free(path).map_err(Broken::read(path))? {
            return Err(Error::NotOurs(path.into()));
        }
        if is_run && !force && Folder::is_measured(path) {
            return Err(Error::Exists(path.into()));
        }
        let lock = Lock::of_run(path).map_err(Error::Lock)?;
        run_folder::clear(path, &CONTENT).map_err(Error::Lock)?;
        let folder = Folder { path: path.into(), asked, made, _lock: Some(lock) };
        folder.make_ready()?;
        versioned::write(&path.join(ASKED), ASKED_SCHEMA, &folder.asked)?;
        Ok(folder)
    }

    /// For a run that is to continue.
    ///
    /// # Errors
    /// There is none; another one is writing there.
    pub fn resume(path: &Path) -> Result<Folder, Error> {
        let asked = asked(path)?;
        let lock = Lock::of_run(path).map_err(Error::Lock)?;
        let folder = Folder { path: path.into(), asked, made: false, _lock: Some(lock) };
        folder.make_ready()?;
        Ok(folder)
    }

    /// For reading it, finished or not.
    ///
    /// # Errors
    /// There is no run.
    pub fn open(path: &Path) -> Result<Folder, Error> {
        Ok(Folder { path: path.into(), asked: asked(path)?, made: false, _lock: None })
    }

    /// Whether there is a run with a measurement. A run that cannot be read counts as measured.
    fn is_measured(path: &Path) -> bool {
        let parts = Folder::open(path).and_then(|there| there.parts());
        parts.map_or(true, |parts| parts.iter().any(|part| part.status == Status::Done))
    }

    /// Removes a run without a measurement, and the folder too if this run made it. A run with a measurement stays.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub fn give_up(self) -> Result<(), Error> {
        if fs::read_dir(self.path.join(PARTS)).is_ok_and(|mut all| all.next().is_some()) {
            return Ok(());
        }
        run_folder::clear(&self.path, &CONTENT).map_err(Error::Lock)?;
        run_folder::remove_folder(&self.path, self.made).map_err(Error::Lock)
    }

    /// Whether there is a run.
    pub fn is_there(path: &Path) -> bool {
        path.join(ASKED).exists()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn asked(&self) -> &Asked {
        &self.asked
    }

    /// Makes the folders, and removes unfinished files of a killed run.
    fn make_ready(&self) -> Result<(), Error> {
        for folder in [self.path.clone(), self.path.join(PARTS)] {
            fs::create_dir_all(&folder).and_then(|()| output::remove_parts(&folder)).map_err(Broken::write(&folder))?;
        }
        Ok(())
    }

    /// # Errors
    /// It cannot be written.
    pub fn write_part(&self, part: &Part) -> Result<(), Error> {
        Ok(versioned::write(
            &self.path.join(PARTS).join(format!("{:03}-{:04}.json", part.repeat, part.number)),
            PART_SCHEMA,
            part,
        )?)
    }

    /// All of them, by repeat and number.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn parts(&self) -> Result<Vec<Part>, Error> {
        Ok(versioned::read_all(&self.path.join(PARTS), PART_SCHEMA)?)
    }

    /// # Errors
    /// It cannot be written; the old file stays.
    pub fn write_account(&self, account: &Saturated) -> Result<(), Error> {
        Ok(versioned::write_document(&self.path.join(SATURATED), account)?)
    }
}

/// `saturate.json`, alone or in its folder.
///
/// # Errors
/// It cannot be read, or another version wrote it.
pub fn read_account(path: &Path) -> Result<Saturated, Error> {
    let path = if path.is_dir() { path.join(SATURATED) } else { path.into() };
    Ok(versioned::read_document(&path, SCHEMA)?)
}

fn asked(path: &Path) -> Result<Asked, Error> {
    if !Folder::is_there(path) {
        return Err(Error::NoRun(path.into()));
    }
    Ok(versioned::read(&path.join(ASKED), ASKED_SCHEMA)?)
}
