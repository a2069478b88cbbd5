//! A table on a terminal that is narrower than the table. Words and numbers stay complete: texts wrap between words, then columns are left out and
//! named, and if most would be left out each row becomes a paragraph.

use super::Table;
use comfy_table::{ColumnConstraint, Row, Width};
use unicode_width::UnicodeWidthStr;

/// Blanks between two columns.
const GAP: usize = 2;
pub(super) const LEFT_OUT: &str = "no room for: ";
/// A cell of at most this length stays on one line, such as `1024 x 1 x 1`.
const SHORT: usize = 12;

/// The lines of a table within this many columns. A longer word makes its line longer.
pub(super) fn lines(t: &Table, columns: usize) -> Vec<String> {
    let mut grid = t.grid.clone();
    grid.row_iter_mut()
        .for_each(|row| *row = Row::from(texts(row).iter().map(|text| with_units(text)).collect::<Vec<_>>()));
    let rows: Vec<Vec<String>> = grid.row_iter().map(texts).collect();
    let heads = t.grid.header().map(texts).unwrap_or_default();
    let all: Vec<Column> = (0..heads.len()).map(|i| Column::of(&heads[i], &rows, i, t.is_number[i])).collect();
    if total(&all, |c| c.longest) <= columns {
        return t.grid.to_string().lines().map(str::to_owned).collect();
    }
    let mut kept: Vec<usize> = (0..all.len()).collect();
    let least = |kept: &[usize]| total(kept.iter().map(|i| &all[*i]), |c| c.least);
    // Intervals first, then from the right; the column that names the row stays.
    while least(&kept) > columns && kept.len() > 1 {
        let interval = kept.iter().rposition(|i| is_interval(&heads[*i])).filter(|at| *at > 0);
        kept.remove(interval.unwrap_or(kept.len() - 1));
    }
    if kept.len() * 2 < all.len() || least(&kept) > columns {
        return paragraphs(&heads, &rows, columns);
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
    if !left_out.is_empty() {
        let note = format!("{LEFT_OUT}{} (a wider terminal or a pipe has it)", left_out.join(", "));
        lines.extend(wrapped(&note, columns, ""));
    }
    lines
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

/// The first cell, and below it all others with their heads.
fn paragraphs(heads: &[String], rows: &[Vec<String>], columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for row in rows {
        let mut cells = row.iter().zip(heads);
        if let Some((first, head)) = cells.next() {
            lines.extend(wrapped(format!("{head} {first}").trim_start(), columns, "  "));
        }
        let mut line = String::new();
        for (cell, head) in cells.filter(|(cell, _)| !cell.is_empty()) {
            let pair = if head.is_empty() { cell.clone() } else { format!("{head}: {cell}") };
            match line.width() + GAP + pair.width() <= columns && !line.is_empty() {
                true => line += &format!("; {pair}"),
                false => {
                    lines.extend(wrapped(&std::mem::take(&mut line), columns, "    "));
                    line = format!("  {pair}");
                }
            }
        }
        lines.extend(wrapped(&line, columns, "    "));
    }
    lines.into_iter().map(|line| line.replace(JOINED, " ")).collect()
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

fn texts(row: &Row) -> Vec<String> {
    row.cell_iter().map(|cell| cell.content()).collect()
}
