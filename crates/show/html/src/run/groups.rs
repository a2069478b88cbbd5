//! The places of a run that pictures show.

use run_folder::Run;
use run_folder::run::CellOfRun;
use run_folder::run::groups::{Group, directions, sizes};

/// With the cells that have figures.
pub fn all(run: &Run) -> Vec<Group<'_>> {
    let mut groups = run.groups();
    for group in &mut groups {
        group.cells.retain(|c| c.valid().is_some());
    }
    groups.retain(|g| !g.cells.is_empty());
    groups
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
        for bytes in telling(&sizes(&group.cells)) {
            let here: Vec<&CellOfRun> = group.cells.iter().copied().filter(|c| c.bytes == bytes).collect();
            let all = if here.len() > most { directions(&here) } else { vec![(None, here)] };
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
