//! A table on a terminal that is narrower than the table. Texts wrap between words, then columns are left out and named. Words are cut only where
//! the columns that stay have no room for them.

use super::Table;
use comfy_table::{ColumnConstraint, Row, Width};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Blanks between two columns.
const GAP: usize = 2;
const LEFT_OUT: &str = "left out: ";
/// Ends a word that was cut.
const CUT: &str = "...";
/// No column is narrower than this because of another.
const LEAST: usize = 8;
/// A cell of at most this length stays on one line, such as `1024 x 1 x 1`.
const SHORT: usize = 12;

/// The lines of a table within this many columns.
pub(super) fn lines(t: &Table, columns: usize) -> Vec<String> {
    let mut grid = t.grid.clone();
    grid.row_iter_mut()
        .for_each(|row| *row = Row::from(texts(row).iter().map(|text| with_units(text)).collect::<Vec<_>>()));
    let rows: Vec<Vec<String>> = grid.row_iter().map(texts).collect();
    let heads = t.grid.header().map(texts).unwrap_or_default();
    let mut all: Vec<Column> = (0..heads.len()).map(|i| Column::of(&heads[i], &rows, i, t.is_number[i])).collect();
    if total(&all, |c| c.longest) <= columns {
        return t.grid.to_string().lines().map(str::to_owned).collect();
    }
    let mut kept: Vec<usize> = (0..all.len()).collect();
    let least = |all: &[Column], kept: &[usize]| total(kept.iter().map(|i| &all[*i]), |c| c.least);
    // Intervals first, then from the right; what names the row, and what it is for, stay.
    while least(&all, &kept) > columns {
        let may_go = |i: &usize| *i > 0 && !t.stays[*i];
        let interval = kept.iter().rposition(|i| may_go(i) && is_interval(&heads[*i]));
        let Some(at) = interval.or_else(|| kept.iter().rposition(may_go)) else { break };
        kept.remove(at);
    }
    let is_cut = least(&all, &kept) > columns;
    while least(&all, &kept) > columns {
        let widest = kept.iter().copied().max_by_key(|i| all[*i].least).filter(|i| all[*i].least > LEAST);
        let Some(widest) = widest else { break };
        all[widest].least -= 1;
        all[widest].longest = all[widest].least;
    }
    if is_cut {
        let cut_row = |row: &Row| {
            let cells = texts(row).into_iter().enumerate().map(|(i, cell)| match all.get(i) {
                Some(column) if kept.contains(&i) => cut_words(&cell, column.least),
                _ => cell,
            });
            Row::from(cells.collect::<Vec<_>>())
        };
        grid.row_iter_mut().for_each(|row| *row = cut_row(row));
        if let Some(head) = t.grid.header() {
            grid.set_header(cut_row(head));
        }
    }
    let widths = shared_out(&all, &kept, columns);
    for (i, width) in widths.into_iter().enumerate() {
        if let Some(column) = grid.column_mut(i) {
            column.set_constraint(match width {
                Some(width) => ColumnConstraint::Absolute(Width::Fixed(u16::try_from(width + GAP).unwrap_or(u16::MAX))),
                None => ColumnConstraint::Hidden,
            });
        }
    }
    let mut lines: Vec<String> = grid.to_string().lines().map(|line| line.replace(JOINED, " ")).collect();
    let left_out: Vec<&str> =
        (0..all.len()).filter(|i| !kept.contains(i)).map(|i| heads[i].as_str()).filter(|h| !h.is_empty()).collect();
    lines.extend(note(&left_out, is_cut, columns));
    lines
}

/// What was left out, and how to see it.
pub(super) fn note(left_out: &[&str], is_cut: bool, columns: usize) -> Vec<String> {
    let what = match (left_out.is_empty(), is_cut) {
        (true, false) => return Vec::new(),
        (true, true) => "cut".to_owned(),
        (false, _) => format!("{LEFT_OUT}{}", left_out.join(", ")),
    };
    let lines = wrapped(&format!("{what} (a wider terminal or `|{JOINED}cat` shows all)"), columns, "");
    lines.into_iter().map(|line| line.replace(JOINED, " ")).collect()
}

/// The beginning of a text that is wider than this.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(CUT.len());
    let fits = |c: &char| {
        let wide = c.width().unwrap_or(0);
        left.checked_sub(wide).map(|rest| left = rest).is_some()
    };
    text.chars().take_while(fits).collect::<String>() + CUT
}

fn cut_words(text: &str, width: usize) -> String {
    text.split(' ').map(|word| cut(word, width)).collect::<Vec<_>>().join(" ")
}

/// A blank that breaks no line.
const JOINED: char = '\u{a0}';

/// A number stays with its unit.
fn with_units(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    let mut is_number = false;
    for (n, word) in text.split(' ').enumerate() {
        if n > 0 {
            let is_unit = ["B", "KiB", "MiB", "GiB", "ns", "us", "ms", "s", "min", "h", "%", "GB/s"]
                .contains(&word.trim_end_matches([',', ';', ':', ')']));
            joined.push(if is_number && is_unit { JOINED } else { ' ' });
        }
        joined.push_str(word);
        is_number = word.ends_with(|c: char| c.is_ascii_digit());
    }
    joined
}

/// How wide a column is.
struct Column {
    /// Its longest word, or number with its unit.
    least: usize,
    longest: usize,
}

impl Column {
    fn of(head: &str, rows: &[Vec<String>], i: usize, is_number: bool) -> Column {
        let cells = || rows.iter().filter_map(|row| row.get(i)).flat_map(|cell| cell.lines());
        let longest = cells().chain([head]).map(UnicodeWidthStr::width).max().unwrap_or(0);
        let word = |text: &str| text.split(' ').map(UnicodeWidthStr::width).max().unwrap_or(0);
        // Leading blanks show the nesting.
        let indented = |text: &str| text.width() - text.trim_start().width() + word(text);
        let of_cells =
            cells().map(|text| if is_number || text.width() <= SHORT { text.width() } else { indented(text) });
        Column { least: of_cells.chain([word(head)]).max().unwrap_or(0), longest }
    }
}

fn total<'a>(columns: impl IntoIterator<Item = &'a Column>, of: impl Fn(&Column) -> usize) -> usize {
    columns.into_iter().map(|c| of(c) + GAP).sum::<usize>().saturating_sub(GAP)
}

/// Each kept column gets what its words need, and then an equal part of the rest, the shortest first.
fn shared_out(all: &[Column], kept: &[usize], columns: usize) -> Vec<Option<usize>> {
    let mut widths = vec![None; all.len()];
    let mut left = columns.saturating_sub(total(kept.iter().map(|i| &all[*i]), |c| c.least));
    let mut order = kept.to_vec();
    order.sort_by_key(|i| all[*i].longest - all[*i].least.min(all[*i].longest));
    for (done, i) in order.iter().enumerate() {
        let Column { least, longest } = all[*i];
        let more = longest.saturating_sub(least).min(left / (order.len() - done));
        left -= more;
        widths[*i] = Some(least + more);
    }
    widths
}

/// `95 % of p50`
fn is_interval(head: &str) -> bool {
    head.starts_with("95 %") || head.starts_with("99 %")
}

/// A text in lines of at most this many columns, broken between words; the later ones begin with `indent`. No lines for an empty text.
pub(super) fn wrapped(text: &str, columns: usize, indent: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let first = &text[..text.len() - text.trim_start().len()];
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= columns => *line += &format!(" {word}"),
            Some(_) => lines.push(format!("{indent}{word}")),
            None => lines.push(format!("{first}{word}")),
        }
    }
    lines
}

pub(super) fn texts(row: &Row) -> Vec<String> {
    row.cell_iter().map(|cell| cell.content()).collect()
}
