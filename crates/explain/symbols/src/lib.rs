//! What places in mapped files are called in the source: `app+0x11a9` is `push_work at queue.c:4`.
//!
//! The names are read where the recording is shown, from the files that the recording names and from their debug files. A file is
//! used only if it has the build id of the one that was mapped, or, where that has none, if it is older than the recording.
//!
//! Invariant: a file is opened only for a place that was asked for, and mapped, not read. No bytes of a file make this panic.

mod demangle;
mod file;
mod lines;
mod table;
mod wanted;

use file::{Files, Mapped};
use lines::Sections;
use schema::symbols::{Content, MappedFile, Place, Places, SymbolRow, Symbols};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use table::Table;
pub use wanted::{of_calls, of_locks, of_variables};

/// No further file is opened after this time; the places in it keep their names.
const LONGEST: Duration = Duration::from_secs(10);

/// Looks up the places of these names.
pub fn look_up<'a>(places: &Places, names: impl IntoIterator<Item = &'a str>) -> Symbols {
    let mut by_file: BTreeMap<&MappedFile, BTreeMap<&str, &Place>> = BTreeMap::new();
    for name in names {
        if let Some(Some(place)) = places.by_name.get(name) {
            by_file.entry(&place.file).or_default().insert(name, place);
        }
    }
    let began = Instant::now();
    let mut found = Symbols::default();
    for (file, places_of_file) in by_file {
        if began.elapsed() < LONGEST {
            in_file(file, &places_of_file, places.recorded_ns, &mut found);
        }
    }
    found
}

fn in_file(file: &MappedFile, places: &BTreeMap<&str, &Place>, recorded_ns: u64, found: &mut Symbols) {
    let files = Files::of(file, recorded_ns);
    let parsed: Vec<Mapped<'_>> = files.all().filter_map(Mapped::parse).collect();
    let Some(base) = parsed.iter().find_map(Mapped::base) else {
        let row = |refused| SymbolRow { refused: Some(refused), ..SymbolRow::default() };
        if let Some(refused) = files.refused {
            found.0.extend(places.keys().map(|name| ((*name).to_owned(), row(refused))));
        }
        return;
    };
    let address = |place: &Place| {
        // A return address may be the first one of the next line, or of the next function.
        let back = u64::from(place.content == Content::AfterCall);
        base.wrapping_add(place.offset).wrapping_sub(back)
    };
    let tables = Content::ALL.map(|content| {
        let of_content = places.values().filter(|place| place.content == content);
        Table::of(&parsed, content, of_content.map(|place| address(place)).collect())
    });
    let [functions, variables] = &tables;
    let has_calls = places.values().any(|place| place.content == Content::AfterCall);
    let sections = parsed.iter().filter(|_| has_calls).find_map(Sections::of);
    let lines = sections.as_ref().and_then(Sections::lines);
    for (name, place) in places {
        let address = address(place);
        let row = match place.content {
            Content::Variable => SymbolRow { name: variables.symbol(address).map(member), ..SymbolRow::default() },
            Content::AfterCall => {
                let row = lines.as_ref().map(|lines| lines.at(address)).unwrap_or_default();
                let name = row.name.or_else(|| functions.symbol(address).map(|(name, _)| name));
                SymbolRow { name, ..row }
            }
        };
        if row != SymbolRow::default() {
            found.0.insert((*name).to_owned(), row);
        }
    }
}

/// `queue_lock`; `queue+0x28` for what lies in a variable.
fn member((name, within): (String, u64)) -> String {
    if within == 0 { name } else { format!("{name}+{within:#x}") }
}
