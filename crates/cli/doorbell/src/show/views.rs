//! What each view asks the analyses for, and how it is printed.

use super::Args;
use decode::lists;
use decode::walk::{Filter, Pattern, Sink, walk};
use decode::{InsightError, Recording};
use lock_analysis::{each_range, ranges};
use schema::ranges::Watched;
use schema::{Document, Summary};
use serde::Serialize;
use std::io::{self, Write};
use terminal::foreign::Plain;
use terminal::json::{array, or_text, print};
use terminal::rows::List;
use terminal::table::{Style, text_to_stdout, to_stdout};
use terminal::{
    calls, channels, copies, driver_calls, gpu_times, graphs, kernel_times, kernels, launches, locks, objects, python,
};
use terminal::{rank, submissions, summary};

/// Kernels that all ranks run together, where nothing else is asked for.
const COLLECTIVES: &str = "nccl";

struct Nothing;

impl Sink for Nothing {}

pub fn show(args: &Args, r: &Recording, filter: Filter) -> anyhow::Result<()> {
    let (style, json, sort) = (Style::of_stdout(), args.json, args.sort.as_deref());
    let limit = args.limit.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let (most, s) = (limit.unwrap_or(usize::MAX), &style);
    match &args.view {
        v if v.submissions && json => {
            to_stdout(|out| array::<_, anyhow::Error>(out, |f| lists::submissions(r, &filter, f)))?
        }
        v if v.submissions => text_to_stdout(style, |out| submissions_as_text(r, &filter, s, out))?,
        v if v.copies => list(&copies::LIST, &filter, sort, json, |filter, f| lists::copies(r, filter, f))?,
        v if v.launches => list(&launches::LIST, &filter, sort, json, |filter, f| lists::launches(r, filter, f))?,
        v if v.gpu_times => runs(r, &filter, sort, json)?,
        v if v.graphs => {
            let mut rows: Vec<_> = decode::graphs::graphs(r)?.iter().map(decode::graphs::row).collect();
            sort.into_iter().for_each(|by| graphs::sort(&mut rows, by));
            rows.truncate(most);
            match (json, args.dot) {
                (true, _) => to_stdout(|out| array::<_, io::Error>(out, |f| rows.iter().try_for_each(f)))?,
                (_, true) => to_stdout(|out| graphs::dot::write(&rows, out))?,
                _ => text_to_stdout(style, |out| graphs::write(&rows, style, out))?,
            }
        }
        v if v.kernels => {
            let all = decode::kernels::kernels(r, &filter)?;
            or_text(json, &all, style, |out| kernels::write(out, s, &all))?;
        }
        v if v.channels => {
            let mut all = walk(r, &mut Nothing)?.channels;
            all.retain(|c| filter.wants(c));
            sort.into_iter().for_each(|by| channels::sort(&mut all, by));
            all.truncate(most);
            or_text(json, &all, style, |out| channels::write(out, s, &all, 0))?;
        }
        v if v.locks => {
            let limit = limit.unwrap_or(if json { locks::JSON_WAITS } else { locks::ROWS });
            let mut all = lock_analysis::recorded(r, limit)?;
            symbols::of_locks(&mut all, if json { usize::MAX } else { limit });
            if !json {
                lock_analysis::explain_waits(&mut all);
            }
            or_text(json, &Document::of(&all), style, |out| locks::write(&all, limit, style, out))?;
        }
        v if v.driver_calls => {
            let all = decode::driver_call_counts::driver_call_counts(r)?;
            let rows = limit.unwrap_or(driver_calls::ROWS);
            or_text(json, &all, style, |out| driver_calls::write(out, s, &all, rows))?;
        }
        v if v.calls => {
            let mut all = lock_analysis::locks(r, 1)?;
            symbols::of_variables(&mut all);
            r.must_have(all.calls.is_some(), "CUDA calls")?;
            match all.calls.as_mut().filter(|_| json) {
                Some(calls) => {
                    calls.symbols = all.symbols;
                    print(&Document::of(calls))?;
                }
                None => text_to_stdout(style, |out| calls::write(&all, limit.unwrap_or(calls::ROWS), style, out))?,
            }
        }
        v if v.python => {
            let all = lock_analysis::python(r)?;
            r.must_have(all.recorded, super::PYTHON)?;
            let rows = limit.unwrap_or(python::ROWS);
            or_text(json, &all, style, |out| python::write(&all, rows, style, out))?;
        }
        v if v.nvtx && args.each => {
            let all = each_range(r, &filter)?;
            must_be_asked(r, &all.watched)?;
            or_text(json, &all, style, |out| terminal::ranges::write_each(out, s, &all))?;
        }
        v if v.nvtx => {
            let all = ranges(r, &filter)?;
            must_be_asked(r, &all.watched)?;
            or_text(json, &all, style, |out| terminal::ranges::write(out, s, &all))?;
        }
        v if v.rank => {
            let nccl = Pattern::new(COLLECTIVES).map_err(io::Error::other)?;
            let all = slow_calls::ranks(r, args.kernel.as_ref().unwrap_or(&nccl))?;
            let rows = limit.unwrap_or(rank::ROWS);
            match json {
                // (For programs alone: without indentation.)
                true => to_stdout(|out| {
                    serde_json::to_writer(&mut *out, &Document::of(&all)).map_err(io::Error::from)?;
                    writeln!(out)
                })?,
                false => text_to_stdout(style, |out| {
                    all.ranks.iter().try_for_each(|one| rank::write(one, rows, style, out))
                })?,
            }
        }
        v if v.objects => {
            let graphs = walk(r, &mut Nothing)?.graphs;
            let graphs = || graphs.iter().map(|(process, graph)| (*process, graph));
            if json {
                return Ok(print(&Document::of(&decode::rows::objects(graphs(), most)))?);
            }
            text_to_stdout(style, |out| {
                for (i, (process, graph)) in graphs().enumerate() {
                    if graphs().count() > 1 {
                        let head = format!("{}Process {}", if i > 0 { "\n" } else { "" }, r.pid(process));
                        writeln!(out, "{}", style.bold(&head))?;
                    }
                    let rows = decode::rows::objects(std::iter::once((process, graph)), most);
                    let in_all = [graph.object_tree().len(), graph.gpu_mappings().count()];
                    objects::write(out, s, &rows, in_all)?;
                }
                Ok::<_, io::Error>(())
            })?;
        }
        _ => {
            let all: Summary = decode::summary(r)?;
            or_text(json, &Document::of(&all), style, |out| summary::write(out, s, &all))?;
        }
    }
    Ok(())
}

pub fn submissions_as_text(r: &Recording, filter: &Filter, style: &Style, out: &mut dyn Write) -> anyhow::Result<()> {
    lists::submissions(r, filter, |row| Ok(submissions::write(out, style, &row)?))
}

fn must_be_asked(r: &Recording, watched: &Watched) -> Result<(), InsightError> {
    r.must_have(watched.asked, "ranges of NVTX")
}

/// Takes a row.
type Take<'t, R> = dyn FnMut(R) -> anyhow::Result<()> + 't;

/// Calls a function with each row.
type Give<'g, R> = dyn Fn(&Filter, &mut Take<'_, R>) -> anyhow::Result<()> + 'g;

/// The rows in the order of time, in which they need not be kept, or by a key of the list, the largest first.
fn in_order<'g, R>(
    list: &List<R>,
    filter: &'g Filter,
    sort: Option<&str>,
    each: &'g Give<'g, R>,
) -> anyhow::Result<impl FnOnce(&mut Take<'_, R>) -> anyhow::Result<()> + use<'g, R>> {
    let mut sorted = Vec::new();
    if let Some(by) = sort {
        each(&Filter { limit: None, ..filter.clone() }, &mut |row| {
            sorted.push(row);
            Ok(())
        })?;
        // (Stable: equal rows stay in the order of time.)
        sorted.sort_by_cached_key(|row| std::cmp::Reverse((list.key)(by, row)));
        sorted.truncate(filter.limit.unwrap_or(u64::MAX).try_into().unwrap_or(usize::MAX));
    }
    let is_sorted = sort.is_some();
    Ok(move |f: &mut Take<'_, R>| match is_sorted {
        true => sorted.into_iter().try_for_each(f),
        false => each(filter, f),
    })
}

/// Prints rows as lines or as an array.
fn list<R: Serialize>(
    list: &List<R>,
    filter: &Filter,
    sort: Option<&str>,
    json: bool,
    each: impl Fn(&Filter, &mut Take<'_, R>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (style, rows) = (Style::of_stdout(), in_order(list, filter, sort, &each)?);
    if json { to_stdout(|out| array(out, rows)) } else { text_to_stdout(style, |out| list.write(out, style, rows)) }
}

/// Prints each run of a kernel, and how many kernels have a time.
fn runs(r: &Recording, filter: &Filter, sort: Option<&str>, json: bool) -> anyhow::Result<()> {
    let times = decode::kernel_times::kernel_times(r)?;
    let each = |filter: &Filter, f: &mut Take<'_, _>| lists::kernel_runs(r, filter, f);
    let (style, rows) = (Style::of_stdout(), in_order(&gpu_times::LIST, filter, sort, &each)?);
    if json {
        return to_stdout(|out| {
            write!(out, "{{\"kernel_times\": ")?;
            serde_json::to_writer(Plain::json(&mut *out), &times)?;
            write!(out, ",\n\"runs\": ")?;
            array(out, rows)?;
            Ok(writeln!(out, "}}")?)
        });
    }
    text_to_stdout(style, |out| {
        let Some(times) = times else {
            return Ok(writeln!(out, "no times of kernels were recorded: `record --gpu-times` records them")?);
        };
        gpu_times::LIST.write(out, style, rows)?;
        Ok(kernel_times::write(out, &style, &times)?)
    })
}
