//! The processes of a recording as rows.

use crate::complete;
use crate::recording::{Image, Recording};
use crate::walk::Outcome;
use schema::Clock;
use schema::channel::Channel;
use schema::processes::{HowEnded, ProcessRow, RankRow, UnwatchedRow};
use std::collections::{BTreeMap, BTreeSet};
use tape::file::{Process, ProcessEnd, Rank, Unwatched};

/// One row for each image. `counted`: copies and launches of each image. `all`: why the recording is not complete, which applies to
/// its only image, too.
pub(crate) fn rows(
    r: &Recording,
    out: &Outcome,
    counted: &BTreeMap<u32, (u64, u64)>,
    all: &[String],
    clock: &Clock,
) -> Vec<ProcessRow> {
    let only = r.images().len() == 1;
    let mut of_process: BTreeMap<u32, Vec<&Channel>> = BTreeMap::new();
    out.channels.iter().for_each(|c| of_process.entry(c.process).or_default().push(c));
    let pids: BTreeSet<(i32, u32)> = r.images().iter().map(|i| (i.process.pid, i.process.index)).collect();
    r.images()
        .iter()
        .map(|image| {
            let index = image.process.index;
            let channels = of_process.get(&index).map_or(&[][..], Vec::as_slice);
            let sum = |f: fn(&Channel) -> u64| channels.iter().map(|c| f(c)).fold(0, u64::saturating_add);
            let (doorbells, driver_calls) = out.doorbells_of.get(&index).copied().unwrap_or_default();
            let (copies, launches) = counted.get(&index).copied().unwrap_or_default();
            let lost = sum(|c| c.lost);
            let because = if only { all.to_vec() } else { complete::of_image(r, image, lost) };
            row(
                image,
                parent(&image.process, &pids),
                clock,
                ProcessRow {
                    complete: because.is_empty(),
                    incomplete_because: because,
                    doorbells,
                    submissions: sum(|c| c.submissions),
                    entries: sum(|c| c.entries),
                    lost,
                    copies,
                    launches,
                    channels: channels.len() as u64,
                    driver_calls,
                    ..ProcessRow::default()
                },
            )
        })
        .collect()
}

/// The image of its nearest recorded ancestor. If an ancestor's recording began after its child's, it was not known when the
/// child's row was written. It is then found by its number among the later images.
fn parent(of: &Process, pids: &BTreeSet<(i32, u32)>) -> Option<u32> {
    let later = |pid: i32| {
        let first = pids.range((pid, of.index.saturating_add(1))..).next();
        first.filter(|(p, index)| *p == pid && *index > of.index && pid != of.pid).map(|(_, index)| *index)
    };
    let mut above = [of.ppid].into_iter().chain(of.through.iter().map(|a| a.pid)).filter(|pid| *pid > 0);
    of.parent.or_else(|| above.find_map(later))
}

fn row(image: &Image, parent: Option<u32>, clock: &Clock, counted: ProcessRow) -> ProcessRow {
    let p = &image.process;
    ProcessRow {
        index: p.index,
        pid: p.pid,
        ppid: p.ppid,
        parent,
        image: p.image,
        exe: p.exe.clone(),
        args: p.args.clone(),
        rank: p.rank.as_ref().map(rank),
        began: (p.start_tsc != 0).then(|| clock.seconds(p.start_tsc)).flatten(),
        end: image.end.as_ref().map(ended),
        ..counted
    }
}

fn rank(r: &Rank) -> RankRow {
    RankRow { rank: r.rank, local_rank: r.local_rank, world_size: r.world_size, launcher: r.launcher.clone() }
}

pub(crate) fn ended(e: &ProcessEnd) -> HowEnded {
    HowEnded { how: e.how.clone(), exit_code: e.exit_code, signal: e.signal }
}

pub(crate) fn unwatched(u: &Unwatched, clock: &Clock) -> UnwatchedRow {
    let seconds = (u.tsc != 0).then(|| clock.seconds(u.tsc)).flatten();
    UnwatchedRow { pid: u.pid, parent: u.parent, path: u.path.clone(), why: u.why.clone(), seconds }
}
