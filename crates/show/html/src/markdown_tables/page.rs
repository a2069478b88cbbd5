//! A page: its markers, filled or checked.

use crate::markdown_tables::marker::{Kind, Marker};
use crate::markdown_tables::rows::Table;
use crate::markdown_tables::{Data, Error};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A Markdown page that was read.
#[derive(Debug)]
pub struct Page {
    path: PathBuf,
    text: String,
}

/// What a page shows that is right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Tables from data.
    pub tables: usize,
    /// The files that they are from, each once.
    pub data: Vec<PathBuf>,
}

/// A data file that is not a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub data: PathBuf,
    pub why: String,
}

/// Lines of a page.
struct Lines<'a> {
    all: Vec<&'a str>,
    at: usize,
    /// Within a block of code, where comments are examples.
    in_code: bool,
}

impl Page {
    /// # Errors
    /// It cannot be read.
    pub fn open(path: &Path) -> std::io::Result<Page> {
        Ok(Page::new(path, std::fs::read_to_string(path)?))
    }

    /// Data files are found relative to the folder of `path`.
    pub fn new(path: &Path, text: String) -> Page {
        Page { path: path.into(), text }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The page with every table computed again, the data files that it uses, and those of them that are not results.
    ///
    /// # Errors
    /// A marker or its data are wrong.
    pub fn filled(&self) -> Result<(String, Checked, Vec<Refused>), Error> {
        let mut data =
            Files { folder: self.path.parent().unwrap_or(Path::new("")), read: HashMap::new(), order: Vec::new() };
        let names = self.names()?;
        let mut lines = Lines::of(&self.text);
        let (mut out, mut tables) = (String::with_capacity(self.text.len()), 0);
        // Where a table shows stored figures, and where a line says so.
        let (mut shown, mut said) = (Vec::new(), Vec::new());
        while let Some((number, line)) = lines.next() {
            let Some((marker, raw)) = self.comment(number, line, &mut lines)? else {
                push(&mut out, line);
                continue;
            };
            match marker.kind {
                Kind::Names => push(&mut out, &raw),
                Kind::End => return Err(self.wrong(number, "an end without a table before it".into())),
                Kind::Machine => {
                    self.body(number, &mut lines, |_| true)?;
                    let data = data.get(&marker).map_err(|what| self.wrong(number, what))?;
                    push(&mut out, &summed(&raw, data.crc32()));
                    push(&mut out, &data.machine());
                    said.extend(marker.get("data").map(str::to_owned));
                    push(&mut out, "<!-- end -->");
                }
                Kind::Table => {
                    let there = self.body(number, &mut lines, |line| line.trim_start().starts_with('|'))?;
                    let wrong = |what| self.wrong(number, what);
                    let data = data.get(&marker).map_err(wrong)?;
                    let table = Table::new(&marker, data, &names).map_err(wrong)?;
                    let cells = table.cells().map_err(wrong)?;
                    push(&mut out, &summed(&raw, data.crc32()));
                    write(&mut out, &table, &there, &cells).map_err(wrong)?;
                    shown.extend(
                        marker.get("data").filter(|_| data.stored().is_some()).map(|name| (number, name.to_owned())),
                    );
                    tables += 1;
                }
            }
        }
        if let Some((number, name)) = shown.iter().find(|(_, name)| !said.contains(name)) {
            let what =
                format!("{name} has no samples: <!-- machine: data={name} --> on this page says so to the reader");
            return Err(self.wrong(*number, what));
        }
        if !self.text.ends_with('\n') {
            out.pop();
        }
        let refused = data
            .order
            .iter()
            .filter_map(|path| Some(Refused { data: path.clone(), why: data.read.get(path)?.origin().refused()? }));
        let refused = refused.collect();
        Ok((out, Checked { tables, data: data.order }, refused))
    }

    /// Every table matches its data, and the checksums are those of the files.
    ///
    /// # Errors
    /// The first line that differs; a marker or its data are wrong; data that are no results.
    pub fn check(&self) -> Result<Checked, Error> {
        let (filled, checked, refused) = self.filled()?;
        if let Some(Refused { data, why }) = refused.first() {
            return Err(self.wrong(1, format!("{} is no result: {why}", data.display())));
        }
        let mut pairs = self.text.lines().zip(filled.lines()).zip(1..);
        if let Some(((page, data), line)) = pairs.find(|((page, data), _)| page != data) {
            let fill = format!("`doorbell report --fill {}` writes what the data give", self.path.display());
            return Err(self.wrong(line, format!("the page has\n  {page}\nand its data give\n  {data}\n{fill}")));
        }
        if filled != self.text {
            return Err(self.wrong(self.text.lines().count(), "a row of the page or of its data is missing".into()));
        }
        Ok(checked)
    }

    fn wrong(&self, line: usize, what: String) -> Error {
        Error { page: self.path.display().to_string(), line, what }
    }

    /// A comment of doorbell that begins in this line, as parsed and as written. The lines that it covers are skipped.
    fn comment(&self, number: usize, line: &str, lines: &mut Lines<'_>) -> Result<Option<(Marker, String)>, Error> {
        let begun = line.trim_start().strip_prefix("<!--").filter(|_| !lines.in_code);
        let Some(begun) = begun else { return Ok(None) };
        let mut raw = line.to_owned();
        let mut text = begun.to_owned();
        let passed = lines.at;
        while !text.contains("-->") {
            let Some((_, more)) = lines.next() else { break };
            raw.push('\n');
            raw.push_str(more);
            text.push('\n');
            text.push_str(more);
        }
        let inner = text.split_once("-->").map(|(inner, rest)| (inner, rest.trim()));
        let marker = Marker::parse(inner.map_or(text.as_str(), |(inner, _)| inner));
        match (marker, inner) {
            (None, _) => {
                // Somebody else's comment.
                lines.at = passed;
                Ok(None)
            }
            (Some(_), None) => Err(self.wrong(number, "the comment does not end with -->".into())),
            (Some(_), Some((_, rest))) if !rest.is_empty() => {
                Err(self.wrong(number, format!("{rest:?} follows the comment in its line: put it into the next")))
            }
            (Some(marker), Some(_)) => Ok(Some((marker.map_err(|what| self.wrong(number, what))?, raw))),
        }
    }

    /// The text between a marker and its end.
    fn body<'a>(
        &self,
        number: usize,
        lines: &mut Lines<'a>,
        may: impl Fn(&str) -> bool,
    ) -> Result<Vec<&'a str>, Error> {
        let mut there = Vec::new();
        while let Some((at, line)) = lines.next() {
            if let Some((marker, _)) = self.comment(at, line, lines)? {
                return match marker.kind {
                    Kind::End => Ok(there),
                    _ => Err(self.wrong(number, format!("its table has no <!-- end --> before line {at}"))),
                };
            }
            if may(line) {
                there.push(line);
            } else if !line.trim().is_empty() {
                return Err(self.wrong(at, "only a table may be between the marker and its <!-- end -->".into()));
            }
        }
        Err(self.wrong(number, "its table has no <!-- end -->".into()))
    }

    /// The names of all comments that give some.
    fn names(&self) -> Result<Vec<(String, String)>, Error> {
        let mut lines = Lines::of(&self.text);
        let mut names = Vec::new();
        while let Some((number, line)) = lines.next() {
            if let Some((marker, _)) = self.comment(number, line, &mut lines)?.filter(|(m, _)| m.kind == Kind::Names) {
                names.extend(marker.pairs);
            }
        }
        Ok(names)
    }
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Lines<'a> {
        Lines { all: text.lines().collect(), at: 0, in_code: false }
    }

    /// The next line, and its number.
    fn next(&mut self) -> Option<(usize, &'a str)> {
        let line = *self.all.get(self.at)?;
        self.at += 1;
        self.in_code ^= line.trim_start().starts_with("```");
        Some((self.at, line))
    }
}

fn push(out: &mut String, line: &str) {
    out.push_str(line);
    out.push('\n');
}

/// The marker with this checksum.
fn summed(raw: &str, crc32: u32) -> String {
    let now = format!("crc32={crc32:08x}");
    match raw.split_once("crc32=") {
        Some((before, after)) => {
            let rest = after.find(|c: char| c.is_whitespace() || c == '-').unwrap_or(after.len());
            format!("{before}{now}{}", &after[rest..])
        }
        None => match raw.find("data=") {
            Some(at) => {
                let end = raw[at..].find(char::is_whitespace).map_or(raw.len(), |end| at + end);
                format!("{} {now}{}", &raw[..end], &raw[end..])
            }
            None => raw.to_owned(),
        },
    }
}

/// The cells of a row of a table.
fn cells_of(line: &str) -> usize {
    let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
    inner.replace("\\|", "").split('|').count()
}

/// With the page's own head, if it has one.
fn write(out: &mut String, table: &Table<'_>, there: &[&str], cells: &[Vec<String>]) -> Result<(), String> {
    let row = |out: &mut String, cells: &mut dyn Iterator<Item = String>| {
        out.push('|');
        cells.for_each(|cell| {
            out.push(' ');
            out.push_str(&cell.replace('|', "\\|"));
            out.push_str(" |");
        });
        out.push('\n');
    };
    match there {
        [head, rule, ..] => {
            for line in [head, rule] {
                if cells_of(line) != table.width() {
                    let found = cells_of(line);
                    return Err(format!("the table's head has {found} cells, and columns= names {}", table.width()));
                }
            }
            if !rule.chars().all(|c| "|-: ".contains(c)) {
                return Err("the second line of the table is no rule of dashes".into());
            }
            push(out, head);
            push(out, rule);
        }
        [_] => return Err("the table has a head, and no rule of dashes below it".into()),
        [] => {
            row(out, &mut table.heads().into_iter());
            push(out, &format!("|{}|", table.alignments().join("|")));
        }
    }
    cells.iter().for_each(|cells| row(out, &mut cells.iter().cloned()));
    push(out, "<!-- end -->");
    Ok(())
}

/// Data files of a page, each read once.
struct Files<'a> {
    folder: &'a Path,
    read: HashMap<PathBuf, Data>,
    order: Vec<PathBuf>,
}

impl Files<'_> {
    fn get(&mut self, marker: &Marker) -> Result<&Data, String> {
        let name = marker.get("data").ok_or("data=FILE is missing: the data file, from the folder of this page")?;
        let path = self.folder.join(name);
        if !self.read.contains_key(&path) {
            let bytes = run_folder::data_file::read_text(&path).map_err(|e| format!("data={name}: {e}"))?;
            let data = Data::read(&bytes, &run_folder::data_file::samples_folder(&path))
                .map_err(|e| format!("data={name}: {e}"))?;
            self.order.push(path.clone());
            self.read.insert(path.clone(), data);
        }
        self.read.get(&path).ok_or_else(|| format!("data={name} was not read"))
    }
}
