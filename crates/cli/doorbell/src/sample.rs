//! `doorbell sample`: small GPU programs to be recorded.
//!
//! An ordinary program, recorded or not. With `--gpu soft` it needs the software GPU preloaded. `doorbell record --gpu soft`
//! preloads it; otherwise the sample restarts itself with the library that the binary contains.

use crate::failure::Failure;
use crate::help::Page;
use crate::record::Gpu;
use crate::{preload, units};
use anyhow::Context;
use std::ffi::{CStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;
use terminal::table::to_stdout;

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Launcher {
    Cuda,
    Doorbell,
}

/// Run small GPU programs to be recorded; the last line of each is a checksum of all its results
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell sample --list", ""),
        ("doorbell sample copies", "on this machine's GPU, through libcuda"),
        ("doorbell record doorbell sample copies launches", "the same, recorded"),
        ("doorbell sample graphs --list", "the shapes of one sample"),
        ("doorbell record doorbell sample graphs --only chain-10,fork", "two of them, recorded"),
        ("doorbell sample graphs --launcher doorbell", "launched past CUDA, with the same results"),
        ("doorbell record --gpu soft doorbell sample spin --gpu soft", "on the software GPU"),
        ("doorbell record --locks doorbell sample starve", "a thread that never gets CUDA's lock"),
    ])
    .statuses(&[(0, "done"), (2, "a wrong result or an error"), (77, "not possible on this machine (no CUDA, no GPU)")])
)]
pub struct Args {
    /// Samples to run, one after the other (for example copies launches)
    #[arg(value_name = "NAME", required_unless_present = "list")]
    names: Vec<String>,
    /// Which GPU answers
    #[arg(long, value_enum, value_name = "GPU", default_value_t = Gpu::Real)]
    gpu: Gpu,
    /// Who launches the shapes of `graphs`; doorbell launches after CUDA's first three launches
    #[arg(long, value_enum, value_name = "WHO", default_value_t = Launcher::Cuda)]
    launcher: Launcher,
    /// Rounds, launches or iterations (--list says which; for example 100)
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Repeat each sample for this long, for example 10s; every repetition must give the same checksum
    #[arg(long, value_name = units::TIME, value_parser = units::time)]
    duration: Option<Duration>,
    /// Threads that launch, in `starve`
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Only these shapes of `graphs`, for example chain-10,fork (--list graphs names them)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Random seed for the data
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// List the samples, or the shapes of `graphs`, and exit
    #[arg(long)]
    list: bool,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if self.list {
            return if self.names == ["graphs"] { list_shapes(self.json) } else { list(self.json) };
        }
        // A wrong name is an error before anything runs.
        if let Some(name) = self.names.iter().find(|name| !sample_programs::names().contains(&name.as_str())) {
            let unknown = sample_programs::Error::Unknown { name: name.clone() };
            return Err(Failure::new(unknown.to_string(), "`doorbell sample --list` says what each does").into());
        }
        if self.gpu == Gpu::Soft && self.names.iter().any(|name| sample_programs::needs_software_gpu(name)) {
            with_softgpu()?;
        }
        for name in &self.names {
            let report = sample_programs::run(name, &self.options()).map_err(|e| self.explain(name, e))?;
            print(&report, self.json)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn options(&self) -> sample_programs::Options {
        sample_programs::Options {
            gpu: match self.gpu {
                Gpu::Real => sample_programs::Gpu::Cuda,
                Gpu::Soft => sample_programs::Gpu::Soft,
            },
            launcher: match self.launcher {
                Launcher::Cuda => sample_programs::Launcher::Cuda,
                Launcher::Doorbell => sample_programs::Launcher::Doorbell,
            },
            seconds: self.duration.map(|d| d.as_secs_f64()),
            count: self.count,
            seed: self.seed,
            threads: self.threads,
            only: self.only.clone(),
            progress: |line| say!("{line}"),
        }
    }

    fn explain(&self, name: &str, e: sample_programs::Error) -> anyhow::Error {
        match (&e, self.gpu) {
            (sample_programs::Error::Unavailable { reason }, Gpu::Real) => {
                Failure::impossible(format!("{name}: {reason}"), "`--gpu soft` runs it on the software GPU").into()
            }
            (sample_programs::Error::Unavailable { reason }, Gpu::Soft) => {
                Failure::impossible(format!("{name}: {reason}"), "`doorbell doctor` says what works here").into()
            }
            _ => anyhow::Error::new(e).context(format!("sample {name}")),
        }
    }
}

fn list(json: bool) -> anyhow::Result<ExitCode> {
    let width = sample_programs::SAMPLES.iter().map(|s| s.name.len()).max().unwrap_or(0);
    to_stdout(|out| -> io::Result<()> {
        for s in sample_programs::SAMPLES {
            if json {
                writeln!(out, "{}", serde_json::json!({ "name": s.name, "about": s.about, "count": s.count }))?;
            } else {
                writeln!(out, "{:width$}  {}; --count: {}", s.name, s.about, s.count)?;
            }
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn list_shapes(json: bool) -> anyhow::Result<ExitCode> {
    to_stdout(|out| -> io::Result<()> {
        for (number, name) in (1..).zip(sample_programs::shapes()) {
            if json {
                writeln!(out, "{}", serde_json::json!({ "name": name, "number": number }))?;
            } else {
                writeln!(out, "{number:>3}  {name}")?;
            }
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn print(report: &sample_programs::Report, json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if !json {
        return Ok(writeln!(out, "{report}")?);
    }
    let facts: serde_json::Map<_, _> = report.facts.iter().map(|(k, v)| ((*k).to_owned(), (*v).into())).collect();
    let object = serde_json::json!({
        "sample": report.name,
        "gpu": report.gpu,
        "seed": report.seed,
        "facts": facts,
        "parts": report.parts,
        // Most readers of JSON do not keep a number of 64 bits.
        "checksum": format!("{:016x}", report.checksum()),
    });
    Ok(writeln!(out, "{object}")?)
}

/// Whether a library whose name ends like this is mapped into this process.
fn loaded(name: &str) -> anyhow::Result<bool> {
    let maps = std::fs::read_to_string("/proc/self/maps").context("reading /proc/self/maps")?;
    Ok(maps.lines().any(|line| line.trim_end_matches(" (deleted)").ends_with(name)))
}

/// Returns if the software GPU serves the driver's files, and otherwise restarts the same command with it.
pub fn with_softgpu() -> anyhow::Result<()> {
    if loaded("softgpu.so")? { Ok(()) } else { Err(restart_with_softgpu()) }
}

/// Set in the second start, so that a preload that does not work ends in an error, not in a third start.
const AGAIN: &str = "DOORBELL_SAMPLE_AGAIN";

/// Restarts the same command with the software GPU preloaded. Returns only if that fails, with the reason.
fn restart_with_softgpu() -> anyhow::Error {
    if matches!(loaded("doorbell-agent.so"), Ok(true)) {
        return Failure::new(
            "this recording has no software GPU, and starting again with it would end the recording",
            "record it with `doorbell record --gpu soft doorbell ...`",
        )
        .into();
    }
    if std::env::var_os(AGAIN).is_some() {
        return anyhow::anyhow!("the software GPU was preloaded, but the loader ignored it");
    }
    match softgpu() {
        Err(e) => anyhow::Error::new(e).context("a memory file for the software GPU"),
        Ok(file) => {
            // The software GPU acts as the kernel, so it is last in the list of preloaded libraries.
            let mut preload = std::env::var_os("LD_PRELOAD").filter(|was| !was.is_empty()).unwrap_or_default();
            if !preload.is_empty() {
                preload.push(":");
            }
            preload.push(OsString::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
            let mut arguments = std::env::args_os();
            let mut command = Command::new("/proc/self/exe");
            command.arg0(arguments.next().unwrap_or_else(|| "doorbell".into())).args(arguments);
            let e = command.env("LD_PRELOAD", preload).env(AGAIN, "1").exec();
            anyhow::Error::new(e).context("starting again with the software GPU")
        }
    }
}

/// The library in a memory file that stays open over an exec.
fn softgpu() -> std::io::Result<File> {
    const NAME: &CStr = c"doorbell-softgpu.so";
    // Kernels before 6.3 do not have MFD_EXEC (0x10) and make every memory file executable.
    const MFD_EXEC: libc::c_uint = 0x10;
    // SAFETY: a name that ends in NUL. The descriptor has no MFD_CLOEXEC.
    let fd = unsafe {
        match libc::memfd_create(NAME.as_ptr(), MFD_EXEC) {
            -1 => libc::memfd_create(NAME.as_ptr(), 0),
            fd => fd,
        }
    };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that no other object owns.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(&preload::SOFTGPU)?;
    Ok(file)
}
