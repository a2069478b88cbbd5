//! The pages of a soak: figures over the periods, and what drifted, leaked or failed.

mod curves;
mod tables;

use crate::document::{Article, Block, Document, Kind, Notice, Section};
use run_folder::run::Run;
use run_folder::soak::Soak;
use terminal::number::seconds;

pub fn document(soak: &Soak) -> Document {
    let name = soak.experiment.title();
    let commit = soak.commit.as_deref().map_or(String::new(), |c| format!(" ({})", c.get(..12).unwrap_or(c)));
    let version = format!("doorbell {}{commit}, {}", soak.doorbell, soak.started);
    let machine = machine(soak);
    let has_times = !soak.functional && !soak.simulated_clock;
    let mut sections = vec![answer(soak)];
    if has_times {
        sections.extend(curves::section(soak, [&machine, &version]));
    }
    sections.extend(tables::sections(soak, has_times));
    let article = Article {
        id: "soak".into(),
        title: format!("{name}: {}", soak.verdict.headline),
        about: soak.experiment.about.clone(),
        taken: vec![
            machine,
            version,
            format!(
                "{} of periods, {} asked for, a period is {}",
                seconds(soak.done_s),
                seconds(soak.asked_s),
                seconds(soak.every_s)
            ),
        ],
        notices: notices(soak),
        sections,
    };
    Document { title: format!("Soak of {name}, {}", soak.started), by: crate::by(), articles: vec![article] }
}

/// The machine, as in a run.
fn machine(soak: &Soak) -> String {
    let fact = |name: &str| Some(soak.environment.get("facts")?.get(name)?.as_str()?.to_owned());
    let all: Vec<String> =
        ["host.name", "gpu.name", "gpu.driver", "cpu.model", "kernel.release"].into_iter().filter_map(fact).collect();
    if all.is_empty() { "machine unknown".into() } else { all.join(", ") }
}

fn notices(soak: &Soak) -> Vec<Notice> {
    let mut all = Vec::new();
    let mut say = |kind: Kind, text: String| all.push(Notice { kind, text });
    if soak.functional || Run::is_functional(&soak.experiment) {
        say(
            Kind::Warning,
            "This soak used the software GPU. It shows what works, never how fast: times and rates are left out."
                .into(),
        );
    }
    if soak.simulated_clock {
        say(Kind::Warning, "Its clock did not run as time does: nothing in it is a measurement.".into());
    }
    if !soak.complete {
        let why = soak.stopped_because.as_deref().unwrap_or("it still runs, or was killed");
        say(Kind::Warning, format!("It measured {} of {}: {why}.", seconds(soak.done_s), seconds(soak.asked_s)));
    }
    let kind = if soak.verdict.held { Kind::Good } else { Kind::Bad };
    say(kind, soak.verdict.text.clone());
    all
}

fn answer(soak: &Soak) -> Section {
    let mut section = Section::new("answer", "Answer");
    let count: u64 = soak.cells.iter().map(|c| c.count).sum();
    let (checked, wrong, lost) =
        soak.cells.iter().fold((0, 0, 0), |(c, w, l), cell| (c + cell.checked, w + cell.wrong, l + cell.lost));
    let of = terminal::number::of;
    section.push(Block::Answer(format!(
        "{}: {} in {}; {} compared, {} wrong, {} lost.",
        soak.verdict.headline,
        of(count, "transfer"),
        of(soak.periods.len() as u64, "period"),
        terminal::number::count(checked),
        terminal::number::count(wrong),
        terminal::number::count(lost)
    )));
    let drifted = soak.drift.iter().filter(|d| d.drifted).count() as u64;
    let leaking = soak.leaks.iter().filter(|l| l.leaking).count() as u64;
    section.push(Block::Answer(format!(
        "{}; {} drifted from the first to the last third; {} leaked; {} without measuring.",
        of(soak.faults.len() as u64, "fault"),
        of(drifted, "figure"),
        of(leaking, "thing"),
        of(soak.gaps.len() as u64, "gap"),
    )));
    section
}
