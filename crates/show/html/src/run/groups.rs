//! Stages that differ only in their size, and the titles of their pictures.

use run_folder::Run;
use run_folder::run::{CellOfRun, Coordinate, Ends};

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
    /// `copying.count = 64, policy = stock`; empty if the matrix has one place.
    pub fn place(&self) -> String {
        let all: Vec<String> = self.point.iter().map(|c| format!("{} = {}", c.name, c.value)).collect();
        all.join(", ")
    }

    /// A suffix for a title.
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

    /// Cells by the memories between which they move bytes; calls that move none are a separate kind.
    pub fn directions(&self) -> Vec<OfDirection<'a>> {
        self.directions_of(self.cells.clone())
    }

    /// The same for some of them.
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

/// The cells of one picture: all of a size, or those of one direction if there are many.
pub struct Place<'a> {
    pub group: &'a Group<'a>,
    pub direction: Option<(&'a str, &'a str)>,
    pub bytes: u64,
    pub cells: Vec<&'a CellOfRun>,
    /// The total number; `cells` has the fastest.
    pub of: usize,
}

impl Place<'_> {
    /// A suffix for a title.
    pub fn behind(&self) -> String {
        let size = if self.bytes > 0 { format!(", {}", terminal::number::bytes(self.bytes)) } else { String::new() };
        let direction = self.direction.map_or(String::new(), |(from, to)| format!(", {from} to {to}"));
        format!("{direction}{size}{}", self.group.behind())
    }
}

/// The main places of a run: at most `pictures` of them with at most `most` cells each, and how many are left out.
pub fn main_places<'a>(groups: &'a [Group<'a>], most: usize, pictures: usize) -> (Vec<Place<'a>>, usize) {
    let mut places: Vec<Place<'a>> = Vec::new();
    for group in groups {
        for bytes in telling(&group.sizes()) {
            let here: Vec<&CellOfRun> = group.cells.iter().copied().filter(|c| c.bytes == bytes).collect();
            let all = if here.len() > most { group.directions_of(here) } else { vec![(None, here)] };
            places.extend(all.into_iter().map(|(direction, mut cells)| {
                let of = cells.len();
                cells.sort_by_key(|c| c.observed().map_or(u64::MAX, |f| f.summary.p50));
                cells.truncate(most);
                Place { group, direction, bytes, cells, of }
            }));
        }
    }
    let left = places.len().saturating_sub(pictures);
    // From a long matrix, the first and the last places are chosen, not only its beginning.
    let all = places.len();
    let mut number = 0..;
    places.retain(|_| {
        let n = number.next().unwrap_or(0);
        left == 0 || n * (pictures - 1) % (all - 1) < pictures - 1
    });
    (places, left)
}

/// The smallest size, one in the middle, and the largest.
fn telling(sizes: &[u64]) -> Vec<u64> {
    match sizes {
        [first, .., last] if sizes.len() > 3 => vec![*first, sizes[sizes.len() / 2], *last],
        few => few.to_vec(),
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
    // A route that lacks the smallest size is not last because of that.
    all.sort_by_key(|of| of[0].cell);
    all
}
