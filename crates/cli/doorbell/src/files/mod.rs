//! `doorbell files`: files to GPU memory and back.

mod bare;
mod load;
mod outcome;
mod read;
mod shape;
mod write;

use crate::failure::Failure;
use crate::help::Page;
use crate::progress::Progress;
use crate::record::Gpu;
use outcome::Side;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use workload::Machine;

/// Read files into GPU memory and write them from there
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell files read model.bin --verify", "all of a file into the memory of gpu0, compared there"),
        ("doorbell files load model.safetensors", "a model: each tensor with its address"),
        ("doorbell files bare model.bin", "the same without the GPU: what the drive and the kernel can do"),
        ("doorbell files write out.bin --bytes 1GiB --verify", "the way back"),
    ])
    .text("file -> io_uring (O_DIRECT, registered buffers) -> pinned host memory -> copy engine -> GPU memory, many blocks under \
           way at a time.")
    .statuses(&[(0, "done"), (2, "an error"), (77, "not possible on this machine")])
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Read(read::Args),
    Write(write::Args),
    Load(load::Args),
    Bare(bare::Args),
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.what {
            What::Read(read) => read.run(),
            What::Write(write) => write.run(),
            What::Load(load) => load.run(),
            What::Bare(bare) => bare.run(),
        }
    }
}

/// `gpu0`, `gpu1` and so on.
fn gpu_number(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix("gpu").and_then(|n| n.parse().ok());
    number.ok_or_else(|| "GPUs are gpu0, gpu1 and so on".to_owned())
}

fn failed(error: files::Error) -> anyhow::Error {
    let (what, hint) = (error.to_string(), error.hint());
    if error.is_impossible() { Failure::impossible(what, hint) } else { Failure::new(what, hint) }.into()
}

/// Refuses a transfer through pinned host memory if a direct one is required.
fn never_direct(required: bool) -> anyhow::Result<()> {
    if required { Err(failed(files::cufile::Error::NeverDirect.into())) } else { Ok(()) }
}

/// Opens the machine, passes on its GPU `n`, and returns where that is.
fn with_gpu<T>(gpu: Gpu, n: u32, work: impl FnOnce(&Machine) -> Result<T, files::Error>) -> anyhow::Result<(T, Side)> {
    let machine = crate::bench::machine::open(gpu)?;
    let done = machine.gpu(n).map_err(files::Error::from).and_then(|machine| {
        machine.enter()?;
        // A software GPU may serve a real driver's files, too.
        let soft = gpu == Gpu::Soft || machine.space().is_ok_and(|space| space.device().is_soft());
        Ok((work(machine)?, if soft { Side::SoftGpu(n) } else { Side::Gpu(n) }))
    });
    done.map_err(failed)
}

/// Shows the progress of `work`, out of `all` bytes.
fn shown<T>(what: &str, all: u64, work: impl FnOnce(&AtomicU64) -> T) -> T {
    let (bytes, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let show = scope.spawn(|| {
            let progress = Progress::new();
            while !done.load(Ordering::Relaxed) {
                let now = terminal::number::bytes(bytes.load(Ordering::Relaxed));
                progress.show(&format!("{what}: {now} of {}", terminal::number::bytes(all)));
                std::thread::park_timeout(Duration::from_millis(100));
            }
        });
        let result = work(&bytes);
        done.store(true, Ordering::Relaxed);
        show.thread().unpark();
        result
    })
}
