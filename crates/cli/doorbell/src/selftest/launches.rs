//! `selftest --launches`: launches that bypass CUDA. They run in a separate process, which may die of a fault or hang.
//! It prints one line for each result.

use super::{Args, as_json};
use crate::failure::Failure;
use anyhow::Context;
use sample_programs::checks::{Record, Verdict};
use sample_programs::{LAUNCH_CHECKS, LaunchCheck};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Time limit of a check; the first one also initialises CUDA.
const PATIENCE: Duration = Duration::from_secs(30);

impl Args {
    /// The process that launches.
    pub(super) fn launch(&self) -> anyhow::Result<ExitCode> {
        let mut out = std::io::stdout().lock();
        let mut broken = None;
        let done = sample_programs::check_launches(self.index, self.seed, &self.only, |checked| {
            let line = writeln!(out, "{}", as_json(&checked)).and_then(|()| out.flush());
            broken = broken.take().or(line.err());
        });
        match done {
            Ok(()) => broken.map_or(Ok(ExitCode::SUCCESS), |error| Err(error.into())),
            Err(error) => Err(Failure::impossible(error.to_string(), "`doorbell doctor` says what works here").into()),
        }
    }

    /// Runs the launches in another process, and passes on the result of each check. Returns an exit status instead if
    /// no check could be tried.
    pub(super) fn launches(&self, each: impl FnMut(Record) -> anyhow::Result<()>) -> anyhow::Result<Option<ExitCode>> {
        let wanted: Vec<&str> = self.launch_checks()?.iter().map(|check| check.name).collect();
        let mut command = Command::new(std::env::current_exe().context("the path of this program")?);
        command.args(["selftest", "--launches", "--launching"]);
        command.args(["--index".into(), self.index.to_string(), "--seed".into(), self.seed.to_string()]);
        if !self.only.is_empty() {
            command.args(["--only".into(), self.only.join(",")]);
        }
        follow(command, &wanted, PATIENCE, each)
    }

    /// The requested checks, in the list's order.
    fn launch_checks(&self) -> anyhow::Result<Vec<&'static LaunchCheck>> {
        if let Some(name) = self.only.iter().find(|name| LAUNCH_CHECKS.iter().all(|check| check.name != **name)) {
            let what = format!("there is no check of launches called {name}");
            return Err(Failure::new(what, "`doorbell selftest --launches --list` says what each does").into());
        }
        let wanted = |check: &&LaunchCheck| self.only.is_empty() || self.only.iter().any(|name| name == check.name);
        Ok(LAUNCH_CHECKS.iter().filter(wanted).collect())
    }
}

/// Runs the process that launches, and passes on each of its lines. Ends a process that prints no line within
/// `patience`.
fn follow(
    mut command: Command,
    wanted: &[&'static str],
    patience: Duration,
    mut each: impl FnMut(Record) -> anyhow::Result<()>,
) -> anyhow::Result<Option<ExitCode>> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("starting the process that launches")?;
    let said = lines(child.stdout.take().context("the output of the process that launches")?);
    for (nth, name) in wanted.iter().enumerate() {
        let why = match said.recv_timeout(patience) {
            Ok(record) => {
                each(record)?;
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {
                end(&mut child);
                format!("nothing was heard for {} s: its process was ended", patience.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = child.wait().context("the process that launches")?;
                match status.code() {
                    // It has printed the reason.
                    Some(code) if nth == 0 && code != 0 => return Ok(Some(ExitCode::from(code.clamp(1, 255) as u8))),
                    _ => format!("its process ended in the middle: {status}"),
                }
            }
        };
        each(Record { name, verdict: Verdict::Failed(why), took: Duration::ZERO })?;
        return Ok(None);
    }
    child.wait().context("the process that launches")?;
    Ok(None)
}

fn end(child: &mut Child) {
    // (This also waits for one that has just ended by itself.)
    let _ = child.kill();
    let _ = child.wait();
}

/// The process's records, as they arrive. (CUDA may print other lines, which are skipped.)
fn lines(from: ChildStdout) -> Receiver<Record> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for record in BufReader::new(from).lines().map_while(Result::ok).filter_map(|line| record(&line)) {
            if send.send(record).is_err() {
                break;
            }
        }
    });
    receive
}

fn record(line: &str) -> Option<Record> {
    let value: Value = serde_json::from_str(line).ok()?;
    let name = LAUNCH_CHECKS.iter().map(|check| check.name).find(|name| *name == value["name"])?;
    let detail = value["detail"].as_str()?.to_owned();
    let verdict = match value["verdict"].as_str()? {
        "passed" => Verdict::Passed(detail),
        "skipped" => Verdict::Skipped(detail),
        _ => Verdict::Failed(detail),
    };
    Some(Record { name, verdict, took: Duration::try_from_secs_f64(value["seconds"].as_f64()?).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_check_is_read_back() {
        for verdict in
            [Verdict::Passed("8 launches".into()), Verdict::Failed("\"wrong\"\n".into()), Verdict::Skipped("no".into())]
        {
            let checked = Record { name: "launched-tiny", verdict, took: Duration::from_millis(3) };
            let back = record(&as_json(&checked).to_string()).unwrap();
            assert_eq!((back.name, back.took, back.verdict), (checked.name, checked.took, checked.verdict));
        }
        assert!(record("a line of CUDA's").is_none() && record("{}").is_none());
    }

    /// The results for a process that runs this shell script, with two checks.
    fn followed(script: &str, patience: Duration) -> (Option<ExitCode>, Vec<(&'static str, String)>) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let mut all = Vec::new();
        let status = follow(command, &["launched-tiny", "launched-kernel"], patience, |record| {
            all.push((record.name, format!("{:?}", record.verdict)));
            Ok(())
        });
        (status.unwrap(), all)
    }

    #[test]
    fn a_process_that_dies_or_hangs_fails_the_check_that_it_was_at() {
        let passed = r#"echo '{"name":"launched-tiny","verdict":"passed","detail":"","seconds":0.1}'"#;
        let (status, all) = followed(&format!("{passed}; kill -9 $$"), PATIENCE);
        assert_eq!((status, all.len(), all[1].0), (None, 2, "launched-kernel"));
        assert!(all[1].1.contains("Failed") && all[1].1.contains("signal: 9"), "{all:?}");
        let (_, all) = followed(&format!("{passed}; exec sleep 60"), Duration::from_millis(1500));
        assert!(all.len() == 2 && all[1].1.contains("nothing was heard"), "{all:?}");
        // All checks have been reported, so the exit status does not count.
        let both = format!("{passed}; {}", passed.replace("tiny", "kernel"));
        assert_eq!(followed(&both, PATIENCE).1.len(), 2);
        // It could not begin, and its exit status shows that.
        let (status, all) = followed("exit 77", PATIENCE);
        assert_eq!((status, all.len()), (Some(ExitCode::from(77)), 0));
        let (status, all) = followed("exit 0", PATIENCE);
        assert!(status.is_none() && all.len() == 1 && all[0].1.contains("in the middle"), "{all:?}");
    }
}
