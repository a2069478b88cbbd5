//! A TOML text as a tree in which every node has its place, and the changes to it by command line options.

use crate::keys::{self, Kind};
use settings::{Error, Lines, Place, Wrong};
use toml::de::{DeTable, DeValue};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub place: Place,
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Whole(i128),
    Number(f64),
    Flag(bool),
    /// A date, or a number that is too large: no key takes it.
    Other(String),
    List(Vec<Node>),
    Table(Table),
}

impl Value {
    /// For messages.
    pub fn kind(&self) -> String {
        match self {
            Value::Text(text) => format!("the text {text:?}"),
            Value::Whole(n) => format!("the number {n}"),
            Value::Number(n) => format!("the number {n}"),
            Value::Flag(flag) => flag.to_string(),
            Value::Other(text) => format!("`{text}`"),
            Value::List(_) => "a list".into(),
            Value::Table(_) => "a table".into(),
        }
    }
}

/// In the order in which they are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table {
    pub place: Place,
    pub entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub key: String,
    pub place: Place,
    pub node: Node,
}

impl Table {
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.node)
    }

    fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)?.value {
            Value::Text(ref text) => Some(text),
            _ => None,
        }
    }

    /// The name of a subject or load: as given, or its route or call.
    pub fn named(&self) -> Option<&str> {
        ["name", "route", "call"].into_iter().find_map(|key| self.text(key))
    }

    pub fn put(&mut self, key: &str, node: Node) {
        match self.entries.iter_mut().find(|entry| entry.key == key) {
            Some(entry) => (entry.place, entry.node) = (node.place.clone(), node),
            None => self.entries.push(Entry { key: key.into(), place: node.place.clone(), node }),
        }
    }
}

/// Reads a text.
pub(crate) fn parse(text: &str) -> Result<Table, Error> {
    let lines = Lines::of(text);
    let document = DeTable::parse(text).map_err(|e| {
        let place = e.span().map_or(Place::Whole, |span| lines.place(text, span.start));
        Wrong::new(format!("this is not TOML: {}", e.message().replace('\n', ", ")), "").at(&place)
    })?;
    let mut root = table(text, &lines, document.get_ref());
    root.place = Place::At { line: 1, column: 1 };
    Ok(root)
}

fn table(text: &str, lines: &Lines, from: &DeTable<'_>) -> Table {
    let mut entries: Vec<(usize, Entry)> = from
        .iter()
        .map(|(key, value)| {
            let start = key.span().start;
            let node = node(text, lines, value.span().start, value.get_ref());
            (start, Entry { key: key.get_ref().to_string(), place: lines.place(text, start), node })
        })
        .collect();
    entries.sort_by_key(|(start, _)| *start);
    let place = entries.first().map_or(Place::Whole, |(_, entry)| entry.place.clone());
    Table { place, entries: entries.into_iter().map(|(_, entry)| entry).collect() }
}

fn node(text: &str, lines: &Lines, start: usize, from: &DeValue<'_>) -> Node {
    let place = lines.place(text, start);
    let value = match from {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(n) => match i128::from_str_radix(n.as_str(), n.radix()) {
            Ok(whole) => Value::Whole(whole),
            Err(_) => Value::Other(n.to_string()),
        },
        DeValue::Float(n) => match n.as_str().parse() {
            Ok(number) => Value::Number(number),
            Err(_) => Value::Other(n.to_string()),
        },
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(date) => Value::Other(date.to_string()),
        DeValue::Array(list) => {
            Value::List(list.iter().map(|v| node(text, lines, v.span().start, v.get_ref())).collect())
        }
        DeValue::Table(from) => Value::Table(Table { place: place.clone(), ..table(text, lines, from) }),
    };
    Node { place, value }
}

/// `run.duration=60s`, `cuda.arrival=paced(50us)`, `matrix.policy=stock,pi`: puts the value into the tree, as if the file had it. Without a value
/// the key is removed.
pub(crate) fn set(root: &mut Table, option: &str) -> Result<(), Error> {
    let place = Place::Option(format!("--set {option}"));
    let names = names(root);
    let (section, rest) = section(option, &names).map_err(|wrong| wrong.at(&place))?;
    let within = if section == "matrix" { names.as_slice() } else { &[] };
    let Some((key, text)) = key(rest, within) else {
        return Err(Wrong::new("there is no `=`", SHAPE).at(&place));
    };
    let text = text.trim();
    if (section, key, text) == ("compare", "baseline", "") {
        compare_nothing(root);
        return Ok(());
    }
    let node = Node { value: value(text, keys::kind(section, key), &place), place: place.clone() };
    let put = |table: &mut Table| match text {
        "" => table.entries.retain(|entry| entry.key != key),
        _ => table.put(key, node.clone()),
    };
    if section.is_empty() {
        put(root);
        return Ok(());
    }
    if keys::section(section).is_some_and(|s| !s.many) && !names.iter().any(|name| name == section) {
        if root.get(section).is_none() {
            let empty = Table { place: place.clone(), entries: Vec::new() };
            root.put(section, Node { place: place.clone(), value: Value::Table(empty) });
        }
        let found = root.entries.iter_mut().find(|entry| entry.key == section);
        if let Some(Value::Table(table)) = found.map(|entry| &mut entry.node.value) {
            if section == "matrix" {
                flatten(table);
            }
            put(table);
        }
        return Ok(());
    }
    // If two have the same name, both are set: the duplicate is reported later.
    for table in tables(root).filter(|table| table.named() == Some(section)) {
        // `route` and `call` exclude each other.
        match key {
            "route" => table.entries.retain(|entry| entry.key != "call"),
            "call" => table.entries.retain(|entry| entry.key != "route"),
            _ => {}
        }
        put(table);
    }
    Ok(())
}

/// Removes the baseline, also in subjects and loads: without one there is no comparison.
pub(crate) fn compare_nothing(root: &mut Table) {
    root.entries.retain(|entry| entry.key != "compare");
    tables(root).for_each(|table| table.entries.retain(|entry| entry.key != "baseline"));
}

const SHAPE: &str = "it is written `run.duration=60s`, `matrix.policy=stock,pi` or `NAME.count=8`, with the name of a \
                     subject or load";

fn tables(root: &mut Table) -> impl Iterator<Item = &mut Table> {
    let many = root.entries.iter_mut().filter(|entry| entry.key == "subject" || entry.key == "load");
    let lists = many.filter_map(|entry| match &mut entry.node.value {
        Value::List(list) => Some(list.iter_mut()),
        _ => None,
    });
    lists.flatten().filter_map(|node| match &mut node.value {
        Value::Table(table) => Some(table),
        _ => None,
    })
}

/// Names of all subjects and loads, the longest first.
fn names(root: &mut Table) -> Vec<String> {
    let mut names: Vec<String> = tables(root).filter_map(|table| table.named().map(str::to_owned)).collect();
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    names
}

/// The section or name that an option is for, and the rest. Names may contain dots and `=`.
fn section<'o>(option: &'o str, names: &[String]) -> Result<(&'o str, &'o str), Wrong> {
    let sections = keys::SECTIONS.iter().filter(|section| !section.many).map(|section| section.name);
    let known: Vec<&str> = names.iter().map(String::as_str).chain(sections).collect();
    for name in &known {
        if let Some(rest) = option.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')) {
            return Ok((&option[..name.len()], rest));
        }
    }
    let head = option.split('=').next().unwrap_or_default();
    match head.rsplit_once('.') {
        Some(("assert", _)) => Err(Wrong::new("asserts have no names and cannot be set", SHAPE)),
        Some((name, _)) => {
            let what = format!("there is no section, subject or load `{name}`");
            Err(Wrong::word(what, name, known.into_iter().filter(|name| !name.is_empty())))
        }
        None => Ok(("", option)),
    }
}

fn key<'o>(rest: &'o str, names: &[String]) -> Option<(&'o str, &'o str)> {
    let behind = names
        .iter()
        .filter(|name| rest.strip_prefix(name.as_str()).is_some_and(|r| r.starts_with('.')))
        .map(String::len);
    let from = behind.max().unwrap_or(0);
    let at = from + rest[from..].find('=')?;
    Some((rest[..at].trim(), &rest[at + 1..]))
}

/// A value in the form of its key: without quotes and brackets, or as in the file.
fn value(text: &str, kind: Option<Kind>, place: &Place) -> Value {
    if text.starts_with(['"', '\'', '['])
        && let Ok(value) = DeValue::parse(text)
    {
        let mut node = node(text, &Lines::of(text), 0, value.get_ref());
        put_at(&mut node, place);
        return node.value;
    }
    match kind {
        Some(Kind::Whole { .. }) => text.parse().map_or_else(|_| Value::Text(text.into()), Value::Whole),
        Some(Kind::Flag) => text.parse().map_or_else(|_| Value::Text(text.into()), Value::Flag),
        Some(Kind::Values) => {
            let node = |text: &str| Node { place: place.clone(), value: Value::Text(text.trim().into()) };
            Value::List(split(text).into_iter().map(node).collect())
        }
        _ => Value::Text(text.into()),
    }
}

/// All of it comes from one option.
fn put_at(node: &mut Node, place: &Place) {
    node.place = place.clone();
    if let Value::List(list) = &mut node.value {
        list.iter_mut().for_each(|inner| put_at(inner, place));
    }
}

/// Splits at the commas outside of brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0usize);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// `crowd.count = [..]` is a table within a table in TOML, and one name here. Quoted names stay as they are.
pub(crate) fn flatten(table: &mut Table) {
    let mut flat = Vec::new();
    for entry in std::mem::take(&mut table.entries) {
        match entry.node.value {
            Value::Table(mut inner) => {
                flatten(&mut inner);
                let within = |inside: Entry| Entry { key: format!("{}.{}", entry.key, inside.key), ..inside };
                flat.extend(inner.entries.into_iter().map(within));
            }
            _ => flat.push(entry),
        }
    }
    table.entries = flat;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_lines_and_columns_of_characters() {
        let root = parse("a = 1\n\n# ü\n  b = [\"ü\", 2]\n[t]\nx.y = true\n").unwrap();
        let at = |line, column| Place::At { line, column };
        assert_eq!(root.entry("b").unwrap().place, at(4, 3));
        let Value::List(list) = &root.get("b").unwrap().value else { panic!() };
        assert_eq!(list[1].place, at(4, 13));
        let Value::Table(t) = &root.get("t").unwrap().value else { panic!() };
        let mut t = t.clone();
        flatten(&mut t);
        assert_eq!((t.entries[0].key.as_str(), &t.entries[0].place), ("x.y", &at(6, 3)));
    }

    #[test]
    fn entries_keep_their_order() {
        let root = parse("z = 1\na = 2\nm = 3\n").unwrap();
        let keys: Vec<&str> = root.entries.iter().map(|entry| entry.key.as_str()).collect();
        assert_eq!(keys, ["z", "a", "m"]);
    }

    #[test]
    fn commas_within_brackets_do_not_split() {
        assert_eq!(split("stock,pi"), ["stock", "pi"]);
        assert_eq!(split("host->cuda[graph,polled]->gpu0,closed(4)"), ["host->cuda[graph,polled]->gpu0", "closed(4)"]);
        assert_eq!(split(""), [""]);
        assert_eq!(split("a],b"), ["a]", "b"]);
    }
}
