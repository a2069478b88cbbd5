//! What to measure, as a TOML file: the axes, the duration and the repeats.

use crate::Error;
use crate::source::{Flow, Operation, Submission, Target};
use crate::way::{Mode, Way};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A plan with all defaults filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    pub name: String,
    #[serde(default)]
    pub about: String,
    #[serde(default)]
    pub run: Run,
    #[serde(default)]
    pub source: Devices,
    pub matrix: Matrix,
    /// A plain copy in each direction, with which the I/Os are compared.
    #[serde(default)]
    pub peak: Peak,
    /// Values of the link that replace what the machine reports.
    #[serde(default)]
    pub link: Assumed,
    #[serde(default)]
    pub knee: KneeOf,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Gpu {
    #[default]
    Real,
    /// The software GPU: it shows that something works, not how fast.
    Soft,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Run {
    pub gpu: Gpu,
    /// The number of the GPU, as the driver counts. The counters and the link of this GPU are used.
    pub number: u32,
    /// Time for each cell in each repeat.
    pub duration: String,
    /// I/Os of each queue before that.
    pub warm_up: u64,
    pub repeats: u32,
    /// Seed of the data, the addresses and the order of the cells.
    pub seed: u64,
    /// Bytes of all targets of a cell together.
    pub buffer: String,
    /// CPUs of the threads, one each. Empty: the last CPUs of this process, if it has more CPUs than threads.
    pub cpus: Vec<usize>,
    /// A cell in which no I/O completes for this long has failed.
    pub timeout: String,
}

impl Default for Run {
    fn default() -> Run {
        Run {
            gpu: Gpu::Real,
            number: 0,
            duration: "1s".into(),
            warm_up: 1000,
            repeats: 5,
            seed: 1,
            buffer: "256MiB".into(),
            cpus: Vec::new(),
            timeout: "10s".into(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Copy engines in the place of devices.
    #[default]
    Engines,
    /// NVMe drives, driven from user space; they are written only if an option on the command line allows it.
    Nvme,
    /// A file, read by io_uring.
    Files,
}

/// Which devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Devices {
    pub kind: Kind,
    /// Numbers of copy engines, that of the first device first. Empty: all that run concurrently with kernels.
    pub engines: Vec<u32>,
    pub mode: Mode,
    /// PCI addresses of NVMe drives.
    pub drives: Vec<String>,
    /// The namespace of the drives; 0 is the first one.
    pub namespace: u32,
    /// Path of the file.
    pub file: String,
}

/// One value or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore<T> {
    One(T),
    Several(Vec<T>),
}

fn several<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(match OneOrMore::deserialize(from)? {
        OneOrMore::One(one) => vec![one],
        OneOrMore::Several(all) => all,
    })
}

/// The axes: every combination is a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Matrix {
    /// Sizes of one I/O: `512B,4KiB..1MiB`.
    pub bytes: String,
    #[serde(deserialize_with = "several")]
    pub depth: Vec<u32>,
    #[serde(deserialize_with = "several")]
    pub threads: Vec<u32>,
    #[serde(deserialize_with = "several")]
    pub devices: Vec<u32>,
    /// Of each device.
    #[serde(deserialize_with = "several")]
    pub queues: Vec<u32>,
    #[serde(deserialize_with = "several")]
    pub target: Vec<Target>,
    /// Reads; for drives also writes, for which the command line has to name each drive.
    #[serde(deserialize_with = "several")]
    pub operation: Vec<Operation>,
    /// I/Os per doorbell; 1: each has its own.
    #[serde(deserialize_with = "several")]
    pub batch: Vec<u32>,
    /// By doorbells, or armed: then each I/O is submitted alone.
    #[serde(deserialize_with = "several")]
    pub submission: Vec<Submission>,
    /// How copy engines get an I/O and report its completion.
    pub way: Vec<Way>,
}

impl Default for Matrix {
    fn default() -> Matrix {
        Matrix {
            bytes: "512B,4KiB,8KiB".into(),
            depth: vec![128],
            threads: vec![1],
            devices: vec![1],
            queues: vec![1],
            target: vec![Target::Gpu],
            operation: vec![Operation::Read],
            batch: vec![1],
            submission: vec![Submission::Doorbell],
            way: vec![Way::default()],
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Peak {
    pub bytes: String,
    pub depth: u32,
}

impl Default for Peak {
    fn default() -> Peak {
        Peak { bytes: "16MiB".into(), depth: 4 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Assumed {
    pub generation: Option<u32>,
    pub width: Option<u32>,
    pub max_payload: Option<u32>,
    pub max_read_request: Option<u32>,
    pub read_completion_boundary: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct KneeOf {
    pub within: f64,
}

impl Default for KneeOf {
    fn default() -> KneeOf {
        KneeOf { within: crate::knee::WITHIN }
    }
}

/// What a cell is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Io,
    /// A plain copy: long I/Os of one device.
    Peak,
}

/// One place of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CellName {
    pub role: Role,
    pub target: Target,
    pub operation: Operation,
    pub bytes: u64,
    pub depth: u32,
    pub threads: u32,
    pub devices: u32,
    /// Of each device.
    pub queues: u32,
    /// I/Os that one doorbell announces.
    pub batch: u32,
    pub submission: Submission,
    #[serde(default)]
    pub way: Way,
}

impl CellName {
    pub fn flow(&self) -> Flow {
        Flow { target: self.target, operation: self.operation, submission: self.submission }
    }
}

/// Times and sizes of a plan, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amounts {
    pub duration: Duration,
    pub timeout: Duration,
    pub buffer: u64,
}

/// A plan with more cells is taken for a mistake.
const MOST_CELLS: usize = 4096;
const MOST_DEPTH: u32 = 512;
const MOST: u32 = 256;

/// Reads a plan; `sets` are `key=value`, as `matrix.depth=32`.
///
/// # Errors
/// [`Error::Plan`] with what is wrong, and where.
pub fn read(text: &str, origin: &str, sets: &[String]) -> Result<Plan, Error> {
    let wrong = |what: String, hint: &str| Error::Plan { origin: origin.into(), what, hint: hint.into() };
    let keys = "docs/reference/saturate-folder.md has the keys of a plan";
    let mut table: toml::Table = text.parse().map_err(|e: toml::de::Error| wrong(e.to_string(), keys))?;
    for set in sets {
        let (key, value) = set.split_once('=').ok_or_else(|| {
            wrong(format!("--set {set}: no value"), "write --set KEY=VALUE, for example --set run.repeats=3")
        })?;
        insert(&mut table, key.trim(), value.trim()).map_err(|what| {
            wrong(format!("--set {set}: {what}"), "write --set TABLE.KEY=VALUE, for example --set matrix.depth=32")
        })?;
    }
    let plan: Plan =
        table.try_into().map_err(|e: toml::de::Error| wrong(e.to_string().trim().replace('\n', ", "), keys))?;
    plan.check().map_err(|(what, hint)| wrong(what, hint))?;
    Ok(plan)
}

fn insert(table: &mut toml::Table, key: &str, value: &str) -> Result<(), &'static str> {
    let (of, key) = key.split_once('.').ok_or("a key needs a table before it")?;
    let of = table.entry(of).or_insert_with(|| toml::Value::Table(toml::Table::new()));
    let of = of.as_table_mut().ok_or("there is no such table")?;
    // `[1, 2]`, `3` and `true` are TOML; `4KiB` and `gpu` are plain texts.
    let parsed = format!("value = {value}").parse::<toml::Table>().ok().and_then(|mut one| one.remove("value"));
    of.insert(key.into(), parsed.unwrap_or_else(|| toml::Value::String(value.into())));
    Ok(())
}

impl Plan {
    fn check(&self) -> Result<(), (String, &'static str)> {
        let size = "sizes are written 512B, 4KiB or 1MiB";
        self.sizes().map_err(|e| (e, size))?;
        self.amounts()?;
        let m = &self.matrix;
        let axes = [
            ("depth", &m.depth, MOST_DEPTH),
            ("threads", &m.threads, MOST),
            ("devices", &m.devices, MOST),
            ("queues", &m.queues, MOST),
            ("batch", &m.batch, MOST_DEPTH),
        ];
        for (name, values, most) in axes {
            if values.is_empty() || values.iter().any(|value| *value == 0 || *value > most) {
                return Err((format!("matrix.{name} has values from 1 to {most}"), "give one, or several in brackets"));
            }
        }
        if m.target.is_empty() {
            return Err(("matrix.target is empty".into(), "targets are \"gpu\" and \"host\""));
        }
        if m.operation.is_empty() {
            return Err(("matrix.operation is empty".into(), "it is \"read\", \"write\" or both"));
        }
        if self.writes() && self.source.kind != Kind::Nvme {
            return Err((
                "matrix.operation: only drives (source.kind nvme) are written to".into(),
                "with copy engines, target \"host\" is what a GPU writes",
            ));
        }
        if m.submission.is_empty() {
            return Err(("matrix.submission is empty".into(), "it is \"doorbell\", \"armed\" or both"));
        }
        if m.submission.contains(&Submission::Armed) && self.source.kind != Kind::Engines {
            return Err(("matrix.submission: only copy engines have gates".into(), "\"doorbell\" is for all devices"));
        }
        if m.way.is_empty() {
            return Err(("matrix.way is empty".into(), "[{}] is the default"));
        }
        if m.way.iter().any(|way| *way != Way::default()) && self.source.kind != Kind::Engines {
            return Err(("matrix.way: only copy engines have several".into(), "leave it out for other devices"));
        }
        if self.run.repeats == 0 || self.run.repeats > 100 {
            return Err(("run.repeats is from 1 to 100".into(), "five give an interval"));
        }
        if (self.source.kind == Kind::Nvme) == self.source.drives.is_empty() {
            return Err((
                "source.drives names drives where source.kind is nvme".into(),
                "for example source.drives = [\"0000:04:00.0\"]",
            ));
        }
        if self.source.kind != Kind::Files && !self.source.file.is_empty() {
            return Err(("source.file is for source.kind files".into(), "--set source.kind=files"));
        }
        if !(0.0..0.5).contains(&self.knee.within) {
            return Err(("knee.within is a part from 0 to 0.5".into(), "0.03 is 3 %"));
        }
        let cells = self.cells().iter().filter(|cell| cell.role == Role::Io).count();
        if cells == 0 || cells > MOST_CELLS {
            let what = format!("the matrix has {cells} cells");
            return Err((
                what,
                "1 to 4096 are possible; each thread needs a queue, the depth must cover the batch, and the way must fit the batch",
            ));
        }
        Ok(())
    }

    /// Whether the plan overwrites data on drives.
    pub fn writes(&self) -> bool {
        self.matrix.operation.contains(&Operation::Write)
    }

    fn sizes(&self) -> Result<Vec<u64>, String> {
        settings::sizes::parse(&self.matrix.bytes).map_err(|e| format!("matrix.bytes: {e}"))
    }

    /// Its times and sizes.
    ///
    /// # Errors
    /// What cannot be read, and how to correct it. A plan that was read has no such error.
    pub fn amounts(&self) -> Result<Amounts, (String, &'static str)> {
        let time = |name: &str, text: &str| match experiment::time_ns(text) {
            Ok(ns) if ns > 0 => Ok(Duration::from_nanos(ns)),
            Ok(_) => Err((format!("run.{name} is 0"), "give more than 0")),
            Err(e) => Err((format!("run.{name}: {e}"), "a time is written 500ms, 1s or 2min")),
        };
        let size = |name: &str, text: &str| {
            settings::sizes::one(text).map_err(|e| (format!("{name}: {e}"), "a size is written 4KiB or 256MiB"))
        };
        size("peak.bytes", &self.peak.bytes)?;
        Ok(Amounts {
            duration: time("duration", &self.run.duration)?,
            timeout: time("timeout", &self.run.timeout)?,
            buffer: size("run.buffer", &self.run.buffer)?,
        })
    }

    /// All cells, those of the peak first. Combinations with fewer queues than threads, a batch above the depth, or a way that does not fit the
    /// batch are left out.
    pub fn cells(&self) -> Vec<CellName> {
        let m = &self.matrix;
        let sizes = self.sizes().unwrap_or_default();
        let peak_bytes = settings::sizes::one(&self.peak.bytes).unwrap_or(0);
        let mut cells: Vec<CellName> = m
            .target
            .iter()
            .map(|target| CellName {
                role: Role::Peak,
                target: *target,
                operation: Operation::Read,
                bytes: peak_bytes,
                depth: self.peak.depth,
                threads: 1,
                devices: 1,
                queues: 1,
                batch: 1,
                submission: Submission::Doorbell,
                way: Way::default(),
            })
            .collect();
        let batches = |of: &Submission| match of {
            Submission::Doorbell => m.batch.clone(),
            Submission::Armed => vec![1],
        };
        let ways = |of: &Submission| match of {
            Submission::Doorbell => m.way.clone(),
            Submission::Armed => vec![Way::default()],
        };
        let of = |of: &Submission| {
            let each = |batch| ways(of).into_iter().map(move |way| (*of, batch, way));
            batches(of).into_iter().flat_map(each).collect::<Vec<_>>()
        };
        let submissions: Vec<(Submission, u32, Way)> = m.submission.iter().flat_map(of).collect();
        let between = m.target.iter().flat_map(|target| m.operation.iter().map(move |operation| (*target, *operation)));
        for (target, operation) in between {
            for &bytes in &sizes {
                for &depth in &m.depth {
                    for &threads in &m.threads {
                        for &devices in &m.devices {
                            for &queues in &m.queues {
                                for &(submission, batch, way) in &submissions {
                                    cells.push(CellName {
                                        role: Role::Io,
                                        target,
                                        operation,
                                        bytes,
                                        depth,
                                        threads,
                                        devices,
                                        queues,
                                        batch,
                                        submission,
                                        way,
                                    });
                                }
                            }
                        }
                    }
                }
            }
        }
        let is_cell = |cell: &CellName| {
            cell.devices * cell.queues >= cell.threads
                && cell.batch <= cell.depth
                && cell.way.fits(cell.batch, cell.depth)
        };
        cells.retain(is_cell);
        cells
    }
}

/// A plan that is part of the program.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    pub name: &'static str,
    pub text: &'static str,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(Shipped { name: $name, text: include_str!(concat!("../../../../experiments/saturate/", $name, ".toml")) }),*]
    };
}

/// All of them: folder `experiments/saturate`.
pub const SHIPPED: &[Shipped] =
    files!["paper", "sizes", "knee", "submission", "armed", "completions", "full", "files", "small"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_shipped_and_survives_being_written() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../experiments/saturate");
        let names: Vec<String> =
            std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(names.len(), SHIPPED.len(), "{names:?}");
        for Shipped { name, text } in SHIPPED {
            let plan = read(text, name, &[]).unwrap_or_else(|e| panic!("{e}"));
            assert!(plan.name == *name && !plan.about.is_empty());
            let written = serde_json::to_string(&plan).unwrap();
            assert_eq!(serde_json::from_str::<Plan>(&written).unwrap(), plan);
        }
    }

    #[test]
    fn options_change_values_and_lists() {
        let sets = ["run.gpu=soft", "matrix.depth=[8, 16]", "matrix.bytes=512B", "matrix.target=host", "run.repeats=2"];
        let plan = read("name = 'a'\n[matrix]", "a.toml", &sets.map(String::from)).unwrap();
        assert_eq!((plan.run.gpu, plan.run.repeats, &plan.matrix.depth[..]), (Gpu::Soft, 2, &[8, 16][..]));
        let cells = plan.cells();
        assert_eq!(cells.len(), 3);
        assert_eq!((cells[0].role, cells[0].bytes, cells[0].target), (Role::Peak, 16 << 20, Target::Host));
        assert_eq!((cells[2].role, cells[2].bytes, cells[2].depth), (Role::Io, 512, 16));
    }

    #[test]
    fn armed_cells_are_separate_rows_next_to_batches() {
        let sets = ["matrix.batch=[1, 8]", "matrix.submission=[\"doorbell\", \"armed\"]", "matrix.bytes=512B"];
        let cells = read("name = 'a'\n[matrix]", "a.toml", &sets.map(String::from)).unwrap().cells();
        let of: Vec<_> = cells.iter().map(|cell| (cell.role, cell.submission, cell.batch)).collect();
        let (doorbell, armed) = (Submission::Doorbell, Submission::Armed);
        assert_eq!(
            of,
            [(Role::Peak, doorbell, 1), (Role::Io, doorbell, 1), (Role::Io, doorbell, 8), (Role::Io, armed, 1)]
        );
    }

    #[test]
    fn ways_are_cells_where_they_go_with_the_batch() {
        let sets = [
            "matrix.batch=[1, 32]",
            "matrix.bytes=512B",
            "matrix.way=[{}, {flush = \"none\"}, {completions-every = 1}, {completions-every = 32}, {commands = \"host\"}]",
        ];
        let cells = read("name = 'a'\n[matrix]", "a.toml", &sets.map(String::from)).unwrap().cells();
        let of: Vec<_> = cells[1..].iter().map(|cell| (cell.batch, cell.way.to_string())).collect();
        let alone = ["", "no flush", "a completion every 32", "commands in host memory"].map(|way| (1, way.to_owned()));
        let together = ["", "a completion each", "commands in host memory"].map(|way| (32, way.to_owned()));
        assert_eq!(of, [&alone[..], &together].concat());
        // A cell from before there were ways.
        let mut old = serde_json::to_value(cells[1]).unwrap();
        old.as_object_mut().unwrap().remove("way").unwrap();
        assert_eq!(serde_json::from_value::<CellName>(old).unwrap(), cells[1]);
    }

    #[test]
    fn what_is_wrong_is_named_with_what_helps() {
        for (text, set, what) in [
            ("name = 'a'", "", "matrix"),
            ("name = 'a'\n[matrix]\nsize = 1", "", "size"),
            ("name = 'a'\n[matrix]", "matrix.depth=0", "matrix.depth has values from 1"),
            ("name = 'a'\n[matrix]", "matrix.bytes=many", "matrix.bytes"),
            ("name = 'a'\n[matrix]", "run.duration=5", "run.duration"),
            ("name = 'a'\n[matrix]", "matrix.threads=4", "0 cells"),
            ("name = 'a'\n[matrix]", "nothing", "no value"),
            ("name = 'a'\n[matrix]", "depth=3", "a key needs a table before it"),
            ("name = 'a'\n[matrix]", "knee.within=0.9", "knee.within"),
            ("name = 'a'\n[matrix]", "matrix.operation=write", "only drives"),
            ("name = 'a'\n[matrix]", "matrix.operation=[]", "matrix.operation is empty"),
            ("name = 'a'\n[matrix]", "matrix.submission=[]", "matrix.submission is empty"),
            (
                "name = 'a'\n[source]\nkind = 'nvme'\ndrives = ['qemu']\n[matrix]",
                "matrix.submission=armed",
                "only copy engines have gates",
            ),
            ("name = 'a'\n[matrix]", "matrix.way=[]", "matrix.way is empty"),
            ("name = 'a'\n[matrix]", "matrix.way=[{flush = \"some\"}]", "some"),
            ("name = 'a'\n[matrix]", "matrix.way=[{completions-every = 1}]", "0 cells"),
            (
                "name = 'a'\n[source]\nkind = 'nvme'\ndrives = ['qemu']\n[matrix]",
                "matrix.way=[{commands = \"host\"}]",
                "only copy engines have several",
            ),
            ("name = 'a'\n[matrix]", "source.kind=nvme", "source.drives"),
            ("name = 'a'\n[matrix]", "source.file=data.bin", "source.file is for"),
            ("name = ", "", "a.toml"),
        ] {
            let sets: Vec<String> = Some(set).filter(|set| !set.is_empty()).map(String::from).into_iter().collect();
            let e = read(text, "a.toml", &sets).unwrap_err();
            assert!(e.to_string().contains(what) && !e.hint().is_empty(), "{e}");
        }
    }
}
