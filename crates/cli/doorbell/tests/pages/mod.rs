//! The commands in the README, the tutorials and the guides, as they are printed there.
#![allow(dead_code, reason = "each of the three tests uses a part")]

use std::path::{Path, PathBuf};

/// A command line of a page.
#[derive(Clone, Debug)]
pub struct Printed {
    /// The page's name, and the line's number.
    pub at: String,
    /// Without its comment.
    pub line: String,
    /// The page shows its output below it.
    pub has_output: bool,
    /// In a block with that mark.
    pub needs_gpu: bool,
    /// `tests/tutorials.rs` runs its page from the first block to the last.
    pub of_tutorial: bool,
}

/// The first line of a block of commands that only a machine with a GPU can run.
pub const NEEDS_GPU: &str = "# needs a GPU";

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn folder(name: &str) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = std::fs::read_dir(root().join(name)).unwrap().map(|e| e.unwrap().path()).collect();
    all.retain(|path| path.extension().is_some_and(|e| e == "md"));
    all.sort();
    all
}

/// Pages whose blocks a reader runs from the first to the last.
pub fn tutorials() -> Vec<PathBuf> {
    let mut pages = folder("docs/tutorials");
    pages.push(root().join("docs/guides/starved-thread.md"));
    pages
}

/// A fence of a page.
pub struct Block {
    pub kind: String,
    /// Number of its first line in the page.
    pub line: usize,
    pub lines: Vec<String>,
}

pub fn blocks(page: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(page).unwrap();
    let (mut blocks, mut open) = (Vec::new(), None::<Block>);
    for (n, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(kind), None) => open = Some(Block { kind: kind.trim().into(), line: n + 2, lines: Vec::new() }),
            (None, Some(block)) => block.lines.push(line.into()),
            (None, None) => {}
        }
    }
    blocks
}

/// Lines that call doorbell: those of fences that are no programs or files, and indented ones, in the pages' order.
pub fn all() -> Vec<Printed> {
    let mut pages = vec![root().join("README.md")];
    pages.extend(folder("docs/tutorials"));
    pages.extend(folder("docs/guides"));
    pages.iter().flat_map(|page| of_page(page)).collect()
}

fn of_page(page: &Path) -> Vec<Printed> {
    let text = std::fs::read_to_string(page).unwrap();
    let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let of_tutorial = tutorials().iter().any(|tutorial| tutorial == page);
    let (mut fence, mut needs_gpu) = (None::<String>, false);
    let mut found = Vec::new();
    for (n, line) in text.lines().enumerate() {
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(kind.trim().to_owned()) };
            needs_gpu = false;
            continue;
        }
        needs_gpu |= fence.is_some() && line == NEEDS_GPU;
        let line = match fence.as_deref() {
            // Its output is shown below it.
            Some("text") => line.strip_prefix("$ "),
            Some("sh" | "") => Some(line),
            Some(_) => None,
            None => line.strip_prefix("    "),
        };
        let Some(line) = line.map(without_comment).filter(|line| calls_doorbell(line)) else { continue };
        let has_output = fence.as_deref() == Some("text");
        let at = format!("{name}:{}", n + 1);
        found.push(Printed { at, line: line.to_owned(), has_output, needs_gpu, of_tutorial });
    }
    found
}

fn calls_doorbell(line: &str) -> bool {
    // A command that enters a container may be around it.
    let around = ["unshare ", "docker run "].iter().any(|start| line.starts_with(start)) && line.contains(" doorbell ");
    around || ["doorbell ", "cargo run --release -- "].iter().any(|start| line.starts_with(start))
}

fn without_comment(line: &str) -> &str {
    let (mut quote, mut before) = (None, ' ');
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(q), c) if q == c => quote = None,
            (None, '#') if before.is_whitespace() => return line[..at].trim(),
            _ => {}
        }
        before = c;
    }
    line.trim()
}

impl Printed {
    /// The arguments of each call of doorbell in it, `doorbell` first.
    pub fn calls(&self) -> Vec<Vec<String>> {
        let line = self.line.replace("cargo run --release -- ", "doorbell ");
        let mut calls = vec![Vec::new()];
        let (mut word, mut quote, mut is_word) = (String::new(), None, false);
        for c in line.chars().chain([' ']) {
            match (quote, c) {
                (None, '\'' | '"') => (quote, is_word) = (Some(c), true),
                (Some(q), c) if q == c => quote = None,
                (Some(_), c) => word.push(c),
                (None, '|' | ';' | '&' | '>') => {
                    calls.push(Vec::new());
                    // The word after `>` is a file.
                    if c == '>' {
                        calls.push(vec![">".into()]);
                    }
                }
                (None, c) if c.is_whitespace() => {
                    if is_word && let Some(call) = calls.last_mut() {
                        call.push(std::mem::take(&mut word));
                    }
                    is_word = false;
                }
                (None, c) => {
                    word.push(c);
                    is_word = true;
                }
            }
        }
        for call in &mut calls {
            if call.first().is_some_and(|word| ["unshare", "docker"].contains(&word.as_str())) {
                call.drain(..call.iter().position(|word| word == "doorbell").unwrap_or(0));
            }
        }
        calls.retain(|call| call.first().is_some_and(|word| word == "doorbell"));
        calls
    }
}
