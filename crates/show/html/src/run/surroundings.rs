//! The machine and the loads of the figures, and what is missing.

use super::{Of, why_not};
use crate::document::{Block, Cell, Kind, Mark, Notice, Section, Table, head, number, text};
use crate::numbers::{count, ns, ns_or_none, times, times_or_none};
use environment::Environment;
use environment::names;
use run_folder::run::place;
use std::collections::BTreeMap;
use terminal::number::{bytes, of};

/// What each load reached, stage by stage.
pub fn loads(of_run: &Of<'_>) -> Option<Section> {
    let run = of_run.run;
    let columns = vec![
        head("load"),
        text("where"),
        text("what"),
        number("threads", ""),
        number("transfers", ""),
        number("a second", ""),
        number("GB/s", "GB/s"),
        number("longest", "ns"),
        number("CPUs", ""),
        text("trouble"),
    ];
    let mut table = Table::new(of_run.id("loads"), "What the loads did", columns);
    for stage in &run.stages {
        for load in &stage.loads {
            let rate = |v: f64| Some(v / load.seconds).filter(|_| load.seconds > 0.0 && !run.functional);
            let mut trouble: Vec<String> =
                load.failed.iter().map(|(why, n)| format!("{} failed: {why}", of((*n).into(), "thread"))).collect();
            trouble.extend(load.unavailable.iter().map(|why| format!("measured without it: {why}")));
            trouble.extend(load.missed.iter().map(|missed| format!("missed its rate: {missed}")));
            let trouble = Cell::text(trouble.join("; "));
            table.row(vec![
                load.name.as_str().into(),
                place(&stage.point).into(),
                load.what.as_str().into(),
                count(load.threads.into()),
                count(load.transfers),
                rate(load.transfers as f64).map_or_else(Cell::none, |v| count(v.round() as u64)),
                times_or_none(rate(load.bytes as f64 / 1e9).filter(|_| load.bytes > 0)),
                ns_or_none(Some(load.longest_ns).filter(|v| *v > 0 && !run.functional)),
                if run.functional { Cell::none() } else { times(load.on_cpu) },
                if trouble.is_nothing() { trouble } else { trouble.marked(Mark::Bad) },
            ]);
        }
    }
    if table.rows.is_empty() {
        return None;
    }
    let table = table.without_empty().folded_above(16);
    Some(Section::new(&of_run.id("loads"), "Loads").with(Block::Table(table)))
}

/// Parts that are missing, and cells without a valid figure.
pub fn missing(of_run: &Of<'_>) -> Option<Section> {
    let run = of_run.run;
    let mut section = Section::new(&of_run.id("missing"), "Missing, failed and not available");
    if !run.missing.is_empty() {
        let columns = vec![head("stage"), text("where"), number("repeat", ""), text("why")];
        let mut table = Table::new(of_run.id("parts-missing"), "Parts that are missing", columns);
        for m in &run.missing {
            let place = run.stages.iter().find(|s| s.number == m.stage).map_or(String::new(), |s| place(&s.point));
            let row = vec![m.stage.to_string().into(), place.into(), count(m.repeat.into()), m.why.as_str().into()];
            table.row(row);
        }
        section.push(Block::Table(table.without_empty().folded_above(16)));
    }
    let mut order = Vec::new();
    let mut sizes: BTreeMap<(&str, &str, &str), (Vec<u64>, u64)> = BTreeMap::new();
    for cell in &run.cells {
        let Some((word, why)) = why_not(&cell.status) else { continue };
        let key = (word, cell.subject.as_str(), why);
        if !sizes.contains_key(&key) {
            order.push(key);
        }
        let (of, cells) = sizes.entry(key).or_default();
        *cells += 1;
        if !of.contains(&cell.bytes) {
            of.push(cell.bytes);
        }
    }
    if !order.is_empty() {
        let columns = vec![head("what"), text("status"), text("sizes"), number("cells", ""), text("why")];
        let mut table = Table::new(of_run.id("cells-missing"), "Cells without figures", columns);
        for key in order {
            let (of, cells) = &sizes[&key];
            let at = match of.as_slice() {
                [] | [0] => "-".into(),
                [one] => bytes(*one),
                [first, .., last] => format!("{} from {} to {}", of.len(), bytes(*first), bytes(*last)),
            };
            let word = Cell::text(key.0).marked(if key.0 == "not available" { Mark::None } else { Mark::Bad });
            table.row(vec![key.1.into(), word, at.into(), count(*cells), key.2.into()]);
        }
        section.push(Block::Table(table.without_empty()));
    }
    section.some()
}

pub fn section(of_run: &Of<'_>) -> Option<Section> {
    let run = of_run.run;
    let mut section = Section::new(&of_run.id("environment"), "Environment and warnings");
    let kind = if run.functional { Kind::Note } else { Kind::Warning };
    run.warnings.iter().for_each(|w| section.push(Block::Notice(Notice { kind, text: w.clone() })));
    let floor = run.stages.iter().filter_map(|s| s.noise_floor_ns).max().filter(|_| !run.functional);
    let mut facts = Vec::new();
    facts.extend(floor.map(|v| {
        (
            "Noise floor".into(),
            format!("{}, the longest time that a thread which never sleeps was kept off its CPU", ns(v).text),
        )
    }));
    let pressure = run.pressure().map_or("unknown".into(), |part| {
        format!("{:.0} %, the part of the measured time in which a runnable thread had no CPU", 100.0 * part)
    });
    facts.extend((!run.functional).then(|| ("CPU pressure".into(), pressure)));
    let command = run.command.join(" ");
    if !command.is_empty() {
        facts.push(("Command".into(), command));
    }
    facts.push(("Began, ended".into(), format!("{}, {}", run.started, run.ended)));
    section.push(Block::Facts(facts));
    let environment: Environment = serde_json::from_value(run.environment.clone()).unwrap_or_default();
    section.push(Block::Table(facts_of(of_run, &environment)));
    let mut notes: Vec<String> = environment.notes.clone();
    for note in run.parts.iter().flat_map(|p| &p.notes) {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
    if !notes.is_empty() {
        section.push(Block::Heading("Notes".into()));
        section.push(Block::List(notes));
    }
    section.some()
}

/// All facts, in the order in which they are described.
fn facts_of(of_run: &Of<'_>, environment: &Environment) -> Table {
    let columns = vec![head("fact"), text("value"), text("what it is")];
    let mut table = Table::new(of_run.id("environment"), "What the figures were taken on", columns);
    let mut names: Vec<&str> = names::ALL.iter().map(|f| f.name).collect();
    let more = environment.facts.keys().chain(environment.unknown.keys()).map(String::as_str);
    let more: Vec<&str> = more.filter(|name| !names.contains(name)).collect();
    names.extend(more);
    for name in names {
        let value = match (environment.facts.get(name), environment.unknown.get(name)) {
            (Some(value), _) => {
                let json = serde_json::to_value(value).unwrap_or_default();
                json.as_str().map_or_else(|| json.to_string(), str::to_owned)
            }
            (None, Some(why)) => format!("not known: {why}"),
            (None, None) => continue,
        };
        let value = if value.is_empty() || value == "[]" { "none".into() } else { value };
        table.row(vec![name.into(), value.into(), names::of(name).map_or("", |f| f.about).into()]);
    }
    table.folded()
}
