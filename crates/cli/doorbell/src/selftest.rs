//! `doorbell selftest`: the named checks of crate `gpu`, on the software GPU or a real one.

mod launches;

use crate::failure::Failure;
use crate::help::Page;
use crate::record::Gpu;
use anyhow::Context;
use sample_programs::checks::{CHECKS, Check, Ground, Record, Verdict};
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

/// Check doorbell's own channels, copies and semaphores on this machine's GPU, or on the software GPU
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell selftest --list", ""),
        ("doorbell selftest --gpu soft", "all checks on the software GPU"),
        ("doorbell selftest --only open,tiny", "on this machine's GPU: open it, then copy 8 bytes"),
        ("doorbell selftest --launches", "CUDA graphs launched past CUDA, from a kernel of one thread on"),
        ("doorbell selftest --json", ""),
    ])
    .text("Each check opens the GPU in an address space of its own, without CUDA, and leaves nothing behind. On a real GPU \
           only methods of known meaning are submitted. --launches needs CUDA: its checks run in a process of their own, one \
           after another, and after the first failure nothing more is launched.")
    .statuses(&[
        (0, "all that could be tried passed"),
        (1, "a check failed"),
        (2, "an error"),
        (77, "not possible on this machine (no GPU)"),
    ])
)]
pub struct Args {
    /// Which GPU is checked
    #[arg(long, value_enum, value_name = "GPU", default_value_t = Gpu::Real)]
    gpu: Gpu,
    /// Run only these checks, with commas between them (for example open,tiny)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// The GPU's number in the driver's list
    #[arg(long, value_name = "N", default_value_t = 0)]
    index: usize,
    /// Random seed for the data
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Check launches of CUDA graphs past CUDA instead (needs CUDA)
    #[arg(long, conflicts_with = "gpu")]
    launches: bool,
    /// Launch in this process and say so line by line
    #[arg(long, hide = true, requires = "launches")]
    launching: bool,
    /// Print one JSON object instead of lines
    #[arg(long)]
    json: bool,
    /// List the checks and exit
    #[arg(long)]
    list: bool,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if self.list {
            return list(self.launches, self.json);
        }
        if self.launching {
            return self.launch();
        }
        let mut out = std::io::stdout().lock();
        let mut records = Vec::new();
        let mut each = |record: Record| {
            if !self.json {
                line(&mut out, &record)?;
            }
            records.push(record);
            anyhow::Ok(())
        };
        if self.launches {
            if let Some(status) = self.launches(&mut each)? {
                return Ok(status);
            }
        } else {
            let checks = self.checks()?;
            if self.gpu == Gpu::Soft {
                crate::sample::with_softgpu()?;
            }
            let ground = self.ground()?;
            checks.into_iter().try_for_each(|check| each(sample_programs::checks::run(check, &ground)))?;
        }
        self.sum_up(&mut out, &records)
    }

    fn sum_up(&self, out: &mut impl Write, records: &[Record]) -> anyhow::Result<ExitCode> {
        let failed = records.iter().filter(|r| matches!(r.verdict, Verdict::Failed(_))).count();
        let skipped = records.iter().filter(|r| matches!(r.verdict, Verdict::Skipped(_))).count();
        let passed = records.len() - failed - skipped;
        if self.json {
            let gpu = if self.gpu == Gpu::Soft { "soft" } else { "real" };
            let checks: Vec<_> = records.iter().map(as_json).collect();
            let all = json!({
                "gpu": gpu, "seed": self.seed, "passed": passed, "failed": failed, "skipped": skipped, "checks": checks,
            });
            end_quietly(writeln!(out, "{all:#}"))?;
        } else {
            end_quietly(writeln!(out, "\n{passed} passed, {failed} failed, {skipped} skipped"))?;
        }
        Ok(ExitCode::from(u8::from(failed > 0)))
    }

    /// The requested checks, in the list's order.
    fn checks(&self) -> anyhow::Result<Vec<&'static Check>> {
        if let Some(name) = self.only.iter().find(|name| sample_programs::checks::find(name).is_none()) {
            let what = format!("there is no check called {name}");
            return Err(Failure::new(what, "`doorbell selftest --list` says what each does").into());
        }
        let wanted = |check: &&Check| self.only.is_empty() || self.only.iter().any(|name| name == check.name);
        Ok(CHECKS.iter().filter(wanted).collect())
    }

    /// Opens the GPU, and checks that it is there.
    fn ground(&self) -> anyhow::Result<Ground> {
        let driver = Arc::new(rm::driver::Libc);
        let mut ground = match self.gpu {
            Gpu::Soft => Ground::soft(driver),
            Gpu::Real => Ground::real(driver, self.index),
        };
        ground.index = self.index;
        ground.seed = self.seed;
        use gpu::Error::{Architecture, Driver, NoClass, NoDevice, Open, Structs, UnknownDriver};
        match ground.device_of(ground.driver.clone(), ground.index) {
            Ok(_) => Ok(ground),
            Err(
                e @ (Architecture(_)
                | Open { .. }
                | NoDevice { .. }
                | UnknownDriver(_)
                | Structs { .. }
                | NoClass(_)
                | Driver(_)),
            ) => {
                let hint = match self.gpu {
                    Gpu::Real => "`doorbell doctor` says what works here; `--gpu soft` checks the software GPU",
                    Gpu::Soft => "`doorbell doctor` says what works here",
                };
                Err(Failure::impossible(e.to_string(), hint).into())
            }
            Err(e) => Err(anyhow::Error::new(e).context("opening the GPU")),
        }
    }
}

fn list(launches: bool, json: bool) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let checks: Vec<(&str, &str)> = match launches {
        false => CHECKS.iter().map(|check| (check.name, check.about)).collect(),
        true => sample_programs::LAUNCH_CHECKS.iter().map(|check| (check.name, check.about)).collect(),
    };
    for (name, about) in checks {
        if json {
            end_quietly(writeln!(out, "{}", json!({ "name": name, "about": about })))?;
        } else {
            end_quietly(writeln!(out, "{name:width$}  {about}", width = width()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn width() -> usize {
    let names =
        CHECKS.iter().map(|check| check.name).chain(sample_programs::LAUNCH_CHECKS.iter().map(|check| check.name));
    names.map(str::len).max().unwrap_or(0)
}

fn parts(verdict: &Verdict) -> (&'static str, &str) {
    match verdict {
        Verdict::Passed(what) => ("passed", what),
        Verdict::Failed(why) => ("failed", why),
        Verdict::Skipped(why) => ("skipped", why),
    }
}

/// Prints each line immediately, so that the output shows which check hangs.
fn line(out: &mut impl Write, record: &Record) -> anyhow::Result<()> {
    let (verdict, detail) = parts(&record.verdict);
    let took = terminal::number::seconds(record.took.as_secs_f64());
    let line = writeln!(out, "{verdict:7}  {:width$}  {took:>8}  {detail}", record.name, width = width());
    end_quietly(line.and_then(|()| out.flush()))
}

/// A reader that stops reading is no error: the exit status still has the result.
fn end_quietly(written: std::io::Result<()>) -> anyhow::Result<()> {
    match written {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("standard output"),
    }
}

fn as_json(record: &Record) -> serde_json::Value {
    let (verdict, detail) = parts(&record.verdict);
    json!({ "name": record.name, "verdict": verdict, "detail": detail, "seconds": record.took.as_secs_f64() })
}
