//! What stands on a page, whatever it is written as: articles, sections, and in these texts, tables and pictures.

use crate::recording::Timeline;
use plot::Drawing;

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Document {
    pub title: String,
    /// Which doorbell wrote it.
    pub by: String,
    /// One of each run, of a recording, of a soak; the first of several runs is what they say side by side.
    pub articles: Vec<Article>,
}

#[derive(Clone, Debug, Default)]
pub struct Article {
    /// In links: letters, digits and dashes.
    pub id: String,
    pub title: String,
    pub about: String,
    /// Where and when it was taken, a line each.
    pub taken: Vec<String>,
    pub notices: Vec<Notice>,
    pub sections: Vec<Section>,
}

#[derive(Clone, Debug, Default)]
pub struct Section {
    pub id: String,
    pub title: String,
    pub blocks: Vec<Block>,
}

#[derive(Clone, Debug)]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// A paragraph that answers what was asked.
    Answer(String),
    Heading(String),
    Notice(Notice),
    List(Vec<String>),
    /// Names and what is said of them.
    Facts(Vec<(String, String)>),
    Verdicts(Vec<Verdict>),
    Table(Table),
    Figure(Box<Figure>),
    Timeline(Timeline),
}

#[derive(Clone, Debug)]
pub struct Notice {
    pub kind: Kind,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Good,
    Note,
    Warning,
    Bad,
}

impl Kind {
    /// A colour says it too, but never alone.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Good => "Good",
            Kind::Note => "Note",
            Kind::Warning => "Warning",
            Kind::Bad => "Attention",
        }
    }
}

/// What came of an assert.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub kind: Kind,
    pub word: &'static str,
    pub what: String,
    pub more: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Of its file, when it is downloaded.
    pub name: String,
    pub caption: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    /// It is long or stands behind a picture: it is opened on demand.
    pub folded: bool,
}

/// A row, and whether a line stands above it.
#[derive(Clone, Debug, Default)]
pub struct Row {
    pub cells: Vec<Cell>,
    pub apart: bool,
}

#[derive(Clone, Debug)]
pub struct Column {
    pub head: String,
    /// Of the plain numbers in a file: `ns`, `bytes`.
    pub unit: &'static str,
    pub kind: ColumnKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// It says what the row is of.
    Head,
    Text,
    Number,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    pub text: String,
    /// The number without rounding and unit.
    pub value: Option<f64>,
    pub mark: Mark,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    #[default]
    None,
    /// Among the best.
    Best,
    Bad,
    /// So many times what it is alone: 0 (less than now) to 6 (a thousand times).
    Heat(u8),
}

#[derive(Clone, Debug, Default)]
pub struct Figure {
    /// Of its files.
    pub name: String,
    pub title: String,
    /// What to see in it.
    pub about: String,
    pub page: Drawing,
    /// As a file of its own.
    pub file: String,
    /// What its letters mean.
    pub says: Vec<String>,
    /// Its data.
    pub table: Table,
}

impl Document {
    pub fn figures(&self) -> impl Iterator<Item = &Figure> {
        let blocks = self.articles.iter().flat_map(|a| &a.sections).flat_map(|s| &s.blocks);
        blocks.filter_map(|block| match block {
            Block::Figure(figure) => Some(&**figure),
            _ => None,
        })
    }

    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        let blocks = self.articles.iter().flat_map(|a| &a.sections).flat_map(|s| &s.blocks);
        blocks.filter_map(|block| match block {
            Block::Table(table) => Some(table),
            Block::Figure(figure) => Some(&figure.table),
            _ => None,
        })
    }
}

impl Article {
    /// Its notices, right below its title: what is wrong first.
    pub fn by_weight(&self) -> Vec<&Notice> {
        let mut all: Vec<&Notice> = self.notices.iter().collect();
        all.sort_by_key(|n| n.kind != Kind::Bad);
        all
    }
}

impl Section {
    pub fn new(id: &str, title: &str) -> Section {
        Section { id: id.into(), title: title.into(), blocks: Vec::new() }
    }

    pub fn with(mut self, block: Block) -> Section {
        self.blocks.push(block);
        self
    }

    pub fn push(&mut self, block: Block) {
        self.blocks.push(block);
    }

    /// `None` of one that says nothing.
    pub fn some(self) -> Option<Section> {
        (!self.blocks.is_empty()).then_some(self)
    }
}

impl Table {
    pub fn new(name: impl Into<String>, caption: impl Into<String>, columns: Vec<Column>) -> Table {
        Table { name: name.into(), caption: caption.into(), columns, rows: Vec::new(), folded: false }
    }

    pub fn folded(mut self) -> Table {
        self.folded = true;
        self
    }

    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(Row { cells, apart: false });
    }

    /// Without the columns that say nothing in any row.
    pub fn without_empty(mut self) -> Table {
        let says = |n: usize| self.rows.iter().any(|r| r.cells.get(n).is_some_and(|c| !c.is_nothing()));
        let keep: Vec<bool> =
            self.columns.iter().enumerate().map(|(n, c)| c.kind == ColumnKind::Head && n == 0 || says(n)).collect();
        let mut kept = keep.iter();
        self.columns.retain(|_| kept.next() == Some(&true));
        for row in &mut self.rows {
            let mut kept = keep.iter();
            row.cells.retain(|_| kept.next() == Some(&true));
        }
        self
    }
}

pub fn head(text: impl Into<String>) -> Column {
    Column { head: text.into(), unit: "", kind: ColumnKind::Head }
}

pub fn text(text: impl Into<String>) -> Column {
    Column { head: text.into(), unit: "", kind: ColumnKind::Text }
}

pub fn number(text: impl Into<String>, unit: &'static str) -> Column {
    Column { head: text.into(), unit, kind: ColumnKind::Number }
}

impl Cell {
    pub fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }

    pub fn number(text: impl Into<String>, value: f64) -> Cell {
        Cell { text: text.into(), value: Some(value).filter(|v| v.is_finite()), mark: Mark::None }
    }

    /// What is not known.
    pub fn none() -> Cell {
        Cell::text("-")
    }

    pub fn marked(mut self, mark: Mark) -> Cell {
        self.mark = mark;
        self
    }

    pub fn is_nothing(&self) -> bool {
        self.text.is_empty() || self.text == "-"
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::text(text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::text(text)
    }
}
