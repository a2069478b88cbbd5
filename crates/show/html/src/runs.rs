//! One run, or several compared.

use crate::document::{Article, Block, Cell, Column, Document, Section, Table, head, number, text};
use crate::numbers::{ns_or_none, size, slug};
use crate::run::article;
use crate::{Error, Named, two};
use comparison::{Comparison, Heading};
use run_folder::run::{CellOfRun, Figure, place};

pub fn document(runs: &[Named]) -> Result<Document, Error> {
    let mut document = Document { by: crate::by(), ..Document::default() };
    match runs {
        [one] => {
            document.title = format!("{}, {}", one.run.experiment.title(), one.run.started);
            document.articles.push(article(&one.name, &one.run, one.folder.as_ref(), "")?);
        }
        several => {
            let names: Vec<&str> = several.iter().map(|n| n.name.as_str()).collect();
            document.title = names.join(", ");
            document.articles.push(side_by_side(several));
            for (n, named) in several.iter().enumerate() {
                document.articles.push(numbered(n, named)?);
            }
        }
    }
    Ok(document)
}

/// Two runs: what differs between them, then each separately.
pub fn of_two(runs: [&Named; 2], heading: &Heading, comparison: &Comparison) -> Result<Document, Error> {
    let mut document = Document { by: crate::by(), ..Document::default() };
    let [a, b] = runs;
    document.title = format!("{} against {}", b.name, a.name);
    let mut first = two::article(runs, heading, comparison)?;
    first.sections.push(which(&runs));
    document.articles.push(first);
    for (n, named) in runs.into_iter().enumerate() {
        document.articles.push(numbered(n, named)?);
    }
    Ok(document)
}

fn numbered(n: usize, named: &Named) -> Result<Article, Error> {
    let id = format!("run{}-{}", n + 1, slug(&named.name));
    article(&named.name, &named.run, named.folder.as_ref(), &id)
}

/// What identifies a cell in every run.
fn key(cell: &CellOfRun) -> (String, u64, String) {
    (cell.subject.clone(), cell.bytes, place(cell.point.iter().filter(|c| c.name != "bytes")))
}

type Of = fn(&Figure) -> Option<u64>;
const FIGURES: [(&str, Of); 4] = [
    ("p50", |f| Some(f.summary.p50)),
    ("p99", |f| f.summary.p99),
    ("p99.9", |f| f.summary.p999),
    ("max", |f| Some(f.summary.max)),
];

fn side_by_side(runs: &[Named]) -> Article {
    let runs: Vec<&Named> = runs.iter().collect();
    let mut section = tables(&runs).unwrap_or_else(|| Section::new("side-by-side", "The same cells of each run"));
    section.push(Block::Text(match section.blocks.is_empty() {
        true => "The runs have no measured cell in common.".into(),
        false => "Runs of different moments differ by chance, too. A page of two runs, and `doorbell compare`, have the ratio, its \
                  interval and a verdict for each cell."
            .into(),
    }));
    let notices = runs.iter().flat_map(|n| two::notices_of(n)).collect();
    Article {
        id: "together".into(),
        title: "Side by side".into(),
        notices,
        sections: vec![which(&runs), section],
        ..Article::default()
    }
}

fn which(runs: &[&Named]) -> Section {
    let facts = runs.iter().map(|n| {
        let about = format!("{}, {}: {}", n.run.experiment.title(), n.run.started, n.run.machine());
        (n.name.clone(), about)
    });
    Section::new("runs", "The runs").with(Block::Facts(facts.collect()))
}

/// A table for each figure; only the first is open.
fn tables(runs: &[&Named]) -> Option<Section> {
    let mut section = Section::new("side-by-side", "The same cells of each run");
    let mut keys = Vec::new();
    for cell in runs.iter().flat_map(|n| &n.run.cells) {
        let key = key(cell);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let find = |named: &'_ Named, key: &(String, u64, String)| {
        named.run.cells.iter().position(|c| self::key(c) == *key).filter(|_| !named.run.functional)
    };
    // Cells that only one run has are in that run's own article.
    keys.retain(|key| runs.iter().filter(|n| find(n, key).is_some()).count() > 1);
    for (name, of) in FIGURES {
        let mut columns: Vec<Column> = vec![head("what"), number("size", "bytes"), text("where")];
        columns.extend(runs.iter().map(|n| number(n.name.as_str(), "ns")));
        let mut table = Table::new(format!("side-by-side-{}", slug(name)), format!("{name} of each run"), columns);
        for key in &keys {
            let mut row = vec![Cell::from(key.0.as_str()), size(key.1), Cell::from(key.2.as_str())];
            row.extend(
                runs.iter()
                    .map(|named| ns_or_none(find(named, key).and_then(|n| named.run.cells[n].valid()).and_then(of))),
            );
            table.row(row);
        }
        let known = |row: &crate::document::Row| row.cells[3..].iter().any(|c| !c.is_nothing());
        if table.rows.iter().any(known) {
            let table = table.without_empty();
            section.push(Block::Table(if name == "p50" { table } else { table.folded() }));
        }
    }
    section.some()
}
