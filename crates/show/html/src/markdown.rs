//! A document as Markdown: the same texts and tables, and of each picture its data.

use crate::document::{Block, ColumnKind, Document, Mark, Notice, Table};
use std::fmt::Write;

/// Writes the whole document.
pub fn write(document: &Document) -> String {
    let mut out = String::new();
    for article in &document.articles {
        let _ = writeln!(out, "# {}\n", escaped(&article.title));
        article.by_weight().into_iter().for_each(|n| notice(&mut out, n));
        if !article.about.is_empty() {
            let _ = writeln!(out, "{}\n", escaped(&article.about));
        }
        list(&mut out, &article.taken);
        for section in &article.sections {
            let _ = writeln!(out, "## {}\n", escaped(&section.title));
            section.blocks.iter().for_each(|b| block(&mut out, b));
        }
    }
    let _ = writeln!(out, "{}", escaped(&document.by));
    out
}

fn notice(out: &mut String, notice: &Notice) {
    let _ = writeln!(out, "> **{}:** {}\n", notice.kind.word(), escaped(&notice.text));
}

/// Escapes characters with a meaning in Markdown.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' => out.extend(['\\', c]),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

fn list(out: &mut String, lines: &[String]) {
    for line in lines {
        let _ = writeln!(out, "- {}", escaped(line));
    }
    if !lines.is_empty() {
        out.push('\n');
    }
}

fn block(out: &mut String, block: &Block) {
    let _ = match block {
        Block::Text(text) | Block::Answer(text) => writeln!(out, "{}\n", escaped(text)),
        Block::Heading(text) => writeln!(out, "### {}\n", escaped(text)),
        Block::Notice(n) => {
            notice(out, n);
            Ok(())
        }
        Block::List(lines) => {
            list(out, lines);
            Ok(())
        }
        // A line of code ends with its indent, whatever is in it.
        Block::Lines(lines) => {
            lines.iter().for_each(|line| out.extend(["    ", line, "\n"]));
            writeln!(out)
        }
        Block::Facts(facts) => {
            for (name, value) in facts {
                let _ = writeln!(out, "- **{}:** {}", escaped(name), escaped(value));
            }
            writeln!(out)
        }
        Block::Timeline(t) => writeln!(out, "{}\n", escaped(&t.says)),
        Block::Table(t) => table(out, t, &t.caption),
        Block::Figure(f) => {
            let about = if f.about.is_empty() { String::new() } else { format!(" {}", escaped(&f.about)) };
            let _ = writeln!(out, "**{}**{about}\n", escaped(&f.title));
            list(out, &f.says);
            table(out, &f.table, "")
        }
    };
}

fn table(out: &mut String, t: &Table, caption: &str) -> std::fmt::Result {
    if !caption.is_empty() {
        writeln!(out, "*{}*\n", escaped(caption))?;
    }
    let heads: Vec<String> = t.columns.iter().map(|c| escaped(&c.head)).collect();
    writeln!(out, "| {} |", heads.join(" | "))?;
    let lines: Vec<&str> = t.columns.iter().map(|c| if c.kind == ColumnKind::Number { "--:" } else { "---" }).collect();
    writeln!(out, "| {} |", lines.join(" | "))?;
    for row in &t.rows {
        let cell = |c: &crate::document::Cell| match c.mark {
            Mark::Best => format!("**{}**", escaped(&c.text)),
            _ => escaped(&c.text),
        };
        let cells: Vec<String> = row.cells.iter().map(cell).collect();
        writeln!(out, "| {} |", cells.join(" | "))?;
    }
    writeln!(out)
}
