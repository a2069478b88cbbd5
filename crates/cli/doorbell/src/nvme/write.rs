//! `doorbell nvme write`.

use super::device::Device;
use super::failed;
use super::read::TURN;
use super::target::{Chosen, pieces};
use crate::failure::Failure;
use crate::help::Page;
use anyhow::Context;
use drivers::nvme::Overwrite;
use drivers::nvme::transfer::{self, Stretch};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use terminal::number;

// (As a doc comment it would become the text of the command it is part of.)
#[derive(Debug, clap::Args)]
pub struct Leave {
    /// Say that what the device holds may be lost: the device again as given, for example 0000:04:00.0
    #[arg(long, value_name = "DEVICE")]
    pub i_mean_to_overwrite: Option<String>,
    /// What may be lost as well: a file system, for example ext, or unknown for bytes of no known format (once for each; partitions, LVM, RAID and swap never are)
    #[arg(long, value_name = "NAME", requires = "i_mean_to_overwrite")]
    pub destroy: Vec<String>,
}

/// Write a file to blocks, from host or GPU memory
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell nvme write 0000:04:00.0 data.bin --i-mean-to-overwrite 0000:04:00.0", "to the first blocks of namespace 1"),
        ("doorbell nvme write qemu data.bin --into peer --image disk.img --i-mean-to-overwrite qemu", "emulated"),
    ])
    .text("Refused without the word, and where the first or last blocks hold a partition table, LVM, RAID, swap or a member of a pool. A \
           file system is refused until --destroy names it, and so is a drive whose first or last 2 MiB are neither empty nor of a known format (unknown).")
    .statuses(&[(0, "all of it was written"), (2, "an error, or refused"), (77, "not possible on this machine"), (130, "stopped by Ctrl-C, with nothing in flight")])
)]
pub struct Args {
    #[command(flatten)]
    device: Device,
    /// What is written: whole blocks
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The first block
    #[arg(long, value_name = "N", default_value_t = 0)]
    start_block: u64,
    #[command(flatten)]
    target: Chosen,
    #[command(flatten)]
    leave: Leave,
    /// Commands in flight
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1023))]
    depth: u16,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        self.target.ready()?;
        let path = || self.file.display().to_string();
        // Opening a pipe waits for its writer, and a pipe has no length.
        if !std::fs::metadata(&self.file).with_context(path)?.is_file() {
            return Err(Failure::new(format!("{} is no regular file", path()), "write it to a file first").into());
        }
        let mut file = File::open(&self.file).with_context(path)?;
        let bytes = file.metadata().with_context(path)?.len();
        let opened = self.device.open(true)?;
        let namespace = opened.namespace(&self.device)?;
        let block_bytes = namespace.block_bytes();
        if bytes == 0 || !bytes.is_multiple_of(block_bytes) {
            let what = format!("{} has {bytes} B, which are not whole blocks of {block_bytes} B", path());
            return Err(Failure::new(what, format!("`truncate -s %{block_bytes} FILE` fills the last one")).into());
        }
        // Checks the whole range before any of it is written.
        let end = self.start_block.saturating_add(bytes / block_bytes);
        namespace.read(end - 1, 1).map_err(failed)?;
        let word = self.device.word(self.leave.i_mean_to_overwrite.clone(), self.leave.destroy.clone());
        let mut queue = opened.queue(self.depth)?;
        let leave = Overwrite::ask(&opened.controller, &mut queue, &namespace, &word).map_err(failed)?;
        let turn = TURN.min(bytes);
        let (commands, way, status) = self.target.with(&opened, turn, |target, way| {
            let mut part = vec![0; turn as usize];
            let mut commands = 0;
            let status = pieces(bytes, turn, opened.interrupts, |at, bytes| {
                let part = &mut part[..bytes as usize];
                file.read_exact(part).with_context(path)?;
                target.store(0, part).map_err(failed)?;
                let block = self.start_block + at / block_bytes;
                let stretch = Stretch { block, bytes, memory: target.memory(), offset: 0 };
                commands += transfer::write(&mut queue, &leave, &stretch).map_err(failed).with_context(|| {
                    let last = block + bytes / block_bytes - 1;
                    format!("after {} were written; blocks {block} to {last} may be written in part", number::bytes(at))
                })?;
                Ok(())
            })?;
            Ok((commands, way.clone(), status))
        })?;
        if status != ExitCode::SUCCESS {
            return Ok(status);
        }
        let functional = opened.controller.is_functional();
        let (device, bytes_text) = (&self.device.device, number::bytes(bytes));
        let line = format!("{device} <- {}: {bytes_text} in {commands} commands, flushed", way.text());
        let fields = self.json.then(|| {
            serde_json::json!({
                "operation": "write", "device": self.device.device, "functional": functional,
                "namespace": namespace.number(), "start_block": self.start_block, "block_bytes": block_bytes,
                "bytes": bytes, "commands": commands, "file": self.file,
            })
        });
        way.report(fields, &line, functional)?;
        Ok(ExitCode::SUCCESS)
    }
}
