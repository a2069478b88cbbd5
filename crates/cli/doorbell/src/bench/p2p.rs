//! `doorbell bench p2p`: copies between all pairs of GPUs.

use super::{machine, surroundings};
use crate::failure::Failure;
use crate::help::Page;
use crate::progress::Progress;
use crate::record::Gpu;
use crate::{result, signals, units};
use environment::Severity;
use p2p::{MOST, Matrix, News, Plan, SCHEMA, Status, Way};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;
use terminal::table::Style;
use workload::Machine;

/// Copies from each GPU to each: one direction alone, both at once, latency; with and without peer access
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell bench p2p", "every way between all GPUs, up to eight"),
        ("doorbell bench p2p --ways ce,staged -o p2p.json", "copy engines, with peer access and without"),
        ("doorbell bench p2p --bytes 64MiB --rounds 30", ""),
        ("doorbell bench p2p --gpu soft --gpus 3", "whether it works, never how fast: the software GPU under three numbers"),
    ])
    .text("Ways: ce (copy engine), sm (kernel), cuda (CUDA's own copies), all with peer access; staged (without it: doorbell takes the bytes \
           through pinned host memory). Every way is verified between every two GPUs before it is timed; then all cells between the two take turns in \
           each round. Each direction is told by itself; the sum of both is called a sum.")
    .statuses(&[
        (0, "done, and every byte was right"),
        (1, "a byte was wrong"),
        (2, "an error, or a cell that failed"),
        (77, "nothing can be measured on this machine"),
        (130, "stopped by Ctrl-C"),
    ])
)]
pub struct Args {
    /// Which GPU
    #[arg(long, value_enum, value_name = "GPU", default_value_t = Gpu::Real)]
    gpu: Gpu,
    /// So many GPUs, for example 2 [default: all, up to eight; of the software GPU one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=8))]
    gpus: Option<u32>,
    /// What moves the bytes, for example ce,staged
    #[arg(long, value_name = "LIST", default_value = "ce,sm,cuda,staged")]
    ways: String,
    /// Bytes of a timed transfer, for example 64MiB [default: 256MiB; on the software GPU 1MiB]
    #[arg(long, value_name = units::SIZE, value_parser = units::size_in(1..=1 << 30))]
    bytes: Option<u64>,
    /// Rounds, in each of which every cell between two GPUs takes a turn; six give intervals
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Timed transfers of each cell in a round
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    transfers: u32,
    /// Samples of the latency of each cell in a round
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    samples: u32,
    /// Random seed for data and ordering
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Give up on a transfer after this time
    #[arg(long, value_name = units::TIME, default_value = "10s", value_parser = units::time)]
    timeout: Duration,
    #[command(flatten)]
    result: result::Args,
}

/// Size of a transfer whose latency is measured, the same as in p2pBandwidthLatencyTest.
const LATENCY_BYTES: u64 = 16;

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let ways = ways(&self.ways)?;
        let stop = signals::count_interrupts();
        if self.gpu == Gpu::Soft {
            // This restarts the program, so no file may be claimed before.
            crate::sample::with_softgpu()?;
        }
        let out = self.result.open(1 << 16)?;
        let machine = self.machine()?;
        let gpus = p2p::gpus(&machine).min(self.gpus.unwrap_or(MOST));
        let before = surroundings(if self.gpu == Gpu::Soft { experiment::Gpu::Soft } else { experiment::Gpu::Real });
        let warnings = before.warnings().into_iter().filter(|w| w.severity > Severity::Notice);
        let warnings: Vec<String> =
            if self.gpu == Gpu::Soft { Vec::new() } else { warnings.map(|w| w.to_string()).collect() };
        let plan = Plan {
            gpus,
            ways,
            bytes: self.bytes.unwrap_or(if self.gpu == Gpu::Soft { 1 << 20 } else { 256 << 20 }),
            rounds: self.rounds,
            transfers: self.transfers,
            samples: self.samples,
            latency_bytes: LATENCY_BYTES,
            seed: self.seed,
            timeout: self.timeout,
        };
        let functional = self.gpu == Gpu::Soft;
        let progress = Progress::new();
        let started = environment::utc_now().unwrap_or_default();
        let is_stopped = || stop.load(Ordering::Relaxed) > 0;
        let mut tell = |News { gpus: (a, b), round }: News| {
            let what = round.map_or("verifying".into(), |round| format!("round {} of {}", round + 1, plan.rounds));
            progress.show(&format!("gpu{a} and gpu{b}: {what}"));
        };
        let cells = p2p::run(&machine, &plan, functional, &is_stopped, &mut tell);
        progress.clear();
        let matrix = Matrix {
            schema: SCHEMA.into(),
            doorbell: run_folder::folder::VERSION.into(),
            commit: before.text("run.commit").map(str::to_owned),
            command: std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect(),
            started,
            functional,
            gpus,
            bytes: plan.bytes,
            latency_bytes: plan.latency_bytes,
            rounds: plan.rounds,
            environment: serde_json::to_value(&before)?,
            warnings,
            cells,
        };
        out.write(
            |out| {
                out.write_all(&run_folder::json::to_vec(&matrix).map_err(std::io::Error::from)?)?;
                Ok(())
            },
            |out| terminal::p2p::write(out, &Style::of_stdout(), &matrix),
        )?;
        Ok(verdict(&matrix, is_stopped()))
    }

    /// All GPUs of the computer. With the software GPU, as many as requested: one GPU under several numbers.
    fn machine(&self) -> anyhow::Result<Machine> {
        let machine = machine::open(self.gpu)?;
        if self.gpu == Gpu::Real {
            return Ok(machine);
        }
        let space = machine.space()?.clone();
        let others = 1..self.gpus.unwrap_or(1);
        Ok(others.map(|_| Machine::of_space(space.clone())).fold(machine, Machine::with_peer))
    }
}

fn ways(text: &str) -> Result<Vec<Way>, Failure> {
    let way = |name: &str| {
        let found = Way::ALL.into_iter().find(|way| way.name() == name.trim());
        found.ok_or_else(|| {
            Failure::new(format!("--ways: there is no way {:?}", name.trim()), "ways are ce, sm, cuda and staged")
        })
    };
    text.split(',').map(way).collect()
}

/// Exit status of a run that Ctrl-C ended.
const STOPPED: u8 = 130;

fn verdict(matrix: &Matrix, stopped: bool) -> ExitCode {
    let any = |of: fn(&Status) -> bool| matrix.cells.iter().any(|cell| of(&cell.status));
    ExitCode::from(match () {
        () if stopped => STOPPED,
        () if matrix.is_wrong() => 1,
        () if any(|status| matches!(status, Status::Failed(_))) => crate::ERROR,
        () if !any(|status| *status == Status::Done) => crate::IMPOSSIBLE,
        () => 0,
    })
}
