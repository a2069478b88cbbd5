//! `doorbell export`: a recording for other programs.

use crate::failure::Failure;
use anyhow::Context;
use decode::Recording;
use export::ExportError;
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write a recording in a form that other programs read
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "doorbell export <FORM> [OPTIONS] [FILE]",
    after_help = "\
Examples:
  doorbell export --perfetto app.doorbell -o app.pftrace    open it in https://ui.perfetto.dev
  doorbell export --kineto app.doorbell -o app.json         for tools that read PyTorch's traces
  doorbell export --parquet app.doorbell -o app.tables      then: duckdb -c \"from 'app.tables/copies.parquet'\"
  doorbell export --jsonl app.doorbell | jq -c 'select(.type == \"copy\")'
  doorbell export --jsonl app.doorbell -o app.jsonl

A copy or a launch is at the time of its doorbell. Recordings with --gpu-times have when kernels and copies ran.
docs/reference/exports.md describes the forms, docs/reference/json.md every key."
)]
pub struct Args {
    #[command(flatten)]
    form: Form,
    /// The recording; without one, the newest of this folder
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Only this process, for example 4242
    #[arg(long, value_name = "PID")]
    process: Option<i32>,
    /// Write to this file instead of standard output (mode 0600; for example app.jsonl); with --parquet to this folder
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the file of --out if it exists; with --parquet a folder of Parquet files
    #[arg(long, requires = "out")]
    force: bool,
    /// Do not print what was written
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Form {
    /// A trace for Perfetto: threads, calls, locks, doorbells, channels, kernels, and arrows between them.
    #[arg(long)]
    perfetto: bool,
    /// JSON as PyTorch's profiler (Kineto) writes it: calls, waits for locks, doorbells, copies, launches and kernels.
    #[arg(long)]
    kineto: bool,
    /// A folder of Parquet files, one for each type of row.
    #[arg(long, requires = "out")]
    parquet: bool,
    /// JSON Lines: one object for each driver call, submission, copy, launch, run of a kernel, operation of a lock, call of CUDA's and context switch.
    #[arg(long)]
    jsonl: bool,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if self.form.perfetto && self.out.is_none() && std::io::stdout().is_terminal() {
            let hint = "give a file: -o app.pftrace";
            return Err(Failure::new("a Perfetto trace is no text for a terminal", hint).into());
        }
        let recorded = crate::show::given_or_newest(self.file.as_deref())?;
        let recording = crate::show::open(&recorded, self.process)?;
        let written = match &self.out {
            None => {
                terminal::table::file_to_stdout(|out| self.form.write(&recording, out))?;
                None
            }
            Some(path) if self.form.parquet => {
                crate::result::is_file("--out", path, "give a folder: -o app.tables")?;
                output::whole_folder(path, self.force, ".parquet", |folder| {
                    export::parquet(&recording, folder).with_context(|| format!("writing {}", path.display()))
                })?;
                Some(path.clone())
            }
            Some(path) => {
                crate::result::is_file("--out", path, "without --out it goes to standard output")?;
                let claim = output::claim(path, 0o600, self.force)?;
                if let Err(e) = self.form.write_file(&recording, claim.path()) {
                    // A partial file would look complete, and block the next try.
                    claim.remove();
                    return Err(e);
                }
                Some(claim.path().to_owned())
            }
        };
        if let Some(path) = written.filter(|_| !self.quiet) {
            crate::result::tell_written(&path);
        }
        crate::show::damage_of(&recording)
    }
}

impl Form {
    /// Writes a stream, which Parquet is not.
    fn write(&self, recording: &Recording, out: &mut dyn Write) -> Result<(), ExportError> {
        if self.perfetto {
            export::perfetto(recording, out)
        } else if self.kineto {
            export::kineto(recording, out)
        } else {
            export::jsonl(recording, out)
        }
    }

    fn write_file(&self, recording: &Recording, path: &Path) -> anyhow::Result<()> {
        let file = File::options().write(true).open(path);
        let mut out = BufWriter::with_capacity(1 << 16, file.with_context(|| format!("opening {}", path.display()))?);
        self.write(recording, &mut out)
            .and_then(|()| Ok(out.flush()?))
            .with_context(|| format!("writing {}", path.display()))
    }
}
