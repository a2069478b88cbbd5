//! Views that terminals show, as blocks of a page: lines stay lines, tables become tables that can be sorted.

use crate::document::{Block, Cell, Column, ColumnKind, Kind, Notice, Row, Section, Table};
use crate::numbers::slug;
use std::io::{self, Write};
use terminal::table::{Out, Style};

/// A table with more rows is opened on demand.
const OPEN: usize = 16;

/// A section with what a view writes. Its tables are named after the section.
pub fn section(id: &str, title: &str, write: impl FnOnce(&mut dyn Out, Style) -> io::Result<()>) -> Section {
    let mut view = View { section: Section::new(id, title), ..View::default() };
    // (No write to it fails.)
    let _ = write(&mut view, Style { colour: true, width: None });
    view.end_lines();
    view.section
}

#[derive(Default)]
struct View {
    section: Section,
    tables: usize,
    /// Of the line whose end has not come.
    text: Vec<u8>,
    lines: Vec<String>,
}

const BOLD: &str = "\x1b[1m";
const BAD: &str = "\x1b[31m";
const END: &str = "\x1b[0m";

fn plain(text: &str) -> String {
    [BOLD, BAD, "\x1b[32m", END].iter().fold(text.to_owned(), |text, style| text.replace(style, ""))
}

impl View {
    fn line(&mut self, line: &str) {
        let block = match (line.strip_prefix(BOLD).and_then(|rest| rest.split_once(END)), line.trim_start()) {
            (_, "") => return self.end_lines(),
            // A name that is filled up with blanks, and its value.
            (Some((name, value)), _) if name.ends_with(' ') => {
                self.end_lines();
                let fact = (name.trim().to_owned(), plain(value));
                match self.section.blocks.last_mut() {
                    Some(Block::Facts(facts)) => facts.push(fact),
                    _ => self.section.push(Block::Facts(vec![fact])),
                }
                return;
            }
            (Some(_), _) => Block::Heading(plain(line)),
            (None, bad) if bad.starts_with(BAD) => {
                let text = plain(bad);
                let text = text.strip_prefix("warning: ").unwrap_or(&text).to_owned();
                Block::Notice(Notice { kind: Kind::Warning, text })
            }
            (None, more) => {
                match self.section.blocks.last_mut() {
                    Some(Block::Facts(facts)) if self.lines.is_empty() && line.starts_with("     ") => {
                        facts.last_mut().into_iter().for_each(|(_, value)| *value += &format!("\n{}", plain(more)));
                    }
                    _ => self.lines.push(plain(line)),
                }
                return;
            }
        };
        self.end_lines();
        self.section.push(block);
    }

    fn end_lines(&mut self) {
        if !self.lines.is_empty() {
            self.section.push(Block::Lines(std::mem::take(&mut self.lines)));
        }
    }
}

impl Write for View {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            self.text.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = String::from_utf8_lossy(&std::mem::take(&mut self.text)).into_owned();
                self.line(line.trim_end());
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Out for View {
    fn table(&mut self, t: &terminal::table::Table, indent: usize) -> io::Result<()> {
        // A line that leads to it: it ends so, or the table is below it.
        let is_lead = |line: &mut String| line.ends_with(':') || line.len() - line.trim_start().len() + 2 == indent;
        let lead = self.lines.pop_if(is_lead).map(|line| line.trim_end_matches(':').trim_start().to_owned());
        self.end_lines();
        let caption = match (lead, self.section.blocks.last()) {
            (Some(lead), _) => lead,
            (None, Some(Block::Heading(text))) => {
                let text = text.clone();
                self.section.blocks.pop();
                text
            }
            _ => self.section.title.clone(),
        };
        self.tables += 1;
        let id = &self.section.id;
        let name = if self.tables == 1 { id.clone() } else { format!("{id}-{}-{}", self.tables, slug(&caption)) };
        self.section.push(Block::Table(table(name, caption, t).folded_above(OPEN)));
        Ok(())
    }
}

/// Rows without a text separate those around them. A first cell without a text is that of the row above. The first column of texts names the rows: it is
/// the first on a page.
fn table(name: String, caption: String, t: &terminal::table::Table) -> Table {
    let names = t.heads().position(|(_, is_number)| !is_number).unwrap_or(0);
    let kind = |n: usize, is_number: bool| match is_number {
        _ if n == names => ColumnKind::Head,
        true => ColumnKind::Number,
        false => ColumnKind::Text,
    };
    let column = |(n, (head, is_number)): (usize, (String, bool))| Column {
        head: head.replace('\n', ", "),
        unit: "",
        kind: kind(n, is_number),
    };
    let mut columns: Vec<Column> = t.heads().enumerate().map(column).collect();
    columns[..=names].rotate_right(1);
    let mut rows: Vec<Row> = Vec::new();
    let (mut apart, mut above) = (false, String::new());
    for mut texts in t.rows() {
        if texts.iter().all(String::is_empty) {
            apart = true;
            continue;
        }
        texts.resize(columns.len(), "-".into());
        if texts[0].is_empty() {
            texts[0].clone_from(&above);
        }
        above.clone_from(&texts[0]);
        texts[..=names].rotate_right(1);
        let cells = texts.iter().map(|text| Cell::text(plain(text))).collect();
        rows.push(Row { cells, apart: std::mem::take(&mut apart) });
    }
    Table { name, caption, columns, rows, folded: false }
}
