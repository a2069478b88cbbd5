//! `doorbell bench`: how long transfers take, every one of them a sample.

mod bandwidth;
mod beside;
mod closed_loop;
mod contention;
mod locks;
mod noise;
mod raw;
mod routes;
mod worst;

use crate::help::Page;
use std::process::ExitCode;

/// Measure transfers: every route and size, each transfer a sample
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = Page::examples(&[
        ("doorbell bench --list", "the routes of this machine"),
        ("doorbell bench --routes 'host->cuda->gpu0,host->ce0->gpu0'", "two routes, 4 B to 64 MiB"),
        ("doorbell bench --sizes 8B,4KiB --samples 10000 --cpu 4 --fifo -o small.json", ""),
        ("doorbell bench --sizes 1KiB..31KiB/1KiB --compare 'host->cuda->gpu0'", ""),
        ("doorbell bench --gpu soft --samples 20", "whether it works, never how fast"),
    ])
    .text("Routes take turns in rounds, in an order drawn anew for each, so that a machine that changes its speed changes it \
           for all. Each is verified with random bytes before, and the bytes that the timed transfers moved are compared \
           after. A route that does not exist here is listed with the reason, and the others go on.")
    .statuses(&[(0, "done"), (2, "an error or a cell that failed"), (77, "nothing can be measured on this machine")])
)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    closed_loop: closed_loop::Args,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Raw(Box<raw::Args>),
    Bandwidth(Box<bandwidth::Args>),
    Noise(noise::Args),
    Worst(Box<worst::Args>),
    Beside(beside::Args),
    Locks(Box<locks::Args>),
    Contention(Box<contention::Args>),
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.what {
            None => self.closed_loop.run(),
            Some(What::Raw(r)) => r.run(),
            Some(What::Bandwidth(b)) => b.run(),
            Some(What::Noise(n)) => n.run(),
            Some(What::Worst(w)) => w.run(),
            Some(What::Beside(b)) => b.run(),
            Some(What::Locks(l)) => l.run(),
            Some(What::Contention(c)) => c.run(),
        }
    }
}

// Where the measuring thread is to run. (As a doc comment it would become the text of the command it is part of.)
#[derive(Clone, Copy, Debug, clap::Args)]
struct Where {
    /// Measure on this CPU, for example 4
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// Measure under SCHED_FIFO, with priority 80 or the given one, for example --fifo=90
    #[arg(
        long,
        value_name = "PRIORITY",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "80",
        value_parser = clap::value_parser!(i32).range(1..=99)
    )]
    fifo: Option<i32>,
}

impl Where {
    fn wish(&self) -> placement::Wish {
        placement::Wish { cpu: self.cpu, fifo: self.fifo }
    }

    /// A CPU that does not exist is a slip of the pen; SCHED_FIFO that is not permitted is only said.
    fn check(&self) -> anyhow::Result<()> {
        let Some(cpu) = self.cpu else { return Ok(()) };
        let placed = placement::Placement::take(placement::Wish { cpu: Some(cpu), fifo: None });
        match placed.notes.first() {
            None => Ok(()),
            Some(note) => {
                Err(crate::failure::Failure::new(note, "`lscpu` lists the CPUs; leave --cpu out for any").into())
            }
        }
    }
}
