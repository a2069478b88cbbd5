//! The contents of a page, in whatever format: articles with sections of texts, tables and pictures.

use crate::plot::Drawing;
use crate::recording::Timeline;

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Document {
    pub title: String,
    /// Which doorbell wrote it.
    pub by: String,
    /// One article for each run, recording or soak; with several runs the first one compares them.
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
    /// A paragraph that answers the experiment's question.
    Answer(String),
    Heading(String),
    Notice(Notice),
    List(Vec<String>),
    /// Lines of a view, each as long as it is, with their indents.
    Lines(Vec<String>),
    /// Names and their values.
    Facts(Vec<(String, String)>),
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
    /// The kind is also shown in colour, but never only so.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Good => "Good",
            Kind::Note => "Note",
            Kind::Warning => "Warning",
            Kind::Bad => "Attention",
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The name of its file when it is downloaded.
    pub name: String,
    pub caption: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    /// It is long or belongs to a picture: it is opened on demand.
    pub folded: bool,
}

/// A row, and whether a line separates it from the one above.
#[derive(Clone, Debug, Default)]
pub struct Row {
    pub cells: Vec<Cell>,
    pub apart: bool,
}

#[derive(Clone, Debug)]
pub struct Column {
    pub head: String,
    /// The unit of the plain numbers in a file: `ns`, `bytes`.
    pub unit: &'static str,
    pub kind: ColumnKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// It names what the row is about.
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
    /// The ratio to the value without loads, from 0 (below one) to 6 (a thousand times).
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
    /// The picture as a separate file.
    pub file: String,
    /// The meaning of its letters.
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
    /// Its notices, right below its title, with errors first.
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

    /// `None` if it is empty.
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

    pub fn folded_above(self, rows: usize) -> Table {
        if self.rows.len() > rows { self.folded() } else { self }
    }

    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(Row { cells, apart: false });
    }

    /// Without the columns that are empty in every row.
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

    /// An unknown value.
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
