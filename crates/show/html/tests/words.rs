//! What pages quote: error texts are those of the source, and the README's intervals are those of the pages that it links.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// The text of all source files below, with strings that go on in the next line made one.
fn source(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let extension = path.extension().and_then(|e| e.to_str());
        if path.is_dir() {
            source(&path, text);
        } else if matches!(extension, Some("rs" | "py")) && !path.ends_with("words.rs") {
            let mut lines = fs::read_to_string(&path).unwrap_or_default();
            while let Some(at) = lines.find("\\\n") {
                let rest = lines[at + 2..].trim_start().to_owned();
                lines.truncate(at);
                lines += &rest;
            }
            text.push_str(&lines);
        }
    }
}

/// `a text ... with gaps` in the column of texts, with its line.
fn quoted(page: &str) -> Vec<(usize, Vec<&str>)> {
    let (mut column, mut found) = (None, Vec::new());
    for (line, number) in page.lines().zip(1..) {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        if !line.starts_with('|') {
            column = None;
        } else if column.is_none() {
            column = cells.iter().position(|cell| cell.starts_with("text"));
        } else if let Some(text) = column.and_then(|at| cells.get(at)).and_then(|cell| cell.strip_prefix('`')) {
            let text = text.split('`').next().unwrap();
            let parts = text.split("...").map(|part| part.trim_matches([' ', ':', ';', '(', ')', ',']));
            found.push((number, parts.filter(|part| part.len() > 3).collect()));
        }
    }
    found
}

#[test]
fn the_errors_of_the_page_are_those_of_the_source() {
    let page = fs::read_to_string(root().join("docs/reference/troubleshooting.md")).unwrap();
    let mut text = String::new();
    for folder in ["crates", "python"] {
        source(&root().join(folder), &mut text);
    }
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for (number, parts) in quoted(&page) {
        seen += parts.len();
        wrong.extend(parts.iter().filter(|part| !text.contains(**part)).map(|part| format!("{number}: {part}")));
    }
    assert!(wrong.is_empty(), "troubleshooting.md has texts that nothing prints:\n{}", wrong.join("\n"));
    assert!(seen > 40, "{seen} texts");
}

/// `[FIGURE (LOW to HIGH)](PAGE)`: all three numbers are in one row of that page.
#[test]
fn the_readmes_intervals_are_in_the_pages_that_it_links() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let mut seen = 0;
    for link in readme.split('[').skip(1) {
        let Some((text, rest)) = link.split_once("](") else { continue };
        if !text.contains(" to ") || !text.ends_with(')') {
            continue;
        }
        let page = rest.split([')', '#']).next().unwrap();
        let numbers: Vec<&str> = text.split([' ', '(', ')', '%']).filter(|w| w.parse::<f64>().is_ok()).collect();
        assert_eq!(numbers.len(), 3, "{text}");
        let page = fs::read_to_string(root().join(page)).unwrap();
        let words = |row: &str| row.split([' ', '(', ')', '%', '|', '+']).map(str::to_owned).collect::<Vec<_>>();
        assert!(page.lines().map(words).any(|row| numbers.iter().all(|n| row.iter().any(|w| w == n))), "{text}");
        seen += 1;
    }
    assert!(seen > 0, "{seen} intervals");
}

#[test]
fn the_index_of_evidence_names_each_page() {
    let folder = root().join("docs/results");
    let index = fs::read_to_string(folder.join("README.md")).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.ends_with(".md") || name == "README.md" || index.contains(&format!("({name})")), "{name}");
    }
}
