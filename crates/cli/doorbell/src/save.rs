//! `doorbell save`: makes a flight recorder write its memory to a file.

use crate::attach::failure;
use crate::failure::Failure;
use crate::help::Page;
use recorder::control::client::Client;
use recorder::control::messages::{Request, SaveResult};
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use terminal::foreign::plain;

/// Have a flight recorder (`record --last`) write a file now
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell record --calls --last 30s ./server", "keeps the last 30 s in memory"),
        ("doorbell save 1234", "writes them to a file, and prints its name"),
        ("doorbell save 1234 --reason 'p99 is high'", "which `doorbell show` prints, too"),
    ])
    .text("The file is written where `doorbell record` was told to write, by the recorder.")
    .statuses(&[(0, "the file is written"), (crate::ERROR, "it is not")])
)]
pub struct Args {
    /// Process that is recorded, for example 1234
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: i32,
    /// Why, for the file's summary
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
}

/// Time limit of the wait for the file, and interval between checks for it.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mut client = Client::of(self.pid).map_err(failure)?;
        let number = client.ask(&Request::Save(self.reason.clone())).map_err(failure)?.save;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let saved = client.status().map_err(failure)?.saved.unwrap_or_default();
            match saved.requests.into_iter().find(|result| Some(result.number) == number) {
                Some(SaveResult { file: Some(file), .. }) => {
                    writeln!(std::io::stdout().lock(), "{}", plain(&file))?;
                    return Ok(ExitCode::SUCCESS);
                }
                Some(SaveResult { failure: why, .. }) => {
                    let why = why.unwrap_or_default();
                    return Err(Failure::new(
                        format!("nothing was saved: {why}"),
                        "the recording goes on; make room, and try again",
                    )
                    .into());
                }
                None => {}
            }
            std::thread::sleep(LOOK);
        }
        Err(Failure::new(
            format!("no file was written within {} s", PATIENCE.as_secs()),
            "`doorbell top` shows what the recorder does; a slow disk may take longer",
        )
        .into())
    }
}
