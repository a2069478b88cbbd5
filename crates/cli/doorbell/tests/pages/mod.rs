//! The commands that the README and the guides print, as they print them.
#![allow(dead_code, reason = "each of the two tests uses a part")]

use std::path::{Path, PathBuf};

/// A command line of a page.
#[derive(Clone, Debug)]
pub struct Printed {
    /// The page's name, and the line.
    pub at: String,
    /// Without its comment.
    pub line: String,
    /// With what it printed below it.
    pub has_output: bool,
}

/// Lines of fences that are no programs or files, and indented lines, that call doorbell; in the pages' order.
pub fn all() -> Vec<Printed> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
    let mut pages = vec![root.join("README.md")];
    let folder = |name: &str| -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> = std::fs::read_dir(root.join(name)).unwrap().map(|e| e.unwrap().path()).collect();
        all.retain(|path| path.extension().is_some_and(|e| e == "md"));
        all.sort();
        all
    };
    pages.extend(folder("docs/guides"));
    pages.iter().flat_map(|page| of_page(page)).collect()
}

fn of_page(page: &Path) -> Vec<Printed> {
    let text = std::fs::read_to_string(page).unwrap();
    let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut fence: Option<String> = None;
    let mut found = Vec::new();
    for (n, line) in text.lines().enumerate() {
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(kind.trim().to_owned()) };
            continue;
        }
        let line = match fence.as_deref() {
            // What was printed stands below it.
            Some("text") => line.strip_prefix("$ "),
            Some("sh" | "") => Some(line),
            Some(_) => None,
            None => line.strip_prefix("    "),
        };
        let Some(line) = line.map(without_comment).filter(|line| calls_doorbell(line)) else { continue };
        let has_output = fence.as_deref() == Some("text");
        found.push(Printed { at: format!("{name}:{}", n + 1), line: line.to_owned(), has_output });
    }
    found
}

fn calls_doorbell(line: &str) -> bool {
    // Around it: what enters a container.
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
                    // What follows `>` is a file.
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
