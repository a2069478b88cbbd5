//! `doorbell nvme verify`.

use super::device::Device;
use super::failed;
use super::target::{Chosen, INTERRUPTED};
use super::write::Leave;
use crate::help::Page;
use crate::units;
use drivers::nvme::{self, Mix, Overwrite, Verified, verify};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use terminal::number;

/// Read and, with leave, write blocks at random, and compare every byte
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell nvme verify 0000:04:00.0 --into gpu0", "reads alone: into GPU memory, compared with reads into host memory"),
        ("doorbell nvme verify 0000:04:00.0 --i-mean-to-overwrite 0000:04:00.0", "writes as well"),
        ("doorbell nvme verify qemu --into peer --threads 4 --depth 128 --i-mean-to-overwrite qemu --json", "emulated"),
    ])
    .text("The reference is what the blocks held at the beginning, and each write changes it. At the end of a mix with writes all of it is \
           read once more.")
    .statuses(&[(0, "every byte was right"), (2, "an error, or wrong bytes"), (77, "not possible on this machine"), (130, "stopped by Ctrl-C, with nothing in flight")])
)]
pub struct Args {
    #[command(flatten)]
    device: Device,
    #[command(flatten)]
    target: Chosen,
    #[command(flatten)]
    leave: Leave,
    /// How much is read and written in all
    #[arg(long, value_name = units::SIZE, default_value = "64MiB", value_parser = units::size)]
    bytes: u64,
    /// The blocks that take part, from the first one on; no more than the namespace has
    #[arg(long, value_name = units::SIZE, default_value = "64MiB", value_parser = units::size)]
    span: u64,
    /// The longest command
    #[arg(long, value_name = units::SIZE, default_value = "64KiB", value_parser = units::size_in(4096..=16 << 20))]
    largest: u64,
    /// Threads, each with a queue of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Commands in flight in each queue
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1023))]
    depth: u16,
    /// Random seed for places and bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Includes the amounts read and written before the failure.
fn broken(broken: nvme::Broken) -> anyhow::Error {
    let Verified { reads, bytes_read, writes, bytes_written, .. } = broken.before;
    let (read, written) = (number::bytes(bytes_read), number::bytes(bytes_written));
    let error = failed(broken.error);
    if reads + writes == 0 {
        return error;
    }
    error.context(format!("after {reads} reads ({read}) and {writes} writes ({written}) that were well"))
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        self.target.ready()?;
        let writes = self.leave.i_mean_to_overwrite.is_some();
        let opened = self.device.open(writes)?;
        let namespace = opened.namespace(&self.device)?;
        let leave = match writes {
            false => None,
            true => {
                let word = self.device.word(self.leave.i_mean_to_overwrite.clone(), self.leave.destroy.clone());
                let mut queue = opened.queue(1)?;
                Some(Overwrite::ask(&opened.controller, &mut queue, &namespace, &word).map_err(failed)?)
            }
        };
        let largest = self.largest.min(opened.controller.largest_transfer()) / 4096 * 4096;
        let span = self.span.min(namespace.bytes());
        let depth = self.depth.min(opened.controller.largest_depth());
        let mix = Mix { queues: self.threads, slots: depth, largest, span, bytes: self.bytes, seed: self.seed };
        let is_stopped = || opened.interrupts.load(Ordering::Relaxed) > 0;
        let (verified, way) = self.target.with(&opened, mix.target_bytes(), |target, way| {
            let verified = verify(&opened.controller, &namespace, leave.as_ref(), target, &mix, &is_stopped);
            Ok((verified.map_err(|broken_off| broken(*broken_off))?, way.clone()))
        })?;
        let functional = opened.controller.is_functional();
        let (read, written) = (number::bytes(verified.bytes_read), number::bytes(verified.bytes_written));
        let right = match verified.first_wrong {
            None => ", every byte right".into(),
            Some(at) => format!("; {} had wrong bytes, the first at byte {at:#x}", verified.wrong),
        };
        let stopped = if verified.stopped { "\n  stopped by a signal, with nothing in flight" } else { "" };
        let line = format!(
            "{}, {}: {} reads ({read}), {} writes ({written}){right}{stopped}",
            self.device.device,
            way.text(),
            verified.reads,
            verified.writes
        );
        let fields = self.json.then(|| {
            serde_json::json!({
                "operation": "verify", "device": self.device.device, "functional": functional,
                "namespace": namespace.number(), "block_bytes": namespace.block_bytes(),
                "threads": self.threads, "depth": depth, "largest": largest, "span": span, "seed": self.seed,
                "reads": verified.reads, "bytes_read": verified.bytes_read,
                "writes": verified.writes, "bytes_written": verified.bytes_written,
                "wrong": verified.wrong, "first_wrong_byte": verified.first_wrong, "stopped": verified.stopped,
            })
        });
        way.report(fields, &line, functional)?;
        Ok(ExitCode::from(match verified {
            verified if verified.wrong > 0 => crate::ERROR,
            verified if verified.stopped => INTERRUPTED,
            _ => 0,
        }))
    }
}
