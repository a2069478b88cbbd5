//! Rows of fixed columns, written as they are found: on a narrow terminal the least important columns are left out, and named at the end.

use super::{Style, narrow};
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

const GAP: usize = 2;
/// Room of the last column, whose texts have any length.
const LAST: usize = 16;

/// One column. The last one of a list may have longer texts.
pub struct Column {
    /// `>` in front: for numbers.
    pub head: &'static str,
    pub width: usize,
    /// 0: the last to be left out.
    pub rank: u8,
}

/// Short, for lists.
pub const fn column(head: &'static str, width: usize, rank: u8) -> Column {
    Column { head, width, rank }
}

/// The columns that this terminal has room for.
pub struct Columns {
    style: Style,
    all: &'static [Column],
    is_kept: Vec<bool>,
    indent: usize,
    has_cut: bool,
}

impl Columns {
    pub fn new(style: Style, all: &'static [Column], indent: usize) -> Columns {
        let mut is_kept = vec![true; all.len()];
        let room = style.width.map(usize::from);
        let width = |i: usize| if i + 1 == all.len() { LAST.max(all[i].width) } else { all[i].width };
        let needed = |is_kept: &[bool]| (0..all.len()).filter(|i| is_kept[*i]).map(|i| width(i) + GAP).sum::<usize>();
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by_key(|i| all[*i].rank);
        while room.is_some_and(|room| indent + needed(&is_kept) > room + GAP) && order.len() > 1 {
            order.pop().into_iter().for_each(|i| is_kept[i] = false);
        }
        Columns { style, all, is_kept, indent, has_cut: false }
    }

    pub fn head(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let heads: Vec<String> = self.all.iter().map(|c| c.head.trim_start_matches('>').to_owned()).collect();
        let line = self.fitted(&heads);
        writeln!(out, "{:indent$}{}", "", self.style.bold(&line), indent = self.indent)
    }

    /// Writes a row. With fewer cells than columns, the last cell is a text in place of all other columns.
    pub fn line(&mut self, out: &mut dyn Write, cells: &[String]) -> io::Result<()> {
        let line = self.fitted(cells);
        writeln!(out, "{:indent$}{line}", "", indent = self.indent)
    }

    fn fitted(&mut self, cells: &[String]) -> String {
        let mut line = String::new();
        for (i, (cell, column)) in cells.iter().zip(self.all).enumerate() {
            let is_text = i + 1 == cells.len() && cells.len() < self.all.len();
            if !self.is_kept[i] && !is_text {
                continue;
            }
            if !line.is_empty() {
                line += "  ";
            }
            let blanks = column.width.saturating_sub(cell.width());
            match column.head.starts_with('>') {
                _ if is_text => line += cell,
                true => line += &format!("{:blanks$}{cell}", ""),
                false => line += &format!("{cell}{:blanks$}", ""),
            }
        }
        let line = line.trim_end();
        match self.style.width.map(|width| usize::from(width).saturating_sub(self.indent)) {
            Some(room) if line.width() > room => {
                self.has_cut = true;
                narrow::cut(line, room)
            }
            _ => line.to_owned(),
        }
    }

    /// Writes what was left out, if anything was.
    pub fn end(&self, out: &mut dyn Write) -> io::Result<()> {
        let left_out: Vec<&str> =
            self.all.iter().zip(&self.is_kept).filter(|(_, kept)| !**kept).map(|(c, _)| c.head).collect();
        let left_out: Vec<&str> = left_out.iter().map(|head| head.trim_start_matches('>')).collect();
        let room = self.style.width.map_or(usize::MAX, usize::from).saturating_sub(self.indent);
        narrow::note(&left_out, self.has_cut, room)
            .iter()
            .try_for_each(|line| writeln!(out, "{:indent$}{line}", "", indent = self.indent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[Column] = &[column(">at", 8, 0), column("thread", 8, 3), column(">bytes", 10, 1), column("to", 12, 2)];

    fn written(width: Option<u16>) -> String {
        let mut columns = Columns::new(Style { width, ..Style::default() }, ALL, 2);
        let mut out = Vec::new();
        columns.head(&mut out).unwrap();
        columns.line(&mut out, &["0.1", "7", "8 B", "GPU 0x204e54000"].map(String::from)).unwrap();
        columns.line(&mut out, &["0.2".into(), "7".into(), "an empty one, orders others".into()]).unwrap();
        columns.end(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_least_important_column_goes_first_and_is_named() {
        let wide = "        at  thread         bytes  to\n       0.1  7                8 B  GPU 0x204e54000\n       0.2  7         \
                    an empty one, orders others\n";
        assert_eq!(written(None), wide);
        assert_eq!(written(Some(80)), wide);
        let at_44 = "        at       bytes  to\n       0.1         8 B  GPU 0x204e54000\n       0.2  an empty one, orders \
                     others\n  left out: thread (a wider terminal or\n  `| cat` shows all)\n";
        assert_eq!(written(Some(44)), at_44);
        let at_24 = written(Some(24));
        assert!(at_24.contains("0.1         8 B\n") && at_24.contains("an empty ...\n"), "{at_24}");
        assert!(at_24.contains("thread, to"), "{at_24}");
        assert!(at_24.lines().all(|line| line.len() <= 24), "{at_24}");
    }
}
