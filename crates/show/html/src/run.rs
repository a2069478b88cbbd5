//! The pages of one run. Each section is a separate module.

mod answer;
mod beside;
pub mod groups;
pub mod over_time;
mod rates;
mod routes;
pub mod spread;
mod surroundings;
mod worst;

use crate::document::{Article, Kind, Notice};
use crate::{Error, view};
use run_folder::run::{Coordinate, Figures, StageOfRun};
use run_folder::{Folder, Run, Status};
use terminal::number::{of, seconds};

pub use answer::sized;

/// A run, and what every section of it needs.
pub struct Of<'a> {
    pub run: &'a Run,
    pub folder: Option<&'a Folder>,
    /// A prefix for the ids and names of this run's parts.
    pub id: String,
    /// The machine of the measurement, and the version of doorbell.
    pub below: [String; 2],
}

impl Of<'_> {
    fn id(&self, section: &str) -> String {
        if self.id.is_empty() { section.into() } else { format!("{}-{section}", self.id) }
    }

    fn below(&self) -> [&str; 2] {
        [&self.below[0], &self.below[1]]
    }
}

/// `id` is empty if it is the only one.
pub fn article(name: &str, run: &Run, folder: Option<&Folder>, id: &str) -> Result<Article, Error> {
    let version = run.version();
    let of_run =
        Of { run, folder, id: id.into(), below: [run.machine(), format!("{}: {version}", run.experiment.title())] };
    let samples: u64 = run.cells.iter().map(|c| c.samples).sum();
    let took = format!(
        "{} in {} of {}, {}",
        of(samples, "sample"),
        of(run.cells.len() as u64, "cell"),
        of(run.stages.len() as u64, "stage"),
        seconds(run.stages.iter().map(|s| s.seconds).sum())
    );
    let mut article = Article {
        id: if id.is_empty() { "run".into() } else { id.into() },
        title: if id.is_empty() { run.experiment.title() } else { name.into() },
        about: run.experiment.about.clone(),
        taken: vec![run.machine(), version, took],
        notices: notices(run),
        sections: Vec::new(),
    };
    let mut sections = vec![Some(answer::section(&of_run))];
    if !run.functional {
        sections.push(routes::section(&of_run));
        sections.push(beside::section(&of_run));
        sections.push(rates::section(&of_run));
        sections.push(spread::section(&of_run)?);
        sections.push(over_time::section(&of_run));
        sections.push(worst::section(&of_run));
    }
    // What a failed cell measured is no figure.
    let mut valid = run.clone();
    for cell in valid.cells.iter_mut().filter(|c| c.status != Status::Measured) {
        cell.figures = Figures::default();
        cell.worst.clear();
    }
    let figures =
        view::section(&of_run.id("cells"), "All cells", |out, style| terminal::run::body(out, &style, &valid));
    sections.push(Some(figures));
    sections.push(surroundings::section(&of_run));
    article.sections = sections.into_iter().flatten().collect();
    Ok(article)
}

/// What a reader must see before any figure.
pub fn notices(run: &Run) -> Vec<Notice> {
    let mut all = answer::broken(run);
    if run.functional {
        let text = "This run used the software GPU. It shows what works, never how fast: times and rates are left out.";
        all.push(Notice { kind: Kind::Warning, text: text.into() });
    }
    if !run.complete {
        let parts = (run.missing.len() + run.parts.len()) as u64;
        let text = format!("This run is not complete: {} of {} are missing.", run.missing.len(), of(parts, "part"));
        all.push(Notice { kind: Kind::Bad, text });
    }
    let failed = run.cells.iter().filter(|c| matches!(c.status, Status::Failed(_))).count() as u64;
    for part in &run.parts {
        let why = part.recorded.iter().flat_map(|r| r.not_joined.iter().chain(&r.incomplete_because));
        let text = |why| format!("Recording of stage {}, repeat {}: {why}", part.stage, part.repeat);
        all.extend(why.map(|why| Notice { kind: Kind::Warning, text: text(why) }));
    }
    if failed > 0 {
        all.push(Notice {
            kind: Kind::Bad,
            text: format!("{} failed. The reasons are listed below.", of(failed, "cell")),
        });
    }
    all
}

/// A suffix for the name of a cell: `, crowd.count = 64`, of the axes with more than one value, without the size.
fn place(run: &Run, stage: u32) -> String {
    let varies = |c: &&Coordinate| {
        let of = |s: &StageOfRun| s.point.iter().find(|o| o.name == c.name).map(|o| o.value.clone());
        c.name != "bytes" && run.stages.iter().any(|s| of(s).as_ref() != Some(&c.value))
    };
    let stage = run.stages.iter().find(|s| s.number == stage);
    stage.into_iter().flat_map(|s| &s.point).filter(varies).map(|c| format!(", {c}")).collect()
}
