//! Pages for people about a run, several runs, a recording or a soak: one HTML file that needs nothing else, the same as Markdown, and
//! its pictures as SVG ([`plot`]). Also the tables of doorbell's own pages ([`markdown_tables`]).
//!
//! A [`Document`] is made of rows that `run-folder`, `decode` and `lock-analysis` computed; this crate only arranges them on a page. The invariant:
//! whatever a run or a recording holds, a page requests nothing from any network, runs only its own script, and shows no time of the software GPU.

pub mod document;
mod html;
mod markdown;
pub mod markdown_tables;
mod numbers;
mod plot;
mod recording;
mod run;
mod runs;
mod soak;
mod two;
mod view;

pub use document::Document;
pub use html::write as html;
pub use markdown::write as markdown;

use comparison::{Comparison, Heading};
use run_folder::{Folder, Run};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Insight(#[from] decode::InsightError),
    #[error(transparent)]
    Export(#[from] export::ExportError),
    #[error("the output could not be written")]
    Write(#[from] io::Error),
    #[error(transparent)]
    Run(#[from] run_folder::Error),
}

/// A run by its name, and its folder where the samples are there.
pub struct Named {
    pub name: String,
    pub run: Run,
    pub folder: Option<Folder>,
}

/// A document of one run, or of several compared.
///
/// # Errors
/// Samples cannot be read.
pub fn of_runs(runs: &[Named]) -> Result<Document, Error> {
    runs::document(runs)
}

/// A document of two runs, and of the differences between them.
///
/// # Errors
/// Samples cannot be read.
pub fn of_two(a: &Named, b: &Named, heading: &Heading, comparison: &Comparison) -> Result<Document, Error> {
    runs::of_two([a, b], heading, comparison)
}

/// Of a recording.
///
/// # Errors
/// It cannot be read again.
pub fn of_recording(recording: &decode::Recording) -> Result<Document, Error> {
    recording::document(recording)
}

/// Of a soak.
pub fn of_soak(soak: &run_folder::soak::Soak) -> Document {
    soak::document(soak)
}

/// Writes each picture of a document to a folder, and returns the files.
///
/// # Errors
/// A file cannot be written. Files that were written are complete.
pub fn pictures(document: &Document, folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for figure in document.figures() {
        let path = folder.join(format!("{}.svg", figure.name));
        output::replace(&path, |file| file.write_all(figure.file.as_bytes()))?;
        files.push(path);
    }
    Ok(files)
}

/// Writes the pictures of a run's page to a folder, and returns the files. There is none of a run on the software GPU.
///
/// # Errors
/// Samples cannot be read, or a file cannot be written. Files that were written are complete.
pub fn plots(run: &Run, samples: Option<&Folder>, folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let articles = vec![run::article("", run, samples, "")?];
    std::fs::create_dir_all(folder)?;
    Ok(pictures(&Document { articles, ..Document::default() }, folder)?)
}

/// Which doorbell wrote a page.
fn by() -> String {
    format!("{BY}{}.", run_folder::folder::VERSION)
}

const BY: &str = "Written by doorbell ";

/// Bytes at the beginning of a page that have its mark.
pub const HEAD: usize = 4096;

/// Whether a file that begins like this is a page that a doorbell wrote.
pub fn is_page(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    head.starts_with("<!DOCTYPE html>") && head.contains(&format!("<meta name=\"generator\" content=\"{BY}"))
}
