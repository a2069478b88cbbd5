//! The parts of a wait for the GPU, and what would shorten it.

use crate::activity::{self, What};
use crate::gather::Chosen;
use crate::kernels::{Behind, NONE, Runs, Waited};
use lock_analysis::labels::Labels;
use schema::slow_calls::{Cause, OfRow};

/// The kernels and copies in a part of a call that waited for the GPU, the longest first. `None` for all other parts.
pub fn of(labels: &Labels<'_>, c: &Chosen, cause: Cause, runs: Option<&Runs>) -> Option<Vec<OfRow>> {
    let (runs, waited) = (runs?, c.waited?);
    let row = |what: String, ticks, times, at_most| OfRow {
        what,
        ns: labels.ns(ticks),
        times,
        at_most,
        free_ns: None,
        because: Vec::new(),
    };
    let kinds: &[What] = match cause {
        Cause::Engine => &[What::Engine, What::Bounded],
        Cause::Queue => &[What::Beside, What::Queue],
        Cause::Gpu => {
            let ticks = c.parts.get(Cause::Gpu);
            return Some(vec![row(rest(&waited).into(), ticks, 1, false)]);
        }
        _ => return None,
    };
    let mut rows: Vec<(u64, OfRow)> = Vec::new();
    for what in kinds {
        for p in activity::made_of(c.body.began, c.ended, &c.spans, *what) {
            let name = match (what, p.of) {
                (What::Beside, of) => format!("while {} ran", runs.names.name(of)),
                (_, NONE) => "while no kernel and no copy of the process ran".into(),
                (_, of) => match waited.behind.filter(|behind| behind.copy == of) {
                    Some(behind) => format!("{}{}", runs.names.name(of), stood_behind(runs, &behind)),
                    None => runs.names.name(of).into(),
                },
            };
            rows.push((p.ticks, row(name, p.ticks, p.times, *what == What::Bounded)));
        }
    }
    rows.sort_by_key(|(ticks, _)| std::cmp::Reverse(*ticks));
    Some(rows.into_iter().map(|(_, row)| row).collect())
}

fn stood_behind(runs: &Runs, behind: &Behind) -> String {
    format!(": {} waited behind it in its stream", runs.names.name(behind.kernel))
}

/// A text for the time that no kernel and no copy explains.
fn rest(waited: &Waited) -> &'static str {
    match (waited.kernels, waited.copies) {
        (0, 0) => "nothing that it waits for has a time: an inline write, or what was done before",
        (_, 0) => "after the last kernel: an inline write, or the way back to the thread",
        (0, _) => "outside of the copies: what the CPU did for them, or the way back to the thread",
        _ => "after the last kernel and copy: an inline write, or the way back to the thread",
    }
}

/// The change that would shorten a wait, and by how many ticks at most. `None` if no kernel or copy is known that it
/// waited for.
pub fn saving(labels: &Labels<'_>, c: &Chosen, runs: Option<&Runs>) -> Option<(String, u64)> {
    let (runs, w) = (runs?, c.waited.filter(|w| w.kernels + w.copies > 0)?);
    let queue = c.parts.get(Cause::Queue);
    let time = |ticks| numbers::nanoseconds(labels.ns(ticks));
    let none = time(queue);
    let (kernels, copies) = (counted(w.kernels, "kernel", "kernels"), counted(w.copies, "copy", "copies"));
    let queued = match (w.kernels, w.copies) {
        (0, _) => format!("{copies} ran, and none for {none} between them: fewer, larger copies"),
        (_, 0) => format!("{kernels} ran, and none for {none} between them: fewer, longer kernels, or a graph"),
        _ => format!("{kernels} and {copies} ran, and none for {none} between them: fewer, longer ones, or a graph"),
    };
    let late = format!(
        "{} late: the stream ran nothing for {} before {} was submitted",
        if w.idle_is_copy { "copies are" } else { "launches are" },
        time(w.idle),
        runs.names.name(w.idle_name)
    );
    let longest = runs.names.name(w.longest_name);
    let engine = match w.longest_is_copy {
        true => {
            let behind = w.behind.filter(|behind| behind.copy == w.longest_name);
            let behind = behind.map_or_else(String::new, |behind| stood_behind(runs, &behind));
            format!("the longest that it waits for is the {longest}{behind}")
        }
        false => format!("the longest kernel that it waits for is {longest}"),
    };
    let all = [(queued, queue), (late, w.idle.min(queue + c.parts.get(Cause::Engine))), (engine, w.longest)];
    // (Of two equal savings the first, which needs no change of a kernel.)
    all.into_iter().rev().max_by_key(|(_, ticks)| *ticks).filter(|(_, ticks)| *ticks > 0)
}

fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}
