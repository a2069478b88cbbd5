//! What differs between two runs: the verdict, each cell with its ratio and interval, both distributions in one picture, and the
//! rounds of both.

use crate::document::{Article, Block, Figure, Kind, Notice, Section};
use crate::numbers::slug;
use crate::plot;
use crate::run::notices;
use crate::run::over_time::{self, Taken};
use crate::run::spread::{self, Line};
use crate::{Error, Named, view};
use comparison::{Comparison, Heading, Key, Overall, Row, Verdict};
use run_folder::run::CellOfRun;
use terminal::cell::capital;
use terminal::comparison::{detail, in_words, outcome};
use terminal::number::of;

/// Differences that get a sentence each.
const FINDINGS: usize = 6;
/// Cells with both distributions in one picture.
const PICTURES: usize = 16;
/// Cells whose rounds have a panel.
const PANELS: usize = 8;

/// The first article of a page of two runs.
pub fn article(runs: [&Named; 2], heading: &Heading, c: &Comparison) -> Result<Article, Error> {
    let functional = runs.iter().any(|n| n.run.functional);
    let [a, b] = runs;
    let mut all: Vec<Notice> = runs.iter().flat_map(|n| notices_of(n)).collect();
    // With two runs on the software GPU, one notice is enough.
    all.dedup_by(|x, y| x.text == y.text);
    all.push(if functional { worked(runs, c) } else { verdict(runs, c) });
    let mut sections = Vec::from_iter(answer(c, functional));
    sections.push(view::section("cells-of-both", "Each cell that both runs have", |out, style| {
        terminal::comparison::write(out, &style, heading, c)
    }));
    if !functional {
        let chosen = chosen(runs, c);
        sections.extend(distributions(runs, &chosen)?);
        sections.extend(rounds(runs, &chosen));
    }
    Ok(Article {
        id: "together".into(),
        title: format!("{} against {}", b.name, a.name),
        about: String::new(),
        taken: vec![format!("A, the reference: {}", a.name), format!("B, compared with it: {}", b.name)],
        notices: all,
        sections,
    })
}

/// Errors of one run, with its name.
pub fn notices_of(named: &Named) -> Vec<Notice> {
    let with_name =
        |n: Notice| if n.kind == Kind::Bad { Notice { text: format!("{}: {}", named.name, n.text), ..n } } else { n };
    notices(&named.run).into_iter().map(with_name).collect()
}

fn counted(c: &Comparison, is: impl Fn(&Row) -> bool) -> u64 {
    c.rows.iter().filter(|r| is(r)).count() as u64
}

fn is_lost(row: &Row) -> bool {
    matches!(row.verdict, Verdict::Lost(_))
}

/// The overall result in one sentence.
fn verdict([a, b]: [&Named; 2], c: &Comparison) -> Notice {
    let (a, b) = (&a.name, &b.name);
    let (kind, text) = match c.overall() {
        Overall::Nothing | Overall::Worked => (Kind::Warning, format!("Nothing in {a} and {b} can be compared.")),
        Overall::Lost => (Kind::Bad, format!("{} of {a} failed in {b}.", of(counted(c, is_lost), "cell"))),
        Overall::Regression => (Kind::Bad, format!("{b} is slower than {a}.")),
        Overall::Unclear => (Kind::Note, format!("It is not decided whether {b} is as fast as {a}.")),
        Overall::Faster => (Kind::Good, format!("{b} is faster than {a}, and slower in no figure.")),
        Overall::Equal => (Kind::Good, format!("{b} is as fast as {a} in every figure.")),
    };
    Notice { kind, text: format!("{text} ({})", outcome(c)) }
}

/// The same for runs on the software GPU.
fn worked([a, b]: [&Named; 2], c: &Comparison) -> Notice {
    match counted(c, is_lost) {
        0 => Notice {
            kind: Kind::Good,
            text: format!("Every cell that worked in {} worked in {}. Times are not compared.", a.name, b.name),
        },
        n => Notice { kind: Kind::Bad, text: format!("{} of {} failed in {}.", of(n, "cell"), a.name, b.name) },
    }
}

fn answer(c: &Comparison, functional: bool) -> Option<Section> {
    let mut section = Section::new("verdict", "What differs");
    if !functional {
        let findings = c.findings();
        if findings.is_empty() {
            section.push(Block::Answer("No figure of any cell is slower or faster for certain.".into()));
        }
        let more = findings.len().saturating_sub(FINDINGS);
        for row in findings.into_iter().take(FINDINGS) {
            let cell = label(&row.cell);
            section.push(Block::Answer(format!("{cell}: {}. {}.", detail(row), capital(&in_words(row)))));
        }
        if more > 0 {
            section.push(Block::Text(format!("{} more are in the table.", of(more as u64, "difference"))));
        }
    }
    for row in c.rows.iter().filter(|r| is_lost(r)) {
        section.push(Block::Answer(format!("{}: {}.", label(&row.cell), in_words(row))));
    }
    section.some()
}

/// The place in the matrix, without the size, which has a column.
fn place(key: &Key) -> String {
    let all: Vec<&str> = key.point.split_whitespace().filter(|c| !c.starts_with("bytes=")).collect();
    all.join(" ")
}

/// A cell of both.
struct Both<'a> {
    key: &'a Key,
    cells: [&'a CellOfRun; 2],
}

fn find<'a>(named: &'a Named, key: &Key) -> Option<&'a CellOfRun> {
    named.run.cells.iter().find(|c| Key::of(c) == *key).filter(|c| c.valid().is_some())
}

/// The cells that both runs have, those with differences first.
fn chosen<'a>(runs: [&'a Named; 2], c: &'a Comparison) -> Vec<Both<'a>> {
    let mut rows: Vec<&Row> = c.findings();
    rows.extend(&c.rows);
    let mut all: Vec<Both<'a>> = Vec::new();
    for row in rows {
        if all.iter().any(|both| *both.key == row.cell) {
            continue;
        }
        if let Some((a, b)) = find(runs[0], &row.cell).zip(find(runs[1], &row.cell)) {
            all.push(Both { key: &row.cell, cells: [a, b] });
        }
    }
    all
}

fn below(named: &Named) -> String {
    format!("{}: {}, {}", named.name, named.run.machine(), named.run.version())
}

fn distributions(runs: [&Named; 2], all: &[Both<'_>]) -> Result<Option<Section>, Error> {
    let mut section = Section::new("distributions-of-both", "Both distributions");
    for both in all.iter().take(PICTURES) {
        section.blocks.extend(distribution(runs, both)?.map(|f| Block::Figure(Box::new(f))));
    }
    if all.len() > PICTURES {
        section.push(Block::Text(format!(
            "{} more are left out here: those that differ, and the first of the others, have a picture.",
            of((all.len() - PICTURES) as u64, "cell")
        )));
    }
    Ok(section.some())
}

fn distribution(runs: [&Named; 2], both: &Both<'_>) -> Result<Option<Figure>, Error> {
    let mut lines = Vec::new();
    for (letter, (named, cell)) in ["A", "B"].into_iter().zip(runs.into_iter().zip(both.cells)) {
        let shape = match &named.folder {
            Some(folder) => plot::shapes(folder, &named.run, &[cell])?.pop(),
            None => None,
        };
        let points = shape.map_or_else(Vec::new, |s| s.distribution);
        lines.push(Line { name: format!("{letter}: {}", named.name), cell, points });
    }
    let title = label(both.key);
    let about = "The fraction of the samples below each time; each nine has as much room as the one before. Further to the left is faster.";
    let (first, second) = (below(runs[0]), below(runs[1]));
    Ok(spread::distribution(format!("both-{}", slug(&title)), title, about.into(), [&first, &second], &lines))
}

fn label(key: &Key) -> String {
    let place = place(key);
    let place = if place.is_empty() { place } else { format!(" [{place}]") };
    let size = if key.bytes > 0 { format!(" {}", terminal::number::bytes(key.bytes)) } else { String::new() };
    format!("{}{size}{place}", key.subject)
}

fn rounds(runs: [&Named; 2], all: &[Both<'_>]) -> Option<Section> {
    let cells: Vec<(String, Vec<Taken<'_>>)> = all
        .iter()
        .take(PANELS)
        .map(|both| {
            let taken = ["A", "B"].into_iter().zip(runs.into_iter().zip(both.cells));
            let taken = taken.map(|(letter, (named, cell))| Taken {
                run: &named.run,
                cell,
                name: format!("{letter}: {}", named.name),
            });
            (label(both.key), taken.collect())
        })
        .collect();
    let (first, second) = (below(runs[0]), below(runs[1]));
    let figure = over_time::figure("rounds-of-both", "Rounds over time".into(), &cells, [&first, &second])?;
    Some(Section::new("rounds-of-both", "Rounds of both over time").with(Block::Figure(Box::new(figure))))
}
