//! `doorbell files bare`.

use super::outcome::{self, Side};
use super::shape::{Shape, Via};
use crate::failure::Failure;
use crate::help::Page;
use files::Source;
use std::path::PathBuf;
use std::process::ExitCode;

/// Read a file into host memory and no further: what `files read` is measured against
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell files bare model.bin", ""),
        ("doorbell files bare model.bin --depth 32 --block 512KiB --json", ""),
    ])
    .text("The same ring, slots and file as `files read`, without a GPU. The figure is this machine's drive and kernel.")
    .statuses(&[(0, "done"), (2, "an error")])
)]
pub struct Args {
    /// The file, or a block device, for example model.bin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    shape: Shape,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if self.shape.via == Via::Cufile {
            return Err(
                Failure::new("cuFile reads into memory of the GPU's alone", "`files read --via cufile` does").into()
            );
        }
        let options = self.shape.options(false);
        let source = Source::open(&self.file, options.buffered).map_err(super::failed)?;
        if source.length() == 0 {
            return Err(super::failed(files::Error::Empty { path: self.file }));
        }
        let report = super::shown("read", source.length(), |progress| files::bare(&source, &options, progress));
        outcome::print("bare", &self.file, Side::Host, &report.map_err(super::failed)?, self.json)?;
        Ok(ExitCode::SUCCESS)
    }
}
