//! `doorbell files write`.

use super::outcome;
use super::shape::{Shape, Via};
use crate::help::Page;
use crate::record::Gpu;
use crate::units;
use files::Target;
use files::cufile::{self, CuFile};
use std::path::PathBuf;
use std::process::ExitCode;
use workload::Machine;

/// Write random bytes of GPU memory to a file
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell files write out.bin --bytes 1GiB", ""),
        ("doorbell files write out.bin --bytes 1GiB --force --verify --threads 2", ""),
        ("doorbell files write out.bin --bytes 64MiB --gpu soft --verify --json", "on any machine"),
    ])
    .text("The file has its name when all of it is on the disk; until then it is called .doorbell-SOMETHING.part. What fails leaves no \
           file, and an old one as it was. Programs write their own memory with the library (crate `files`).")
    .statuses(&[(0, "all of it is on the disk"), (2, "an error"), (77, "not possible on this machine")])
)]
pub struct Args {
    /// The file, for example out.bin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// How much
    #[arg(long, value_name = units::SIZE, default_value = "64MiB", value_parser = units::size_in(1..=1 << 40))]
    bytes: u64,
    /// Whose memory it comes from
    #[arg(long, value_name = "GPU", default_value = "gpu0", value_parser = super::gpu_number)]
    source: u32,
    /// Which GPU answers
    #[arg(long, value_enum, value_name = "GPU", default_value_t = Gpu::Real)]
    gpu: Gpu,
    #[command(flatten)]
    shape: Shape,
    /// Random seed for the bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Fail unless the bytes were measured to go past host memory, which --via cufile alone may do
    #[arg(long)]
    require_direct: bool,
    /// Compare the file, read again, with the memory
    #[arg(long)]
    verify: bool,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Random bytes are made and moved in pieces of this size.
const PIECE: u64 = 8 << 20;

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let options = self.shape.options(self.verify);
        if self.shape.via == Via::Cufile {
            let library = CuFile::open().map_err(|e| super::failed(e.into()))?;
            let ((report, verified), side) = super::with_gpu(self.gpu, self.source, |machine| {
                let target = self.filled(machine)?;
                let (bytes, how) = (self.bytes, (self.force, self.require_direct));
                super::shown("written", bytes, |progress| {
                    cufile::write(&library, machine, &self.file, &target, bytes, &options, how, progress)
                })
            })?;
            outcome::of_cufile("write", &self.file, side, (&library, &report, verified), self.json)?;
            return Ok(ExitCode::SUCCESS);
        }
        super::never_direct(self.require_direct)?;
        let (report, side) = super::with_gpu(self.gpu, self.source, |machine| {
            let target = self.filled(machine)?;
            super::shown("written", self.bytes, |progress| {
                files::write(machine, &self.file, &target, self.bytes, &options, self.force, progress)
            })
        })?;
        outcome::print("write", &self.file, side, &report, self.json)?;
        Ok(ExitCode::SUCCESS)
    }

    /// GPU memory with random bytes.
    fn filled<'m>(&self, machine: &'m Machine) -> Result<Target<'m>, files::Error> {
        let target = Target::new(machine, self.bytes)?;
        let (mut rng, mut piece) = (fastrand::Rng::with_seed(self.seed), vec![0; PIECE as usize]);
        for at in (0..self.bytes).step_by(PIECE as usize) {
            let piece = &mut piece[..PIECE.min(self.bytes - at) as usize];
            rng.fill(piece);
            target.write(at, piece)?;
        }
        Ok(target)
    }
}
