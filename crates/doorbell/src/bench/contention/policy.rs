//! Processes under a policy: how each is started, and what it says line by line.

use super::Args;
use super::child::{CELL_HANGS_S, PROGRESS, START_HANGS_S};
use crate::failure::Failure;
use crate::record::Gpu;
use crate::units;
use lock_lab::contention::{Cell, Outcome, STOCK};
use runner::threads;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// With the agent, and no policy: what the agent itself costs.
const AGENT: &str = "agent";
/// Recorded, with its locks.
const TRACED: &str = "traced";

/// A policy, and what came of it so far.
pub struct Policy {
    pub row: report::contention::Policy,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Stock,
    /// Under `doorbell run --lock-policy`.
    Run(String),
    /// Under `doorbell record --locks`, its tapes in this folder.
    Traced(PathBuf),
}

/// Why a process did not measure everything.
#[derive(Debug)]
pub struct Ended {
    pub text: String,
    /// Its exit status was 77.
    pub impossible: bool,
}

impl Policy {
    /// Reads a list.
    pub fn read(list: &str, tapes: Option<&Path>) -> anyhow::Result<Vec<Policy>> {
        let mut all: Vec<Policy> = Vec::new();
        for name in list.split(',').map(str::trim) {
            let (kind, how) = match name {
                "" => return Err(Failure::new("--policies: an empty name", "as in stock,pi,ticket").into()),
                STOCK => (Kind::Stock, "as it is".to_owned()),
                AGENT => (Kind::Run(STOCK.into()), "doorbell run --lock-policy stock".to_owned()),
                TRACED => {
                    let folder = tapes.ok_or_else(|| {
                        Failure::new("--policies traced: no place for its tapes", "give a folder with --tapes")
                    })?;
                    std::fs::create_dir_all(folder).map_err(|e| {
                        Failure::new(format!("--tapes {}: {e}", folder.display()), "give a folder that can be written")
                    })?;
                    (Kind::Traced(folder.to_owned()), "doorbell record --locks --tap off".to_owned())
                }
                other => {
                    let names = other.replace('+', ",");
                    (Kind::Run(names.clone()), format!("doorbell run --lock-policy {names}"))
                }
            };
            if all.iter().any(|p| p.row.name == name) {
                return Err(Failure::new(format!("--policies: {name} is there twice"), "name each once").into());
            }
            let row = report::contention::Policy { name: name.into(), how, missing: None, report: Vec::new() };
            all.push(Policy { row, kind });
        }
        Ok(all)
    }

    /// Runs one process over all cells; `each` hears of every cell as it comes.
    pub fn measure(
        &mut self,
        args: &Args,
        cells: &[Cell],
        seed: u64,
        round: u32,
        mut each: impl FnMut(Outcome),
    ) -> Result<(), Ended> {
        let failed = |text: String| Ended { text, impossible: false };
        let own = std::env::current_exe().map_err(|e| failed(format!("this program's own file: {e}")))?;
        let seconds = args.duration.div_f64(f64::from(args.rounds));
        let child = arguments(args, cells, seconds, seed);
        let said = tempfile::NamedTempFile::new().map_err(|e| failed(format!("a temporary file: {e}")))?;
        let mut errors = tempfile::tempfile().map_err(|e| failed(format!("a temporary file: {e}")))?;
        let whole = command(&self.kind, args.gpu, own.as_os_str().to_owned(), child, said.path(), round);
        let mut command = Command::new(&whole[0]);
        let stderr = errors.try_clone().map_err(|e| failed(e.to_string()))?;
        command.args(&whole[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        // SAFETY: one system call with numbers, between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let mut process = command.spawn().map_err(|e| failed(format!("{}: {e}", whole[0].display())))?;
        let heard = hear(&mut process, cells, seconds, &mut each).map_err(|why| match why {
            Quiet::Hung(what) => format!("{what}{}", threads::where_threads_are(process.id())),
            Quiet::Wrong(what) => what,
        });
        if heard.is_err() {
            let _ = process.kill();
        }
        let status = process.wait().map_err(|e| failed(e.to_string()))?;
        if let Kind::Run(_) = self.kind {
            let text = std::fs::read_to_string(said.path()).unwrap_or_default();
            self.row.report = text.lines().map(|l| l.trim_start_matches("doorbell: ").to_owned()).collect();
        }
        let measured = heard.map_err(&failed)?;
        if status.success() && measured == cells.len() {
            return Ok(());
        }
        let mut text = String::new();
        let _ = errors.rewind().and_then(|()| errors.read_to_string(&mut text));
        let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
        // An error says in its first line what it is about; after it come hints, or what the program wrote.
        let why = lines.iter().rev().find(|l| l.starts_with("error: ")).or(lines.last()).copied().unwrap_or("");
        let why = why.trim_start_matches("error: ");
        let text = format!(
            "{status} after {measured} of {} cells{}{why}",
            cells.len(),
            if why.is_empty() { "" } else { ": " }
        );
        Err(Ended { text, impossible: status.code() == Some(i32::from(crate::IMPOSSIBLE)) })
    }
}

/// Reads lines until there are no more; how many there were, or what was wrong.
fn hear(
    process: &mut Child,
    cells: &[Cell],
    seconds: Duration,
    each: &mut impl FnMut(Outcome),
) -> Result<usize, Quiet> {
    let wrong = |what: String| Quiet::Wrong(what);
    let out = process.stdout.take().ok_or_else(|| wrong("its output is not there".into()))?;
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines() {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let patience = seconds + Duration::from_secs(CELL_HANGS_S);
    let (mut measured, mut last) = (0, "its start".to_owned());
    let mut first = Duration::from_secs(START_HANGS_S);
    loop {
        match lines.recv_timeout(patience + first) {
            Ok(Ok(line)) if line.starts_with(PROGRESS) => last = line.trim_start_matches(PROGRESS).trim().to_owned(),
            Ok(Ok(line)) => {
                let outcome: Outcome =
                    serde_json::from_str(&line).map_err(|e| wrong(format!("it wrote {line:.100?}: {e}")))?;
                if cells.get(measured) != Some(&outcome.cell) {
                    return Err(wrong(format!("it measured {}, which was not next", outcome.cell)));
                }
                last = format!("{} was done", outcome.cell);
                each(outcome);
                measured += 1;
            }
            Ok(Err(e)) => return Err(wrong(e.to_string())),
            Err(RecvTimeoutError::Disconnected) => return Ok(measured),
            Err(RecvTimeoutError::Timeout) => {
                let at = cells.get(measured).map_or("its end".into(), Cell::to_string);
                let silence = (patience + first).as_secs();
                return Err(Quiet::Hung(format!("hung at {at}: nothing for {silence} s after {last}")));
            }
        }
        first = Duration::ZERO;
    }
}

/// Why nothing more was heard.
#[derive(Debug, PartialEq, Eq)]
enum Quiet {
    /// It still runs.
    Hung(String),
    Wrong(String),
}

/// What the process under the policy is asked for.
fn arguments(args: &Args, cells: &[Cell], seconds: Duration, seed: u64) -> Vec<OsString> {
    let cells: Vec<String> = cells.iter().map(Cell::to_string).collect();
    let mut all: Vec<String> = ["bench", "contention", "--child", "--cells"].map(String::from).into();
    all.push(cells.join(","));
    let gpu = if args.gpu == Gpu::Soft { "soft" } else { "real" };
    for (name, value) in [
        ("--duration", units::time_text(seconds)),
        ("--seed", seed.to_string()),
        ("--timeout", units::time_text(args.timeout)),
        ("--gpu", gpu.into()),
    ] {
        all.extend([name.into(), value]);
    }
    all.push(format!("--fifo={}", args.fifo));
    if let Some(cpu) = args.cpu {
        all.extend(["--cpu".into(), cpu.to_string()]);
    }
    all.into_iter().map(OsString::from).collect()
}

/// The whole command line.
fn command(kind: &Kind, gpu: Gpu, own: OsString, child: Vec<OsString>, said: &Path, round: u32) -> Vec<OsString> {
    let mut all = vec![own.clone()];
    let gpu = if gpu == Gpu::Soft { "soft" } else { "real" };
    match kind {
        Kind::Stock => {}
        Kind::Run(names) => {
            all.extend(["run", "--lock-policy", names, "--gpu", gpu, "--force", "--out"].map(OsString::from));
            all.extend([said.into(), "--".into(), own]);
        }
        Kind::Traced(folder) => {
            let tape = folder.join(format!("contention-{round}.doorbell"));
            all.extend(["record", "-q", "--force", "--locks", "--tap", "off", "--gpu", gpu, "-o"].map(OsString::from));
            all.extend([tape.into(), "--".into(), own]);
        }
    }
    all.extend(child);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(all: &[OsString]) -> String {
        all.iter().map(|a| a.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_policy_is_a_command_line() {
        let all = Policy::read("stock, agent,pi+phase-fair,traced", Some(&std::env::temp_dir())).unwrap();
        let line =
            |p: &Policy| text(&command(&p.kind, Gpu::Real, "doorbell".into(), vec!["bench".into()], "r".as_ref(), 2));
        assert_eq!(line(&all[0]), "doorbell bench");
        assert_eq!(line(&all[1]), "doorbell run --lock-policy stock --gpu real --force --out r -- doorbell bench");
        assert_eq!(
            line(&all[2]),
            "doorbell run --lock-policy pi,phase-fair --gpu real --force --out r -- doorbell bench"
        );
        let tape = std::env::temp_dir().join("contention-2.doorbell");
        let traced =
            format!("doorbell record -q --force --locks --tap off --gpu real -o {} -- doorbell bench", tape.display());
        assert_eq!(line(&all[3]), traced);
        assert_eq!(all[2].row.name, "pi+phase-fair");
    }

    #[test]
    fn a_list_of_policies_is_checked() {
        for (list, hint) in [("traced", "--tapes"), ("pi,pi", "once"), ("pi,,boost", "stock,pi")] {
            let e = Policy::read(list, None).err().unwrap();
            assert!(e.downcast_ref::<Failure>().unwrap().hint().contains(hint), "{list}: {e}");
        }
    }

    fn said(text: &str, cells: &[Cell]) -> (Result<usize, Quiet>, Vec<Cell>) {
        let mut process = Command::new("printf").arg("%s").arg(text).stdout(Stdio::piped()).spawn().unwrap();
        let mut heard = Vec::new();
        let result = hear(&mut process, cells, Duration::from_secs(1), &mut |o| heard.push(o.cell));
        process.wait().unwrap();
        (result, heard)
    }

    #[test]
    fn lines_are_cells_in_their_order() {
        let line = |cell: &str| {
            format!(
                r#"{{"cell":"{cell}","seconds":1.5,"cpu":null,"class":null,"throttled":0,"moved":0,"notes":[],"series":[],"load":[]}}"#
            )
        };
        let cells = [Cell::Alone, Cell::WORST];
        let both = format!("{}\n{}\n", line("alone"), line("copy=64x4MiB"));
        assert_eq!(said(&both, &cells), (Ok(2), cells.to_vec()));
        assert_eq!(said(&line("alone"), &cells), (Ok(1), vec![Cell::Alone]));
        let wrong = |text: &str, says: &str| match said(text, &cells).0 {
            Err(Quiet::Wrong(what)) => assert!(what.contains(says), "{what}"),
            other => panic!("{text}: {other:?}"),
        };
        wrong(&line("copy=64x4MiB"), "not next");
        wrong(&format!("{}\nSegmentation", line("alone")), "it wrote");
        let row = format!("# 3 of 64 threads\n{}# measured\n{}\n", line("alone") + "\n", line("copy=64x4MiB"));
        assert_eq!(said(&row, &cells), (Ok(2), cells.to_vec()));
        let three = format!("{both}{}", line("alone"));
        assert!(said(&three, &cells).0.is_err(), "more than was asked for");
    }
}
