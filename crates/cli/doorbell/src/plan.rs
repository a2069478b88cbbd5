//! `doorbell plan`: makes a plan for `run --fix` from the waits, locks and first launches in a recording.

use crate::help::Page;
use crate::result;
use decode::Recording;
use output::WholeFile;
use slow_calls::Wanted;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

/// Write a plan for `run --fix` from what a recording says of calls that waited for locks, and of kernels that were loaded late
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell record --locks -o a.doorbell ./app", "record the locks"),
        ("doorbell plan a.doorbell -o fix.toml", "find the fixes that would have saved something"),
        ("doorbell run --fix=fix.toml ./app", "run with them"),
    ])
    .text("A fix is in the plan where calls waited for locks that other threads held in calls that the fix answers, with the \
           time that they waited. That is what it saves at most. `memory` is not, if the program calls what such memory would answer \
           differently: IPC, RDMA, SYNC_MEMOPS, peers.")
    .list("A lock gets a rule where the recording shows a wait that the policy shortens:", &[
        ("pi", "a real-time thread waited for a holder of lower priority, and priority inheritance would have helped"),
        ("ticket", "a mutex: a wait longer than four times the longest hold, so others overtook the waiter. Not where the \
                    usual wait is shorter than 10 us, the time of a hand-over to a sleeping thread"),
        ("phase-fair", "a rwlock: a wait longer than four times the longest hold, or of many holds none of which is half of it"),
    ])
    .text("A kernel is in the plan if its first launch took more than twice the median of its other launches (of fewer than three: of all of the process's), \
           and 50 us more: CUDA loaded it then. `run` loads it with its library.")
    .text("All other locks keep their own protocol. Those that were waited for are listed as comments, with the reason.")
)]
pub struct Args {
    /// The recording, made with `record --locks`; without one, the newest of this folder
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Write the plan to this file instead of standard output (for example plan.toml)
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the file of --out if it exists
    #[arg(long, requires = "out")]
    force: bool,
}

/// Maximum number of waits, the longest ones, that the plan examines individually.
const WAITS: usize = 1000;
/// Maximum number of slow calls, those that lost the most.
const CALLS: usize = 1000;

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let file = crate::show::given_or_newest(self.file.as_deref())?;
        let recording = Recording::open(&file)?;
        let mut locks = lock_analysis::all_recorded(&recording, WAITS, "a plan")?;
        symbols::of_variables(&mut locks);
        let wanted = Wanted { worst: CALLS, starting: true, ..Wanted::default() };
        let fixes = slow_calls::why(&recording, &wanted)?.map_or_else(Vec::new, |(why, _)| why.fixes);
        let plan = slow_calls::plan(&locks, &fixes, &slow_calls::late_kernels(&recording)?);
        match &self.out {
            None if io::stdout().is_terminal() => terminal::table::to_stdout(|out| out.write_all(plan.as_bytes()))?,
            None => terminal::table::file_to_stdout(|out| out.write_all(plan.as_bytes()))?,
            Some(path) => {
                result::is_file("--out", path, "without --out the plan goes to standard output")?;
                let mut file = WholeFile::open(path, plan.len() as u64, self.force)?.private();
                let written: io::Result<()> = file.write(|out| out.write_all(plan.as_bytes()));
                written.map_err(|cause| output::Error::Write { path: path.clone(), cause })?;
            }
        }
        crate::show::damage_of(&recording)
    }
}
