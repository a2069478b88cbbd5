//! What the sources of this crate declare: its structs with the fields that JSON has, and its enums.

use std::collections::BTreeMap;
use std::path::Path;

/// A struct or an enum.
#[derive(Debug)]
pub struct Declared {
    /// The file that declares it, and its name.
    pub id: Id,
    pub about: String,
    /// Keys, or values.
    pub members: Vec<Member>,
    pub is_enum: bool,
}

pub type Id = (String, String);

#[derive(Debug)]
pub struct Member {
    pub name: String,
    /// The type of a field in Rust; empty for a variant.
    pub of: String,
    pub about: String,
    pub flat: bool,
    /// `decimal` or `hex`, where it is a number that is printed as a string.
    pub wide: Option<&'static str>,
    pub may_be_absent: bool,
}

/// The file of crate `tape` with what the recorder writes.
const RECORDS: &str = "records";

/// All declarations, and what each file imports.
pub struct Sources {
    pub all: BTreeMap<Id, Declared>,
    imports: BTreeMap<Id, String>,
}

impl Sources {
    pub fn read() -> Sources {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut sources = Sources { all: BTreeMap::new(), imports: BTreeMap::new() };
        for file in std::fs::read_dir(root.join("src")).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            sources.file(&name, &std::fs::read_to_string(&path).unwrap());
        }
        // (What the recorder writes of itself is a part of the summary.)
        let records = root.join("../../record/tape/src/file/records.rs");
        sources.file(RECORDS, &std::fs::read_to_string(records).unwrap());
        sources
    }

    fn file(&mut self, file: &str, text: &str) {
        let (mut about, mut attributes) = (String::new(), String::new());
        let mut open: Option<Declared> = None;
        for line in text.lines() {
            let line = line.trim();
            if let Some(text) = line.strip_prefix("///") {
                about = format!("{about} {}", text.trim()).trim().to_owned();
            } else if line.starts_with("#[") {
                attributes.push_str(line);
            } else {
                let (about, attributes) = (std::mem::take(&mut about), std::mem::take(&mut attributes));
                match &mut open {
                    None => open = self.begins(file, line, about),
                    Some(_) if line == "}" => {
                        let done = open.take().unwrap();
                        self.all.insert(done.id.clone(), done);
                    }
                    Some(of) => of.members.extend(member(line, of.is_enum, about, &attributes)),
                }
            }
        }
    }

    /// A line outside of all structs.
    fn begins(&mut self, file: &str, line: &str, about: String) -> Option<Declared> {
        let path = line.replace("use tape::file::", &format!("use crate::{RECORDS}::"));
        if let Some((from, names)) = path.strip_prefix("use crate::").and_then(|path| path.split_once("::")) {
            for name in names.split(|c: char| !c.is_alphanumeric()).filter(|name| !name.is_empty()) {
                self.imports.insert((file.into(), name.into()), from.into());
            }
        }
        let is_enum = line.starts_with("pub enum ");
        let rest = line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub enum "))?.strip_suffix(" {")?;
        let name = rest.split('<').next()?.to_owned();
        Some(Declared { id: (file.into(), name), about, members: Vec::new(), is_enum })
    }

    /// The declaration that a name in a file refers to.
    pub fn find(&self, file: &str, name: &str) -> Option<&Declared> {
        let (file, name) = if name == "Symbols" { ("symbols", "SymbolRow") } else { (file, name) };
        let here = (file.to_owned(), name.to_owned());
        let there = self.imports.get(&here).map(|from| (from.clone(), name.to_owned()));
        self.all.get(&here).or_else(|| self.all.get(&there?))
    }

    /// The members of a struct, those of flattened fields in their place. With the file that declares each.
    pub fn keys<'a>(&'a self, of: &'a Declared) -> Vec<(&'a str, &'a Member)> {
        let own = |m: &'a Member| match m.flat {
            true => self.keys(self.find(&of.id.0, kind(&m.of).0).unwrap()),
            false => vec![(of.id.0.as_str(), m)],
        };
        of.members.iter().flat_map(own).collect()
    }
}

fn member(line: &str, is_variant: bool, about: String, attributes: &str) -> Option<Member> {
    if attributes.contains("serde(skip)") {
        return None;
    }
    let (name, of) = if is_variant {
        (snake(line.strip_suffix(',')?), String::new())
    } else {
        let (name, of) = line.strip_prefix("pub ")?.strip_suffix(',')?.split_once(": ")?;
        (name.trim_start_matches("r#").to_owned(), of.to_owned())
    };
    let wide =
        [("wide::decimal", "decimal"), ("wide::hex", "hex")].into_iter().find(|(with, _)| attributes.contains(with));
    Some(Member {
        name,
        of,
        about,
        flat: attributes.contains("flatten"),
        wide: wide.map(|(_, text)| text),
        may_be_absent: attributes.contains("skip_serializing_if"),
    })
}

/// As serde renames variants.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

/// How values of a type are nested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nested {
    Array,
    /// An object with any keys.
    Map,
    OrNull,
}

/// The innermost type, without its path, and what it is nested in, the outermost first.
pub fn kind(of: &str) -> (&str, Vec<Nested>) {
    let mut nested = Vec::new();
    let mut of = of.trim_start_matches("&'a ");
    loop {
        let inside = |name: &str| of.strip_prefix(name)?.strip_prefix('<')?.strip_suffix('>');
        of = if let Some(inner) = inside("Option") {
            nested.push(Nested::OrNull);
            inner
        } else if let Some(inner) = inside("Vec") {
            nested.push(Nested::Array);
            inner
        } else if let Some((_, inner)) = inside("BTreeMap").and_then(|inner| inner.split_once(", ")) {
            nested.push(Nested::Map);
            inner
        } else if let Some(inner) = of.strip_prefix('[').and_then(|of| of.strip_suffix(']')) {
            nested.push(Nested::Array);
            inner.split(';').next().unwrap_or(inner)
        } else {
            let name = of.split('<').next().unwrap_or(of);
            // (A struct around a map.)
            if name == "Symbols" {
                nested.push(Nested::Map);
                return (name, nested);
            }
            return (if name.starts_with('(') { name } else { name.rsplit("::").next().unwrap_or(name) }, nested);
        };
    }
}
