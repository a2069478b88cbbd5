//! Where a measurement's result is written: a table, JSON on standard output, JSON in a file.

use crate::failure::Failure;
use output::WholeFile;
use std::io::Write;
use std::path::{Path, PathBuf};
use terminal::ReportError;
use terminal::foreign::plain;
use terminal::table::{Style, to_stdout};

// (As a doc comment this would become the text of the command that has these arguments.)
// The arguments of every command with a result.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Print the result as JSON, without a table
    #[arg(long)]
    pub json: bool,
    /// Write the result as JSON to this file, whole or not at all; the name takes %h, %p, %n, %q{VAR} (for example result-%n.json)
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Replace the file of --out if it exists
    #[arg(long, requires = "out")]
    pub force: bool,
}

/// A result that is being written.
pub struct Sink {
    json: bool,
    file: Option<WholeFile>,
}

/// Refuses `-`, which is no file.
pub fn is_file(option: &str, path: &Path, hint: &str) -> Result<(), Failure> {
    if path.as_os_str() == "-" { Err(Failure::new(format!("{option} -: a file is needed"), hint)) } else { Ok(()) }
}

/// Prints the name of a file or a folder that was written: to standard error, for the output may go to a pipe.
pub fn tell_written(path: &Path) {
    say!("{} wrote {}", Style::of_stderr().bold("doorbell:"), plain(&path.display().to_string()));
}

impl Args {
    /// Makes sure that about `room` bytes can be written, before the measurement.
    pub fn open(&self, room: u64) -> anyhow::Result<Sink> {
        let Some(path) = &self.out else { return Ok(Sink { json: self.json, file: None }) };
        is_file("--out", path, "--json prints the result to standard output")?;
        Ok(Sink { json: self.json, file: Some(WholeFile::open(path, room, self.force)?) })
    }
}

impl Sink {
    /// Writes all outputs.
    pub fn write(
        mut self,
        json: impl Fn(&mut dyn Write) -> Result<(), ReportError>,
        table: impl FnOnce(&mut dyn Write) -> Result<(), ReportError>,
    ) -> anyhow::Result<()> {
        if let Some(file) = &mut self.file {
            write(file, &json)?;
        }
        if self.json {
            to_stdout(|out| json(out))?
        } else {
            to_stdout(|out| table(out))?
        }
        Ok(())
    }
}

fn write(file: &mut WholeFile, json: impl FnOnce(&mut dyn Write) -> Result<(), ReportError>) -> anyhow::Result<()> {
    file.write(json).map_err(|e| anyhow::Error::new(e).context(format!("{} was not written", file.path().display())))
}
