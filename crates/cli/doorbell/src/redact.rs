//! `doorbell redact`: makes a recording that can be given away.

use crate::failure::{self, Failure};
use crate::help::Page;
use anyhow::Context;
use output::WholeFile;
use redact::{Redaction, RedactionError, What};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use terminal::foreign::plain;

/// Copy a recording without its data, names, arguments, paths and environment, to share it
#[derive(Debug, clap::Args)]
#[command(after_help = Page::examples(&[
    ("doorbell redact app.doorbell shared.doorbell", "remove all that the options name"),
    ("doorbell redact --data --arguments app.doorbell shared.doorbell", "keep names and paths"),
])
.text("Without one of the five options, all five apply. The same name gets the same substitute everywhere (library-2, thread-4). \
       Times, locks, calls, copies, launches, addresses, process and thread numbers, the start time, the GPU's model and the driver's \
       version stay. A recording that was cut or damaged is redacted up to the damage; the exit status is then 2.")
.text("Look at the result before you share it: `doorbell export --jsonl shared.doorbell`.")
)]
pub struct Args {
    /// The recording to read, for example app.doorbell
    #[arg(value_name = "FROM")]
    from: PathBuf,
    /// The recording to write, whole or not at all (mode 0600; for example shared.doorbell)
    #[arg(value_name = "TO")]
    to: PathBuf,
    /// Remove data in the command stream: inline writes, constants of fills, arguments of macros, unknown methods
    #[arg(long)]
    data: bool,
    /// Replace names of libraries, programs, threads and processes; remove build ids
    #[arg(long)]
    names: bool,
    /// Remove the command lines
    #[arg(long)]
    arguments: bool,
    /// Replace the folders in paths
    #[arg(long)]
    paths: bool,
    /// Remove the names of machine, kernel and processor, and the UUIDs of its GPUs
    #[arg(long)]
    environment: bool,
    /// Replace TO if it exists
    #[arg(long)]
    force: bool,
}

impl Args {
    fn what(&self) -> What {
        let Args { data, names, arguments, paths, environment, .. } = *self;
        let asked = What { data, names, arguments, paths, environment };
        if asked == What::default() { What::ALL } else { asked }
    }

    pub fn run(self) -> anyhow::Result<ExitCode> {
        crate::result::is_file("redact", &self.to, "name the file to write")?;
        let what = self.what();
        let redaction = Redaction::open(&self.from, what).map_err(old)?;
        if self.to.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir()) {
            let what = format!("{}: a pipe or a device", self.to.display());
            return Err(Failure::new(what, "a redacted recording is written to a file: name one").into());
        }
        let mut file = WholeFile::open(&self.to, 1, self.force)?;
        let to = file.path().to_owned();
        let mut damage = None;
        file.write_file(|file| {
            file.set_permissions(Permissions::from_mode(0o600))?;
            damage = redaction.write(file.try_clone()?, &to)?;
            Ok::<(), RedactionError>(())
        })
        .with_context(|| format!("{} was not written", to.display()))?;
        let said = format!("doorbell: {} has no {} of {}", to.display(), what.list().join(", "), self.from.display());
        say!("{}", plain(&said));
        match damage {
            None => Ok(ExitCode::SUCCESS),
            Some(damage) => {
                let hint = "what is written ends there".to_owned();
                Err(Failure::new(damage.to_string(), failure::tape_hint(&damage).unwrap_or(hint)).into())
            }
        }
    }
}

/// The error, with a hint.
fn old(e: RedactionError) -> anyhow::Error {
    match e {
        RedactionError::Old(_) => {
            Failure::new(e.to_string(), "record the program again: `doorbell record PROGRAM`").into()
        }
        RedactionError::Tape(e) => e.into(),
        other => other.into(),
    }
}
