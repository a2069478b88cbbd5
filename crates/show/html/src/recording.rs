//! Pages of a recording: why its calls were slow, a timeline, waits for locks with their holders, totals, CUDA's calls, ranges, channels, graphs.

mod gpu_tracks;
mod locks;
mod moment;
mod streams;
mod timeline;
mod why;

use crate::Error;
use crate::document::{Article, Document, Kind, Notice};
use crate::numbers::seconds;
use crate::view;
use decode::Recording;
use decode::walk::Filter;
use schema::Summary;
use terminal::table::Out;
pub use timeline::{Next, Timeline};
use why::Answer;

/// The number of longest waits shown.
const WAITS: usize = 50;

/// Names of ranges.
const RANGES: u64 = 12;
/// Rows of each kind of locks and calls.
const ROWS: usize = 20;

pub fn document(r: &Recording) -> Result<Document, Error> {
    let s = decode::summary(r)?;
    let mut locks = lock_analysis::locks(r, WAITS)?;
    lock_analysis::explain_waits(&mut locks);
    symbols::of_locks(&mut locks, usize::MAX);
    let name = r.path().file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let answer = Answer::of(r)?;
    let mut sections = vec![answer.section(&s.incomplete_because)];
    sections.extend(timeline::section(r, &locks.waits, answer.lost(&s))?);
    let summary = view::section("summary", "Summary", |out, style| terminal::summary::write(out, &style, &s));
    let calls = match locks.calls.as_ref().is_some_and(|c| !c.calls.is_empty()) {
        true => {
            Some(view::section("calls", "CUDA's calls", |out, style| terminal::calls::write(&locks, ROWS, style, out)))
        }
        false => None,
    };
    locks.calls = None;
    // A recording with locks is made to see who waited for them, so that is first.
    match locks.waits.is_empty() {
        false => sections.extend([locks::section(&locks), summary]),
        true if locks.recorded => sections.extend([summary, locks::section(&locks)]),
        true => sections.push(summary),
    }
    sections.extend(calls);
    let few = Filter { limit: Some(RANGES), ..Filter::default() };
    let ranges = lock_analysis::ranges(r, &few)?;
    if ranges.ranges.iter().any(|row| row.count > 0 && row.style != "mark") {
        let write = |out: &mut dyn Out, style| terminal::ranges::write(out, &style, &ranges);
        sections.push(view::section("ranges", "Ranges", write));
    }
    let graphs: Vec<_> = decode::graphs::graphs(r)?.iter().map(decode::graphs::row).collect();
    if !graphs.is_empty() {
        let write = |out: &mut dyn Out, style| terminal::graphs::write(&graphs, style, out);
        sections.push(view::section("graphs", "CUDA graphs", write));
    }
    let article = Article {
        id: "recording".into(),
        title: name.clone(),
        about: program(&s),
        taken: taken(&s),
        notices: notices(&s),
        sections,
    };
    Ok(Document { title: name, by: crate::by(), articles: vec![article] })
}

fn program(s: &Summary) -> String {
    match &s.program.args {
        Some(args) if !args.is_empty() => args.join(" "),
        _ => s.program.exe.clone(),
    }
}

fn taken(s: &Summary) -> Vec<String> {
    let cuda = s.cuda.as_ref().map(|c| format!("CUDA {c}"));
    let driver = (!s.driver.is_empty()).then(|| format!("driver {}", s.driver));
    let machine: Vec<String> =
        [Some(s.gpu.clone()), driver, cuda].into_iter().flatten().filter(|part| !part.is_empty()).collect();
    let mut when = Vec::new();
    if s.program.pid != 0 {
        when.push(format!("process {}", s.program.pid));
    }
    when.push(s.program.started.clone());
    when.extend(s.seconds.map(|v| seconds(v).text));
    if s.complete {
        when.push("complete: nothing is lost".into());
    }
    when.retain(|part| !part.is_empty());
    [machine.join(", "), when.join(", ")].into_iter().filter(|line| !line.is_empty()).collect()
}

fn notices(s: &Summary) -> Vec<Notice> {
    let mut all = Vec::new();
    if s.driver == "soft" {
        let text = "The program ran on the software GPU: its commands are those of a real program, but its times are not those of a GPU.";
        all.push(Notice { kind: Kind::Warning, text: text.into() });
    }
    all.extend(s.nothing.iter().map(|why| Notice { kind: Kind::Note, text: why.to_string() }));
    all.extend(s.incomplete_because.iter().map(|why| Notice { kind: Kind::Bad, text: format!("Not complete: {why}") }));
    all.extend(s.damage.iter().map(|what| Notice { kind: Kind::Bad, text: format!("Damaged: {what}") }));
    all
}
