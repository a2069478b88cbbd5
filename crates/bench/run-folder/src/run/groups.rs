//! Stages that differ only in their size, and cells by direction, size and subject: the order in which tables and pictures show them.

use super::{CellOfRun, Coordinate, Ends, Run, StageOfRun};
use std::fmt;

/// Stages that differ only in their size.
pub struct Group<'a> {
    /// Without the size.
    pub point: Vec<&'a Coordinate>,
    pub stages: Vec<u32>,
    /// By stage, then in the order of the experiment.
    pub cells: Vec<&'a CellOfRun>,
}

/// Items with the same key together, in the order of the first of each.
pub(crate) fn grouped<T, K: PartialEq>(items: impl IntoIterator<Item = T>, key: impl Fn(&T) -> K) -> Vec<(K, Vec<T>)> {
    let mut all: Vec<(K, Vec<T>)> = Vec::new();
    for item in items {
        let key = key(&item);
        match all.iter_mut().find(|(known, _)| *known == key) {
            Some((_, of)) => of.push(item),
            None => all.push((key, vec![item])),
        }
    }
    all
}

/// From where to where, and the cells.
pub type OfDirection<'a> = (Option<(&'a str, &'a str)>, Vec<&'a CellOfRun>);

impl Run {
    /// In the order of the first stages.
    pub fn groups(&self) -> Vec<Group<'_>> {
        let groups = grouped(&self.stages, |stage| stage.point.iter().filter(|c| c.name != "bytes").collect());
        let group = |(point, stages): (_, Vec<&StageOfRun>)| Group {
            point,
            stages: stages.iter().map(|stage| stage.number).collect(),
            cells: stages.iter().flat_map(|stage| self.cells_of(stage.number)).collect(),
        };
        groups.into_iter().map(group).collect()
    }

    /// The label of a subject whose memories are already named.
    pub fn label(&self, stage: u32, subject: &str) -> String {
        let cell = self.cells_of(stage).find(|c| c.subject == subject);
        let own = cell.filter(|c| c.what.text() == subject).and_then(|c| Ends::of(&c.what));
        own.map_or_else(|| subject.to_owned(), |ends| ends.executor.to_owned())
    }
}

impl Group<'_> {
    /// `copying.count = 64, policy = stock`; empty if the matrix has one place.
    pub fn place(&self) -> String {
        place(self.point.iter().copied())
    }

    /// A suffix for a title.
    pub fn behind(&self) -> String {
        let place = self.place();
        if place.is_empty() { place } else { format!(", {place}") }
    }
}

/// `copying.count = 64`
impl fmt::Display for Coordinate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.name, self.value)
    }
}

/// A place of the matrix in words.
pub fn place<'c>(point: impl IntoIterator<Item = &'c Coordinate>) -> String {
    point.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Each size once.
pub fn sizes(cells: &[&CellOfRun]) -> Vec<u64> {
    let mut sizes: Vec<u64> = cells.iter().map(|c| c.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Cells by the memories between which they move bytes; calls that move none are a separate kind.
pub fn directions<'a>(cells: &[&'a CellOfRun]) -> Vec<OfDirection<'a>> {
    grouped(cells.iter().copied(), |cell| Ends::of(&cell.what).map(|ends| ends.direction()))
}

/// Routes with figures, by the memories between which they move bytes.
pub fn routes<'a>(cells: &[&'a CellOfRun]) -> Vec<((&'a str, &'a str), Vec<&'a CellOfRun>)> {
    let is_one = |c: &&CellOfRun| c.bytes > 0 && c.back_to_back == 1 && c.observed().is_some();
    let cells: Vec<&CellOfRun> = cells.iter().copied().filter(is_one).collect();
    directions(&cells).into_iter().filter_map(|(direction, cells)| Some((direction?, cells))).collect()
}

/// Each subject once, in the order of the experiment, with its cells by size.
pub fn subjects<'a>(cells: &[&'a CellOfRun]) -> Vec<Vec<&'a CellOfRun>> {
    let mut all: Vec<_> = grouped(cells.iter().copied(), |cell| &cell.subject).into_iter().map(|(_, of)| of).collect();
    all.iter_mut().for_each(|of| of.sort_by_key(|c| c.bytes));
    // A route that lacks the smallest size is not last because of that.
    all.sort_by_key(|of| of[0].cell);
    all
}
