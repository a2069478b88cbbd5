//! How full the link was: the stacked bars of payload and wire bytes, with their tables.

mod bars;
mod tables;

use crate::document::{Article, Block, Document, Kind, Notice, Section};
use ::saturate::account::{Saturated, Status, Total};
use terminal::number::{count, of};
use terminal::saturate::{interval, name, rate};

pub fn document(run: &Saturated) -> Document {
    let machine = machine(run);
    let commit = run.commit.as_deref().map_or(String::new(), |c| format!(" ({})", c.get(..12).unwrap_or(c)));
    let version = format!("doorbell {}{commit}, {}", run.doorbell, run.started);
    let mut sections = vec![answer(run)];
    if !run.functional {
        sections.extend(bars::section(run, [&machine, &version]));
    }
    sections.extend(tables::sections(run));
    let article = Article {
        id: "saturate".into(),
        title: run.plan.name.clone(),
        about: run.plan.about.clone(),
        taken: vec![machine, version, run.source.clone()],
        notices: notices(run),
        sections,
    };
    Document { title: format!("{}, {}", run.plan.name, run.started), by: crate::by(), articles: vec![article] }
}

/// The machine, as in a run.
fn machine(run: &Saturated) -> String {
    let fact = |name: &str| Some(run.environment.get("facts")?.get(name)?.as_str()?.to_owned());
    let all: Vec<String> =
        ["host.name", "gpu.name", "gpu.driver", "cpu.model", "kernel.release"].into_iter().filter_map(fact).collect();
    if all.is_empty() { "machine unknown".into() } else { all.join(", ") }
}

fn is_wrong(total: &Total) -> bool {
    total.checked.wrong > 0 || total.refused > 0 || matches!(total.status, Status::Failed(_))
}

fn notices(run: &Saturated) -> Vec<Notice> {
    let mut all = Vec::new();
    let mut say = |kind: Kind, text: String| all.push(Notice { kind, text });
    if run.functional {
        let text = "Functional: the software GPU or an emulated device shows what works, never how fast. Rates and times are left out.";
        say(Kind::Warning, text.into());
    }
    if !run.complete {
        say(Kind::Warning, "This run is not complete.".into());
    }
    let wrong = run.cells.iter().filter(|total| is_wrong(total)).count() as u64;
    match wrong {
        0 => say(Kind::Good, "Every byte that was compared was right.".into()),
        _ => say(Kind::Bad, format!("{} failed or had a wrong byte: they have no figures.", of(wrong, "cell"))),
    }
    all
}

fn answer(run: &Saturated) -> Section {
    let mut section = Section::new("answer", "Answer");
    let sum = |of: fn(&Total) -> u64| run.cells.iter().map(of).sum::<u64>();
    section.push(Block::Answer(format!(
        "{} in {}; {} compared, {} wrong.",
        of(sum(|total| total.submitted), "I/O"),
        of(run.cells.len() as u64, "cell"),
        of(sum(|total| total.checked.blocks), "block"),
        count(sum(|total| total.checked.wrong))
    )));
    let payload = |total: &Total| total.figures.as_ref().map(|figures| figures.payload.median);
    let ios = run.cells.iter().filter(|total| !total.is_peak());
    let best = ios.filter_map(|total| Some((total, payload(total)?))).max_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((total, _)) = best
        && let Some(figures) = &total.figures
    {
        let mut text = format!("The fullest: {}: {} GB/s of payload", name(total), interval(&figures.payload, rate));
        if let Some(wire) = &figures.wire {
            text += &format!(", {} GB/s on the wire", rate(wire.along.median));
        }
        if let Some(link) = &run.link {
            text += &format!(" of {} GB/s", rate(link.line_rate));
        }
        if let Some(peak) = run.peak(total.cell.target) {
            text += &format!("; a plain copy makes {} GB/s in that direction", rate(peak.median));
        }
        section.push(Block::Answer(text + "."));
    }
    for knee in run.knees.iter().filter_map(|knee| knee.knee) {
        section.push(Block::Answer(format!(
            "{} and {} fill the link: {} GB/s, within {} % of the best.",
            of(knee.threads.into(), "thread"),
            of(knee.devices.into(), "device"),
            rate(knee.rate),
            100.0 * knee.within
        )));
    }
    section
}
