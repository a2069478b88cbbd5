//! Variants: one file has several experiments that differ in a few keys. `[variant.NAME]` holds the differences.

use crate::keys;
use crate::tree::{self, Entry, Node, Table, Value};
use settings::{Error, Place, Wrong};

/// One variant of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    pub name: String,
    pub about: String,
}

/// Removes the variants from a file, and replaces the file's keys by those of the wanted variant.
///
/// Returns the name of the resulting variant: the wanted one, or the one that the text already is (files that doorbell writes contain
/// `variant = "NAME"`).
pub(crate) fn choose(root: &mut Table, wanted: Option<&str>) -> Result<Option<String>, Error> {
    let all = tables(root)?;
    let written = root.entries.iter().position(|entry| entry.key == KEY).map(|at| root.entries.remove(at));
    let Some(wanted) = wanted else {
        return Ok(written.and_then(|entry| match entry.node.value {
            Value::Text(name) => Some(name),
            _ => None,
        }));
    };
    let Some((_, table)) = all.iter().find(|(variant, _)| variant.name == wanted) else {
        let what = format!("there is no variant {wanted:?}");
        let wrong = match all.is_empty() {
            true => Wrong::new(what, "leave it out: this experiment has no variants"),
            false => Wrong::word(what, wanted, all.iter().map(|(variant, _)| variant.name.as_str())),
        };
        return Err(wrong.at(&Place::Option(format!("--variant {wanted}"))));
    };
    for entry in &table.entries {
        match &entry.node.value {
            Value::Table(changes) => merge(root, entry, changes),
            _ => root.put(&entry.key, entry.node.clone()),
        }
    }
    Ok(Some(wanted.to_owned()))
}

/// The variants of a text.
pub(crate) fn list(text: &str) -> Result<Vec<Variant>, Error> {
    Ok(tables(&tree::parse(text)?)?.into_iter().map(|(variant, _)| variant).collect())
}

const KEY: &str = "variant";
const SHAPE: &str = "it is written [variant.NAME], with an `about`";

/// Each with its table.
fn tables(root: &Table) -> Result<Vec<(Variant, Table)>, Error> {
    let Some(entry) = root.entry(KEY) else { return Ok(Vec::new()) };
    match &entry.node.value {
        Value::Table(all) => all.entries.iter().map(one).collect(),
        Value::Text(_) => Ok(Vec::new()),
        other => Err(Wrong::new(format!("`{KEY}` is {}", other.kind()), SHAPE).at(&entry.place)),
    }
}

fn one(entry: &Entry) -> Result<(Variant, Table), Error> {
    let title = format!("[{KEY}.{}]", entry.key);
    let Value::Table(table) = &entry.node.value else {
        return Err(Wrong::new(format!("`{KEY}.{}` is {}", entry.key, entry.node.value.kind()), SHAPE).at(&entry.place));
    };
    if let Err(wrong) = crate::read::file_name(&entry.key) {
        return Err(Wrong { what: format!("{title}: {}", wrong.what), ..wrong }.at(&entry.place));
    }
    let words = || keys::SECTIONS.iter().map(|section| section.name).filter(|name| !name.is_empty()).chain(["about"]);
    for inner in &table.entries {
        if !words().any(|word| word == inner.key) {
            let what = format!("there is no `{}` in {title}", inner.key);
            return Err(Wrong::word(what, &inner.key, words()).at(&inner.place));
        }
    }
    match table.get("about").map(|node| &node.value) {
        Some(Value::Text(about)) if !about.trim().is_empty() => {
            Ok((Variant { name: entry.key.clone(), about: about.clone() }, table.clone()))
        }
        _ => {
            Err(Wrong::new(format!("{title} has no `about`"), "`about = \"..\"`, one line for people").at(&entry.place))
        }
    }
}

/// Keys of a variant come after the keys that it leaves unchanged, in its own order: the order of a matrix is that of its stages. An empty text
/// removes a key, as with `--set`.
fn merge(root: &mut Table, entry: &Entry, changes: &Table) {
    let mut changes = changes.clone();
    let mut merged = match root.get(&entry.key).map(|node| &node.value) {
        Some(Value::Table(old)) => old.clone(),
        _ => Table { place: changes.place.clone(), entries: Vec::new() },
    };
    if entry.key == "matrix" {
        tree::flatten(&mut merged);
        tree::flatten(&mut changes);
    }
    let is_empty = |entry: &Entry| entry.node.value == Value::Text(String::new());
    if entry.key == "compare" && changes.entry("baseline").is_some_and(is_empty) {
        tree::compare_nothing(root);
        return;
    }
    merged.entries.retain(|old| changes.get(&old.key).is_none());
    merged.entries.extend(changes.entries.into_iter().filter(|new| !is_empty(new)));
    if merged.entries.is_empty() {
        root.entries.retain(|old| old.key != entry.key);
    } else {
        root.put(&entry.key, Node { place: entry.node.place.clone(), value: Value::Table(merged) });
    }
}
