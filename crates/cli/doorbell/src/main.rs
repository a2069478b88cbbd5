//! The command line: arguments, exit codes, wiring. One file a subcommand: its arguments and `run()`.
//!
//! On a machine that is not x86-64 the commands of `needs_x86_64` are those of `refused`; code that only they use is unused
//! there.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
// They panic where nothing can be written.
#![deny(clippy::print_stderr, clippy::print_stdout)]

/// Prints a line to standard error, in one write: lines of several processes do not mix. A failure changes nothing: what a program returned counts for
/// more than a message.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        drop(std::io::stderr().lock().write_all(format!("{}\n", format_args!($($text)*)).as_bytes()));
    }};
}

mod color;
mod compare;
mod completions;
mod diff;
mod export;
mod failure;
mod groups;
mod help;
mod man;
mod plan;
mod progress;
mod redact;
mod report;
mod result;
mod show;
mod signals;
mod units;
mod why;

#[cfg(not(target_arch = "x86_64"))]
mod refused;
#[cfg(target_arch = "x86_64")]
#[path = "."]
mod needs_x86_64 {
    pub mod attach;
    pub mod bench;
    pub mod calibrate;
    pub mod compiler;
    pub mod demo;
    pub mod doctor;
    pub mod files;
    pub mod flight;
    pub mod now;
    pub mod nvme;
    pub mod preload;
    pub mod record;
    pub mod run;
    pub mod sample;
    pub mod save;
    pub mod selfbench;
    pub mod selftest;
    pub mod soak;
    pub mod top;
}
#[cfg(target_arch = "x86_64")]
use needs_x86_64::*;
#[cfg(not(target_arch = "x86_64"))]
use refused::*;

#[cfg(test)]
mod conventions;
#[cfg(test)]
mod printed;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

/// Exit status of an error.
pub const ERROR: u8 = 2;
/// Exit status if something is not possible on this machine.
pub const IMPOSSIBLE: u8 = 77;

#[derive(Debug, Parser)]
#[command(
    name = "doorbell",
    version,
    about,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = help::Page::examples(&[
        ("doorbell demo", "a recording and what it shows, on any machine"),
        ("doorbell doctor", "what works on this machine"),
        ("doorbell record ./app", "record a program"),
        ("doorbell show app.doorbell", "what a recording holds"),
        ("doorbell run --lock-policy plan.toml ./app", "run it with other lock protocols"),
    ])
    .statuses(&[
        (0, "done"),
        (1, "a limit was exceeded, a run is slower, or two recordings differ"),
        (ERROR, "an error"),
        (IMPOSSIBLE, "not possible on this machine"),
    ])
    .text("`record` and `run` exit with the program's status; their own failures are 125 (doorbell failed), 126 (the \
           program cannot be executed) and 127 (it was not found).")
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// When output has colors
    #[arg(long, value_enum, global = true, value_name = "WHEN", default_value_t)]
    color: color::When,
    /// Use channels of doorbell's own, and record, also where the driver's version was not checked
    #[arg(long, global = true)]
    unverified_driver: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Record(record::Args),
    Attach(attach::Args),
    Save(save::Args),
    Top(top::Args),
    Show(show::Args),
    Why(why::Args),
    Plan(plan::Args),
    Run(run::Args),
    Diff(diff::Args),
    Export(export::Args),
    Demo(demo::Args),
    Doctor(doctor::Args),
    Files(Box<files::Args>),
    Nvme(Box<nvme::Args>),
    Sample(sample::Args),
    Selftest(selftest::Args),
    Bench(Box<bench::Args>),
    Soak(Box<soak::Args>),
    Calibrate(Box<calibrate::Args>),
    Compare(compare::Args),
    Report(report::Args),
    Redact(redact::Args),
    Selfbench(selfbench::Args),
    Man(man::Args),
    Completions(completions::Args),
    /// Compile for `run --fix=code`
    #[cfg(target_arch = "x86_64")]
    #[command(hide = true)]
    Compiler {
        #[arg(long)]
        soft: bool,
    },
}

impl Command {
    /// Whether it runs a program whose exit status it passes on.
    fn is_wrapper(&self) -> bool {
        matches!(self, Command::Record(_) | Command::Run(_))
    }
}

/// All arguments of all subcommands, laid out for this terminal.
fn command_line() -> clap::Command {
    groups::grouped(Cli::command().term_width(help::width()))
}

/// Stack for reading the arguments, whatever the limit (`ulimit -s`): a program that runs with less is run with less.
const STACK: usize = 8 << 20;

fn main() -> ExitCode {
    signals::survive_file_size_limit();
    stacker::maybe_grow(STACK / 2, STACK, command)
}

fn command() -> ExitCode {
    let color = color::When::in_arguments(std::env::args_os().skip(1));
    color.set();
    let parsed = command_line().color(color.of_clap()).try_get_matches();
    let cli = match parsed.and_then(|m| Cli::from_arg_matches(&m)) {
        Ok(cli) => cli,
        // Help and version are printed on standard output with status 0, wrong arguments on standard error.
        Err(e) => {
            let e = failure::as_typed(e, &command_line(), std::env::args_os());
            let _ = e.print();
            let wrong = failure::of_wrong_arguments(std::env::args_os());
            return if e.use_stderr() { wrong } else { ExitCode::SUCCESS };
        }
    };
    cli.color.set();
    if cli.unverified_driver {
        // SAFETY: no other thread was started yet.
        unsafe { std::env::set_var(rm::abi::UNVERIFIED_DRIVER, "1") };
    }
    let is_wrapper = cli.command.is_wrapper();
    let done = match cli.command {
        Command::Record(a) => a.run(),
        Command::Attach(a) => a.run(),
        Command::Save(a) => a.run(),
        Command::Top(a) => a.run(),
        Command::Show(a) => a.run(),
        Command::Why(a) => a.run(),
        Command::Plan(a) => a.run(),
        Command::Run(a) => a.run(),
        Command::Diff(a) => a.run(),
        Command::Export(a) => a.run(),
        Command::Demo(a) => a.run(),
        Command::Doctor(a) => a.run(),
        Command::Files(a) => a.run(),
        Command::Nvme(a) => a.run(),
        Command::Sample(a) => a.run(),
        Command::Selftest(a) => a.run(),
        Command::Bench(a) => a.run(),
        Command::Soak(a) => a.run(),
        Command::Calibrate(a) => a.run(),
        Command::Compare(a) => a.run(),
        Command::Report(a) => a.run(),
        Command::Redact(a) => a.run(),
        Command::Selfbench(a) => a.run(),
        Command::Man(a) => a.run(),
        Command::Completions(a) => a.run(command_line()),
        #[cfg(target_arch = "x86_64")]
        Command::Compiler { soft } => compiler::run(soft),
    };
    done.unwrap_or_else(|e| {
        failure::print(&e);
        if is_wrapper { failure::status_of_wrapper(&e) } else { failure::status(&e) }
    })
}
