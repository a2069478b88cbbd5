//! A data file as the cells of tables: their names, and their figures.

use crate::markdown_tables::words;
use experiment::Observe;
use run_folder::data_file::{Digest, Load, Measured, Origin, Rows, Value};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use terminal::number;

/// Keys of every cell; the axes of the experiment's matrix are added.
const KEYS: [&str; 6] = ["subject", "what", "bytes", "policy", "load", "stage"];

/// A data file that was read: of an experiment, or rows.
#[derive(Debug)]
pub struct Data {
    digest: Digest,
    /// Set if the file consists of rows. Then there are no stages.
    rows: Option<Rows>,
    crc32: u32,
    keys: Vec<String>,
    /// Sorting the samples of a cell takes longer than all else.
    measured: RefCell<Known>,
}

/// Parts of cells that were already read; `None` if the file has no such part.
type Known = HashMap<(At, u8), Option<Rc<Measured>>>;

/// A cell: the number of its stage in the file, and its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct At {
    pub stage: usize,
    pub cell: usize,
}

impl Data {
    /// `samples`: the folder with the samples of a file that has no rounds.
    ///
    /// # Errors
    /// It is no data file, or its samples are missing or others.
    pub fn read(bytes: &[u8], samples: &Path) -> Result<Data, run_folder::data_file::Error> {
        let (crc32, measured) = (run_folder::data_file::crc32(bytes), RefCell::default());
        let mut keys: Vec<String> = Vec::new();
        let mut add = |name: &str| {
            if !keys.iter().any(|key| key == name) {
                keys.push(name.to_owned());
            }
        };
        match Digest::read(bytes) {
            Ok(mut digest) => {
                if !digest.has_rounds() && samples.is_dir() {
                    digest.read_samples(samples)?;
                }
                KEYS.iter().for_each(|key| add(key));
                digest.stages.iter().flat_map(|stage| &stage.point).for_each(|(name, _)| add(name));
                Ok(Data { digest, rows: None, crc32, keys, measured })
            }
            Err(run_folder::data_file::Error::Schema { .. }) => {
                let rows = Rows::read(bytes)?;
                rows.rows.iter().flat_map(|row| row.keys()).for_each(|name| add(name));
                let digest = Digest {
                    schema: String::new(),
                    origin: rows.origin.clone(),
                    samples: Vec::new(),
                    stages: Vec::new(),
                };
                Ok(Data { digest, rows: Some(rows), crc32, keys, measured })
            }
            Err(e) => Err(e),
        }
    }

    pub fn crc32(&self) -> u32 {
        self.crc32
    }

    pub fn origin(&self) -> &Origin {
        &self.digest.origin
    }

    /// One line with the machine, the version and the date of the measurement.
    pub fn machine(&self) -> String {
        let origin = self.origin();
        let fact = |name: &str| {
            let value = origin.machine.get(name)?;
            Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        };
        let named = |what: &str, name: &str| fact(name).map(|value| format!("{what} {value}"));
        let link = fact("gpu.link_generation").zip(fact("gpu.link_width"));
        let is_virtual = fact("host.virtual_machine").is_some_and(|value| value == "true");
        let commit = origin.commit.as_deref().unwrap_or("unknown");
        let (digits, changed) = commit.split_at(commit.find('-').unwrap_or(commit.len()));
        let all = [
            fact("gpu.name"),
            named("driver", "gpu.driver"),
            named("CUDA", "gpu.cuda"),
            link.map(|(generation, width)| format!("PCIe {generation} x{width}")),
            fact("cpu.model"),
            fact("cpu.online").map(|n| format!("{n} CPUs{}", if is_virtual { ", a virtual machine" } else { "" })),
            named("Linux", "kernel.release"),
        ];
        let all: Vec<String> = all.into_iter().flatten().collect();
        let day = origin.started.split('T').next().unwrap_or_default();
        let commit = format!("{}{changed}", digits.get(..12).unwrap_or(digits));
        let measured = format!("Measured on {}; doorbell at commit {commit}, {day}.", all.join(", "));
        match self.stored() {
            Some(what) => format!("{measured}\n\n**Stored figures**: {what}. The samples were not kept."),
            None => measured,
        }
    }

    /// What its figures are, if no samples were kept.
    pub fn stored(&self) -> Option<&str> {
        self.rows.as_ref()?.stored.as_deref()
    }

    pub fn is_rows(&self) -> bool {
        self.rows.is_some()
    }

    /// A field of a row, as a number.
    pub fn number(&self, at: At, path: &str) -> Option<f64> {
        self.rows.as_ref()?.rows.get(at.cell)?.get(path)?.as_f64()
    }

    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    pub fn is_key(&self, key: &str) -> bool {
        self.keys.iter().any(|k| k == key)
    }

    /// In the order of the file.
    pub fn cells(&self) -> impl Iterator<Item = At> {
        let rows = self.rows.as_ref().map_or(0, |rows| rows.rows.len());
        let of =
            |(stage, s): (usize, &run_folder::data_file::Stage)| (0..s.cells.len()).map(move |cell| At { stage, cell });
        self.digest.stages.iter().enumerate().flat_map(of).chain((0..rows).map(|cell| At { stage: 0, cell }))
    }

    pub fn cell(&self, at: At) -> &run_folder::data_file::Cell {
        &self.digest.stages[at.stage].cells[at.cell]
    }

    fn stage(&self, at: At) -> &run_folder::data_file::Stage {
        &self.digest.stages[at.stage]
    }

    /// The value of this key for a cell.
    pub fn value(&self, at: At, key: &str) -> String {
        if let Some(rows) = &self.rows {
            return match rows.rows.get(at.cell).and_then(|row| row.get(key)) {
                None => words::NONE.into(),
                Some(serde_json::Value::String(text)) => text.clone(),
                Some(value) if key == "bytes" || key.ends_with(".bytes") => {
                    value.as_u64().map_or_else(|| value.to_string(), words::size)
                }
                Some(serde_json::Value::Bool(is)) => if *is { "yes" } else { "no" }.into(),
                Some(value) => value.as_u64().map_or_else(|| value.to_string(), number::count),
            };
        }
        let (stage, cell) = (self.stage(at), self.cell(at));
        match key {
            "subject" => cell.subject.clone(),
            "what" => cell.what.clone(),
            "bytes" if cell.bytes == 0 => words::NONE.into(),
            "bytes" => words::size(cell.bytes),
            "policy" => stage.policy.clone(),
            "stage" => stage.number.to_string(),
            "load" => {
                let running = stage.loads.iter().filter(|load| load.threads > 0);
                let names: Vec<&str> = running.map(|load| load.name.as_str()).collect();
                if names.is_empty() { "nothing".into() } else { names.join("+") }
            }
            axis => match stage.point.iter().find(|(name, _)| name == axis) {
                Some((_, value)) => value.clone(),
                None => words::NONE.into(),
            },
        }
    }

    /// All values of a key, each once.
    pub fn values(&self, key: &str) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for value in self.cells().map(|at| self.value(at, key)) {
            if !all.contains(&value) {
                all.push(value);
            }
        }
        all
    }

    /// The load of a cell's stage. `None` if none runs, or several.
    pub fn load(&self, at: At) -> Option<&Load> {
        let mut running = self.stage(at).loads.iter().filter(|load| load.threads > 0);
        running.next().filter(|_| running.next().is_none())
    }

    /// A part of a cell; without `part`, the one that it observes.
    pub fn measured(&self, at: At, part: Option<Observe>) -> Result<Option<Rc<Measured>>, String> {
        let part = part.unwrap_or(self.cell(at).observe);
        if let Some(known) = self.measured.borrow().get(&(at, part as u8)) {
            return Ok(known.clone());
        }
        let measured = self.digest.measured(self.stage(at), at.cell, part).map_err(|e| e.to_string())?;
        if measured.is_none() && self.cell(at).missing.is_none() {
            let part = format!("{part:?}").to_lowercase();
            return Err(format!(
                "{} has no samples of {part} in the file: `doorbell report RUN --digest FILE --parts {part}` keeps them",
                self.cell(at).subject
            ));
        }
        let measured = measured.map(Rc::new);
        self.measured.borrow_mut().insert((at, part as u8), measured.clone());
        Ok(measured)
    }

    /// The cell with which this one is compared: a subject of the same stage and size, or the cell that differs only in one key.
    pub fn baseline(&self, at: At, against: Option<&str>) -> Result<Option<At>, String> {
        let Some(name) = against.or(self.cell(at).baseline.as_deref()) else {
            return Err(format!("{} has no baseline: add against=SUBJECT or against=KEY=VALUE", self.cell(at).subject));
        };
        let is_subject = |name: &str| self.cells().any(|c| self.cell(c).subject == name);
        let (key, value) = match name.split_once('=') {
            Some((key, value)) if self.is_key(key) => (key, value),
            _ if is_subject(name) => ("subject", name),
            _ if self.values("policy").iter().any(|policy| policy == name) => ("policy", name),
            _ => {
                return Err(format!(
                    "there is no {name:?} to compare with; subjects are {}",
                    self.values("subject").join(", ")
                ));
            }
        };
        // A subject has another text, too; another stage has another number and other loads.
        let others =
            self.keys.iter().filter(|other| !["what", "stage", "load"].contains(&other.as_str()) && *other != key);
        let others: Vec<(&String, String)> = others.map(|other| (other, self.value(at, other))).collect();
        let is_it = |c: &At| {
            self.value(*c, key) == value
                && (key != "subject" || c.stage == at.stage)
                && others.iter().all(|(key, value)| self.value(*c, key) == *value)
        };
        Ok(self.cells().find(is_it))
    }
}

/// A number without an interval.
pub fn plain(value: f64) -> Value {
    Value { value, interval: None, at_least: false }
}
