//! `doorbell attach`: switches on the recording of a program that `doorbell record --dormant` has started.

use crate::failure::Failure;
use crate::help::Page;
use crate::record::claim_result;
use crate::{signals, units};
use recorder::control::client::{Client, ClientError};
use recorder::control::messages::{Request, Status, Written, parts};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tape::file::{End, Writer};
use terminal::foreign;
use terminal::number;
use terminal::table::Style;

/// Switch the recording of a running program on, and off again at the end
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell record --dormant --calls ./server", "start it so, with what may be wanted later"),
        ("doorbell attach 1234 --for 10s -o slow.doorbell", "ten seconds of it, in a file of their own"),
        ("doorbell attach 1234", "until Ctrl-C, into the recording that `record` writes"),
        ("doorbell attach 1234 --locks --for 1m", "refused if its locks cannot be recorded"),
    ])
    .text("PID is the program's, or that of a process that it has started; `doorbell top` lists them. The recording of \
           `doorbell record` goes on: while nobody is attached it has driver calls alone, without which later commands cannot be \
           read. All that the program was started with is recorded; --calls, --locks and --gpu-times only make sure of it.")
    .text("Recording ends with this command, also if it is killed. Only the program's user and root can attach.")
    .statuses(&[(0, "recorded"), (crate::ERROR, "not recorded, or not to the end")])
)]
pub struct Args {
    /// Process to record, for example 1234
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: i32,
    /// End after this time, for example 10s [default: at Ctrl-C]
    #[arg(long = "duration", visible_alias = "for", value_name = units::TIME, value_parser = units::long_time)]
    pub duration: Option<Duration>,
    /// Copy what was recorded since then to this file, which can be read while the program goes on; the name takes %h, %p, %n, %q{VAR} (for example slow-%n.doorbell)
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Replace the file of --out if it exists
    #[arg(long, requires = "out")]
    pub force: bool,
    /// Refuse unless CUDA calls are recorded
    #[arg(long)]
    pub calls: bool,
    /// Refuse unless locks are recorded
    #[arg(long)]
    pub locks: bool,
    /// Refuse unless times of kernels are recorded
    #[arg(long)]
    pub gpu_times: bool,
    /// Print nothing on standard error
    #[arg(short, long)]
    pub quiet: bool,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mut client = Client::of(self.pid).map_err(failure)?;
        let status = client.status().map_err(failure)?;
        // Before the recording begins, so that a file that cannot be copied is reported now.
        let claim = match &self.out {
            None => None,
            Some(out) if open(&status.file, client.uid).is_err() => {
                return Err(Failure::new(
                    format!("{}: no file, so it cannot be copied to {}", status.file, out.display()),
                    "leave -o out: it is recorded to where `doorbell record` writes",
                )
                .into());
            }
            Some(out) => Some(claim_result(Some(out), out, self.force)?),
        };
        let interrupted = signals::count_interrupts();
        let recorded = self.record(&mut client, &status, || interrupted.load(Ordering::Relaxed) > 0);
        let copied = recorded.and_then(|recorded| {
            if let Some(claim) = &claim {
                copy(&status, client.uid, &recorded, claim.path())?;
            }
            Ok(recorded)
        });
        match copied {
            Ok(recorded) => {
                let file = claim.as_ref().map_or(Path::new(&status.file), |claim| claim.path());
                if !self.quiet {
                    tell(&status, &recorded, file);
                }
                Ok(ExitCode::SUCCESS)
            }
            Err(e) => {
                claim.into_iter().for_each(output::Claim::give_up);
                Err(e)
            }
        }
    }

    fn record(&self, client: &mut Client, status: &Status, interrupted: impl Fn() -> bool) -> anyhow::Result<Recorded> {
        let wish = |on: bool, bit: u32| if on { bit } else { 0 };
        let what =
            wish(self.calls, parts::CALLS) | wish(self.locks, parts::LOCKS) | wish(self.gpu_times, parts::GPU_TIMES);
        let since = recorder::part::now();
        client.ask(&Request::Attach(what)).map_err(failure)?;
        if !self.quiet && self.duration.is_none() && io::stderr().is_terminal() {
            let name = Style::of_stderr().bold("doorbell:");
            say!("{name} recording process {}; Ctrl-C ends it", status.pid);
        }
        let begun = Instant::now();
        while !interrupted() && !client.is_gone() {
            let left = self.duration.map(|d| d.saturating_sub(begun.elapsed()));
            if left == Some(Duration::ZERO) {
                break;
            }
            std::thread::sleep(left.unwrap_or(LOOK).min(LOOK));
        }
        let took = begun.elapsed();
        match client.ask(&Request::Pause) {
            Ok(answer) => Ok(Recorded { since, took, written: answer.written }),
            // The program has ended: its recording is complete.
            Err(ClientError::Gone { .. }) => Ok(Recorded { since, took, written: None }),
            Err(e) => Err(failure(e)),
        }
    }
}

/// Interval between checks for signals and for the end of the program.
const LOOK: Duration = Duration::from_millis(50);

struct Recorded {
    /// Time stamp counter when it began.
    since: u64,
    took: Duration,
    /// How far the recording has been written; `None`: it has ended.
    written: Option<Written>,
}

/// Opens the file that a recorder of user `uid` has named. Root is not made to read what that user may not: a link, or a file of
/// another user's.
fn open(file: &str, uid: u32) -> io::Result<File> {
    let source = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(file)?;
    let m = source.metadata()?;
    // SAFETY: no arguments.
    let is_theirs = m.uid() == uid || uid == unsafe { libc::geteuid() };
    if !m.is_file() || !is_theirs {
        return Err(io::Error::other("is no file of the recorder's user"));
    }
    Ok(source)
}

/// Makes a separate recording of the events since the attach, from the program's recording.
fn copy(status: &Status, uid: u32, recorded: &Recorded, to: &Path) -> anyhow::Result<()> {
    let &Recorded { since, took, written } = recorded;
    let failed = |path: &Path, e: io::Error| {
        Failure::new(
            format!("{}: {e}", path.display()),
            format!("`doorbell show {}` reads what was recorded", status.file),
        )
    };
    let from = Path::new(&status.file);
    let source = open(&status.file, uid).map_err(|e| failed(from, e))?;
    let mut file = File::options().write(true).truncate(true).open(to).map_err(|e| failed(to, e))?;
    let bytes = written.map_or(u64::MAX, |w| w.bytes);
    io::copy(&mut source.take(bytes), &mut file).map_err(|e| failed(to, e))?;
    let cut = || recorder::part::keep_from(to, since, "doorbell attach").map(drop).map_err(|e| failed(to, e));
    let Some(written) = written else { return Ok(cut()?) };
    let mut writer = Writer::go_on(file, to, written.bytes, written.chunks).map_err(|e| failed(to, e))?;
    let because =
        format!("the program went on: this is {:.1} s of its recording in {}", took.as_secs_f64(), status.file);
    let end = End {
        how: "still running".into(),
        pid: status.pid,
        seconds: status.seconds + took.as_secs_f64(),
        gap_events: status.lost_events,
        agent: !status.processes.is_empty(),
        processes: status.processes.len() as u32,
        recorder_use: Some(status.recorder_use),
        incomplete_because: vec![because],
        ..End::default()
    };
    writer.end(&end).map_err(|e| failed(to, e))?;
    Ok(cut()?)
}

fn tell(status: &Status, recorded: &Recorded, file: &Path) {
    let name = Style::of_stderr().bold("doorbell:");
    let ended = if recorded.written.is_none() { "; it has ended" } else { "" };
    let took = number::seconds(recorded.took.as_secs_f64());
    let mut err = foreign::stderr();
    let _ = writeln!(err, "{name} recorded process {} for {took}{ended}: {}", status.pid, file.display());
    let view = match status.parts.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [.., "locks"] | [.., "locks", "gpu-times"] => " --locks",
        ["calls", ..] => " --calls",
        _ => "",
    };
    let _ = writeln!(err, "{name} `doorbell show{view} {}` explains it", file.display());
}

/// The error, with a hint, for a recorder that could not be reached.
pub fn failure(e: ClientError) -> anyhow::Error {
    let hint = match &e {
        ClientError::NotRecorded(_) => {
            "`doorbell record --dormant PROGRAM` starts one that can be attached to; `doorbell top` lists those that are recorded"
        }
        ClientError::AnotherUser { .. } => "run it as that user, or as root",
        ClientError::NoProcess(_) => "`doorbell top` lists the programs that are recorded",
        ClientError::Silent { .. } => "`ps` shows its state; `kill -CONT` wakes a stopped one",
        ClientError::Gone { .. } => "`doorbell show` reads what it has recorded",
        ClientError::Refused { .. } => "`doorbell top PID` shows what it does",
        ClientError::Io { .. } | ClientError::Impostor { .. } => {
            "look at the folder in which it lies: $XDG_RUNTIME_DIR/doorbell, or /tmp/doorbell-UID"
        }
    };
    Failure::new(e.to_string(), hint).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_recorders_user_are_copied_and_no_links() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(at("file"), "x").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        let own = std::fs::metadata(at("file")).unwrap().uid();
        assert!(open(&at("file"), own).is_ok());
        assert!(open(&at("file"), own + 1).is_err() && open(&at("link"), own).is_err());
    }
}
