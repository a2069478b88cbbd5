//! `doorbell files read`.

use super::outcome;
use super::shape::{Shape, Via};
use crate::help::Page;
use crate::record::Gpu;
use files::cufile::{self, CuFile};
use files::{Extents, Source, Target};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Read a file into GPU memory
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell files read model.bin", ""),
        ("doorbell files read model.bin --verify --depth 32 --block 512KiB --threads 2", ""),
        ("doorbell files read model.bin --via cufile --require-direct", "past host memory, or not at all"),
        ("doorbell files read model.bin --gpu soft --verify --json", "on any machine"),
    ])
    .text("A file system without O_DIRECT is read through the page cache, and the result says so. A file that ends early or changes \
           meanwhile is an error. io_uring goes through pinned host memory; cuFile may go straight from the drive to the GPU \
           (GPUDirect Storage), and which way the bytes went is measured by what the kernel counts.")
    .statuses(&[(0, "all of it arrived"), (2, "an error"), (77, "not possible on this machine")])
)]
pub struct Args {
    /// The file, or a block device, for example model.bin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Whose memory it goes to
    #[arg(long, value_name = "GPU", default_value = "gpu0", value_parser = super::gpu_number)]
    to: u32,
    /// Which GPU answers
    #[arg(long, value_enum, value_name = "GPU", default_value_t = Gpu::Real)]
    gpu: Gpu,
    #[command(flatten)]
    shape: Shape,
    /// Fail unless the bytes were measured to go past host memory, which --via cufile alone may do
    #[arg(long)]
    require_direct: bool,
    /// Compare what has arrived with the file, read a second time
    #[arg(long)]
    verify: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let options = self.shape.options(self.verify);
        let source = Source::open(&self.file, options.buffered).map_err(super::failed)?;
        if source.length() == 0 {
            return Err(super::failed(files::Error::Empty { path: self.file }));
        }
        if self.shape.via == Via::Cufile {
            let library = CuFile::open().map_err(|e| super::failed(e.into()))?;
            let ((report, verified), side) = super::with_gpu(self.gpu, self.to, |machine| {
                let target = Target::new(machine, source.length())?;
                super::shown("read", source.length(), |progress| {
                    let direct = self.require_direct;
                    cufile::read(&library, machine, &source, &target, &options, direct, progress)
                })
            })?;
            outcome::of_cufile("read", &self.file, side, (&library, &report, verified), self.json)?;
            return Ok(ExitCode::SUCCESS);
        }
        super::never_direct(self.require_direct)?;
        let (report, side) = super::with_gpu(self.gpu, self.to, |machine| {
            let target = Target::new(machine, source.length())?;
            let places = Arc::new(Extents::whole(source.length()));
            super::shown("read", source.length(), |progress| {
                files::read(machine, &source, (&target, &places), &options, progress)
            })
        })?;
        outcome::print("read", &self.file, side, &report, self.json)?;
        Ok(ExitCode::SUCCESS)
    }
}
