//! JSON files that contain their schema: written completely or not at all, and refused if another version wrote them.

use crate::folder::{read_json, whole};
use crate::{Error, json};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::io;
use std::path::Path;

/// Why such a file was not read or written.
pub type Broken = Error;

#[derive(Serialize)]
struct Written<'w, T> {
    schema: &'w str,
    #[serde(flatten)]
    it: &'w T,
}

/// Another version is refused before anything else in it is read.
///
/// # Errors
/// It cannot be read, or does not have this schema.
pub fn read<T: DeserializeOwned>(path: &Path, reads: &'static str) -> Result<T, Error> {
    read_json(path, reads)
}

/// Every file of a folder, by name; empty if the folder does not exist.
///
/// # Errors
/// As [`read`].
pub fn read_all<T: DeserializeOwned>(folder: &Path, reads: &'static str) -> Result<Vec<T>, Error> {
    let names = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.and_then(|all| all.map(|e| Ok(e?.path())).collect::<io::Result<Vec<_>>>()),
    };
    let mut names = names.map_err(Error::read(folder))?;
    names.retain(|path| path.extension().is_some_and(|e| e == "json"));
    names.sort_unstable();
    names.iter().map(|path| read(path, reads)).collect()
}

/// # Errors
/// It cannot be written; the old file stays.
pub fn write<T: Serialize>(path: &Path, schema: &str, it: &T) -> Result<(), Error> {
    let text = serde_json::to_vec(&Written { schema, it });
    whole(path, &text.map_err(|e| Error::write(path)(e.into()))?)
}

/// A document that contains its own `schema`, readable in an editor.
///
/// # Errors
/// As [`write`].
pub fn write_document<T: Serialize>(path: &Path, document: &T) -> Result<(), Error> {
    whole(path, &json::to_vec(document).map_err(|e| Error::write(path)(e.into()))?)
}

pub use read as read_document;
