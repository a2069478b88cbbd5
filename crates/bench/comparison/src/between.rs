//! How far processes differ on this machine: `bench` stores it after a run of five processes or more, for comparisons of runs with one or two.

use crate::{Between, Cell, Error, JUDGED, Key, Loaded, SHOW_BETWEEN};
use serde::{Deserialize, Serialize};
use statistics::Figure;
use std::ffi::OsString;
use std::path::PathBuf;

/// Cells and figures that are stored, the newest.
const MOST: usize = 4000;

/// With another processor or driver, processes differ in another way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Machine {
    cpu: String,
    driver: String,
}

impl Machine {
    /// `None` of a run that does not say.
    fn of(run: &Loaded) -> Option<Machine> {
        let environment = run.environment();
        let of = |fact: &str| environment.get(fact).map(ToString::to_string);
        Some(Machine { cpu: of("cpu.model")?, driver: of("gpu.driver")? })
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    machine: Machine,
    experiment: String,
    cell: Key,
    figure: String,
    between: Between,
}

impl Entry {
    fn is_of(&self, other: &Entry) -> bool {
        (&self.machine, &self.experiment, &self.cell, &self.figure)
            == (&other.machine, &other.experiment, &other.cell, &other.figure)
    }
}

/// What is stored of one machine and experiment.
pub struct Stored(Vec<Entry>);

impl Stored {
    /// Nothing if the two runs are of different machines or experiments.
    pub fn of_machine(a: &Loaded, b: &Loaded) -> Stored {
        let (name, others) = (&a.run.experiment.name, &b.run.experiment.name);
        let machine = Machine::of(a).filter(|m| Machine::of(b).as_ref() == Some(m) && name == others);
        let is_of = |entry: &Entry| machine.as_ref() == Some(&entry.machine) && entry.experiment == *name;
        Stored(read().into_iter().filter(is_of).collect())
    }

    pub fn of(&self, cell: &Key, figure: Figure) -> Option<Between> {
        let is_it = |entry: &&Entry| entry.cell == *cell && entry.figure == figure.to_string();
        self.0.iter().find(is_it).map(|entry| entry.between)
    }
}

/// Stores what a finished run shows. `None` if it shows nothing, or there is no place for it.
///
/// # Errors
/// If the run cannot be read or the file cannot be written.
pub fn keep(run: &mut Loaded) -> Result<Option<PathBuf>, Error> {
    let Some(path) = path(|name| std::env::var_os(name)) else { return Ok(None) };
    let Some(machine) = Machine::of(run) else { return Ok(None) };
    if run.run.functional || (run.run.experiment.run.repeats as usize) < SHOW_BETWEEN {
        return Ok(None);
    }
    let mut shown = Vec::new();
    for cell in run.keys() {
        let Cell::Measured(rounds) = run.cell(&cell)? else { continue };
        for figure in JUDGED {
            let Some(between) = Between::shown(&rounds, figure) else { continue };
            let (machine, experiment) = (machine.clone(), run.run.experiment.name.clone());
            shown.push(Entry { machine, experiment, cell: cell.clone(), figure: figure.to_string(), between });
        }
    }
    let older = read().into_iter().filter(|old| !shown.iter().any(|new| new.is_of(old))).collect::<Vec<_>>();
    shown.extend(older);
    shown.truncate(MOST);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    output::replace(&path, |file| Ok::<_, std::io::Error>(serde_json::to_writer(file, &shown)?))?;
    Ok(Some(path))
}

/// What is not there, or of another version, is nothing.
fn read() -> Vec<Entry> {
    let text = path(|name| std::env::var_os(name)).and_then(|path| std::fs::read(path).ok());
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// `doorbell/processes.json` in `$XDG_STATE_HOME`, else in `~/.local/state`.
fn path(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("doorbell/processes.json"))
}
