//! Whether a recording is complete, and why not.
//!
//! An unwatched event never counts as "no loss": each way for an event to pass unseen has a reason here.

use crate::recording::{Image, Recording};
use crate::walk::Outcome;
use schema::channel::Watch;
use schema::summary::{Lost, Page, Problems};
use std::collections::BTreeMap;

/// Troubles of the agent that slow it down but hide no event.
const HARMLESS: [&str; 3] = [
    "a ring in GPU memory could not be shadowed: it is read",
    // As recordings of version 0.1 have it.
    "a ring in video memory could not be shadowed: it is read",
    "the kernel refused to have code rewritten",
];

/// Reasons that concern all of a recording. `gap_events`: events that did not fit into the rings or
/// occurred after the recording had stopped.
pub fn of_tape(r: &Recording, gap_events: u64) -> Vec<String> {
    let mut out: Vec<String> = r.damage().map(|d| format!("the file is damaged: {d}")).into_iter().collect();
    let Some(end) = r.end() else {
        out.push("the recording has no end: the recorder was killed, or the file was cut".into());
        return out;
    };
    // First the recorder's reasons, then those that it may not have written.
    if r.is_selected() {
        r.images().iter().for_each(|i| out.extend(of_image(r, i, 0)));
    } else {
        out.extend(end.incomplete_because.iter().cloned());
        let several = r.images().len() > 1;
        out.extend(r.images().iter().filter(|i| several && i.end.is_none()).flat_map(|i| of_image(r, i, 0)));
    }
    let stopped = (!r.is_whole()).then(|| end.how.clone());
    let hides = |t: &&String| !HARMLESS.iter().any(|h| t.starts_with(h));
    let trouble: Vec<String> =
        if r.is_selected() { r.ends().flat_map(|e| e.trouble.clone()).collect() } else { end.trouble.clone() };
    let silent = !r.is_selected() && !end.agent && trouble.is_empty() && r.images().iter().all(|i| i.end.is_none());
    let silent = silent.then(|| "the agent never reported in: nothing of the program was seen".to_owned());
    for reason in stopped.into_iter().chain(trouble.iter().filter(hides).cloned()).chain(silent) {
        if !out.contains(&reason) {
            out.push(reason);
        }
    }
    if gap_events > 0 && !out.iter().any(|r| r.contains("did not fit into the rings")) {
        // The recorder counts events that did not fit into the rings separately from events that it stopped writing.
        let stopped = end.how.starts_with("recording stopped early");
        let what = if stopped { "occurred after the recording had stopped" } else { "did not fit into the rings" };
        out.push(format!("{} {what}", several(gap_events, "event")));
    }
    out
}

/// Reasons that concern one image out of several. `lost`: entries that its channels lack.
pub(crate) fn of_image(r: &Recording, image: &Image, lost: u64) -> Vec<String> {
    let mut out: Vec<String> = match &image.end {
        Some(e) => e.incomplete_because.clone(),
        None if r.version() == 1 => Vec::new(),
        None => vec![format!("the end of process {} is not on the tape", image.process.pid)],
    };
    if lost > 0 {
        out.push(format!("{} counted by GP_PUT not on the tape", several(lost, "GPFIFO entry")));
    }
    out
}

/// Programs that could not be watched, named if they are few.
fn unwatched(r: &Recording) -> Option<String> {
    let names: Vec<String> = r
        .unwatched()
        .iter()
        .map(|u| {
            if u.path.is_empty() { format!("process {} ({})", u.pid, u.why) } else { format!("{} ({})", u.path, u.why) }
        })
        .collect();
    let more = if names.len() > 3 { ", ..." } else { "" };
    let n = names.len() as u64;
    (n > 0).then(|| format!("{} not watched: {}{more}", several(n, "program"), names[..names.len().min(3)].join(", ")))
}

/// Reasons that a walk over submissions finds, after those of the tape.
pub(crate) fn of_walk(r: &Recording, out: &Outcome, pages: &[Page], problems: &Problems, lost: &Lost) -> Vec<String> {
    let mut all = of_tape(r, lost.gap_events);
    // (One process's recording is whole without the others' events.) The recorder reports unwatched
    // processes too, unless it was killed.
    let said = all.iter().any(|reason| reason.starts_with("not watched: "));
    all.extend(unwatched(r).filter(|_| !said && !r.is_selected()));
    let mut add = |n: u64, noun: &str, rest: &str| {
        if n > 0 {
            all.push(format!("{} {rest}", several(n, noun)));
        }
    };
    add(lost.by_channels, "GPFIFO entry", "counted by GP_PUT not on the tape");
    add(lost.rings_missing, "doorbell", "not on the tape, by the channels' counters");
    add(lost.strangers, "doorbell", "with a token of no known channel: what it submitted was not seen");
    // (A part that was saved while the program ran ends in the middle of its work.)
    let unaccounted = if r.header().saved.is_some() { 0 } else { lost.channels_unaccounted };
    add(unaccounted, "channel", "without a final GP_PUT: what it lacks at its end is not known");
    let blind = out.channels.iter().filter(|c| c.watch == Watch::Blind && c.rings > 0).count() as u64;
    add(blind, "channel", "whose ring has no CPU mapping: what its doorbells submitted was not seen");
    let surplus = out.channels.iter().filter(|c| c.surplus > 0).count() as u64;
    add(surplus, "channel", "with more entries than its GP_PUT accounts for: its account is wrong");
    add(problems.unmapped_segments, "segment", "at an address without a CPU mapping: its words were not seen");
    add(problems.cut_segments, "segment", "longer than is recorded");
    add(problems.torn_segments, "segment", "of which words did not fit into the rings");
    add(problems.uncopied_segments, "segment", "whose words were still to be copied when the program died");
    add(problems.unknown_events, "event", "of a kind that this doorbell does not know");
    add(problems.stray_bytes, "byte", "in checked chunks that hold no event");
    // A page that was opened stays in the list with its last state.
    let state: BTreeMap<u64, bool> = pages.iter().map(|p| (p.address, p.tapped)).collect();
    let open = state.values().filter(|tapped| !**tapped).count() as u64;
    add(open, "doorbell page", "not tapped: its doorbells were not seen");
    if r.header().tap == "off" {
        all.push("the tap was off: doorbells were not recorded".into());
    }
    let known = [
        ("locks", out.lock_layout.filter(|l| *l != tape::lock::LAYOUT_WAITS), tape::lock::LAYOUT),
        ("calls of CUDA", out.call_layout, tape::call::LAYOUT),
    ];
    for (what, found, known) in known {
        if let Some(found) = found.filter(|f| *f != known) {
            all.push(format!("its {what} have layout {found}, this doorbell reads layout {known}"));
        }
    }
    all
}

/// `1 entry`, `2 entries`
fn several(n: u64, noun: &str) -> String {
    match (n, noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{n} {stem}ies"),
        _ => format!("{n} {noun}s"),
    }
}
