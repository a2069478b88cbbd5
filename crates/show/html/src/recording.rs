//! Pages of a recording: why its calls were slow, a timeline, waits for locks with their holders, totals, CUDA's calls, ranges, channels, graphs.

mod calls;
mod gpu_tracks;
mod graphs;
mod locks;
mod moment;
mod ranges;
mod streams;
mod summary;
mod timeline;
mod why;

use crate::Error;
use crate::document::{Article, Document, Kind, Notice};
use crate::numbers::seconds;
use decode::Recording;
use schema::Summary;
pub use timeline::{Next, Timeline};
use why::Answer;

/// The number of longest waits shown.
const WAITS: usize = 50;

pub fn document(r: &Recording) -> Result<Document, Error> {
    let s = decode::summary(r)?;
    let mut locks = lock_analysis::locks(r, WAITS)?;
    terminal::symbols::look_up(&mut locks, usize::MAX);
    let found = decode::graphs::graphs(r)?;
    let rows: Vec<_> = found.iter().map(decode::graphs::row).collect();
    let name = r.path().file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let mut sections = summary::sections(&s);
    // A recording with locks is made to see who waited for them, so that is first.
    let at = if locks.waits.is_empty() { sections.len() } else { 0 };
    sections.splice(at..at, locks::section(&locks));
    let answer = Answer::of(r)?;
    let timeline = timeline::section(r, &locks.waits, answer.lost(&s))?;
    sections.splice(0..0, std::iter::once(answer.section(&s.incomplete_because)).chain(timeline));
    sections.extend(calls::section(&locks));
    sections.extend(ranges::section(r)?);
    sections.extend(summary::channels(&s));
    sections.extend(graphs::section(&rows));
    sections.extend(summary::surroundings(&s));
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
