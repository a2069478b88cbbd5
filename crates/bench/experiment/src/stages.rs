//! The matrix, expanded: every combination of its values is a stage, with its cells and loads.

use crate::keys;
use crate::model::{ALONE, Addresses, Arrival, Cell, Experiment, Gpu, LoadSpec, Record, Run, Stage, SubjectSpec, What};
use crate::values;
use crate::values::Word;
use settings::{Error, Place, Wrong, sizes};
use std::collections::HashSet;

pub const MOST_STAGES: usize = 10_000;
/// Maximum for all stages together.
pub const MOST_CELLS: usize = 200_000;
/// Maximum for the loads of one stage.
pub const MOST_THREADS: u64 = 1024;
/// Maximum for one stage: a source and a destination for each thing that moves bytes.
pub const MOST_BYTES: u64 = 64 << 30;

impl Experiment {
    /// Every combination of the matrix's values, with the first axis changing slowest. Combinations that differ only in a load without threads are
    /// one stage.
    ///
    /// # Errors
    /// Values that do not fit together, or exceed the limits.
    pub fn stages(&self) -> Result<Vec<Stage>, Error> {
        expand(self).map_err(|(_, wrong)| Error { origin: self.name.clone(), ..wrong.at(&Place::Whole) })
    }

    /// The policies that need processes, in the order of their stages.
    pub fn policies(&self) -> Vec<String> {
        match self.matrix.iter().find(|axis| axis.name == "policy") {
            Some(axis) => axis.values.iter().map(|v| values::policy(v).unwrap_or_else(|_| v.clone())).collect(),
            None => vec![self.run.policy.clone()],
        }
    }
}

/// The subject of a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    Subject(usize),
    Load(usize),
    Matrix,
}

/// The parts that an axis changes.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    run: Run,
    subjects: Vec<SubjectSpec>,
    loads: Vec<LoadSpec>,
    /// Subjects whose sizes come from the axis `bytes`.
    unsized_: Vec<bool>,
    /// The names of the loads that run, if the axis `loads` gives them.
    selected: Option<Vec<String>>,
}

/// The name and the key of `NAME.key`. Names may contain dots, keys do not.
fn split(axis: &str) -> (&str, &str) {
    axis.rsplit_once('.').unwrap_or(("", axis))
}

/// Whether two axes change the same key of the same name.
pub(crate) fn same_target(a: &str, b: &str) -> bool {
    let one = |key| if matches!(key, "route" | "call" | "what") { "what" } else { key };
    let ((name_a, key_a), (name_b, key_b)) = (split(a), split(b));
    name_a == name_b && one(key_a) == one(key_b)
}

/// A route or a call, by an axis `route`, `call`, or `what`, which takes both: only routes have arrows.
pub(crate) fn what(key: &str, text: &str) -> Result<What, Wrong> {
    let text = text.trim();
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(Wrong::unfit(&format!("{text:?}"), "a route as `host->cuda->gpu0`, or a call as `launch`"));
    }
    let is_route = key == "route" || (key == "what" && text.contains("->"));
    Ok(if is_route { What::Route(text.into()) } else { What::Call(text.into()) })
}

fn one_size(text: &str) -> Result<u64, Wrong> {
    sizes::one(text).map_err(|e| Wrong::new(e.to_string(), ""))
}

impl Draft {
    pub fn of(from: &Experiment) -> Draft {
        let unsized_ = from.subjects.iter().map(|subject| subject.sizes.is_empty()).collect();
        Draft {
            run: from.run.clone(),
            subjects: from.subjects.clone(),
            loads: from.loads.clone(),
            unsized_,
            selected: None,
        }
    }

    /// Whether there is such an axis.
    pub fn knows(&self, axis: &str) -> Result<(), Wrong> {
        let own: Vec<&str> = keys::section("matrix").map_or(&[][..], |s| s.keys).iter().map(|k| k.name).collect();
        if own.contains(&axis) {
            return Ok(());
        }
        let (name, key) = split(axis);
        let (is_subject, is_load) =
            (self.subjects.iter().any(|s| s.name == name), self.loads.iter().any(|l| l.name == name));
        let takes = match (is_subject, is_load) {
            (true, _) => keys::OF_SUBJECTS,
            (_, true) => keys::OF_LOADS,
            _ => {
                let names =
                    self.subjects.iter().map(|s| s.name.as_str()).chain(self.loads.iter().map(|l| l.name.as_str()));
                let (what, word, words): (String, &str, Vec<&str>) = match axis.contains('.') {
                    true if name == "run" => (format!("[matrix] cannot change `{axis}`"), axis, own),
                    true => (format!("[matrix] `{axis}`: there is no subject or load `{name}`"), name, names.collect()),
                    false => (format!("[matrix] cannot change `{axis}`"), axis, own),
                };
                let mut wrong = Wrong::word(what, word, words);
                if !axis.contains('.') || name == "run" {
                    wrong.allowed += ", and `NAME.key` with the name of a subject or load";
                }
                return Err(wrong);
            }
        };
        if takes.contains(&key) {
            return Ok(());
        }
        let kind = if is_subject { "subject" } else { "load" };
        Err(Wrong::word(format!("[matrix] cannot change `{key}` of the {kind} `{name}`"), key, takes.iter().copied()))
    }

    /// `cpu + memory`, `all` or `none`.
    fn names_of_loads(&self, text: &str) -> Result<Vec<String>, Wrong> {
        let all: Vec<&str> = self.loads.iter().map(|load| load.name.as_str()).collect();
        match text.trim() {
            "all" => Ok(all.into_iter().map(str::to_owned).collect()),
            "none" => Ok(Vec::new()),
            text => values::known_sum("load", text, &all, &["all", "none"]),
        }
    }

    /// Keeps only the loads that run. Done after all axes have been applied: one of them may give a load its threads.
    fn select(&mut self) {
        if let Some(selected) = &self.selected {
            self.loads.iter_mut().filter(|load| !selected.contains(&load.name)).for_each(|load| load.count = 0);
        }
    }

    /// Whether an axis makes a difference: properties of a load without threads make none, and neither does the number of threads of a load that
    /// another axis leaves out.
    fn differs_by(&self, axis: &str) -> bool {
        let (name, key) = split(axis);
        let Some(load) = self.loads.iter().find(|load| load.name == name) else { return true };
        let left_out = self.selected.as_ref().is_some_and(|selected| !selected.contains(&load.name));
        if key == "count" { !left_out } else { load.count > 0 }
    }

    /// Applies a value of an axis.
    pub fn apply(&mut self, axis: &str, text: &str) -> Result<(), Wrong> {
        match axis {
            "bytes" => {
                let bytes = one_size(text)?;
                for (subject, _) in self.subjects.iter_mut().zip(&self.unsized_).filter(|(_, unsized_)| **unsized_) {
                    subject.sizes = vec![bytes];
                }
            }
            "policy" => self.run.policy = values::policy(text)?,
            "run.class" => self.run.class = values::class(text)?,
            "run.cpus" => self.run.cpus = values::cpus(text)?,
            "run.record" => self.run.record = Record::of(text)?,
            "loads" => self.selected = Some(self.names_of_loads(text)?),
            "addresses" => {
                let addresses = values::addresses(text)?;
                self.subjects.iter_mut().for_each(|subject| subject.addresses = addresses);
            }
            "arrival" => {
                let arrival = values::arrival(text)?;
                self.subjects.iter_mut().for_each(|subject| subject.arrival = arrival);
            }
            _ => return self.apply_to_one(axis, text),
        }
        Ok(())
    }

    /// Applies a value of an axis `NAME.key`.
    fn apply_to_one(&mut self, axis: &str, text: &str) -> Result<(), Wrong> {
        let (name, key) = split(axis);
        if let Some(subject) = self.subjects.iter_mut().find(|s| s.name == name) {
            match key {
                "bytes" => subject.sizes = vec![one_size(text)?],
                "arrival" => subject.arrival = values::arrival(text)?,
                "class" => subject.class = Some(values::class(text)?),
                "cpus" => subject.cpus = Some(values::cpus(text)?),
                _ => subject.what = what(key, text)?,
            }
        } else if let Some(load) = self.loads.iter_mut().find(|l| l.name == name) {
            match key {
                "count" => {
                    let count = text.parse().ok().filter(|n| u64::from(*n) <= MOST_THREADS);
                    load.count = count.ok_or_else(|| {
                        Wrong::unfit(&format!("{text:?}"), &format!("a whole number from 0 to {MOST_THREADS}"))
                    })?;
                }
                "bytes" => load.bytes = one_size(text)?,
                "rate" => load.rate = Some(values::rate(text)?),
                "class" => load.class = values::class(text)?,
                "cpus" => load.cpus = values::cpus(text)?,
                _ => load.what = what(key, text)?,
            }
        }
        Ok(())
    }
}

/// The point, for messages: `policy=pi, crowd.count=8`.
fn at(point: &[(String, String)]) -> String {
    let values: Vec<String> = point.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if values.is_empty() { String::new() } else { format!(" at {}", values.join(", ")) }
}

pub(crate) fn expand(from: &Experiment) -> Result<Vec<Stage>, (About, Wrong)> {
    let matrix = |wrong| (About::Matrix, wrong);
    let combinations = from.matrix.iter().try_fold(1usize, |all, axis| all.checked_mul(axis.values.len()));
    let Some(combinations) = combinations.filter(|n| *n <= MOST_STAGES) else {
        let lengths: Vec<String> = from.matrix.iter().map(|axis| axis.values.len().to_string()).collect();
        let what = format!("[matrix] makes {} stages", lengths.join(" x "));
        return Err(matrix(Wrong::new(what, format!("at most {MOST_STAGES}"))));
    };
    let (mut stages, mut seen, mut cells) = (Vec::new(), HashSet::new(), 0);
    for number in 0..combinations {
        let mut rest = number;
        let mut draft = Draft::of(from);
        let mut point = Vec::new();
        for axis in from.matrix.iter().rev() {
            let value = &axis.values[rest % axis.values.len()];
            rest /= axis.values.len();
            draft.apply(&axis.name, value).map_err(matrix)?;
            point.push((axis.name.clone(), value.clone()));
        }
        point.reverse();
        draft.select();
        point.retain(|(axis, _)| draft.differs_by(axis));
        if !seen.insert(point.clone()) {
            continue;
        }
        check(&draft, &point)?;
        if draft.run.record == Record::Commands {
            // Counters are read in a stage that is not recorded: a recording of seconds without a pause would be gigabytes.
            draft.run.meter_ns = 0;
        }
        let place = at(&point);
        let stage = stage(stages.len() as u32, point, draft, from);
        if stage.cells.is_empty() {
            let what = format!("no subject is measured{place}");
            return Err(matrix(Wrong::new(what, "a subject without `beside`, or one that names a load of each stage")));
        }
        cells += stage.cells.len();
        if cells > MOST_CELLS {
            let what = format!("more than {MOST_CELLS} cells in all stages");
            return Err(matrix(Wrong::new(what, "fewer sizes, or fewer values in [matrix]")));
        }
        stages.push(stage);
    }
    Ok(stages)
}

fn stage(number: u32, point: Vec<(String, String)>, draft: Draft, from: &Experiment) -> Stage {
    let mut cells = Vec::new();
    let loads: Vec<LoadSpec> = draft.loads.into_iter().filter(|load| load.count > 0).collect();
    let runs =
        |name: &String| if name == ALONE { loads.is_empty() } else { loads.iter().any(|load| load.name == *name) };
    for mut subject in draft.subjects.into_iter().filter(|one| one.beside.is_empty() || one.beside.iter().any(runs)) {
        // Taken out before the subject is cloned for each cell: the list can be long.
        let sizes = std::mem::take(&mut subject.sizes);
        if sizes.is_empty() {
            cells.push(Cell { subject: subject.clone(), bytes: 0 });
        }
        for bytes in sizes {
            cells.push(Cell { subject: SubjectSpec { sizes: vec![bytes], ..subject.clone() }, bytes });
        }
    }
    Stage { number, point, run: draft.run, verify: from.verify, cells, loads }
}

/// Checks the settings that a recording of the commands allows.
fn recorded(run: &Run, point: &[(String, String)]) -> Result<(), Wrong> {
    if run.policy != "stock" {
        let what = format!("`record = \"commands\"` under the policy `{}`{}", run.policy, at(point));
        return Err(Wrong::new(what, "`policy = \"stock\"`: a recording and a policy are two agents in one process"));
    }
    if run.gpu == Gpu::None {
        let what = format!("`record = \"commands\"` with `gpu = \"none\"`{}", at(point));
        return Err(Wrong::new(what, "a GPU, or the software GPU: without one, no commands are sent"));
    }
    Ok(())
}

/// The limits of one stage.
fn check(draft: &Draft, point: &[(String, String)]) -> Result<(), (About, Wrong)> {
    if draft.run.record == Record::Commands {
        recorded(&draft.run, point).map_err(|wrong| (About::Matrix, wrong))?;
    }
    let threads: u64 = draft.loads.iter().map(|load| u64::from(load.count)).sum();
    if threads > MOST_THREADS {
        let most = (0..draft.loads.len()).max_by_key(|i| draft.loads[*i].count).unwrap_or(0);
        let what = format!("the loads have {threads} threads{}", at(point));
        return Err((About::Load(most), Wrong::new(what, format!("at most {MOST_THREADS}"))));
    }
    for (i, load) in draft.loads.iter().enumerate() {
        if matches!(load.what, What::Route(_)) && load.bytes == 0 && load.count > 0 {
            let what = format!("the load `{}` is a route and has no `bytes`{}", load.name, at(point));
            return Err((About::Load(i), Wrong::new(what, "the size of its transfers: `bytes = \"4KiB\"`")));
        }
    }
    let subjects = draft.subjects.iter().enumerate().map(|(i, subject)| {
        let depth = if let Arrival::Closed { depth } = subject.arrival { u64::from(depth) } else { 1 };
        let range = if let Addresses::Sweep { range, .. } = subject.addresses { range } else { 0 };
        let each = subject.sizes.iter().fold(0u64, |all, bytes| all.saturating_add(range).saturating_add(*bytes));
        (About::Subject(i), each.saturating_mul(depth))
    });
    let loads = draft
        .loads
        .iter()
        .enumerate()
        .map(|(i, load)| (About::Load(i), load.bytes.saturating_mul(u64::from(load.count))));
    let all: Vec<(About, u64)> = subjects.chain(loads).map(|(about, bytes)| (about, bytes.saturating_mul(2))).collect();
    let sum = all.iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    if sum > MOST_BYTES {
        let about = all.iter().max_by_key(|(_, bytes)| *bytes).map_or(About::Matrix, |(about, _)| *about);
        let gib = |bytes: u64| bytes.div_ceil(1 << 30);
        let what = format!("the buffers of a stage are {} GiB together{}", gib(sum), at(point));
        return Err((about, Wrong::new(what, format!("at most {} GiB, sources and destinations", gib(MOST_BYTES)))));
    }
    for (i, subject) in draft.subjects.iter().enumerate() {
        let places = subject.addresses.places();
        if places > u64::from(draft.run.rounds) {
            let what = format!("the sweep of the subject `{}` has {places} places{}", subject.name, at(point));
            let allowed = format!("at least as many rounds: `rounds = {places}` in [run], with one place in each");
            return Err((About::Subject(i), Wrong::new(what, allowed)));
        }
        if places > 1 && draft.run.counters_every > 0 {
            let what =
                format!("the subject `{}` sweeps, and counters are read in some rounds{}", subject.name, at(point));
            let allowed = "`counters-every = 0`: the places of those rounds would have no figures";
            return Err((About::Subject(i), Wrong::new(what, allowed)));
        }
        if matches!(subject.what, What::Route(_)) && subject.sizes.is_empty() {
            let what = format!("the subject `{}` is a route and has no sizes{}", subject.name, at(point));
            return Err((
                About::Subject(i),
                Wrong::new(what, "`sizes = \"4B..64MiB\"`, or `bytes = [..]` in [matrix]"),
            ));
        }
    }
    Ok(())
}
