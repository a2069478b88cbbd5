//! Stages that differ only in their size, and what stands above their pictures.

use results::Run;
use results::run::{CellOfRun, Coordinate, Ends};

pub struct Group<'a> {
    /// Without the size.
    pub point: Vec<&'a Coordinate>,
    /// By stage and then in the order of the experiment; those with figures.
    pub cells: Vec<&'a CellOfRun>,
}

/// From where to where, and the cells.
pub type OfDirection<'a> = (Option<(&'a str, &'a str)>, Vec<&'a CellOfRun>);

/// In the order of the first stages.
pub fn all(run: &Run) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for stage in &run.stages {
        let point: Vec<_> = stage.point.iter().filter(|c| c.name != "bytes").collect();
        let cells =
            run.cells_of(stage.number).filter(|c| super::why_not(&c.status).is_none() && c.observed().is_some());
        match groups.iter_mut().find(|g| g.point == point) {
            Some(group) => group.cells.extend(cells),
            None => groups.push(Group { point, cells: cells.collect() }),
        }
    }
    groups.retain(|g| !g.cells.is_empty());
    groups
}

impl<'a> Group<'a> {
    /// `copying.count = 64, policy = stock`; empty where the matrix has one place.
    pub fn place(&self) -> String {
        let all: Vec<String> = self.point.iter().map(|c| format!("{} = {}", c.name, c.value)).collect();
        all.join(", ")
    }

    /// Behind a title.
    pub fn behind(&self) -> String {
        let place = self.place();
        if place.is_empty() { place } else { format!(", {place}") }
    }

    pub fn sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.cells.iter().map(|c| c.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// Cells by the memories that they move bytes between; calls that move none are one kind of their own.
    pub fn directions(&self) -> Vec<OfDirection<'a>> {
        self.directions_of(self.cells.clone())
    }

    /// Of some of them.
    pub fn directions_of(&self, cells: Vec<&'a CellOfRun>) -> Vec<OfDirection<'a>> {
        let mut all: Vec<OfDirection<'a>> = Vec::new();
        for cell in cells {
            let direction = Ends::of(&cell.what).map(|ends| ends.direction());
            match all.iter_mut().find(|(known, _)| *known == direction) {
                Some((_, of)) => of.push(cell),
                None => all.push((direction, vec![cell])),
            }
        }
        all
    }
}

/// Each subject once, in the order of the experiment, with its cells by size.
pub fn subjects<'a>(cells: &[&'a CellOfRun]) -> Vec<Vec<&'a CellOfRun>> {
    let mut all: Vec<Vec<&CellOfRun>> = Vec::new();
    for &cell in cells {
        match all.iter_mut().find(|of| of[0].subject == cell.subject) {
            Some(of) => of.push(cell),
            None => all.push(vec![cell]),
        }
    }
    all.iter_mut().for_each(|of| of.sort_by_key(|c| c.bytes));
    // A route that lacks the smallest size is not the last for it.
    all.sort_by_key(|of| of[0].cell);
    all
}
