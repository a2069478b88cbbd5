//! JSON files that contain their schema: written completely or not at all, and refused if another version wrote them.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Why such a file was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    #[error("{path}: {what}")]
    Damaged { path: PathBuf, what: String },
    #[error("{path}: its schema is {found:?}, and this doorbell reads {reads:?}")]
    Version { path: PathBuf, found: String, reads: &'static str },
    #[error("{path}: cannot be read: {cause}")]
    Read { path: PathBuf, cause: io::Error },
    #[error("{path}: cannot be written: {cause}")]
    Write { path: PathBuf, cause: io::Error },
}

impl Broken {
    pub fn read(path: &Path) -> impl FnOnce(io::Error) -> Broken {
        move |cause| Broken::Read { path: path.into(), cause }
    }

    pub fn write(path: &Path) -> impl FnOnce(io::Error) -> Broken {
        move |cause| Broken::Write { path: path.into(), cause }
    }
}

#[derive(Serialize, Deserialize)]
struct Written<T> {
    schema: String,
    #[serde(flatten)]
    it: T,
}

fn damaged<'t>(path: &'t Path, text: &'t [u8]) -> impl FnOnce(serde_json::Error) -> Broken + 't {
    move |cause| Broken::Damaged { path: path.into(), what: crate::json::wrong(text, &cause) }
}

/// # Errors
/// It cannot be read, or does not have this schema.
pub fn read<T: DeserializeOwned>(path: &Path, reads: &'static str) -> Result<T, Broken> {
    let text = fs::read(path).map_err(Broken::read(path))?;
    let written: Written<T> = serde_json::from_slice(&text).map_err(damaged(path, &text))?;
    match written.schema == reads {
        true => Ok(written.it),
        false => Err(Broken::Version { path: path.into(), found: written.schema, reads }),
    }
}

/// A document that contains its own `schema`: another version is refused before anything else in it is read.
///
/// # Errors
/// As [`read`].
pub fn read_document<T: DeserializeOwned>(path: &Path, reads: &'static str) -> Result<T, Broken> {
    #[derive(Deserialize)]
    struct Head {
        schema: String,
    }
    let text = fs::read(path).map_err(Broken::read(path))?;
    let Head { schema: found } = serde_json::from_slice(&text).map_err(damaged(path, &text))?;
    if found != reads {
        return Err(Broken::Version { path: path.into(), found, reads });
    }
    serde_json::from_slice(&text).map_err(damaged(path, &text))
}

/// Every file of a folder, by name; empty if the folder does not exist.
///
/// # Errors
/// As [`read`].
pub fn read_all<T: DeserializeOwned>(folder: &Path, reads: &'static str) -> Result<Vec<T>, Broken> {
    let names = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.and_then(|all| all.map(|e| Ok(e?.path())).collect::<io::Result<Vec<_>>>()),
    };
    let mut names = names.map_err(Broken::read(folder))?;
    names.retain(|path| path.extension().is_some_and(|e| e == "json"));
    names.sort_unstable();
    names.iter().map(|path| read(path, reads)).collect()
}

/// # Errors
/// It cannot be written; the old file stays.
pub fn write<T: Serialize>(path: &Path, schema: &str, it: &T) -> Result<(), Broken> {
    let text = serde_json::to_vec(&Written { schema: schema.into(), it });
    whole(path, text)
}

/// A document that contains its own `schema`, readable in an editor.
///
/// # Errors
/// As [`write`].
pub fn write_document<T: Serialize>(path: &Path, document: &T) -> Result<(), Broken> {
    whole(path, crate::json::to_vec(document))
}

fn whole(path: &Path, text: serde_json::Result<Vec<u8>>) -> Result<(), Broken> {
    let text = text.map_err(|e| Broken::write(path)(e.into()))?;
    output::replace(path, |file| file.write_all(&text)).map_err(Broken::write(path))
}
