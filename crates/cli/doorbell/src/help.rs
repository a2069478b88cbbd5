//! The text after the options in `--help`: examples, lists and paragraphs, laid out for the terminal's width.

use std::borrow::Cow;
use std::cell::Cell;

/// Maximum length of a line.
const WIDEST: usize = 100;
/// Minimum width of the layout.
const NARROWEST: usize = 40;

thread_local! {
    /// Requested number of columns; 0: the terminal's.
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

/// Calls `build`, which lays its help out for so many columns, whatever the terminal's width.
pub fn laid_out_for<T>(columns: usize, build: impl FnOnce() -> T) -> T {
    ASKED.set(columns);
    let built = build();
    ASKED.set(0);
    built
}

/// Columns that help is laid out for: those of the terminal (or COLUMNS), at most 100.
pub fn width() -> usize {
    let asked = Some(ASKED.get()).filter(|asked| *asked > 0);
    asked.or_else(|| terminal::table::columns().map(usize::from)).unwrap_or(WIDEST).clamp(NARROWEST, WIDEST)
}

/// A text after the head of its first line; the other lines are indented.
pub fn wrapped(text: &str, head: &str, indent: usize) -> String {
    filled(text, width(), head, &" ".repeat(indent))
}

fn filled(text: &str, width: usize, first: &str, others: &str) -> String {
    let options = textwrap::Options::new(width)
        .initial_indent(first)
        .subsequent_indent(others)
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .break_words(false);
    textwrap::fill(text, options)
}

/// The text after the options.
pub struct Page {
    width: usize,
    text: String,
}

impl From<Page> for clap::builder::StyledStr {
    fn from(page: Page) -> Self {
        page.text.trim_end().to_owned().into()
    }
}

impl Page {
    /// Begins with examples: a command line, and what it does (or an empty text).
    pub fn examples(examples: &[(&str, &str)]) -> Page {
        let mut page = Page { width: width(), text: String::from("Examples:\n") };
        let longest = examples.iter().filter(|e| !e.1.is_empty()).map(|e| e.0.len()).max().unwrap_or(0);
        let beside =
            examples.iter().all(|(command, what)| 2 + command.len().max(longest) + 3 + what.len() <= page.width);
        for (command, what) in examples {
            if beside && !what.is_empty() {
                page.text += &format!("  {command:longest$}   {what}\n");
                continue;
            }
            if !what.is_empty() {
                page.paragraph(&format!("# {what}"), "  ", "  # ");
            }
            page.command(command);
        }
        page
    }

    /// A command line, continued with backslashes if it is too long.
    fn command(&mut self, command: &str) {
        let options = textwrap::Options::new(self.width.saturating_sub(2))
            .initial_indent("  ")
            .subsequent_indent("      ")
            .word_separator(textwrap::WordSeparator::AsciiSpace)
            .word_splitter(textwrap::WordSplitter::NoHyphenation)
            .break_words(false);
        let lines: Vec<Cow<'_, str>> = textwrap::wrap(command, options);
        self.text += &lines.join(" \\\n");
        self.text.push('\n');
    }

    fn paragraph(&mut self, text: &str, first: &str, others: &str) {
        self.text += &filled(text, self.width, first, others);
        self.text.push('\n');
    }

    /// A paragraph.
    pub fn text(mut self, text: &str) -> Page {
        self.text.push('\n');
        self.paragraph(text, "", "");
        self
    }

    /// A list with a heading: words and their meanings.
    pub fn list(mut self, head: &str, items: &[(&str, &str)]) -> Page {
        self.text.push('\n');
        self.paragraph(head, "", "");
        let longest = items.iter().map(|i| i.0.len()).max().unwrap_or(0);
        for (word, meaning) in items {
            if longest > 24 {
                self.paragraph(word, "  ", "    ");
                self.paragraph(meaning, "      ", "      ");
            } else {
                let others = " ".repeat(longest + 4);
                self.paragraph(&format!("{word:longest$}  {meaning}"), "  ", &others);
            }
        }
        self
    }

    /// Lines as they are, for example from a file.
    pub fn verbatim(mut self, head: &str, lines: &[&str]) -> Page {
        self.text.push('\n');
        self.paragraph(head, "", "");
        for line in lines {
            self.text += &format!("  {line}\n");
        }
        self
    }

    /// The last paragraph: statuses by number.
    pub fn statuses(self, statuses: &[(u8, &str)]) -> Page {
        let all: Vec<String> = statuses.iter().map(|(n, what)| format!("{n} {what}")).collect();
        self.text(&format!("Exit status: {}.", all.join(", ")))
    }
}
