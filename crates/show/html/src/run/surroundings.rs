//! The machine of the figures.

use super::Of;
use crate::document::{Block, Kind, Notice, Section, Table, head, text};
use crate::numbers::ns;
use environment::Environment;
use environment::names;

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
