//! `doorbell export`: a recording for other programs.

use anyhow::Context;
use export::ExportError;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use terminal::ReportError;

/// Write a recording in a form that other programs read
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  doorbell export --jsonl app.doorbell | jq -c 'select(.type == \"copy\")'
  doorbell export --jsonl app.doorbell -o app.jsonl

One JSON object a line; its `type` is `header`, `call`, `submission`, `copy`, `launch`, `lock`, `cuda_call`, `switch`,
`channel` or `end`. docs/reference/json.md describes every key.")]
pub struct Args {
    /// JSON Lines: one object for each driver call, submission, copy, launch, operation of a lock, call of CUDA's and context switch.
    #[arg(long, required = true)]
    jsonl: bool,
    /// The recording; without one, the newest of this folder
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Only this process, for example 4242
    #[arg(long, value_name = "PID")]
    process: Option<i32>,
    /// Write to this file instead of standard output (mode 0600; for example app.jsonl)
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the file of --out if it exists
    #[arg(long, requires = "out")]
    force: bool,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let recorded = crate::show::given_or_newest(self.file.as_deref())?;
        let recording = crate::show::open(&recorded, self.process)?;
        match &self.out {
            None => terminal::table::to_stdout(|out| export::jsonl(&recording, out).map_err(of_a_report))?,
            Some(path) => {
                crate::result::is_file("--out", path, "without --out it goes to standard output")?;
                let claim = output::claim(path, 0o600, self.force)?;
                if let Err(e) = write(&recording, claim.path()) {
                    // A part of it would pass for the whole, and block the next try.
                    claim.remove();
                    return Err(e);
                }
            }
        }
        crate::show::damage_of(&recording)
    }
}

fn write(recording: &decode::Recording, path: &Path) -> anyhow::Result<()> {
    let file = File::options().write(true).open(path);
    let mut out = BufWriter::new(file.with_context(|| format!("opening {}", path.display()))?);
    export::jsonl(recording, &mut out)
        .and_then(|()| Ok(out.flush()?))
        .with_context(|| format!("writing {}", path.display()))
}

fn of_a_report(e: ExportError) -> ReportError {
    match e {
        ExportError::Insight(e) => ReportError::Insight(e),
        ExportError::Write(e) => ReportError::Write(e),
    }
}
