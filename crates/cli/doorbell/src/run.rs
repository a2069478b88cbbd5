//! `doorbell run`: runs a program whose calls of CUDA's are answered in ways that hold nobody up, or whose locks follow other protocols.

use crate::compiler::Compiler;
use crate::failure::Failure;
use crate::help::Page;
use crate::record::{Gpu, after_failure, another_name, status_of};
use crate::{failure, preload, result};
use lock_analysis::plan::Plan;
use output::WholeFile;
use recorder::{PolicyOptions, run_with_policies};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use tape::session::unwatched;
use tape::starts::Starts;
use terminal::foreign;
use terminal::number;

/// Run a program so that its threads hold one another up less, without rebuilding it
#[derive(Debug, clap::Args)]
#[command(
    // On two lines, to fit 60 columns.
    override_usage = "doorbell run --fix [OPTIONS] <PROGRAM>...\n       doorbell run --lock-policy <POLICY|PLAN>\n                    [OPTIONS] <PROGRAM>...\n       doorbell run --library <FILE>",
    after_help = Page::examples(&[
        ("doorbell run --fix --report ./server", "pinned allocations hold no other thread up; print at the end what was answered"),
        ("doorbell run --fix=pins,copies,code ./server", "nor do pageable copies, and code that CUDA compiles"),
        ("doorbell run --fix=fix.toml ./server", "what `doorbell plan` found in a recording"),
        ("doorbell run --library fix.so", "for a container that is not started by doorbell: LD_PRELOAD=./fix.so DOORBELL_FIX=pins ./server"),
        ("doorbell run --lock-policy plan.toml ./app", "its locks alone, lock by lock"),
        ("doorbell run --lock-policy pi,phase-fair ./app", "every lock that these suit"),
        ("doorbell run --lock-policy guard ./app", "one mutex around CUDA launches and copies"),
        ("doorbell run --lock-policy ticket --report ./app", "print what was done at the end"),
    ])
    .list("Fixes:", &[
        ("pins", "cuMemHostAlloc and cuMemAllocHost from 2 MiB on: like memory, made without the lock that launches need. cuMemHostRegister: its pages are made before the lock is taken"),
        ("copies", "copies of pageable memory of more than 2 MiB, through pinned pieces in the same stream. Work that another thread puts into the same or the default stream may run in the middle of a copy"),
        ("pages", "cuMemcpyBatchAsync and cuMemcpy3DBatchAsync of 16 copies or more between pinned memory and a GPU's: by libdoorbell's copy engines, in the stream's order"),
        ("memory", "cuMemAlloc from 256 MiB on, and its cuMemFree: like memory, made without the lock that launches need. CUDA refuses to share it with other processes \
                    and network cards; the first attempt turns the fix off. One GPU"),
        ("locks", "the policies pi and phase-fair"),
    ])
    .text("Only a plan names kernels ([[kernel]]). Each is loaded as soon as its library or module is, before that call returns, and not at its first launch. \
           It is found again by the hash of its code; with --report, kernels of a binary that has changed are listed.")
    .list("Policies:", &[
        ("pi", "mutexes: the holder runs at the priority of the highest waiter"),
        ("ticket", "mutexes: first come, first served"),
        ("phase-fair", "rwlocks: readers and writers take turns, writers first come, first served. A reader that has \
                        waited a second for a writer's turn goes first"),
        ("boost", "mutexes, rwlocks: holders get their waiters' real-time priority while they wait (CAP_SYS_NICE)"),
        ("guard", "CUDA launches, copies and memsets: one at a time, under one mutex with priority inheritance. Calls \
                   that wait for a stream, an event or a device are left alone; nobody waits longer than a second"),
        ("stock", "the lock's own protocol"),
    ])
    .verbatim("A plan is TOML. Locks that no rule names follow `mutexes` and `rwlocks` (default: stock):", &[
        "fixes = \"pins,copies\"",
        "mutexes = \"pi\"",
        "calls = \"guard\"",
        "[[lock]]",
        "# as `doorbell show --locks` names it",
        "name = \"libcuda+0x3f21c0/mutex\"",
        "policy = \"ticket\"",
        "[[lock]]",
        "# all its rwlocks",
        "module = \"libcuda\"",
        "policy = \"phase-fair\"",
        "[[kernel]]",
        "# as `doorbell plan` finds it",
        "library = \"libfoo\"",
        "name = \"_Z4stepPf\"",
        "hash = \"9f0c6a1b2d3e4f50\"",
    ])
    .text("Locks shared between processes and robust mutexes keep their own protocol. DOORBELL_LOCK_POLICY=off in the \
           environment leaves all locks alone, DOORBELL_FIX=off all calls.")
    .text("Options of doorbell stand before the program; everything behind it belongs to the program. Output, signals and \
           exit status are the program's; 125 if doorbell itself failed, 126 if the program cannot be executed, 127 if it \
           was not found.")
)]
pub struct Args {
    /// Policies with commas between them, in upper or lower case, or the file of a plan (it ends in .toml or has a slash in it), for example pi,phase-fair or plan.toml
    #[arg(long, value_name = "POLICY|PLAN", required_unless_present_any = ["fix", "library"])]
    pub lock_policy: Option<String>,
    /// Fixes with commas between them, or a plan's file, for example pins,copies or fix.toml; alone: pins
    #[arg(long, value_name = "LIST|PLAN", num_args = 0..=1, require_equals = true, default_missing_value = "pins")]
    pub fix: Option<String>,
    /// Print at the end, on standard error, what was done
    #[arg(long)]
    pub report: bool,
    /// Write what was done to this file; the name takes %h, %p, %n, %q{VAR} (for example report-%p.txt)
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
    /// Write the library that answers the calls to this file, for example fix.so, and start nothing. A program that is started with LD_PRELOAD=FILE and
    /// DOORBELL_FIX=pins has the fix without doorbell, and without a report
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fix", "lock_policy", "report", "out"])]
    pub library: Option<PathBuf>,
    /// Which GPU the program finds
    #[arg(long, value_enum, value_name = "GPU", default_value_t = Gpu::Real)]
    pub gpu: Gpu,
    /// Program and its arguments, for example ./app --its-own-options
    #[arg(trailing_var_arg = true, required_unless_present = "library", value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// Started programs without changed locks, as lines of the report.
fn not_reached(starts: &Starts) -> String {
    let line = |n: u32, why: &str| match n {
        0 => String::new(),
        n => format!("doorbell: {} not reached: {why}\n", number::of(n.into(), "program")),
    };
    let counts = starts.without.iter().map(|n| n.load(Ordering::Relaxed));
    let text: String = counts.zip(unwatched::TEXT).map(|(n, why)| line(n, why)).collect();
    text + &line(starts.silent(), "did not load the agent")
}

/// The path of libdoorbell: in DOORBELL_LIB, beside this program, or in `../lib`.
fn libdoorbell() -> Result<String, Failure> {
    const NAME: &str = "libdoorbell.so";
    let named = std::env::var_os("DOORBELL_LIB").filter(|path| !path.is_empty()).map(PathBuf::from);
    let here = std::env::current_exe().unwrap_or_default();
    let folder = here.parent().map(Path::to_owned).unwrap_or_default();
    let places = named.map_or_else(|| vec![folder.join(NAME), folder.join("../lib").join(NAME)], |path| vec![path]);
    let found = places.iter().find_map(|path| path.canonicalize().ok());
    // (The loader separates paths in LD_PRELOAD at these.)
    let path = found.and_then(|path| path.to_str().filter(|path| !path.contains([' ', ':'])).map(str::to_owned));
    path.ok_or_else(|| {
        let tried = places.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        Failure::new(
            format!("--fix=pages: no {NAME} (looked for {tried})"),
            "install the package libdoorbell, or name the file in DOORBELL_LIB, without blanks and colons in its path",
        )
    })
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(library) = &self.library {
            result::is_file("--library", library, "give a file")?;
            WholeFile::open(library, preload::AGENT.len() as u64, self.force)?
                .write(|to| to.write_all(preload::AGENT))?;
            say!("wrote {0}; use: LD_PRELOAD={0} DOORBELL_FIX=pins PROGRAM", std::path::absolute(library)?.display());
            return Ok(ExitCode::SUCCESS);
        }
        self.run_with_plan().or_else(|e| after_failure(e, &self.command))
    }

    fn run_with_plan(&self) -> anyhow::Result<ExitCode> {
        let wrong = |e: lock_analysis::plan::Error| Failure::new(e.to_string(), e.hint());
        let fixes = self.fix.as_deref().map(Plan::read_fixes).transpose().map_err(wrong)?;
        let locks = self.lock_policy.as_deref().map(Plan::read).transpose().map_err(wrong)?;
        let plan = match (fixes, locks) {
            (Some(fixes), None) => fixes,
            (None, locks) => {
                Plan { fixes: 0, kernels: Vec::new(), ..locks.map_or_else(|| Plan::read("stock").map_err(wrong), Ok)? }
            }
            (Some(fixes), Some(locks)) if fixes.leaves_locks_alone() => {
                Plan { fixes: fixes.fixes, kernels: fixes.kernels, ..locks }
            }
            (Some(_), Some(_)) => {
                let text = "--fix and --lock-policy both say which protocols locks follow";
                return Err(Failure::new(text, "give one of them").into());
            }
        };
        // Opened before the program runs, which may take days.
        let mut file = None;
        if let Some(out) = &self.out {
            result::is_file("--out", out, "--report prints on standard error")?;
            let opened = WholeFile::open(out, 1 << 12, self.force);
            file = Some(match opened {
                Err(output::Error::Exists(taken)) => {
                    let next = WholeFile::open_next(out, 1 << 12)?;
                    say!("{}", another_name(&taken, next.path()));
                    next
                }
                opened => opened?,
            });
        }
        let options = PolicyOptions {
            command: self.command.clone(),
            agent: preload::AGENT,
            soft: (self.gpu == Gpu::Soft).then(|| preload::SOFTGPU.as_slice()),
            beside: if plan.fixes & tape::fix::PAGES == 0 { None } else { Some(libdoorbell()?) },
        };
        let compiler = Compiler::for_fixes(plan.fixes, self.gpu == Gpu::Soft)?;
        let mut text = String::new();
        let status = run_with_policies(
            &options,
            |b| {
                plan.write(b);
                b.fixes.compiler = compiler.as_ref().map_or(0, |compiler| compiler.number);
            },
            |b| {
                let asked = self.lock_policy.is_some() || !plan.leaves_locks_alone();
                let locks = if asked { lock_analysis::plan::outcome::text(b) } else { String::new() };
                let kernels = lock_analysis::plan::kernels::text(&plan.kernels, &b.kernels);
                let fixes = lock_analysis::plan::fixes::text(&b.fixes) + &kernels;
                text = foreign::lines(&(fixes + &locks + &not_reached(&b.starts)));
            },
        )?;
        drop(compiler);
        if let Some(file) = &mut file {
            let written = file.write(|to| to.write_all(text.as_bytes()));
            if let Err(e) = written.map_err(|e: io::Error| anyhow::anyhow!("{}: {e}", file.path().display())) {
                failure::print(&e);
            }
        }
        if self.report {
            // (The program's status counts for more than a line that cannot be written.)
            let _ = std::io::stderr().lock().write_all(text.as_bytes());
        }
        Ok(status_of(status))
    }
}
