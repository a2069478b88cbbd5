//! The command line: arguments, exit codes, wiring. One file a subcommand.

mod bench;
mod completions;
mod demo;
mod diff;
mod doctor;
mod export;
mod failure;
mod plan;
mod preload;
mod record;
mod run;
mod sample;
mod selfbench;
mod selftest;
mod show;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// Exit status of an error.
pub const ERROR: u8 = 2;
/// Exit status where something is not possible on this machine.
pub const IMPOSSIBLE: u8 = 77;

/// Shows every command that NVIDIA's driver sends to the GPU.
#[derive(Debug, Parser)]
#[command(
    name = "doorbell",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  doorbell demo                      a recording and what it shows, on any machine
  doorbell doctor                    what works on this machine
  doorbell record -- ./app           record a program
  doorbell show app.doorbell         what a recording holds
  doorbell bench --sizes 8B,4KiB     how long transfers take

Exit status: 0 done, 1 a threshold was missed, 2 an error, 77 not possible on this machine."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Record(record::Args),
    Diff(diff::Args),
    Plan(plan::Args),
    Run(run::Args),
    Show(show::Args),
    Export(export::Args),
    Doctor(doctor::Args),
    Demo(demo::Args),
    Sample(sample::Args),
    Bench(Box<bench::Args>),
    Selfbench(selfbench::Args),
    Selftest(selftest::Args),
    Completions(completions::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version go to standard output with status 0; wrong arguments to standard error with 2.
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { ERROR } else { 0 });
        }
    };
    let done = match cli.command {
        Command::Record(a) => a.run(),
        Command::Diff(a) => a.run(),
        Command::Plan(a) => a.run(),
        Command::Run(a) => a.run(),
        Command::Show(a) => a.run(),
        Command::Export(a) => a.run(),
        Command::Doctor(a) => a.run(),
        Command::Demo(a) => a.run(),
        Command::Sample(a) => a.run(),
        Command::Bench(a) => a.run(),
        Command::Selfbench(a) => a.run(),
        Command::Selftest(a) => a.run(),
        Command::Completions(a) => a.run(&mut Cli::command()),
    };
    done.unwrap_or_else(|e| {
        failure::print(&e);
        failure::status(&e)
    })
}
