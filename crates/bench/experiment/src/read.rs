//! From text to an [`Experiment`]: every key must be known, every value of its kind, every name defined.

mod bounds;

use crate::keys::{self, Section};
use crate::model::{
    ALONE, Axis, Compare, Device, Experiment, Gpu, LoadSpec, Record, Repay, Run, SubjectSpec, Verify, What,
};
use crate::processes::{self, Processes};
use crate::stages::Draft;
use crate::stages::{self, About};
use crate::tree::{self, Entry, Node, Table, Value};
use crate::values::{self, SUM, Word};
use crate::variant::{self, Variant};
use settings::{Error, Place, Wrong, sizes};
use std::collections::HashMap;

/// Longer names break tables.
const LONGEST_NAME: usize = 200;

/// Reads an experiment. `origin` names its file in messages; `sets` are options `--set`, as `run.duration=60s`.
///
/// # Errors
/// The first mistake, with its line and the allowed values.
pub fn read(text: &str, origin: &str, sets: &[String]) -> Result<Experiment, Error> {
    read_variant(text, origin, None, sets, Processes::Shared)
}

/// Reads an experiment from a run's folder. One that does not give `repeats` was measured by one process.
///
/// # Errors
/// As [`read`].
pub fn read_stored(text: &str, origin: &str) -> Result<Experiment, Error> {
    read_variant(text, origin, None, &[], Processes::One)
}

/// Reads a variant of an experiment, `[variant.NAME]` of its file; each of `sets` names a key of the variant. `processes` is for a file without
/// `repeats`.
///
/// # Errors
/// As [`read`]; there is no such variant.
pub fn read_variant(
    text: &str,
    origin: &str,
    variant: Option<&str>,
    sets: &[String],
    processes: Processes,
) -> Result<Experiment, Error> {
    let read = || {
        let mut root = tree::parse(text)?;
        let variant = variant::choose(&mut root, variant)?;
        for option in sets {
            tree::set(&mut root, option)?;
        }
        if let Some(entry) = root.entry("variant") {
            return Err(Wrong::new("a variant is not set", "it is chosen: `--variant NAME`").at(&entry.place));
        }
        Ok(Experiment { variant, ..experiment(&root, origin, processes)? })
    };
    read().map_err(|e: Error| Error { origin: origin.into(), ..e })
}

/// The variants of a file, in its order.
///
/// # Errors
/// The first mistake in the list of variants.
pub fn variants(text: &str, origin: &str) -> Result<Vec<Variant>, Error> {
    variant::list(text).map_err(|e| Error { origin: origin.into(), ..e })
}

/// One table of the file and its allowed keys.
struct Keys<'t> {
    section: &'static Section,
    /// For messages.
    title: String,
    table: &'t Table,
}

impl<'t> Keys<'t> {
    fn of(section: &'static Section, title: String, table: &'t Table) -> Result<Keys<'t>, Error> {
        for entry in &table.entries {
            if !section.keys.iter().any(|key| key.name == entry.key) {
                let what = format!("there is no key `{}` in {title}", entry.key);
                let mut wrong = Wrong::word(what, &entry.key, section.keys.iter().map(|key| key.name));
                if let Some(other) = elsewhere(&entry.key, section.name).filter(|_| wrong.meant.is_none()) {
                    wrong.what += &format!(" (it belongs in {other})");
                }
                return Err(wrong.at(&entry.place));
            }
        }
        Ok(Keys { section, title, table })
    }

    fn node(&self, key: &str) -> Option<&'t Node> {
        debug_assert!(self.section.keys.iter().any(|k| k.name == key), "{key} is in the table of keys");
        self.table.get(key)
    }

    /// The value of a key, as `parse` reads it.
    fn value<T>(&self, key: &str, parse: impl FnOnce(&Value) -> Result<T, Wrong>) -> Result<Option<T>, Error> {
        let value = |node: &Node| parse(&node.value).map_err(|wrong| self.within(key, wrong).at(&node.place));
        self.node(key).map(value).transpose()
    }

    /// A text, as `parse` reads it.
    fn text<T>(&self, key: &str, parse: impl FnOnce(&str) -> Result<T, Wrong>) -> Result<Option<T>, Error> {
        self.value(key, |value| match value {
            Value::Text(text) => parse(text),
            other => Err(Wrong::unfit(&other.kind(), "a text in quotes")),
        })
    }

    fn word<T: Word>(&self, key: &str) -> Result<Option<T>, Error> {
        self.text(key, T::of)
    }

    /// A whole number within the bounds in the table of keys.
    fn whole(&self, key: &str) -> Result<Option<u64>, Error> {
        let bounds = self.section.keys.iter().find(|k| k.name == key).map(|k| k.kind);
        let Some(keys::Kind::Whole { least, most }) = bounds else { return Ok(None) };
        self.value(key, |value| match value {
            Value::Whole(n) if (i128::from(least)..=i128::from(most)).contains(n) => Ok(*n as u64),
            other => Err(Wrong::unfit(&other.kind(), &format!("a whole number from {least} to {most}"))),
        })
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, Error> {
        self.value(key, |value| match value {
            Value::Flag(flag) => Ok(*flag),
            other => Err(Wrong::unfit(&other.kind(), "`true` or `false`")),
        })
    }

    fn within(&self, key: &str, wrong: Wrong) -> Wrong {
        Wrong { what: format!("{} `{key}`: {}", self.title, wrong.what), ..wrong }
    }

    /// A mistake of the table itself.
    fn wrong(&self, what: &str, allowed: &str) -> Error {
        Wrong::new(format!("{} {what}", self.title), allowed).at(&self.table.place)
    }
}

/// The section that has a key which is unknown here.
fn elsewhere(key: &str, here: &str) -> Option<String> {
    let there = keys::SECTIONS.iter().find(|s| s.name != here && s.keys.iter().any(|k| k.name == key))?;
    Some(titled(there))
}

fn titled(section: &Section) -> String {
    match (section.name, section.many) {
        ("", _) => "the top of the file".into(),
        (name, true) => format!("[[{name}]]"),
        (name, false) => format!("[{name}]"),
    }
}

/// The places of the parts that make up the stages.
struct Places {
    subjects: Vec<Place>,
    loads: Vec<Place>,
    matrix: Place,
}

impl Places {
    fn of(&self, about: About) -> &Place {
        match about {
            About::Subject(i) => self.subjects.get(i).unwrap_or(&Place::Whole),
            About::Load(i) => self.loads.get(i).unwrap_or(&Place::Whole),
            About::Matrix => &self.matrix,
        }
    }
}

fn experiment(root: &Table, origin: &str, processes: Processes) -> Result<Experiment, Error> {
    let top = top(root)?;
    let whole = Table { place: root.place.clone(), entries: Vec::new() };
    let of_run = one(root, "run")?.unwrap_or_else(|| whole.clone());
    let run = run(&of_run)?;
    let mut matrix = one(root, "matrix")?.unwrap_or_else(|| whole.clone());
    tree::flatten(&mut matrix);
    let varied = |name: &str, key: &str| matrix.entry(&format!("{name}.{key}")).is_some();
    let (subject_tables, load_tables) = (many(root, "subject")?, many(root, "load")?);
    let place = |tables: &[&Table]| tables.iter().map(|table| table.place.clone()).collect();
    let places = Places { subjects: place(&subject_tables), loads: place(&load_tables), matrix: matrix.place.clone() };
    let subjects = all(&subject_tables, |table| subject(table, &matrix))?;
    let loads = all(&load_tables, |table| load(table, &matrix, &varied))?;
    if subjects.is_empty() {
        return Err(Wrong::new("there is no [[subject]]: nothing is measured", "").at(&root.place));
    }
    let names = subjects.iter().map(|s| &s.name).chain(loads.iter().map(|l| &l.name));
    each_once(names.zip(subject_tables.iter().chain(&load_tables)))?;
    let name = match top.text("name", file_name)? {
        Some(name) => name,
        None => file_name(stem(origin)).map_err(|_| {
            Wrong::new(
                "the experiment has no `name`, and its file's name is not a valid one",
                "letters, digits, `-` and `_`",
            )
            .at(&root.place)
        })?,
    };
    let about = top.text("about", |text| Ok(text.to_owned()))?.unwrap_or_default();
    let verify = verify(&one(root, "verify")?.unwrap_or_else(|| whole.clone()))?;
    let mut read = Experiment {
        name,
        variant: None,
        about,
        run,
        subjects,
        loads,
        matrix: Vec::new(),
        verify,
        compare: None,
        repays: Vec::new(),
        largests: Vec::new(),
        asserts: Vec::new(),
    };
    read.matrix = axes(&matrix, &read)?;
    if let Some(table) = one(root, "compare")? {
        read.compare = Some(compare(&table, &read)?);
    }
    for (key, check) in [("baseline", own_baseline as fn(&SubjectSpec, &Experiment) -> _), ("beside", own_loads)] {
        for (table, subject) in subject_tables.iter().zip(&read.subjects) {
            check(subject, &read).map_err(|wrong: Wrong| {
                let place = table.get(key).map_or(&table.place, |node| &node.place);
                Wrong { what: format!("[[subject]] `{}` `{key}`: {}", subject.name, wrong.what), ..wrong }.at(place)
            })?;
        }
    }
    read.repays = all(&many(root, "repay")?, |table| repay(table, &read))?;
    read.largests = all(&many(root, "largest")?, |table| bounds::largest(table, &read))?;
    read.asserts = all(&many(root, "assert")?, |table| bounds::assert(table, &read))?;
    let stages = stages::expand(&read).map_err(|(about, wrong)| wrong.at(places.of(about)))?;
    if of_run.get("repeats").is_none() && processes == Processes::Shared {
        processes::divide(&mut read.run, &stages);
    }
    Ok(read)
}

/// Checks that no two have the same name.
fn each_once<'e>(named: impl Iterator<Item = (&'e String, &'e &'e Table)>) -> Result<(), Error> {
    let mut seen: HashMap<&str, &Place> = HashMap::new();
    for (name, table) in named {
        let written = ["name", "route", "call"].into_iter().find_map(|key| table.get(key));
        let place = written.map_or(&table.place, |node| &node.place);
        if let Some(first) = seen.insert(name, place) {
            let first = if let Place::At { line, .. } = first { format!(" in line {line}") } else { String::new() };
            let what = format!("`{name}` is there already{first}");
            return Err(Wrong::new(what, "give one of them another name: `name = \"..\"`").at(place));
        }
    }
    Ok(())
}

/// The top of the file: its own keys, and known sections.
fn top(root: &Table) -> Result<Keys<'_>, Error> {
    let section = &keys::SECTIONS[0];
    let own = |entry: &&Entry| section.keys.iter().any(|key| key.name == entry.key);
    for entry in root.entries.iter().filter(|entry| !own(entry)) {
        if !keys::SECTIONS.iter().any(|s| s.name == entry.key) {
            let is_table = match &entry.node.value {
                Value::Table(_) => true,
                Value::List(list) => list.iter().any(|node| matches!(node.value, Value::Table(_))),
                _ => false,
            };
            let what = format!("there is no {} `{}`", if is_table { "section" } else { "key" }, entry.key);
            let words = keys::SECTIONS.iter().map(|s| s.name).filter(|name| !name.is_empty());
            let mut wrong = Wrong::word(what, &entry.key, words.chain(section.keys.iter().map(|k| k.name)));
            if let Some(other) = elsewhere(&entry.key, "").filter(|_| !is_table) {
                wrong.what += &format!(" at the top of the file (it belongs in {other})");
            }
            return Err(wrong.at(&entry.place));
        }
    }
    Ok(Keys { section, title: "the file's".into(), table: root })
}

/// The one table `[name]`.
fn one(root: &Table, name: &str) -> Result<Option<Table>, Error> {
    let Some(entry) = root.entry(name) else { return Ok(None) };
    match &entry.node.value {
        Value::Table(table) => Ok(Some(table.clone())),
        Value::List(_) => {
            Err(Wrong::new(format!("there is one [{name}] only"), format!("it is written [{name}]")).at(&entry.place))
        }
        other => Err(Wrong::new(format!("`{name}` is {}", other.kind()), format!("it is written [{name}], a section"))
            .at(&entry.place)),
    }
}

/// All tables `[[name]]`.
fn many<'t>(root: &'t Table, name: &str) -> Result<Vec<&'t Table>, Error> {
    let Some(entry) = root.entry(name) else { return Ok(Vec::new()) };
    let wrong =
        |what: String| Wrong::new(what, format!("it is written [[{name}]], in double brackets")).at(&entry.place);
    match &entry.node.value {
        Value::List(list) => {
            let table = |node: &'t Node| match &node.value {
                Value::Table(table) => Ok(table),
                other => Err(wrong(format!("`{name}` holds {}", other.kind()))),
            };
            list.iter().map(table).collect()
        }
        other => Err(wrong(format!("`{name}` is {}", other.kind()))),
    }
}

/// Reads each of them.
fn all<T>(tables: &[&Table], read: impl Fn(&Table) -> Result<T, Error>) -> Result<Vec<T>, Error> {
    tables.iter().map(|table| read(table)).collect()
}

fn run(table: &Table) -> Result<Run, Error> {
    let keys = Keys::of(&keys::SECTIONS[1], "[run]".into(), table)?;
    let run = Run {
        seed: keys.whole("seed")?.unwrap_or(1),
        rounds: keys.whole("rounds")?.unwrap_or(10) as u32,
        repeats: keys.whole("repeats")?.unwrap_or(1) as u32,
        samples: keys.whole("samples")?,
        duration_ns: keys.text("duration", above_zero)?,
        timeout_ns: keys.text("timeout", above_zero)?.unwrap_or(1_000_000_000),
        noise_ns: keys.text("noise", values::time)?.unwrap_or(200_000_000),
        counters_every: keys.whole("counters-every")?.unwrap_or(0) as u32,
        meter_ns: keys.text("meter", meter)?.unwrap_or(0),
        patience_ns: keys.text("patience", above_zero)?,
        class: keys.text("class", values::class)?.unwrap_or_default(),
        cpus: keys.text("cpus", values::cpus)?.unwrap_or_default(),
        policy: keys.text("policy", values::policy)?.unwrap_or_else(|| "stock".into()),
        gpu: keys.word::<Gpu>("gpu")?.unwrap_or_default(),
        device: keys.text("device", device)?.unwrap_or_default(),
        record: keys.word::<Record>("record")?.unwrap_or_default(),
    };
    if run.samples.is_none() && run.duration_ns.is_none() {
        return Err(keys.wrong("does not say how long", "`duration = \"10s\"` or `samples = 1000`, or both"));
    }
    if run.device == Device::Edu && run.gpu != Gpu::Soft {
        let at = keys.node("device").map_or(&table.place, |node| &node.place);
        let what = "[run] `device = \"edu\"` is emulated and reaches the software GPU alone";
        return Err(Wrong::new(what, "`gpu = \"soft\"`, or `--gpu soft`").at(at));
    }
    if run.counters_every == 1 {
        let at = keys.node("counters-every").map_or(&table.place, |node| &node.place);
        let what = "[run] `counters-every`: with 1 no round is left for samples";
        return Err(Wrong::new(what, "0 for never, or 2 and more").at(at));
    }
    Ok(run)
}

fn device(text: &str) -> Result<Device, Wrong> {
    text.parse().map_err(|what: String| Wrong::new(what, Device::FORMS))
}

/// The GPU's counters are useless over shorter times.
const LEAST_METER_NS: u64 = 100_000_000;

fn meter(text: &str) -> Result<u64, Wrong> {
    match values::time(text)? {
        ns @ 1..LEAST_METER_NS => {
            let what = format!("{} is too short for the GPU's counters", values::time_text(ns));
            Err(Wrong::new(what, "0s for never, or 100ms and more"))
        }
        ns => Ok(ns),
    }
}

fn above_zero(text: &str) -> Result<u64, Wrong> {
    match values::time(text)? {
        0 => Err(Wrong::new("0 is not a time to wait for", "give more than 0")),
        ns => Ok(ns),
    }
}

/// The route or call: exactly one of the keys `route` and `call`, or the first value of an axis.
fn what(keys: &Keys<'_>, matrix: &Table) -> Result<What, Error> {
    let text = |text: &str| match text.trim() {
        "" => Err(Wrong::new("it is empty", "")),
        text if text.chars().any(char::is_control) => Err(Wrong::new(format!("{text:?} has control characters"), "")),
        text => Ok(text.to_owned()),
    };
    match (keys.text("route", text)?, keys.text("call", text)?) {
        (Some(route), None) => Ok(What::Route(route)),
        (None, Some(call)) => Ok(What::Call(call)),
        (Some(_), Some(_)) => Err(keys.wrong("has a `route` and a `call`", "one of them")),
        (None, None) => {
            let name = keys.table.named().unwrap_or_default();
            let first = |key: &str| match &matrix.get(&format!("{name}.{key}"))?.value {
                Value::List(list) => match &list.first()?.value {
                    Value::Text(text) => stages::what(key, text).ok(),
                    _ => None,
                },
                _ => None,
            };
            ["route", "call", "what"]
                .into_iter()
                .find_map(first)
                .ok_or_else(|| keys.wrong("has no `route` and no `call`", "one of them"))
        }
    }
}

/// Names that mean something else in `--set`, in the matrix or in asserts.
const RESERVED: [&str; 13] =
    ["", "*", "bytes", "policy", "run", "matrix", "verify", "compare", "repay", "assert", "name", "loads", "largest"];

fn name(keys: &Keys<'_>, what: &What) -> Result<String, Error> {
    let fits = |text: &str| {
        if RESERVED.contains(&text) || text.trim() != text {
            let allowed = "another name; the route's or the call's text if there is none";
            return Err(Wrong::new(format!("{text:?} means something else"), allowed));
        }
        if text.len() > LONGEST_NAME || text.chars().any(char::is_control) {
            return Err(Wrong::new("the name is too long, or has control characters", format!("{LONGEST_NAME} bytes")));
        }
        Ok(text.to_owned())
    };
    let key = if matches!(what, What::Route(_)) { "route" } else { "call" };
    match keys.text("name", fits)? {
        Some(name) => Ok(name),
        None => {
            let place = keys.node(key).map_or(&keys.table.place, |node| &node.place);
            fits(what.text()).map_err(|wrong| keys.within(key, wrong).at(place))
        }
    }
}

fn subject(table: &Table, matrix: &Table) -> Result<SubjectSpec, Error> {
    let title = table.named().map_or("[[subject]]".into(), |name| format!("[[subject]] `{name}`"));
    let keys = Keys::of(&keys::SECTIONS[2], title, table)?;
    let what = what(&keys, matrix)?;
    let sizes = match keys.node("sizes") {
        None => Vec::new(),
        Some(node) => sizes_of(node).map_err(|(wrong, place)| keys.within("sizes", wrong).at(place))?,
    };
    let name = name(&keys, &what)?;
    let sized = |key: &str| matrix.get(key).is_some();
    if matches!(what, What::Route(_)) && sizes.is_empty() && !sized("bytes") && !sized(&format!("{name}.bytes")) {
        return Err(keys.wrong("has no `sizes`", "`sizes = \"4B..64MiB\"`, or `bytes = [..]` in [matrix]"));
    }
    Ok(SubjectSpec {
        name,
        what,
        sizes,
        back_to_back: keys.whole("back-to-back")?.unwrap_or(1) as u32,
        addresses: keys.text("addresses", values::addresses)?.unwrap_or_default(),
        data: keys.word("data")?.unwrap_or_default(),
        arrival: keys.text("arrival", values::arrival)?.unwrap_or_default(),
        observe: keys.word("observe")?.unwrap_or_default(),
        class: keys.text("class", values::class)?,
        cpus: keys.text("cpus", values::cpus)?,
        deadline_ns: keys.text("deadline", above_zero)?,
        rests: keys.flag("rests")?.unwrap_or(false),
        baseline: keys.text("baseline", |text| Ok(text.to_owned()))?,
        beside: keys.text("beside", |text| Ok(values::sum(text)))?.unwrap_or_default(),
    })
}

fn load(table: &Table, matrix: &Table, varied: &impl Fn(&str, &str) -> bool) -> Result<LoadSpec, Error> {
    let title = table.named().map_or("[[load]]".into(), |name| format!("[[load]] `{name}`"));
    let keys = Keys::of(&keys::SECTIONS[3], title, table)?;
    let what = what(&keys, matrix)?;
    let name = name(&keys, &what)?;
    let bytes = keys.value("bytes", size_of)?.unwrap_or(0);
    if matches!(what, What::Route(_)) && bytes == 0 && !varied(&name, "bytes") {
        return Err(keys.wrong("has no `bytes`", "the size of its transfers: `bytes = \"4KiB\"`"));
    }
    let rate = |value: &Value| match value {
        Value::Whole(n) => values::rate(&n.to_string()),
        Value::Number(n) => values::rate(&n.to_string()),
        Value::Text(text) => values::rate(text),
        other => Err(Wrong::unfit(&other.kind(), "a rate: `1000/s`")),
    };
    Ok(LoadSpec {
        name,
        what,
        bytes,
        count: keys.whole("count")?.unwrap_or(1) as u32,
        rate: keys.value("rate", rate)?,
        cpus: keys.text("cpus", values::cpus)?.unwrap_or_default(),
        class: keys.text("class", values::class)?.unwrap_or_default(),
        check_every: keys.whole("check-every")?.unwrap_or(0),
        must_reach: keys.text("must-reach", values::must_reach)?,
        process: keys.word("process")?.unwrap_or_default(),
    })
}

/// One size.
fn size_of(value: &Value) -> Result<u64, Wrong> {
    match value {
        Value::Whole(n) => match u64::try_from(*n) {
            Ok(bytes) if bytes > 0 => Ok(bytes),
            _ => Err(Wrong::unfit(&format!("{n} bytes"), "a size from 1 byte on: `4KiB`")),
        },
        Value::Text(text) => sizes::one(text).map_err(|e| Wrong::new(e.to_string(), "")),
        other => Err(Wrong::unfit(&other.kind(), "a size: `4KiB`")),
    }
}

/// A text of sizes, or a list of them.
fn sizes_of(node: &Node) -> Result<Vec<u64>, (Wrong, &Place)> {
    let wrong = |wrong| (wrong, &node.place);
    let mut all = match &node.value {
        Value::Text(text) => sizes::parse(text).map_err(|e| wrong(Wrong::new(e.to_string(), "")))?,
        Value::List(list) if list.is_empty() => {
            return Err(wrong(Wrong::new("the list is empty", "give at least one size")));
        }
        Value::List(list) => {
            let mut all = Vec::new();
            for inner in list {
                match &inner.value {
                    Value::List(_) => return Err((Wrong::unfit("a list within the list", "sizes"), &inner.place)),
                    _ => all.extend(sizes_of(inner)?),
                }
            }
            all
        }
        value => vec![size_of(value).map_err(wrong)?],
    };
    all.sort_unstable();
    all.dedup();
    if all.len() > sizes::MOST {
        return Err(wrong(Wrong::new(format!("{} sizes", all.len()), format!("at most {}", sizes::MOST))));
    }
    Ok(all)
}

/// The axes, with each value tried on its target.
fn axes(matrix: &Table, read: &Experiment) -> Result<Vec<Axis>, Error> {
    let mut axes = Vec::new();
    for entry in &matrix.entries {
        let wrong = |wrong: Wrong, place: &Place| {
            Wrong { what: format!("[matrix] `{}`: {}", entry.key, wrong.what), ..wrong }.at(place)
        };
        let mut draft = Draft::of(read);
        draft.knows(&entry.key).map_err(|wrong| wrong.at(&entry.place))?;
        let texts: Vec<(String, &Place)> = match &entry.node.value {
            Value::List(list) => {
                let text = |node| Ok((scalar(node).map_err(|w| wrong(w, &node.place))?, &node.place));
                list.iter().map(text).collect::<Result<_, Error>>()?
            }
            Value::Text(text) if entry.key == "bytes" || entry.key.ends_with(".bytes") => {
                let all = sizes::parse(text).map_err(|e| wrong(Wrong::new(e.to_string(), ""), &entry.node.place))?;
                all.into_iter().map(|bytes| (sizes::text(bytes), &entry.node.place)).collect()
            }
            _ => vec![(scalar(&entry.node).map_err(|w| wrong(w, &entry.node.place))?, &entry.node.place)],
        };
        if texts.is_empty() {
            return Err(wrong(Wrong::new("the list is empty", "give at least one value"), &entry.node.place));
        }
        let mut values: Vec<String> = Vec::new();
        for (text, place) in texts {
            draft.apply(&entry.key, &text).map_err(|w| wrong(w, place))?;
            // Policies are compared by their text, so it is normalized.
            let text = if entry.key == "policy" { values::policy(&text).map_err(|w| wrong(w, place))? } else { text };
            if values.contains(&text) {
                return Err(wrong(Wrong::new(format!("{text:?} is there twice"), "it takes each value once"), place));
            }
            values.push(text);
        }
        axes.push(Axis { name: entry.key.clone(), values });
    }
    for (i, axis) in axes.iter().enumerate() {
        let clash = axes[..i].iter().find(|other| stages::same_target(&axis.name, &other.name));
        if let (Some(other), Some(entry)) = (clash, matrix.entry(&axis.name)) {
            let what = format!("[matrix] `{}` and `{}` change the same", axis.name, other.name);
            return Err(Wrong::new(what, "one of them; `NAME.what` takes routes and calls").at(&entry.place));
        }
    }
    Ok(axes)
}

fn scalar(node: &Node) -> Result<String, Wrong> {
    match &node.value {
        Value::Text(text) => Ok(text.trim().to_owned()),
        Value::Whole(n) => Ok(n.to_string()),
        Value::Number(n) => Ok(n.to_string()),
        other => Err(Wrong::unfit(&other.kind(), "a list of texts or numbers")),
    }
}

fn verify(table: &Table) -> Result<Verify, Error> {
    let keys = Keys::of(&keys::SECTIONS[5], "[verify]".into(), table)?;
    Ok(Verify { every: keys.whole("every")?.unwrap_or(16) })
}

fn compare(table: &Table, read: &Experiment) -> Result<Compare, Error> {
    let keys = Keys::of(&keys::SECTIONS[6], "[compare]".into(), table)?;
    let policies: Vec<&str> = match read.matrix.iter().find(|axis| axis.name == "policy") {
        Some(axis) => axis.values.iter().map(String::as_str).collect(),
        None => Vec::new(),
    };
    let subjects = read.subjects.iter().map(|s| s.name.as_str());
    let known: Vec<&str> = subjects.chain(policies).collect();
    let policy = |text: &str| values::policy(text).ok().filter(|policy| known.contains(&policy.as_str()));
    let there = |text: &str| match known.contains(&text) {
        true => Ok(text.to_owned()),
        false if policy(text).is_some() => values::policy(text),
        false => Err(Wrong::word(format!("{text:?} is no subject and no policy of the matrix"), text, known.clone())),
    };
    let baseline = keys.text("baseline", there)?;
    Ok(Compare {
        baseline: baseline.ok_or_else(|| keys.wrong("has no `baseline`", "the name of a subject, or a policy"))?,
        metric: keys.text("metric", values::metric)?.unwrap_or_default(),
    })
}

/// The names of the subjects.
fn subjects(read: &Experiment) -> Vec<&str> {
    read.subjects.iter().map(|s| s.name.as_str()).collect()
}

/// Checks that a subject's baseline is another subject, or itself.
fn own_baseline(subject: &SubjectSpec, read: &Experiment) -> Result<(), Wrong> {
    let Some(own) = &subject.baseline else { return Ok(()) };
    values::known("subject", own, &subjects(read))?;
    let allowed = "`[compare]` with `baseline`, what all others are compared with";
    let wrong = || Wrong::new("nothing is compared, because there is no [compare]", allowed);
    read.compare.as_ref().map(drop).ok_or_else(wrong)
}

/// Checks that the loads that a subject names exist.
fn own_loads(subject: &SubjectSpec, read: &Experiment) -> Result<(), Wrong> {
    let loads: Vec<&str> = read.loads.iter().map(|load| load.name.as_str()).chain([ALONE]).collect();
    match subject.beside.is_empty() {
        true => Ok(()),
        false => values::known_sum("load", &subject.beside.join(SUM), &loads, &[]).map(drop),
    }
}

fn repay(table: &Table, read: &Experiment) -> Result<Repay, Error> {
    let keys = Keys::of(&keys::SECTIONS[7], "[[repay]]".into(), table)?;
    let names = subjects(read);
    let sum = |key: &str| {
        let found = keys.text(key, |text| values::known_sum("subject", text, &names, &[]))?;
        found.ok_or_else(|| keys.wrong(&format!("has no `{key}`"), "names of subjects: `once = \"pin + unpin\"`"))
    };
    Ok(Repay { once: sum("once")?, each: sum("each")?, against: sum("against")? })
}

/// Without folders and without its extension.
fn stem(origin: &str) -> &str {
    let file = origin.rsplit(['/', '\\']).next().unwrap_or(origin);
    file.strip_suffix(".toml").unwrap_or(file)
}

pub(crate) fn file_name(text: &str) -> Result<String, Wrong> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match !text.is_empty() && text.len() <= 100 && text.chars().all(fits) {
        true => Ok(text.into()),
        false => Err(Wrong::unfit(&format!("{text:?}"), "letters, digits, `-` and `_`, at most 100")),
    }
}
