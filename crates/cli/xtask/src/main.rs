//! Tasks of a checkout that need more than cargo: `cargo xtask dist` makes the packages of a release.
//!
//! The invariant: a package is written only after all its contents were checked.

mod dist;

use clap::Parser;
use std::process::ExitCode;

/// Tasks of a checkout of doorbell
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    Dist(dist::Args),
}

fn main() -> ExitCode {
    let Task::Dist(args) = Task::parse();
    match args.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e:#}");
            ExitCode::from(2)
        }
    }
}
