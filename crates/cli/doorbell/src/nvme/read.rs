//! `doorbell nvme read`.

use super::device::Device;
use super::failed;
use super::target::{Chosen, pieces};
use super::way::Way;
use crate::failure::Failure;
use crate::help::Page;
use crate::units;
use anyhow::Context;
use drivers::nvme::transfer::{self, Stretch};
use std::fs::{File, Permissions};
use std::io::{BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use terminal::number;

/// A longer read takes several turns through the same memory.
pub const TURN: u64 = 16 << 20;

/// Read blocks into host or GPU memory
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell nvme read 0000:04:00.0 --bytes 1MiB -o first.bin", "the first MiB of namespace 1"),
        ("doorbell nvme read 0000:04:00.0 --start-block 2048 --bytes 64MiB --into gpu0", "straight into GPU memory"),
        ("doorbell nvme read qemu --image disk.img --bytes 1MiB --into peer -o first.bin", "emulated"),
    ])
    .text("Where the drive cannot reach the GPU's memory, the data go to host memory and a channel of doorbell's copies them (path B); \
           the output says so and why.")
    .statuses(&[(0, "all of it arrived"), (2, "an error"), (77, "not possible on this machine"), (130, "stopped by Ctrl-C, with nothing in flight")])
)]
pub struct Args {
    #[command(flatten)]
    device: Device,
    /// The first block
    #[arg(long, value_name = "N", default_value_t = 0)]
    start_block: u64,
    /// How much: whole blocks
    #[arg(long, value_name = units::SIZE, default_value = "1MiB", value_parser = units::size)]
    bytes: u64,
    #[command(flatten)]
    target: Chosen,
    /// Commands in flight
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1023))]
    depth: u16,
    /// Write what arrived to this file (mode 0600; for example blocks.bin)
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the file of --out if it exists
    #[arg(long, requires = "out")]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        self.target.ready()?;
        let opened = self.device.open(false)?;
        let namespace = opened.namespace(&self.device)?;
        let turn = TURN.min(self.bytes.max(1));
        // Checks the whole range before any of it is read.
        let end = self.start_block.saturating_add(self.bytes.div_ceil(namespace.block_bytes()));
        if end > self.start_block {
            namespace.read(end - 1, 1).map_err(failed)?;
        }
        let work = |mut out: Option<&mut dyn Write>| {
            self.target.with(&opened, turn, |target, way| {
                let mut queue = opened.queue(self.depth)?;
                let mut kept = vec![0; turn as usize];
                let mut commands = 0;
                let status = pieces(self.bytes, turn, opened.interrupts, |at, bytes| {
                    let block = self.start_block.saturating_add(at / namespace.block_bytes());
                    let stretch = Stretch { block, bytes, memory: target.memory(), offset: 0 };
                    let read = transfer::read(&mut queue, &namespace, &stretch).map_err(failed);
                    commands += match at {
                        0 => read?,
                        at => read.with_context(|| format!("after {} were read", number::bytes(at)))?,
                    };
                    let kept = &mut kept[..bytes as usize];
                    target.load(0, kept).map_err(failed)?;
                    out.iter_mut().try_for_each(|out| out.write_all(kept)).context("writing the file of --out")
                })?;
                Ok((commands, way.clone(), status))
            })
        };
        let (commands, way, status) = match &self.out {
            None => work(None)?,
            Some(path) => self.kept_in(path, work)?,
        };
        if status != ExitCode::SUCCESS {
            return Ok(status);
        }
        let functional = opened.controller.is_functional();
        let line =
            format!("{} -> {}: {} in {commands} commands", self.device.device, way.text(), number::bytes(self.bytes));
        let fields = self.json.then(|| {
            serde_json::json!({
                "operation": "read", "device": self.device.device, "functional": functional,
                "namespace": namespace.number(), "start_block": self.start_block, "block_bytes": namespace.block_bytes(),
                "bytes": self.bytes, "commands": commands, "out": self.out,
            })
        });
        way.report(fields, &line, functional)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Calls `work` to write the file, which exists completely or not at all; an old one stays until then.
    fn kept_in(&self, path: &Path, work: impl FnOnce(Option<&mut dyn Write>) -> Done) -> Done {
        crate::result::is_file("--out", path, "without --out the bytes are read and not kept")?;
        let write = |file: &File| {
            let mut out = BufWriter::new(file);
            let done = work(Some(&mut out))?;
            out.flush().with_context(|| format!("writing {}", path.display()))?;
            anyhow::Ok(done)
        };
        if self.force && path.symlink_metadata().is_ok_and(|there| there.is_file()) {
            let mut stopped = None;
            let replaced = output::replace(path, |file| {
                file.set_permissions(Permissions::from_mode(0o600))?;
                let done = write(file)?;
                if done.2 != ExitCode::SUCCESS {
                    stopped = Some(done);
                    anyhow::bail!("stopped");
                }
                Ok(done)
            });
            return stopped.map_or(replaced, Ok);
        }
        let claim = output::claim(path, 0o600, self.force)?;
        let done = opened(claim.path()).and_then(|file| write(&file));
        if !done.as_ref().is_ok_and(|done| done.2 == ExitCode::SUCCESS) {
            claim.remove();
        }
        done
    }
}

/// Opens the claimed file. Opening a pipe without a reader would otherwise block, and ignore signals.
fn opened(path: &Path) -> anyhow::Result<File> {
    let file = File::options().write(true).truncate(true).custom_flags(libc::O_NONBLOCK).open(path);
    if file.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ENXIO)) {
        let what = format!("nobody reads from the pipe {}", path.display());
        return Err(Failure::new(what, "start its reader first, or give a file").into());
    }
    let file = file.with_context(|| format!("opening {}", path.display()))?;
    // SAFETY: flags of a description that this process has just opened.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, 0) };
    Ok(file)
}

/// Commands, the path of the bytes, and the exit status.
type Done = anyhow::Result<(u64, Way, ExitCode)>;
