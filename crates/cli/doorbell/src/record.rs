//! `doorbell record`: runs a program and writes its submissions to a tape.

use crate::compiler::Compiler;
use crate::failure::Failure;
use crate::help::Page;
use crate::{failure, flight, preload, result, signals, units};
use clap::ValueEnum;
use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use lock_analysis::plan::Plan;
use output::Claim;
use recorder::{Capture, Locks, Options, Outcome, PartsWritten, Range, Rotation, Tap, same_file};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use tape::session::unwatched;
use terminal::foreign;
use terminal::number;
use terminal::table::Style;

/// Run a program and record every command that it sends to the GPU
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell record ./app --its-own-options", "writes app.doorbell"),
        ("doorbell record -o run-%n.doorbell --tap trap python3 train.py", "run-1.doorbell, run-2.doorbell, ..."),
        ("doorbell record --locks ./app", "its locks, CUDA calls and context switches as well: show --locks, show --calls"),
        ("doorbell record --locks=waits ./app", "waits for locks and who held them, nothing of locks that were free: costs less"),
        ("doorbell record --calls --tap off ./app", "CUDA calls alone: launches, copies, graphs, events, waits"),
        ("doorbell record --python python3 train.py", "which line of Python makes each CUDA call: show --python"),
        ("doorbell record --calls --capture profiler python3 train.py", "from torch.cuda.profiler.start() to stop()"),
        ("doorbell record --calls --capture nvtx:step python3 train.py", "while a range of NVTX named `step` is open"),
        ("doorbell record --calls --last 30s --save-when 'call > 5ms' ./app", "the last 30 s, when a call takes longer"),
        ("doorbell record --dormant --calls ./server", "switched on later: doorbell attach, doorbell top"),
        ("doorbell record --no-data --no-args ./app", "none of its data and arguments on the tape"),
        ("doorbell record --gpu soft doorbell sample copies --gpu soft", "without a GPU"),
        ("srun -n 8 doorbell record ./app", "app.rank0.doorbell to app.rank7.doorbell"),
    ])
    .text("Options of doorbell stand before the program; everything behind it belongs to the program. `--` may stand \
           between them.")
    .text("The program's output and signals are its own. doorbell exits with the program's status, or 128 plus the number \
           of the signal that ended it; 125 if doorbell itself failed, 126 if the program cannot be executed or recorded, \
           127 if it was not found.")
)]
pub struct Args {
    /// Write the recording to this file; the name takes %h (host), %p (process id), %n (first free number), %q{VAR}
    /// (environment variable), %% [default: PROGRAM.doorbell, then PROGRAM.2.doorbell and so on; the rank is added under
    /// torchrun, mpirun and srun]
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
    /// How doorbells are seen
    #[arg(long, value_enum, value_name = "TAP", default_value_t = TapArg::Auto)]
    pub tap: TapArg,
    /// Record locks as well: mutexes, rwlocks, conditions, semaphores (any program, with or without a GPU)
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    pub locks: Option<LocksArg>,
    /// With --locks or --calls: do not record context switches, which show what kept a lock holder off its CPU, nor page faults
    #[arg(long)]
    pub no_switches: bool,
    /// Record CUDA calls as well, each with its time, result, stream and bytes (--locks does that, too)
    #[arg(long)]
    pub calls: bool,
    /// With --locks: do not record CUDA calls
    #[arg(long, conflicts_with_all = ["calls", "python"])]
    pub no_calls: bool,
    /// Record CUDA calls, each with the line of Python that makes it (CPython 3.9 to 3.14)
    #[arg(long)]
    pub python: bool,
    /// Record CUDA calls, and when each kernel ended, by the GPU's own clock. Changes unused words of the program's commands, so that the
    /// GPU writes that down
    #[arg(long)]
    pub gpu_times: bool,
    /// Record ranges and marks of NVTX as well: `torch.cuda.nvtx`, the Python package `nvtx`, nvtx3 in C and C++ (--calls and
    /// --locks do that, too)
    #[arg(long)]
    pub nvtx: bool,
    /// With --calls or --locks: do not record ranges of NVTX
    #[arg(long, conflicts_with = "nvtx")]
    pub no_nvtx: bool,
    /// Answer calls that hold other threads up in another way, as `doorbell run --fix` does: fixes with commas between them, or a
    /// plan's file, for example pins,copies or fix.toml; alone: pins
    #[arg(long, value_name = "LIST|PLAN", num_args = 0..=1, require_equals = true, default_missing_value = "pins")]
    pub fix: Option<String>,
    /// When the program is recorded. Driver calls always are; `doorbell.pause()` and `doorbell.resume()` (Python, libdoorbell) count
    /// whatever is asked for here
    #[arg(long, value_name = "WHEN", value_parser = When, default_value = "always")]
    pub capture: CaptureArg,
    /// Start with recording switched off, at next to no cost: `doorbell attach` switches it on and off. What is to be recorded then (--calls,
    /// --locks, --gpu-times) is asked for now
    #[arg(long, conflicts_with = "capture")]
    pub dormant: bool,
    /// What to do when a thread's ring buffer is full
    #[arg(long, value_enum, value_name = "ACTION", default_value_t = OnFull::Gap)]
    pub on_full: OnFull,
    /// Size of each thread's ring buffer, 1MiB to 256MiB
    #[arg(long, value_name = units::SIZE, default_value = "8MiB", value_parser = units::size_in(1 << 20..=256 << 20))]
    pub ring: u64,
    /// Memory for the ring buffers of all threads and processes together; a thread without one waits or drops events, as
    /// --on-full says [default: 1GiB, or an eighth of the memory limit of its cgroup]
    #[arg(long, value_name = units::SIZE, value_parser = units::size_in(16 << 20..=1 << 40))]
    pub memory: Option<u64>,
    /// Go on until all followed processes have ended, not only the program
    #[arg(long)]
    pub wait: bool,
    /// Keep commands and launches, drop the data that is sent inside the command stream
    #[arg(long)]
    pub no_data: bool,
    /// Leave the program's name and arguments out of the recording
    #[arg(long)]
    pub no_args: bool,
    /// Stop recording (not the program) when the file has this size, for example 500MiB; with --rotate, go on in another file
    #[arg(long, value_name = units::SIZE, value_parser = units::size)]
    pub max_size: Option<u64>,
    /// With --max-size: go on in NAME.part2.doorbell and so on when a file has that size, and keep the newest N, for example 5. Each is a
    /// recording that can be read without the others
    #[arg(long, value_name = "N", requires = "max_size", conflicts_with_all = ["last", "dormant"], value_parser = clap::value_parser!(u32).range(2..))]
    pub rotate: Option<u32>,
    #[command(flatten)]
    pub flight: flight::Args,
    /// Keep the agent and the memory that it shares with doorbell as files in DIR, for example /dev/shm/doorbell: for programs
    /// that enter another user, namespace or root directory and find DIR there at the same path. Everybody who can get at DIR
    /// can read and change what is recorded
    #[arg(long, value_name = "DIR")]
    pub agent_dir: Option<PathBuf>,
    /// Which GPU the program finds
    #[arg(long, value_enum, value_name = "GPU", default_value_t = Gpu::Real)]
    pub gpu: Gpu,
    /// Print nothing on standard error
    #[arg(short, long)]
    pub quiet: bool,
    /// Program and its arguments, for example ./app --its-own-options
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TapArg {
    /// Rewrite the instruction that rings the doorbell where that is proven safe, else trap
    #[value(alias = "patch")]
    Auto,
    /// Trap every store to a doorbell page (about 2 us each)
    Trap,
    /// Driver calls only
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LocksArg {
    /// Every operation
    All,
    /// Waits, each with the thread that held the lock: for programs that run so for long. Costs less, because nothing is written of
    /// an operation that nobody waited for
    Waits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureArg {
    Always,
    Call,
    Profiler,
    Signal,
    Range(Range),
}

/// Reads a [`CaptureArg`].
#[derive(Clone)]
struct When;

impl When {
    const RANGE: &str = "nvtx:";
    const VALUES: [(&str, &str); 5] = [
        ("always", "From its start on"),
        ("call", "Not before it calls doorbell.resume()"),
        ("profiler", "From cudaProfilerStart to cudaProfilerStop (torch.cuda.profiler.start and stop)"),
        ("signal", "From one SIGUSR2 to doorbell to the next, which is not passed on to the program then"),
        (
            "nvtx:NAME",
            "While a range of NVTX with this text is open, of any domain; `nvtx:NAME@DOMAIN` of one, `nvtx:NAME@` of the default domain",
        ),
    ];

    fn read(text: &str) -> Option<CaptureArg> {
        Some(match text {
            "always" => CaptureArg::Always,
            "call" => CaptureArg::Call,
            "profiler" => CaptureArg::Profiler,
            "signal" => CaptureArg::Signal,
            _ => {
                let range = text.strip_prefix(When::RANGE)?;
                let (name, domain) =
                    range.rsplit_once('@').map_or((range, None), |(name, domain)| (name, Some(domain)));
                if name.is_empty() {
                    return None;
                }
                CaptureArg::Range(Range::new(name, domain.filter(|domain| *domain != "*")))
            }
        })
    }
}

impl TypedValueParser for When {
    type Value = CaptureArg;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<CaptureArg, clap::Error> {
        value.to_str().and_then(When::read).ok_or_else(|| {
            let mut error = clap::Error::new(ErrorKind::InvalidValue).with_cmd(command);
            if let Some(argument) = argument {
                error.insert(ContextKind::InvalidArg, ContextValue::String(argument.to_string()));
            }
            error.insert(ContextKind::InvalidValue, ContextValue::String(value.to_string_lossy().into_owned()));
            let values = When::VALUES.map(|(value, _)| value.to_owned()).into();
            error.insert(ContextKind::ValidValue, ContextValue::Strings(values));
            error
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(When::VALUES.iter().map(|(value, help)| PossibleValue::new(*value).help(*help))))
    }
}

impl From<CaptureArg> for Capture {
    fn from(when: CaptureArg) -> Capture {
        match when {
            CaptureArg::Always => Capture::Always,
            CaptureArg::Call => Capture::Call,
            CaptureArg::Profiler => Capture::Profiler,
            CaptureArg::Signal => Capture::Signal,
            CaptureArg::Range(range) => Capture::Range(range),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnFull {
    /// Drop events and count them
    Gap,
    /// Make the thread wait
    Wait,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Gpu {
    /// This machine's GPU
    Real,
    /// doorbell's GPU in software
    Soft,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        self.run_recorded().or_else(|e| after_failure(e, &self.command))
    }

    fn run_recorded(&self) -> anyhow::Result<ExitCode> {
        let driver = recorder::driver_version();
        // Locks and ranges exist without a GPU, and calls if a library provides them.
        let no_gpu = self.is_more_than_commands() && driver.is_none();
        if self.gpu == Gpu::Real && !no_gpu {
            // A program may have its own driver, for example the software GPU linked into it.
            if driver.is_none() && !gpu::accepts_unverified() {
                return Err(no_driver().into());
            }
        }
        if self.flight.last.is_some() {
            let outcome = self.record(&self.saved_name())?;
            if !self.quiet {
                tell_end(&self.saved_name(), &outcome, self);
            }
            return Ok(status_of(outcome.status));
        }
        if let Some(size) = self.max_size.filter(|size| self.rotate.is_some() && *size < LEAST_PART) {
            let what = format!("--max-size {}: too small for parts", number::bytes(size));
            return Err(Failure::new(
                what,
                "a part needs 1MiB at least: it begins with what is known of all before it",
            )
            .into());
        }
        let held = signals::Held::new();
        let claim = self.claim()?;
        let out = claim.path().to_owned();
        signals::end_without(&out);
        drop(held);
        if self.rotate.is_some() && !out.is_file() {
            let what = format!("{}: no file, and parts are files", out.display());
            return Err(Failure::new(what, "give a file: -o FILE").into());
        }
        let outcome = match self.record(&out) {
            Ok(outcome) => self.with_summary(&out, outcome),
            Err(e) => {
                claim.give_up();
                return Err(e);
            }
        };
        if !self.quiet {
            tell(&out, &outcome, self);
        }
        Ok(status_of(outcome.status))
    }

    /// Stores the summary in a large recording, if that takes at most some seconds, or a tenth of the recorded time.
    /// Without it, `show` computes the summary each time.
    fn with_summary(&self, out: &Path, mut outcome: Outcome) -> Outcome {
        let stopped = outcome.end.how.starts_with("recording stopped");
        if stopped || self.max_size.is_some() || outcome.bytes < SUMMARY_FROM || !out.is_file() {
            return outcome;
        }
        let recorded = Duration::try_from_secs_f64(outcome.end.seconds).unwrap_or_default();
        let within = SUMMARY_WITHIN.max(recorded / 10);
        signals::count_interrupts();
        let (done, is_done) = mpsc::channel::<()>();
        let quiet = self.quiet;
        let stored = std::thread::scope(|scope| {
            // (Without a thread nothing is announced.)
            let announcer = std::thread::Builder::new().name("announce".into());
            let _ = announcer.spawn_scoped(scope, move || {
                // (The other end is dropped when the summary is done.)
                if is_done.recv_timeout(SUMMARY_TOLD_AFTER) == Err(RecvTimeoutError::Timeout) && !quiet {
                    let (name, within) = (Style::of_stderr().bold("doorbell:"), number::seconds(within.as_secs_f64()));
                    say!(
                        "{name} the program has ended; summing up its recording for at most {within}, Ctrl-C skips it"
                    );
                }
            });
            // (The recording stays as it is if this fails or is skipped.)
            let stored = decode::store_summary_unless(out, within, signals::is_interrupted).unwrap_or(false);
            drop(done);
            stored
        });
        if stored {
            outcome.bytes = out.metadata().map_or(outcome.bytes, |m| m.len());
        }
        outcome
    }

    /// The base name of a flight recorder's files.
    fn saved_name(&self) -> PathBuf {
        let program = self.command.first().cloned().unwrap_or_default();
        self.out.clone().unwrap_or_else(|| default_name(&program))
    }

    fn records_calls(&self) -> bool {
        self.calls || self.python || self.gpu_times || self.locks.is_some() && !self.no_calls
    }

    fn has_nvtx(&self) -> bool {
        let range = matches!(self.capture, CaptureArg::Range(_));
        self.nvtx || range || (self.calls || self.gpu_times || self.locks.is_some()) && !self.no_nvtx
    }

    /// The bits of the fixes.
    fn fixes(&self) -> anyhow::Result<u32> {
        let Some(list) = &self.fix else { return Ok(0) };
        let plan = Plan::read_fixes(list).map_err(|e| Failure::new(e.to_string(), e.hint()))?;
        if !plan.leaves_locks_alone() {
            let text = format!("--fix {list}: a recorded program's locks keep their own protocol");
            return Err(Failure::new(
                text,
                "record with pins, copies or code; `doorbell run --fix` changes locks, too",
            )
            .into());
        }
        if plan.fixes & tape::fix::PAGES != 0 {
            let text = format!("--fix {list}: batches of a recorded program stay CUDA's");
            return Err(
                Failure::new(text, "record with pins, copies or code; `doorbell run --fix=pages` makes them").into()
            );
        }
        if plan.fixes & tape::fix::KERNELS != 0 {
            let text = format!("--fix {list}: a recorded program's kernels are loaded by its own calls");
            return Err(
                Failure::new(text, "record with pins or copies; `doorbell run --fix` loads kernels early").into()
            );
        }
        Ok(plan.fixes)
    }

    /// The request includes events that exist without a GPU, too.
    fn is_more_than_commands(&self) -> bool {
        self.locks.is_some() || self.calls || self.python || self.gpu_times || self.has_nvtx()
    }

    /// The file to write, created. No file is created for a program that cannot be recorded.
    fn claim(&self) -> anyhow::Result<Claim> {
        let name = self.command.first().cloned().unwrap_or_default();
        let program = recorder::Program::find(&name).map_err(recorder::RecordError::from)?;
        if let Some(out) = self.out.as_ref().filter(|out| same_file(out, &program.path)) {
            return Err(recorder::RecordError::IsProgram(out.clone()).into());
        }
        let claimed = claim_result(self.out.as_deref(), &default_name(&name), self.force);
        let taken = claimed.as_ref().err().and_then(|e| e.downcast_ref());
        let (Some(output::Error::Exists(taken)), Some(out)) = (taken, &self.out) else { return claimed };
        // A job that is started again, or several ranks with one name, must not fail for that.
        let next = output::claim_next(out, MODE)?;
        if !self.quiet {
            say!("{}", another_name(taken, next.path()));
        }
        Ok(next)
    }

    pub fn record(&self, out: &Path) -> anyhow::Result<Outcome> {
        let (calls, locks, gpu_times) = (self.records_calls(), self.locks.is_some(), self.gpu_times);
        let records = flight::Records { calls, locks, gpu_times };
        let toggles = self.capture == CaptureArg::Signal;
        let last = self.flight.asked(out.into(), self.force, records, toggles)?;
        if last.is_some() {
            // Checked before the program starts, because it cannot work with anything else.
            result::is_file("--out", out, "give a file: what is kept is written to files")?;
            output::claim_next(out, MODE)?.give_up();
        }
        let fixes = self.fixes()?;
        let compiler = Compiler::for_fixes(fixes, self.gpu == Gpu::Soft)?;
        Ok(recorder::record(&Options {
            command: self.command.clone(),
            out: out.into(),
            tap: match self.tap {
                TapArg::Auto => Tap::Auto,
                TapArg::Trap => Tap::Trap,
                TapArg::Off => Tap::Off,
            },
            wait_on_full: self.on_full == OnFull::Wait,
            locks: match self.locks {
                None => Locks::Off,
                Some(LocksArg::All) => Locks::All,
                Some(LocksArg::Waits) => Locks::Waits,
            },
            switches: !self.no_switches,
            calls: self.records_calls(),
            python: self.python,
            gpu_times: self.gpu_times,
            nvtx: self.has_nvtx(),
            fixes,
            compiler: compiler.as_ref().map_or(0, |compiler| compiler.number),
            ring_bytes: self.ring as usize,
            memory: self.memory,
            // The file was claimed already, see `claim`.
            force: true,
            agent_dir: self.agent_dir.clone(),
            wait: self.wait,
            no_data: self.no_data,
            no_args: self.no_args,
            limit: self.max_size.filter(|_| self.rotate.is_none()),
            rotation: self.max_size.zip(self.rotate).map(|(size, keep)| Rotation { size, keep }),
            capture: if self.dormant { Capture::Attach } else { self.capture.into() },
            last,
            tell: flight::teller(self.quiet),
            agent: preload::AGENT,
            soft: (self.gpu == Gpu::Soft).then(|| preload::SOFTGPU.as_slice()),
            version: env!("CARGO_PKG_VERSION"),
        })?)
    }
}

/// The file of a recording: the requested one, else the first free name that begins with `default`.
pub fn claim_result(out: Option<&Path>, default: &Path, force: bool) -> anyhow::Result<Claim> {
    let Some(out) = out else { return Ok(output::claim_default(default, MODE, force)?) };
    result::is_file("--out", out, "standard output is the program's; give a file or a named pipe")?;
    Ok(output::claim(out, MODE, force)?)
}

/// The line about a result that gets another name.
pub fn another_name(taken: &Path, other: &Path) -> String {
    let name = Style::of_stderr().bold("doorbell:");
    format!("{name} {} exists (--force replaces it); writing {}", taken.display(), other.display())
}

/// What follows a failure of doorbell's. If the program has run, its status counts. If doorbell lacks something that the program
/// does not need, the program runs without doorbell.
pub fn after_failure(e: anyhow::Error, command: &[OsString]) -> anyhow::Result<ExitCode> {
    let failed = || e.chain().find_map(|c| c.downcast_ref::<recorder::RecordError>());
    if let Some(status) = failed().and_then(recorder::RecordError::program) {
        failure::print(&e);
        return Ok(status_of(status));
    }
    let no_file = e.chain().find_map(|c| c.downcast_ref::<output::Error>());
    if !failed().is_some_and(recorder::RecordError::is_lack) && !no_file.is_some_and(output::Error::is_lack) {
        return Err(e);
    }
    failure::print(&e);
    say!("{} the program runs without doorbell", Style::of_stderr().bold("doorbell:"));
    Err(recorder::run_alone(command).into())
}

/// How long the program's caller may have to wait after the program's end.
const SUMMARY_WITHIN: Duration = Duration::from_secs(5);
/// A summary that takes longer than this is announced.
const SUMMARY_TOLD_AFTER: Duration = Duration::from_secs(1);
/// For a smaller recording (some 60,000 launches), `show` computes the summary in a fraction of a second.
const SUMMARY_FROM: u64 = 8 << 20;

/// Minimum size: a part of a recording begins with the lasting facts of the parts before it.
const LEAST_PART: u64 = 1 << 20;
/// Only its owner may read a recording.
const MODE: u32 = 0o600;

/// The program's status as a shell shows it: after a signal, 128 plus the signal's number.
pub fn status_of(status: ExitStatus) -> ExitCode {
    match status.code() {
        Some(code) => ExitCode::from(code as u8),
        None => ExitCode::from(128u8.wrapping_add(status.signal().unwrap_or(0) as u8)),
    }
}

fn no_driver() -> Failure {
    Failure::impossible(
        "no NVIDIA driver on this machine (/proc/driver/nvidia/version is not there)",
        "`--gpu soft` records a program on doorbell's software GPU; `doorbell demo` shows it at work",
    )
}

fn default_name(program: &OsStr) -> PathBuf {
    let mut f = Path::new(program).file_name().map_or_else(|| "recording".into(), OsStr::to_owned);
    f.push(".doorbell");
    f.into()
}

fn tell(out: &Path, o: &Outcome, args: &Args) {
    let e = &o.end;
    let name = Style::of_stderr().bold("doorbell:");
    let size = number::bytes(o.bytes);
    let own = e.recorder_use.unwrap_or_default();
    let own = number::seconds(own.user_seconds + own.system_seconds);
    let mut err = foreign::stderr();
    let is_gone = o.parts.is_none() && out.symlink_metadata().is_err();
    let wrote = match &o.parts {
        None if is_gone => format!("{} was removed while it was written, so there is no recording", out.display()),
        Some(parts) => format!("wrote {}: {}", in_parts(parts), recorded(e, args)),
        None => format!("wrote {}: {}, {size}", out.display(), recorded(e, args)),
    };
    let _ = writeln!(err, "{name} {wrote}; doorbell itself took {own} of CPU time");
    drop(err);
    tell_end(out, o, args);
}

/// `app.part3.doorbell, app.part4.doorbell (parts 3 to 4 of 4)`
fn in_parts(parts: &PartsWritten) -> String {
    let there = parts.files.len() as u32;
    let from = parts.count.saturating_sub(there) + 1;
    let (first, last) = (parts.files.first(), parts.files.last());
    let name = |path: Option<&PathBuf>| path.map_or(String::new(), |path| path.display().to_string());
    match there {
        0 | 1 => format!("{} (part {from} of {})", name(last), parts.count),
        _ => format!("{} to {} (parts {from} to {} of {})", name(first), name(last), parts.count, parts.count),
    }
}

/// `1.20 s, 200 doorbells (200 rewritten, 0 trapped)`
fn recorded(e: &tape::file::End, args: &Args) -> String {
    let doorbells = match (e.trapped + e.tapped, args.is_more_than_commands()) {
        // Without a GPU there are no doorbells, and none were requested.
        (0, true) => String::new(),
        (n, _) => format!(", {} ({} rewritten, {} trapped)", number::of(n, "doorbell"), e.tapped, e.trapped),
    };
    format!("{}{doorbells}", number::seconds(e.seconds))
}

/// Prints the lines at the end of any recording.
fn tell_end(out: &Path, o: &Outcome, args: &Args) {
    let e = &o.end;
    let name = Style::of_stderr().bold("doorbell:");
    let mut err = foreign::stderr();
    for line in o.saves.iter().flat_map(flight::lines) {
        let _ = writeln!(err, "{name} {line}");
    }
    let stopped = e.how.starts_with("recording stopped");
    if stopped {
        let _ = writeln!(err, "{name} {}", e.how);
    }
    let _ = write!(err, "{}", lock_analysis::plan::fixes::text(&o.fixes));
    if e.gap_events > 0 && stopped {
        // (Larger rings would not have helped.)
        let _ = writeln!(err, "{name} {} that came then are not recorded", number::of(e.gap_events, "event"));
    } else if e.gap_events > 0 {
        let (events, entries) = (number::of(e.gap_events, "event"), number::count(e.gap_entries));
        let (cause, hint) = schema::lost::why(&e.recorder_use.unwrap_or_default());
        let cause = cause.map_or(String::new(), |cause| format!(": {cause}"));
        let _ = writeln!(
            err,
            "{name} {events} ({entries} GPFIFO entries) did not fit into the ring buffers{cause}; hint: {hint}"
        );
    }
    if let Some(why) = o.parts.as_ref().and_then(|parts| parts.failure.as_ref()) {
        let _ = writeln!(err, "{name} another part could not be begun, and the last is larger: {why}");
    }
    for t in &e.trouble {
        let _ = writeln!(err, "{name} {t}");
    }
    for reason in e.incomplete_because.iter().filter(|r| !e.trouble.contains(r) && **r != e.how) {
        let _ = writeln!(err, "{name} not complete: {}", foreign::plain(reason));
    }
    if let Some(why) = &o.no_control {
        let _ = writeln!(err, "{name} `doorbell top` and `doorbell attach` could not reach it: {why}");
    }
    if let Some(hint) = not_watched(&e.incomplete_because, args.agent_dir.is_some()) {
        let _ = writeln!(err, "{name} hint: {hint}");
    }
    let view = match (args.locks.is_some(), args.calls, args.python, args.has_nvtx()) {
        (_, _, true, _) => " --python",
        (true, ..) => " --locks",
        (_, true, ..) => " --calls",
        (.., true) => " --nvtx",
        _ => "",
    };
    let newest = o.parts.as_ref().and_then(|parts| parts.files.last()).map_or(out, PathBuf::as_path);
    let out = o.saves.as_ref().map_or(Some(newest), |saves| saves.files.last().map(|f| f.path.as_path()));
    // (A device or a pipe cannot be read again.)
    if let Some(out) = out.filter(|out| out.is_file()) {
        let _ = writeln!(err, "{name} `doorbell show{view} {}` explains it", out.display());
    }
}

/// The hint for a program that was not watched: start doorbell there, or use files that the program can reach.
fn not_watched(because: &[String], has_dir: bool) -> Option<&'static str> {
    let because: Vec<_> = because.iter().filter(|r| r.starts_with("not watched: ")).collect();
    let says = |text: &str| because.iter().any(|r| r.contains(text));
    let place = [unwatched::PLACE, unwatched::RIGHTS].iter().any(|why| says(unwatched::TEXT[*why as usize]));
    Some(match (because.is_empty(), has_dir) {
        (true, _) => return None,
        (_, false) if place => {
            "start doorbell inside, for example `unshare -U doorbell record ./app`, or give --agent-dir a directory that the \
             program gets at (docs/guides/containers.md)"
        }
        _ => "start doorbell inside, for example `unshare -U doorbell record ./app`",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patch_is_another_word_for_auto_and_no_help_names_it() {
        assert_eq!(TapArg::from_str("patch", false), Ok(TapArg::Auto));
        let names: Vec<_> = TapArg::value_variants().iter().filter_map(|t| t.to_possible_value()).collect();
        let names: Vec<_> = names.iter().map(|v| v.get_name()).collect();
        assert_eq!(names, ["auto", "trap", "off"]);
    }

    #[test]
    fn a_range_that_decides_has_a_text_and_maybe_a_domain() {
        let range = |name, domain| Some(CaptureArg::Range(Range::new(name, domain)));
        assert_eq!(When::read("nvtx:step"), range("step", None));
        assert_eq!(When::read("nvtx:step@lib"), range("step", Some("lib")));
        assert_eq!(When::read("nvtx:step@"), range("step", Some("")));
        assert_eq!(When::read("nvtx:a@b@*"), range("a@b", None));
        assert_eq!([When::read("nvtx:"), When::read("nvtx"), When::read("sometimes")], [None; 3]);
        assert!(When::VALUES[..4].iter().all(|(value, _)| When::read(value).is_some()));
    }

    #[test]
    fn without_a_driver_the_hint_is_the_software_gpu() {
        let e = no_driver();
        assert!(e.to_string().contains("no NVIDIA driver") && e.hint().contains("--gpu soft"), "{e}");
        assert_eq!(e.status(), crate::IMPOSSIBLE);
    }
}
