//! Pictures as SVG. For a run, they are files in its folder `plots`: latency against size, many routes with a name at each line's end, the
//! distribution with its tail, a histogram, every sample over time. Also [`series`] of numbers, as files or as parts of a
//! page.
//!
//! The invariant: a picture can be read without colour. Series also differ in dashes and markers, axes have units, the head names the machine and
//! the commit, and no picture of the software GPU can be mistaken for times. The SVG is written by hand: a picture is a few hundred lines, and no
//! library draws an axis of nines.

mod axis;
mod chart;
mod colours;
mod of_cells;
mod pictures;
pub mod ranked;
pub mod rounds;
mod routes;
pub mod series;
mod shape;
mod svg;
pub mod waits;

pub use axis::Axis;
pub use chart::{Drawing, Entry, Frame, swatch};
pub use of_cells::{Distributions, distributions, parts_below};

use chart::Head;
use experiment::Metric;
use pictures::Drawn;
use run_folder::run::groups::{self, Group};
use run_folder::run::{BestAt, CellOfRun, Coordinate};
use run_folder::{Folder, Run};
use shape::Shape;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Results(#[from] run_folder::Error),
    #[error("{path}: cannot be written: {cause}")]
    Write { path: PathBuf, cause: io::Error },
}

type Draw = fn(&Head<'_>, &[Drawn<'_>]) -> Drawing;

/// Draws all possible pictures, and returns the files.
///
/// # Errors
/// Samples cannot be read, or a file cannot be written. Files that were written are complete.
pub fn all(folder: &Folder, run: &Run) -> Result<Vec<PathBuf>, Error> {
    let mut files = against_size(folder.path(), run)?;
    let (plots, about) = (folder.path().join("plots"), About::of(run));
    for stage in &run.stages {
        let mut sizes: Vec<u64> = run.cells_of(stage.number).map(|c| c.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let mut repeats = Vec::new();
        for part in run.parts.iter().filter(|p| p.stage == stage.number) {
            repeats.push(folder.open_samples(part.stage, part.repeat)?);
        }
        let Some(of_folder) = folder.stages().get(stage.number as usize) else { continue };
        for size in sizes.iter().copied() {
            let mut cells: Vec<Drawn<'_>> = Vec::new();
            for cell in run.cells_of(stage.number).filter(|c| c.bytes == size && c.observed().is_some()) {
                cells.push((cell, Shape::of(of_folder, cell.cell as usize, &repeats)?));
            }
            if cells.is_empty() {
                continue;
            }
            let name = match sizes.len() {
                1 => format!("{:04}", stage.number),
                _ => format!("{:04}-{size}", stage.number),
            };
            let mut place = point(&stage.point);
            if size > 0 {
                place.push(numbers::tick::bytes(size));
            }
            let pictures: [(&str, &str, &str, Draw); 3] = [
                (
                    "cdf",
                    "distribution",
                    "the part of the samples below each time; tails are stretched",
                    pictures::distribution,
                ),
                (
                    "histogram",
                    "histogram",
                    "how many samples took how long, both by their logarithm",
                    pictures::histogram,
                ),
                ("timeline", "every sample over time", "the least and the largest of each column", pictures::time_line),
            ];
            for (kind, title, what, draw) in pictures {
                let svg = draw(&about.head(title, &place, what), &cells);
                files.push(write(&plots, &format!("{name}-{kind}.svg"), &svg.svg)?);
            }
        }
    }
    Ok(files)
}

/// With more subjects a legend is no help.
const MOST_IN_A_LEGEND: usize = 12;

/// A run from elsewhere may hold any text.
fn in_a_name(memory: &str) -> String {
    memory.chars().filter(char::is_ascii_alphanumeric).collect()
}

/// The subjects that are the best at some size by p50, those of the most sizes first, followed by CUDA's best forms.
fn strong<'r>(run: &'r Run, cells: &[&CellOfRun]) -> Vec<&'r str> {
    let mut counted: Vec<(&str, usize, bool)> = Vec::new();
    let mut count = |name: &'r str, cuda: bool| match counted.iter_mut().find(|(known, ..)| *known == name) {
        Some((_, n, _)) => *n += 1,
        None => counted.push((name, 1, cuda)),
    };
    let stages: Vec<u32> = cells.iter().map(|c| c.stage).collect();
    let p50 = run.best.iter().filter(|b| b.metric == Metric::P50).flat_map(|b| &b.sizes);
    let here: Vec<&BestAt> = p50.filter(|at| stages.contains(&at.stage)).collect();
    here.iter().for_each(|at| count(&at.subject, false));
    here.iter().filter_map(|at| at.cuda.as_ref()).for_each(|cuda| count(&cuda.subject, true));
    counted.sort_by_key(|(_, n, cuda)| (*cuda, std::cmp::Reverse(*n)));
    let is_here = |name: &&str| cells.iter().any(|c| c.subject == *name);
    counted.into_iter().map(|(name, ..)| name).filter(is_here).collect()
}

/// The pictures against size, which need no samples, in the folder `plots` of this one.
///
/// # Errors
/// A file cannot be written.
pub fn against_size(folder: &Path, run: &Run) -> Result<Vec<PathBuf>, Error> {
    let plots = folder.join("plots");
    match std::fs::create_dir(&plots) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => return Err(Error::Write { path: plots, cause }),
        _ => {}
    }
    let about = About::of(run);
    let mut files = Vec::new();
    for Group { point, stages, cells } in run.groups() {
        let point: Vec<String> = point.into_iter().map(ToString::to_string).collect();
        let head =
            about.head("latency against size", &point, "p50 of each subject against size, with a band up to p99.9");
        let directions = groups::routes(&cells);
        // Each direction has a separate picture, with the names at the ends of the lines.
        let is_crowded = groups::subjects(&cells).len() > MOST_IN_A_LEGEND && !directions.is_empty();
        if let Some(svg) = pictures::latency(&head, &cells).filter(|_| !is_crowded) {
            files.push(write(&plots, &format!("{:04}-latency.svg", stages[0]), &svg)?);
        }
        for ((from, to), cells) in directions {
            let strong = strong(run, &cells);
            for what in routes::Against::ALL {
                let title = format!("{}, {from} to {to}", what.title());
                let head = about.head(&title, &point, what.about());
                if let Some(svg) = routes::picture(&head, &cells, &run.best, &strong, what) {
                    let (from, to) = (in_a_name(from), in_a_name(to));
                    let name = format!("{:04}-{from}-to-{to}{}.svg", stages[0], what.ending());
                    files.push(write(&plots, &name, &svg)?);
                }
            }
        }
    }
    Ok(files)
}

fn write(folder: &Path, name: &str, svg: &str) -> Result<PathBuf, Error> {
    let path = folder.join(name);
    let written: io::Result<()> = output::replace(&path, |file| file.write_all(svg.as_bytes()));
    match written {
        Ok(()) => Ok(path),
        Err(cause) => Err(Error::Write { path, cause }),
    }
}

/// A place in the matrix, without the size, which is written elsewhere.
fn point(point: &[Coordinate]) -> Vec<String> {
    point.iter().filter(|c| c.name != "bytes").map(ToString::to_string).collect()
}

/// The texts above every picture of a run.
struct About {
    name: String,
    machine: String,
    version: String,
    functional: bool,
}

impl About {
    fn of(run: &Run) -> About {
        let commit = run.short_commit().map_or(String::new(), |c| format!(" ({c})"));
        let short = if run.complete { "" } else { "; the run is not complete" };
        About {
            name: run.experiment.title(),
            machine: run.machine(),
            version: format!("doorbell {}{commit}, {}{short}", run.doorbell, run.started),
            functional: run.functional,
        }
    }

    fn head(&self, title: &str, place: &[String], what: &str) -> Head<'_> {
        let place = if place.is_empty() { String::new() } else { format!(", {}", place.join(", ")) };
        let title = format!("{}: {title}{place}", self.name);
        let mark = if self.functional { " Functional: no times." } else { "" };
        Head {
            about: format!("{what}. {}; {}.{mark}", self.machine, self.version),
            title,
            below: [&self.machine, &self.version],
            functional: self.functional,
            frame: Frame::FILE,
        }
    }
}
