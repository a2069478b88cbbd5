//! `doorbell why`: what delayed CUDA calls. With `--now`: who waits for whom ([`crate::now`]).

use crate::failure::Failure;
use crate::{now, show, units};
use decode::{InsightError, Recording};
use schema::Document;
use schema::names::Named;
use schema::slow_calls::Why;
use schema::symbols::Places;
use slow_calls::Wanted;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use terminal::json::or_text;
use terminal::table::Style;

/// Say why CUDA's calls were slow
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  doorbell record --locks ./app                  records the calls, and what they wait for
  doorbell record --locks --gpu-times ./app      and which kernels those waited for that wait for the GPU
  doorbell why                                   the newest recording of this folder
  doorbell why app.doorbell --worst 3            the three calls that lost the most
  doorbell why app.doorbell --above 1ms          calls that lost a millisecond or more
  doorbell why app.doorbell --number 4711        the calls with this number (`show` has it at each submission)
  doorbell why app.doorbell --call cudaMalloc    calls of this function
  doorbell why app.doorbell --starting           the time in which a process begins, too
  doorbell why app.doorbell --json | jq '.worst[0].cause'
  doorbell why --now 1234                        who waits for whom in a recorded program now
  doorbell why --now 1234 --stacks               and the calls in which these threads are
  doorbell why --now --all                       who waits for whom in all ranks of this machine, and which is behind

All of a call's time is put down to something. What is usual for calls of its kind, and what a call waits for because that
is what it is there for, is not lost; the rest is. `unknown`: on a CPU, and nothing was seen in the way.

--now looks twice at the program, 100 ms apart, and does not stop it. It prints threads that wait for one another in a circle,
the longest chains of threads that wait, CUDA calls that have not returned, and kernels that have not ended. It needs
`record --locks` or `--calls`, and for kernels `--gpu-times`.")]
pub struct Args {
    /// The recording, made with `record --locks` or `--calls`; without one, the newest of this folder
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// So many calls, those that lost the most
    #[arg(long, value_name = "N", default_value_t = 10, conflicts_with = "number")]
    worst: usize,
    /// The calls with this number in their thread, for example 4711
    #[arg(long, value_name = "NUMBER")]
    number: Option<u32>,
    /// Only calls of this function, for example cudaMemcpyAsync
    #[arg(long, value_name = "NAME")]
    call: Option<String>,
    /// Only calls of this thread, for example 4243
    #[arg(long, value_name = "TID")]
    thread: Option<i32>,
    /// Only this process, for example 4242
    #[arg(long, value_name = "PID")]
    process: Option<i32>,
    /// A call is slow if it lost this or more, for example 1ms
    #[arg(long, value_name = units::TIME, default_value = "50us", value_parser = units::time)]
    above: Duration,
    /// Also the calls of the time in which a process begins, its first 1,000 launches and copies
    #[arg(long)]
    starting: bool,
    /// Who waits for whom at this moment in this process, for example 1234 [without PID: the only one that is recorded]
    #[arg(long, value_name = "PID", num_args = 0..=1, value_parser = clap::value_parser!(i32).range(1..),
          conflicts_with_all = ["file", "worst", "number", "call", "thread", "process", "above", "starting"])]
    now: Option<Option<i32>>,
    /// With --now: all programs that are recorded, as one, and which rank is behind
    #[arg(long, requires = "now")]
    all: bool,
    /// With --now: also where each of these threads is, and the calls that led there
    #[arg(long, requires = "now")]
    stacks: bool,
    /// JSON, numbers as numbers
    #[arg(long)]
    json: bool,
}

/// Maximum number of shown calls with the same number: each thread may have one.
const OF_ONE_NUMBER: usize = 100;

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(pid) = self.now {
            if self.all && pid.is_some() {
                return Err(Failure::new("--all cannot be used with a PID", "give one of them").into());
            }
            return now::run(pid, self.all, self.stacks, self.json);
        }
        let file = show::given_or_newest(self.file.as_deref())?;
        let recording = show::open(&file, self.process)?;
        let wanted = Wanted {
            worst: if self.number.is_some() { OF_ONE_NUMBER } else { self.worst },
            number: self.number,
            function: self.call,
            thread: self.thread,
            slow_from_ns: u64::try_from(self.above.as_nanos()).unwrap_or(u64::MAX),
            starting: self.starting,
        };
        let (style, (why, places)) = (Style::of_stdout(), explained(&recording, &wanted)?);
        let named = Named { places: &places, symbols: &why.symbols };
        or_text(self.json, &Document::of(&why), style, |out| {
            terminal::slow_calls::write(out, &why, self.number, named, style)
        })?;
        show::damage_of(&recording)
    }
}

/// The explanation with the names from the source of the places in its rows.
pub fn explained(r: &Recording, wanted: &Wanted) -> Result<(Why, Places), InsightError> {
    let missing = || InsightError::NotRecorded { path: r.path().into(), what: "CUDA calls" };
    let (mut why, places) = slow_calls::why(r, wanted)?.ok_or_else(missing)?;
    symbols::of_calls(&mut why, &places);
    Ok((why, places))
}
