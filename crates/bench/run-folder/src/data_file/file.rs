//! The file: read, checked, written.

use crate::data_file::model::SCHEMA;
use crate::data_file::{Digest, series};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// Why a file is no data file, or why none can be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no data file of a run: {0}")]
    Json(#[from] serde_json::Error),
    #[error("its schema is {found:?}, and this doorbell reads {reads:?}")]
    Schema { found: String, reads: &'static str },
    #[error("stage {stage}, {subject}: {wrong}")]
    Series { stage: u32, subject: String, wrong: series::Wrong },
    #[error("stage {stage}, {subject}: {found} rounds, and the stage has {expected}")]
    Rounds { stage: u32, subject: String, found: usize, expected: usize },
    #[error("row {row}, {field}: {text:?} is text: store the number, and its unit in the field's name")]
    Text { row: usize, field: String, text: String },
    #[error(transparent)]
    Results(#[from] crate::Error),
}

/// Larger files are no data files.
const LONGEST: u64 = 256 << 20;

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "gz")
}

/// The text of a data file; one whose name ends in `.gz` is unpacked.
///
/// # Errors
/// It cannot be read or unpacked, or holds more than 256 MiB.
pub fn read_text(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut text = Vec::new();
    let read = if is_compressed(path) {
        GzDecoder::new(file).take(LONGEST + 1).read_to_end(&mut text)?
    } else {
        file.take(LONGEST + 1).read_to_end(&mut text)?
    };
    if read as u64 > LONGEST {
        return Err(io::Error::other(format!("it holds more than {} MiB", LONGEST >> 20)));
    }
    Ok(text)
}

/// The contents of a file of this name with this text: packed, if its name ends in `.gz`.
///
/// # Errors
/// Memory cannot cause any.
pub fn to_bytes(path: &Path, text: &str) -> io::Result<Vec<u8>> {
    if !is_compressed(path) {
        return Ok(text.as_bytes().to_vec());
    }
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(text.as_bytes())?;
    packed.finish()
}

/// The checksum that a page states: of the text, so that packing it again changes no page.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

#[derive(serde::Deserialize)]
struct Versioned {
    schema: String,
}

/// Checked before anything else is read.
pub fn check_schema(bytes: &[u8], reads: &'static str) -> Result<(), Error> {
    let Versioned { schema: found } = serde_json::from_slice(bytes)?;
    if found == reads { Ok(()) } else { Err(Error::Schema { found, reads }) }
}

impl Digest {
    /// # Errors
    /// It is another kind of file, has another version, or its rounds do not fit its stages.
    pub fn read(bytes: &[u8]) -> Result<Digest, Error> {
        check_schema(bytes, SCHEMA)?;
        let digest: Digest = serde_json::from_slice(bytes)?;
        for stage in &digest.stages {
            let expected = stage.rounds as usize * stage.repeats as usize;
            for cell in &stage.cells {
                for series in [&cell.done, &cell.submit, &cell.engine].into_iter().flatten() {
                    let found = series.rounds.len();
                    if found != expected {
                        let subject = cell.subject.clone();
                        return Err(Error::Rounds { stage: stage.number, subject, found, expected });
                    }
                }
            }
        }
        Ok(digest)
    }

    /// One line for each cell of a stage, so that two versions can be compared line by line.
    ///
    /// # Errors
    /// A number that JSON does not have.
    pub fn to_text(&self) -> Result<String, Error> {
        let head = serde_json::to_string(&Digest { stages: Vec::new(), ..self.clone() })?;
        let mut text = head.strip_suffix("]}").unwrap_or(&head).to_owned();
        for (i, stage) in self.stages.iter().enumerate() {
            let cells = serde_json::to_string(&crate::data_file::Stage { cells: Vec::new(), ..stage.clone() })?;
            text.push_str(if i > 0 { ",\n" } else { "\n" });
            text.push_str(cells.strip_suffix("]}").unwrap_or(&cells));
            for (k, cell) in stage.cells.iter().enumerate() {
                text.push_str(if k > 0 { ",\n" } else { "\n" });
                text.push_str(&serde_json::to_string(cell)?);
            }
            text.push_str("]}");
        }
        text.push_str("]}\n");
        Ok(text)
    }
}
