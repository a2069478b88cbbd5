//! The processes of a recording as a tree.

use crate::number::{count, of};
use crate::table::{Out, Style};
use schema::Summary;
use schema::processes::ProcessRow;
use std::collections::BTreeMap;
use std::io;

/// Writes the tree if there is more than one process, and what was not watched.
pub fn write(out: &mut dyn Out, style: &Style, s: &Summary) -> io::Result<()> {
    if s.processes.len() > 1 || s.processes.iter().any(|p| p.rank.is_some()) {
        writeln!(out, "\n{}", style.bold("Processes"))?;
        let heads =
            ["process", ">doorbells", ">submissions", ">copies", ">launches", ">channels", ">lost", "complete", "end"];
        let mut t = style.table(&heads);
        for (depth, p) in tree(&s.processes) {
            t.add_row([
                format!("{}{}", "  ".repeat(depth), name(p)),
                count(p.doorbells),
                count(p.submissions),
                count(p.copies),
                count(p.launches),
                count(p.channels),
                count(p.lost),
                if p.complete { "yes".into() } else { format!("no: {}", p.incomplete_because.join("; ")) },
                p.end.as_ref().map_or_else(|| "not on the tape".into(), |e| e.how.clone()),
            ]);
        }
        out.table(&t, 2)?;
    }
    if s.unwatched.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}", style.bold("Not watched"))?;
    for u in s.unwatched.iter().take(20) {
        let path = if u.path.is_empty() { "a program" } else { &u.path };
        writeln!(out, "  {path} (process {}): {}", u.pid, u.why)?;
    }
    if s.unwatched.len() > 20 {
        writeln!(out, "  and {}", of((s.unwatched.len() - 20) as u64, "other"))?;
    }
    Ok(())
}

/// `4242 python3, rank 1 of 2 (torchrun)`
fn name(p: &ProcessRow) -> String {
    let mut text = format!("{} {}", p.pid, p.exe.rsplit('/').next().unwrap_or_default());
    if let Some(r) = &p.rank {
        text.push_str(&format!(", rank {}", r.rank));
        if let Some(n) = r.world_size {
            text.push_str(&format!(" of {n}"));
        }
        text.push_str(&format!(" ({})", r.launcher));
    }
    text.trim_end().to_owned()
}

/// Each process below its parent, siblings in the order in which they began. The parent is found by its row's index (its recording may have begun
/// after its child's); else it is the last earlier image with the parent's pid.
fn tree(all: &[ProcessRow]) -> Vec<(usize, &ProcessRow)> {
    let parent = |i: usize, p: &ProcessRow| {
        let by_index = p.parent.and_then(|parent| all.iter().position(|q| q.index == parent));
        by_index.or_else(|| all[..i].iter().rposition(|q| q.pid == p.ppid && p.ppid != 0))
    };
    let mut parents: Vec<_> = all.iter().enumerate().map(|(i, p)| parent(i, p)).collect();
    // There are no cycles, whatever a recording contains.
    for i in 0..parents.len() {
        let above = std::iter::successors(parents[i], |at| parents[*at]);
        if above.take(parents.len()).any(|at| at == i) {
            parents[i] = None;
        }
    }
    let mut children: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for (i, parent) in parents.into_iter().enumerate() {
        children.entry(parent).or_default().push(i);
    }
    let mut out = Vec::new();
    let mut work: Vec<(usize, usize)> = children.get(&None).into_iter().flatten().rev().map(|i| (0, *i)).collect();
    while let Some((depth, i)) = work.pop() {
        out.push((depth, &all[i]));
        work.extend(children.get(&Some(i)).into_iter().flatten().rev().map(|i| (depth + 1, *i)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_stand_below_their_parents_in_order() {
        let p = |index: u32, pid: i32, ppid: i32, parent: Option<u32>| ProcessRow {
            index,
            pid,
            ppid,
            parent,
            ..ProcessRow::default()
        };
        // A launcher with two ranks, one of which has a worker; an image without any facts; one that is its own parent; one that began before its
        // parent; two that are each other's parent.
        let all = [
            p(0, 10, 1, None),
            p(1, 11, 10, Some(0)),
            p(2, 12, 10, None),
            p(3, 13, 11, Some(1)),
            p(4, 99, 0, None),
            p(5, 98, 98, Some(5)),
            p(6, 21, 20, Some(7)),
            p(7, 20, 10, Some(0)),
            p(8, 31, 32, Some(9)),
            p(9, 32, 31, Some(8)),
        ];
        let shape: Vec<(usize, i32)> = tree(&all).iter().map(|(d, p)| (*d, p.pid)).collect();
        let known = [(0, 10), (1, 11), (2, 13), (1, 12), (1, 20), (2, 21), (0, 99), (0, 98)];
        assert_eq!(shape[..8], known);
        assert_eq!(shape[8..], [(0, 31), (1, 32)]);
    }
}
