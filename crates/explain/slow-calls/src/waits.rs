//! What a wait for the GPU is made of, and what would shorten it.

use crate::activity::{self, What};
use crate::gather::Chosen;
use crate::kernels::{NONE, Runs, Waited};
use lock_analysis::labels::Labels;
use schema::slow_calls::{Cause, OfRow};

/// The kernels behind a part of a call that waited for the GPU, the longest first. `None` for all other parts.
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
                (_, NONE) => "while no kernel of the process ran".into(),
                (_, of) => runs.names.name(of).into(),
            };
            rows.push((p.ticks, row(name, p.ticks, p.times, *what == What::Bounded)));
        }
    }
    rows.sort_by_key(|(ticks, _)| std::cmp::Reverse(*ticks));
    Some(rows.into_iter().map(|(_, row)| row).collect())
}

/// What is known of the time that no kernel explains.
fn rest(waited: &Waited) -> &'static str {
    match waited.kernels {
        0 => "no kernel that it waits for has a time: a copy, or what was done before",
        _ => "after the last kernel: a copy, or the way back to the thread",
    }
}

/// What would shorten a wait, and by how many ticks at most. `None` where no kernel is known that it waited for.
pub fn saving(labels: &Labels<'_>, c: &Chosen, runs: Option<&Runs>) -> Option<(String, u64)> {
    let (runs, w) = (runs?, c.waited.filter(|w| w.kernels > 0)?);
    let queue = c.parts.get(Cause::Queue);
    let time = |ticks| microseconds(labels.ns(ticks));
    let (kernels, none) = (w.kernels, time(queue));
    let queued = format!("{kernels} kernels ran, and none for {none} between them: fewer, longer kernels, or a graph");
    let late = format!(
        "launches are late: the stream ran no kernel for {} before {} was submitted",
        time(w.idle),
        runs.names.name(w.idle_name)
    );
    let engine = format!("the longest kernel that it waits for is {}", runs.names.name(w.longest_name));
    let all = [(queued, queue), (late, w.idle.min(queue + c.parts.get(Cause::Engine))), (engine, w.longest)];
    // (Of two alike the first: it takes no change of a kernel.)
    all.into_iter().rev().max_by_key(|(_, ticks)| *ticks).filter(|(_, ticks)| *ticks > 0)
}

fn microseconds(ns: u64) -> String {
    format!("{:.1} us", ns as f64 / 1e3)
}
