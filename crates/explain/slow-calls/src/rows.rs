//! Rows of the schema.

use crate::Wanted;
use crate::activity::{self, What};
use crate::between::Gap;
use crate::chain::Chains;
use crate::fixes;
use crate::gather::{Chosen, Gathered};
use crate::kernels::Runs;
use crate::parts::{self, CAUSES};
use crate::waits;
use crate::windows::{Seen, Window};
use decode::Source;
use lock_analysis::labels::{Labels, function_name};
use schema::kernel_times::KernelTimes;
use schema::slow_calls::{
    Between, Cause, CauseRow, GapRow, OfRow, PageFaults, PageableRow, PartRow, SlowCall, UnfinishedRow, Why,
};
use schema::symbols::Symbols;
use tape::call::CallBody;
use tape::fault::scope;

/// Maximum number of locks, driver calls or threads that are named for one part.
const NAMED: usize = 3;

pub fn why(
    labels: &Labels<'_>,
    wanted: &Wanted,
    g: Gathered,
    seen: &Seen,
    runs: Option<&Runs>,
    times: &[KernelTimes],
) -> Why {
    let facts = labels.facts;
    let mut not_watched = Vec::new();
    if facts.layout.is_none() {
        not_watched.push("locks (record --locks)".to_owned());
    }
    if !facts.has_switches() {
        not_watched.push("context switches (record --locks or --calls, and the rights to see them)".into());
    }
    if !g.has_sources {
        not_watched.push("where copies read from: no copy was recorded that says it".into());
    }
    match &facts.faults.scope {
        Some((scope::ALL, _)) => {}
        Some((scope::PROGRAM, _)) => {
            not_watched.push("page faults in system calls (they take the rights to see them)".into())
        }
        Some((_, why)) => not_watched.push(format!("page faults: {why}")),
        None => not_watched.push("page faults".into()),
    }
    let (kernels, timed) = times.iter().fold((0, 0), |(k, t), row| (k + row.kernels, t + row.timed));
    if timed < kernels {
        let lacking = kernels - timed;
        not_watched.push(format!("when {lacking} of {kernels} kernels ran (`show` has the reasons)"));
    }
    if let Some(runs) = runs.filter(|runs| runs.copies_without > 0) {
        let (lacking, copies) = (runs.copies_without, runs.copies);
        not_watched.push(format!("when {lacking} of {copies} copies ran (`show --copies` has those that have times)"));
    }
    let stolen_ns = facts.faults.stolen();
    if stolen_ns.is_none() {
        not_watched.push("time that a hypervisor took: it does not count it, or the recording is older".into());
    }
    let mut causes: Vec<CauseRow> = CAUSES
        .iter()
        .zip(&g.sums)
        .filter(|(_, sum)| sum.calls > 0)
        .map(|(cause, sum)| CauseRow {
            cause: *cause,
            ns: labels.ns(sum.ticks),
            calls: sum.calls,
            longest_ns: labels.ns(sum.longest),
            starting_ns: labels.ns(sum.starting),
            advice: parts::advice(*cause),
        })
        .collect();
    causes.sort_by_key(|c| std::cmp::Reverse(c.ns));
    let mut pageable: Vec<PageableRow> = g
        .pageable
        .iter()
        .map(|((process, site, function), p)| PageableRow {
            site: facts.names.site(*process, *site, p.last),
            call: function_name(*function),
            calls: p.calls,
            bytes: p.bytes,
            ns: labels.ns(p.ticks),
        })
        .collect();
    pageable.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| (&a.site, &a.call).cmp(&(&b.site, &b.call))));
    let mut incomplete_because = decode::complete::of_tape(labels.recording, labels.lost);
    if g.cut > 0 {
        incomplete_because.push(format!("{} calls did more than is remembered of one", g.cut));
    }
    let cut = seen.windows.iter().filter(|w| w.is_cut()).count();
    if cut > 0 {
        incomplete_because.push(format!(
            "during {cut} of the slow calls and waits more happened than is remembered: holders may have held longer"
        ));
    }
    if let Some(left_out) = runs.map(|runs| runs.left_out).filter(|n| *n > 0) {
        incomplete_because
            .push(format!("the times of {left_out} kernels and copies were left out: there are too many"));
    }
    if let Some(lost) = facts.faults.lost {
        let lost = if lost == 0 { String::new() } else { format!("{lost} ") };
        incomplete_because.push(format!("{lost}records of page faults were lost"));
    }
    let worst: Vec<SlowCall> = g
        .chosen
        .iter()
        .zip(&seen.windows)
        .map(|(c, window)| slow_call(labels, c, &Chains { labels, seen, window }, &g, runs))
        .collect();
    Why {
        complete: incomplete_because.is_empty(),
        incomplete_because,
        not_watched,
        stolen_ns,
        saved_because: labels.recording.header().saved.as_ref().map(|s| match s.what.as_str() {
            "" => s.reason.clone(),
            what => format!("{}: {what}", s.reason),
        }),
        moment: None,
        calls: g.calls,
        // (The sum of the rounded parts, so that the printed parts add up to it.)
        ns: causes.iter().fold(0u64, |all, c| all.saturating_add(c.ns)),
        slow_from_ns: wanted.slow_from_ns,
        slow: g.slow,
        slow_starting: g.slow_starting,
        causes,
        pageable,
        unfinished: g.unfinished,
        first_unfinished: g.first_unfinished.iter().map(|u| unfinished(labels, u)).collect(),
        between: between(labels, &g, seen),
        fixes: fixes::savings(&worst, &g.shares),
        worst,
        long_waits: g.long_waits,
        waits: g
            .waits
            .iter()
            .zip(seen.windows.iter().skip(g.chosen.len()))
            .map(|(c, window)| SlowCall {
                cause: c.parts.waits_for(),
                ..slow_call(labels, c, &Chains { labels, seen, window }, &g, runs)
            })
            .collect(),
        symbols: Symbols::default(),
    }
}

fn unfinished(labels: &Labels<'_>, (source, function, c, seen): &(Source, u16, CallBody, u64)) -> UnfinishedRow {
    UnfinishedRow {
        at: labels.seconds(c.began),
        pid: labels.recording.pid(source.process),
        tid: source.tid,
        thread: labels.thread(*source),
        call: function_name(*function),
        number: c.seq,
        ns: labels.ns(seen.saturating_sub(c.began)),
    }
}

fn slow_call(labels: &Labels<'_>, c: &Chosen, chains: &Chains<'_>, g: &Gathered, runs: Option<&Runs>) -> SlowCall {
    let cause = c.parts.cause();
    let mut rows: Vec<PartRow> = c
        .parts
        .each()
        .map(|(cause, ticks)| PartRow { cause, ns: labels.ns(ticks), of: of(c, cause, chains, g, runs) })
        .collect();
    rows.sort_by_key(|p| std::cmp::Reverse(p.ns));
    let lost = c.parts.lost();
    let saving = waits::saving(labels, c, runs).map(|(advice, ticks)| (advice, labels.ns(ticks)));
    let (advice, saves_ns) = saving.or_else(|| fixes::advice(&rows, cause, &g.shares)).map_or_else(
        || (cause.and_then(parts::advice).map(str::to_owned), None),
        |(advice, ns)| (Some(advice), Some(ns)),
    );
    SlowCall {
        at: labels.seconds(c.body.began),
        tsc: c.body.began,
        process: c.source.process,
        pid: labels.recording.pid(c.source.process),
        tid: c.source.tid,
        thread: labels.thread(c.source),
        call: function_name(c.function),
        number: c.body.seq,
        kernel: chains.window.kernel.clone(),
        size: c.body.size,
        stream: c.body.stream,
        site: labels.facts.names.site(c.source.process, c.body.site, c.ended),
        ns: rows.iter().fold(0u64, |all, p| all.saturating_add(p.ns)),
        lost_ns: labels.ns(lost),
        cause,
        parts: rows,
        pageable_bytes: c.pageable_bytes,
        host_functions: c.host_functions,
        page_faults: page_faults(c),
        advice,
        saves_ns,
    }
}

fn between(labels: &Labels<'_>, g: &Gathered, seen: &Seen) -> Between {
    let row = |(gap, window): (&Gap, &Window)| {
        let chains = Chains { labels, seen, window };
        GapRow {
            at: labels.seconds(gap.from),
            tsc: gap.from,
            process: gap.source.process,
            pid: labels.recording.pid(gap.source.process),
            tid: gap.source.tid,
            thread: labels.thread(gap.source),
            call: function_name(gap.function),
            number: gap.number,
            ns: labels.ns(gap.ticks),
            waits: gap.waits,
            lock: labels.name(gap.lock as usize),
            because: chains.of_gil(gap.source, gap.lock, gap.from, gap.to, NAMED),
        }
    };
    Between {
        gaps: g.between.gaps,
        ns: labels.ns(g.between.ticks),
        longest_ns: labels.ns(g.between.longest),
        worst: g.gaps.iter().zip(seen.windows.iter().skip(g.chosen.len() + g.waits.len())).map(row).collect(),
    }
}

fn page_faults(c: &Chosen) -> PageFaults {
    let count = |of| c.spans.iter().filter(|s| s.what == What::Fault && s.of == of).count() as u64;
    PageFaults { minor: count(0), major: count(1) }
}

/// Which locks, driver calls or threads a part of a call is made of.
fn of(c: &Chosen, cause: Cause, chains: &Chains<'_>, g: &Gathered, runs: Option<&Runs>) -> Vec<OfRow> {
    if let Some(rows) = waits::of(chains.labels, c, cause, runs) {
        return rows.into_iter().take(NAMED).collect();
    }
    let what = match cause {
        Cause::Lock => What::Lock,
        Cause::Condition => What::Condition,
        Cause::Preempted => What::Preempted,
        Cause::PageFault => What::Fault,
        Cause::DriverCall | Cause::Memory | Cause::Making | Cause::CodeLoading | Cause::GraphUpload => What::Driver,
        _ => return Vec::new(),
    };
    let pieces = activity::made_of(c.body.began, c.ended, &c.spans, what);
    let row = |p: &activity::Piece| {
        let free = (what == What::Lock).then(|| chains.free(c.source, p.of, p.from, p.to));
        let (what_it_is, because) = match what {
            What::Driver => {
                let name = g.driver_names.name(p.of).to_owned();
                (name, chains.meanwhile(c.source, p.from, p.to).into_iter().collect())
            }
            What::Lock | What::Condition => {
                let name = chains.named(c.source, what, p.of, p.from).unwrap_or_default();
                (name, chains.of(c.source, what, p.of, p.from, p.to))
            }
            What::Fault => (if p.of == 0 { "minor" } else { "major" }.to_owned(), Vec::new()),
            _ => (chains.named(c.source, what, p.of, p.from).unwrap_or_default(), Vec::new()),
        };
        OfRow {
            what: what_it_is,
            ns: chains.labels.ns(p.ticks),
            times: p.times,
            at_most: false,
            free_ns: free.flatten().map(|t| chains.labels.ns(t)),
            because,
        }
    };
    pieces.iter().take(NAMED).map(row).collect()
}
