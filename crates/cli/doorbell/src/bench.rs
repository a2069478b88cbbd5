//! `doorbell bench`: how long transfers take, every one of them a sample.

pub mod child;
mod experiment;
pub mod machine;

pub use experiment::{read_named, surroundings};

use crate::help::Page;
use std::process::ExitCode;

/// Run an experiment: every transfer a sample, what is compared takes turns
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell bench --list", "the experiments that come with doorbell"),
        ("doorbell bench smoke", "half a minute, on a machine with a GPU"),
        ("doorbell bench crossover -o crossover", "samples, figures and plots in a folder"),
        ("doorbell bench my.toml --dry-run", "what it would do, and how long that takes"),
        ("doorbell bench setups --set matrix.policy=stock,pi --set run.duration=2s", ""),
        ("doorbell bench -o crossover --resume", "go on with a run that was stopped"),
        ("doorbell bench --show crossover", "print a finished run again"),
        ("doorbell bench smoke --gpu soft", "whether it works, never how fast"),
    ])
    .text("An experiment is a TOML file: what is measured, beside which load, in which combinations. Copy a shipped one and \
           change it. A run is a folder: samples as Parquet, figures as JSON, plots. Ctrl-C keeps what is finished; a second one waits \
           for no process.")
    .statuses(&[
        (0, "done, and every bound of the experiment holds"),
        (1, "a bound of the experiment does not hold"),
        (2, "an error, or something that is measured failed"),
        (77, "nothing can be measured on this machine"),
        (130, "stopped by Ctrl-C"),
    ])
)]
pub struct Args {
    #[command(flatten)]
    experiment: Box<experiment::Args>,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        self.experiment.run()
    }
}
