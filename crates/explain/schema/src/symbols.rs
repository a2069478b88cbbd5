//! The name in the source of a place in a file, such as `app+0x11a9`.

use serde::Serialize;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A file that was mapped while a program was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MappedFile {
    /// The path that the program used.
    pub path: String,
    /// Empty if the file has none, or if it is not in the recording.
    pub build_id: Vec<u8>,
}

/// The content of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The instruction after a call.
    AfterCall,
    Variable,
}

impl Content {
    pub const ALL: [Content; 2] = [Content::AfterCall, Content::Variable];
}

/// The place that a name in rows refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub file: Arc<MappedFile>,
    /// Offset from the address where the file's first byte is mapped.
    pub offset: u64,
    pub content: Content,
}

/// The places of a recording's rows.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// By the name in the rows. `None`: files of the same name have different contents there.
    pub by_name: HashMap<String, Option<Place>>,
    /// When the recording began, nanoseconds since 1970; 0 if that is not known.
    pub recorded_ns: u64,
}

impl Places {
    /// Adds the places of other rows of the same recording.
    pub fn add(&mut self, others: Places) {
        self.recorded_ns = self.recorded_ns.max(others.recorded_ns);
        for (name, place) in others.by_name {
            match self.by_name.entry(name) {
                Entry::Occupied(known) if *known.get() == place => {}
                Entry::Occupied(mut known) => drop(known.insert(None)),
                Entry::Vacant(new) => {
                    new.insert(place);
                }
            }
        }
    }
}

/// The source of a place, from the file or from its debug file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SymbolRow {
    /// The function or the variable, demangled; null if it is not known.
    pub name: Option<String>,
    /// Where in the source a call is; null without debug information.
    pub file: Option<String>,
    pub line: Option<u32>,
    /// Why the file was not used; null if it was.
    pub refused: Option<&'static str>,
}

/// By the name of the place: only places with known symbols or a reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Symbols(pub BTreeMap<String, SymbolRow>);
