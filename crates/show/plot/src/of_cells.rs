//! The distribution of some cells of one stage, from their samples: for a page, and as files.

use crate::pictures::{self, Drawn};
use crate::shape::Shape;
use crate::{About, Drawing, Error, Frame, chart, point};
use run_folder::run::CellOfRun;
use run_folder::{Folder, Run};

/// Each picture for a page, and as a file.
#[derive(Clone, Debug, Default)]
pub struct Distributions {
    /// The part of the samples below each time.
    pub cdf: [Drawing; 2],
    /// How many samples took how long.
    pub histogram: [Drawing; 2],
    /// For each cell: lower and upper bound in ns, and the number of samples between.
    pub buckets: Vec<Vec<(f64, f64, u64)>>,
}

/// For one cell: nanoseconds, and the fraction of its samples that took less. Empty without samples.
///
/// # Errors
/// Samples cannot be read.
pub fn parts_below(folder: &Folder, run: &Run, cell: &CellOfRun) -> Result<Vec<(f64, f64)>, Error> {
    let Some(stage) = folder.stages().get(cell.stage as usize) else { return Ok(Vec::new()) };
    let parts = run.parts.iter().filter(|p| p.stage == cell.stage);
    let repeats = parts.map(|p| folder.open_samples(p.stage, p.repeat)).collect::<Result<Vec<_>, _>>()?;
    Ok(Shape::of(stage, cell.cell as usize, &repeats)?.distribution)
}

/// For cells of one size in one stage. `None` without samples.
///
/// # Errors
/// Samples cannot be read.
pub fn distributions(folder: &Folder, run: &Run, cells: &[&CellOfRun]) -> Result<Option<Distributions>, Error> {
    let Some(first) = cells.first() else { return Ok(None) };
    let Some(stage) = folder.stages().get(first.stage as usize) else { return Ok(None) };
    let mut repeats = Vec::new();
    for part in run.parts.iter().filter(|p| p.stage == first.stage) {
        repeats.push(folder.open_samples(part.stage, part.repeat)?);
    }
    let mut drawn: Vec<Drawn<'_>> = Vec::new();
    for cell in cells {
        let shape = Shape::of(stage, cell.cell as usize, &repeats)?;
        if shape.samples > 0 {
            drawn.push((cell, shape));
        }
    }
    if drawn.is_empty() {
        return Ok(None);
    }
    let about = About::of(run);
    let mut place = point(&first.point);
    if first.bytes > 0 {
        place.push(numbers::tick::bytes(first.bytes));
    }
    let head = |title: &str, what: &str, frame: Frame| {
        let mut head = about.head(title, &place, what);
        head.frame = frame;
        head
    };
    let below = "the part of the samples below each time; tails are stretched";
    let many = "how many samples took how long, both by their logarithm";
    Ok(Some(Distributions {
        cdf: chart::drawn(|frame| pictures::distribution(&head("distribution", below, frame), &drawn)),
        histogram: chart::drawn(|frame| pictures::histogram(&head("histogram", many, frame), &drawn)),
        buckets: drawn.into_iter().map(|(_, shape)| shape.buckets).collect(),
    }))
}
