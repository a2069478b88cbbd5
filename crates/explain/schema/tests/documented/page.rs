//! The reference page, made from the doc comments.

use crate::declared::{Declared, Id, Member, Nested, Sources, kind};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Keys that mean the same everywhere, or what their name says. All others have a doc comment, or a struct that has one.
const PLAIN: &[&str] = &[
    "address",
    "all_operations",
    "by_ns",
    "bytes",
    "call",
    "calls",
    "channels",
    "class",
    "class_name",
    "client",
    "contended",
    "copies",
    "count",
    "cpu",
    "doorbells",
    "driver_calls",
    "engine",
    "entries",
    "exe",
    "failed",
    "file",
    "from",
    "function",
    "generation",
    "handle",
    "kernels",
    "launches",
    "length",
    "line",
    "lock",
    "longest_hold_ns",
    "longest_ns",
    "longest_wait_ns",
    "max_ns",
    "mean_ns",
    "mutex_locks",
    "name",
    "node",
    "notes",
    "ns",
    "offset",
    "p50_ns",
    "p99_ns",
    "path",
    "pid",
    "process",
    "seconds",
    "slot",
    "submissions",
    "thread",
    "tid",
    "to",
    "tsc",
    "wait_ns",
    "why",
    "bank_bytes",
];

/// A struct that a command prints, or that is a line of an export.
pub struct Section {
    pub title: &'static str,
    /// The file that declares it, and its name.
    pub of: (&'static str, &'static str),
    /// What prints it.
    pub head: &'static str,
}

struct Page<'a> {
    sources: &'a Sources,
    /// The title under which each struct is described.
    titles: BTreeMap<Id, String>,
    text: String,
}

pub fn page(sources: &Sources, head: &str, sections: &[Section], tail: &str) -> String {
    let id = |s: &Section| (s.of.0.to_owned(), s.of.1.to_owned());
    let titles = sections.iter().map(|s| (id(s), s.title.to_owned())).collect();
    let mut page = Page { sources, titles, text: head.to_owned() };
    for section in sections {
        let declared = &sources.all[&id(section)];
        let _ = write!(page.text, "\n## {}\n\n{}\n\n", section.title, section.head);
        page.describe(declared);
    }
    page.text + tail
}

impl<'a> Page<'a> {
    /// A struct or enum, then those in it that are not described yet.
    fn describe(&mut self, of: &'a Declared) {
        let mut parts = Vec::new();
        for (file, key) in self.sources.keys(of) {
            let Some(part) = self.sources.find(file, kind(&key.of).0) else { continue };
            if self.titles.contains_key(&part.id) {
                continue;
            }
            let (file, name) = &part.id;
            let is_taken = self.titles.values().any(|title| title == name);
            let title = if is_taken { format!("{name} ({file})") } else { name.clone() };
            self.titles.insert(part.id.clone(), title.clone());
            parts.push((title, part));
        }
        self.table(of);
        for (title, part) in parts {
            let _ = write!(self.text, "\n### {title}\n\n");
            if !part.about.is_empty() {
                let _ = write!(self.text, "{}\n\n", part.about);
            }
            self.describe(part);
        }
    }

    fn table(&mut self, of: &Declared) {
        if of.is_enum {
            self.text.push_str("| value | meaning |\n|---|---|\n");
            for value in &of.members {
                let _ = writeln!(self.text, "| `{}` | {} |", value.name, cell(&value.about));
            }
            return;
        }
        self.text.push_str("| key | meaning |\n|---|---|\n");
        let mut plain = Vec::new();
        for (file, key) in self.sources.keys(of) {
            let part = self.sources.find(file, kind(&key.of).0);
            let is_plain = PLAIN.contains(&key.name.as_str());
            let (file, name) = &of.id;
            assert!(
                !key.about.is_empty() || part.is_some() || is_plain,
                "{file}: `{}` of {name} has no doc comment",
                key.name
            );
            let value = self.value(part, key);
            let about = cell(&key.about);
            let is_usual = ["number", "string", "bool"].contains(&value.as_str()) || key.name == "tsc";
            let _ = match (is_usual, about.is_empty()) {
                (true, true) => {
                    plain.push(format!("`{}`", key.name));
                    continue;
                }
                (true, false) => writeln!(self.text, "| `{}` | {about} |", key.name),
                (false, true) => writeln!(self.text, "| `{}` | {value} |", key.name),
                (false, false) => writeln!(self.text, "| `{}` | {value}: {about} |", key.name),
            };
        }
        if !plain.is_empty() {
            let _ = writeln!(self.text, "| {} | |", plain.join(", "));
        }
    }

    /// The kind of a value, as `array of WaitRow`.
    fn value(&self, part: Option<&Declared>, key: &Member) -> String {
        let (name, nested) = kind(&key.of);
        let mut text = match (part, key.wide) {
            (Some(part), _) => {
                let title = &self.titles[&part.id];
                format!("[{title}](#{})", anchor(title))
            }
            (None, Some(wide)) => format!("{wide} string"),
            (None, None) => plain(name).to_owned(),
        };
        for outer in nested.iter().rev() {
            text = match outer {
                Nested::Array => format!("array of {text}"),
                Nested::Map => format!("{text} by name"),
                Nested::OrNull if key.may_be_absent => text,
                Nested::OrNull => format!("{text} or null"),
            };
        }
        if key.may_be_absent { format!("{text} or absent") } else { text }
    }
}

/// What JSON calls a value of a type of Rust.
fn plain(name: &str) -> &'static str {
    match name {
        "bool" => "bool",
        "u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64" | "f64" => "number",
        "str" | "&'static str" | "String" | "Cow" => "string",
        "Both" => "two numbers",
        other if other.starts_with('(') => "two values",
        other => panic!("{other}: add it to `plain`"),
    }
}

fn anchor(title: &str) -> String {
    title.to_lowercase().replace(' ', "-").replace(['(', ')'], "")
}

/// A comment as JSON's readers know it, without its last point.
fn cell(text: &str) -> String {
    assert!(!text.contains("crate::"), "a path of Rust: {text}");
    let text = text.replace('|', "\\|").replace("`None`", "null");
    if text.ends_with("...") { text } else { text.strip_suffix('.').unwrap_or(&text).to_owned() }
}

/// The paths of all keys of a struct, as `waits[].holders[].tid`.
pub fn paths(sources: &Sources, of: &Declared, prefix: &str, into: &mut BTreeSet<String>) {
    for (file, key) in sources.keys(of) {
        let path = format!("{prefix}{}", key.name);
        let (name, nested) = kind(&key.of);
        if let Some(part) = sources.find(file, name).filter(|part| !part.is_enum) {
            let inner = nested.iter().fold(path.clone(), |path, of| match of {
                Nested::Array => path + "[]",
                Nested::Map => path + ".*",
                Nested::OrNull => path,
            });
            paths(sources, part, &format!("{inner}."), into);
        }
        into.insert(path);
    }
}
