//! Tasks of a checkout that need more than cargo: `cargo xtask dist` makes the packages of a release, `cargo xtask pictures`
//! draws pictures of the pages again, `cargo xtask calls` writes rows of the driver's functions from CUDA's headers, `cargo xtask holds`
//! those of calls that hold other threads up from a data file.
//!
//! The invariant: no package and no picture is written before all contents were checked.

mod calls;
mod dist;
mod holds;
mod pictures;

use clap::Parser;
use std::process::ExitCode;

/// Tasks of a checkout of doorbell
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    Calls(calls::Args),
    Dist(dist::Args),
    Holds(holds::Args),
    Pictures(pictures::Args),
}

fn main() -> ExitCode {
    let done = match Task::parse() {
        Task::Calls(args) => args.run(),
        Task::Dist(args) => args.run(),
        Task::Holds(args) => args.run(),
        Task::Pictures(args) => args.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e:#}");
            ExitCode::from(2)
        }
    }
}
