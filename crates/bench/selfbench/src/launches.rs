//! `selfbench launches`: several threads launch on the software GPU as fast as they can, bare and recorded, in turns.
//!
//! It prints launches a second, lost events, the instructions that the agent adds to a launch, and the recorder's CPU time for each launch. The rates depend
//! on this machine and on the software GPU, which takes CPU time too; the instructions do not.

use crate::{looped, median, steps};
use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tape::event::Body;

/// How the program is recorded; the first is bare.
const WAYS: [(&str, &[&str]); 6] = [
    ("bare", &[]),
    ("record", &[]),
    ("calls", &["--calls"]),
    ("gpu_times", &["--gpu-times"]),
    ("no_data", &["--no-data"]),
    ("gpu_times_no_data", &["--gpu-times", "--no-data"]),
];
/// Launches that are stepped through.
const STEPPED: usize = 7;

/// The subject of the measurement, and its programs.
pub struct Options<'a> {
    /// doorbell's own program: it starts the loops, and records them.
    pub doorbell: PathBuf,
    /// Bytes of the software GPU's library.
    pub softgpu: &'a [u8],
    pub rounds: u32,
    pub threads: u32,
    /// Launches of each thread.
    pub count: u32,
}

/// Medians of a way's rounds.
#[derive(Default)]
struct Row {
    rate: Vec<f64>,
    lost: Vec<f64>,
    /// CPU time of the recorder's threads for a launch, by their names, ns.
    recorder: BTreeMap<String, Vec<f64>>,
    instructions: Option<u64>,
}

pub struct Figures {
    threads: u32,
    count: u32,
    rounds: u32,
    rows: Vec<Row>,
    /// Why instructions were not counted.
    why: Option<String>,
}

/// Runs all rounds; calls `tell` at each turn.
pub fn measure(o: &Options<'_>, tell: &dyn Fn(&str)) -> anyhow::Result<Figures> {
    let run = Run { o, soft: crate::rounds::soft_file(o.softgpu)?, tape: crate::rounds::tape() };
    let mut rows: Vec<Row> = WAYS.iter().map(|_| Row::default()).collect();
    let done = run.all(&mut rows, tell);
    let why = done.and_then(|()| {
        let stepped = rows.iter_mut().zip(WAYS).try_for_each(|(row, (name, how))| {
            tell(&format!("instructions: {name}"));
            row.instructions = Some(run.stepped(name, how)?);
            anyhow::Ok(())
        });
        anyhow::Ok(stepped.err().map(|e| format!("instructions: {e:#}")))
    });
    let _ = std::fs::remove_file(&run.tape);
    Ok(Figures { threads: o.threads, count: o.count, rounds: o.rounds, rows, why: why? })
}

impl Figures {
    /// Maximum number of instructions that the agent adds to a launch; `None` if they could not be counted.
    pub fn instructions(&self) -> Option<u64> {
        self.rows.iter().map(|row| self.added(row)).try_fold(0, |most, n| Some(most.max(n?)))
    }

    fn added(&self, row: &Row) -> Option<u64> {
        Some(row.instructions?.saturating_sub(self.rows.first()?.instructions?))
    }

    pub fn json(&self) -> Value {
        let row = |(row, (name, _)): (&Row, (&str, &[&str]))| {
            let recorder: BTreeMap<_, _> = row.recorder.iter().map(|(name, ns)| (name, median(ns.clone()))).collect();
            let lost = (name != "bare").then(|| median(row.lost.clone()));
            let value = json!({
                "launches_per_second": median(row.rate.clone()), "lost": lost, "agent_instructions": self.added(row), "recorder_ns": recorder
            });
            (name.to_owned(), value)
        };
        json!({
            "bench": "launches",
            "functional": true,
            "threads": self.threads,
            "count": self.count,
            "rounds": self.rounds,
            "ways": self.rows.iter().zip(WAYS).map(row).collect::<serde_json::Map<_, _>>(),
            "why": self.why,
            "machine": crate::machine(),
        })
    }

    pub fn table(&self) -> String {
        let mut t = format!(
            "{:<22}{:>12}{:>10}{:>14}   {}\n",
            "", "launches/s", "lost", "instructions", "recorder, ns a launch"
        );
        for (row, (name, _)) in self.rows.iter().zip(WAYS) {
            let lost = if name == "bare" { String::new() } else { format!("{:.0}", median(row.lost.clone())) };
            let added = self.added(row).filter(|_| name != "bare").map_or_else(String::new, |n| format!("+{n}"));
            let used: Vec<_> =
                row.recorder.iter().map(|(name, ns)| format!("{name} {:.0}", median(ns.clone()))).collect();
            t += &format!("{name:<22}{:>12.0}{lost:>10}{added:>14}   {}\n", median(row.rate.clone()), used.join(", "));
        }
        t += &format!(
            "{} threads, {} launches each; medians of {} rounds on the software GPU\n",
            self.threads, self.count, self.rounds
        );
        t + &self.why.as_ref().map_or_else(String::new, |why| format!("{why}\n"))
    }
}

struct Run<'a> {
    o: &'a Options<'a>,
    soft: crate::rounds::SoftFile,
    tape: PathBuf,
}

impl Run<'_> {
    fn all(&self, rows: &mut [Row], tell: &dyn Fn(&str)) -> anyhow::Result<()> {
        for round in 0..self.o.rounds as usize {
            for k in 0..WAYS.len() {
                let i = (round + k) % WAYS.len();
                let (name, how) = WAYS[i];
                tell(&format!("round {} of {}: {name}", round + 1, self.o.rounds));
                self.once(name, how, &mut rows[i]).with_context(|| name.to_owned())?;
            }
        }
        Ok(())
    }

    fn once(&self, name: &str, how: &[&str], row: &mut Row) -> anyhow::Result<()> {
        let (threads, count) = (self.o.threads.to_string(), self.o.count.to_string());
        let out =
            self.command(name, how, &["--threads", &threads, "--count", &count]).stderr(Stdio::piped()).output()?;
        if !out.status.success() {
            bail!("the loop ended with {}: {}", out.status, String::from_utf8_lossy(&out.stderr).trim());
        }
        let text = String::from_utf8_lossy(&out.stdout);
        let said: Value =
            text.lines().find_map(|l| serde_json::from_str(l).ok()).context("the loop printed no JSON")?;
        let at = |k: &str| said[k].as_f64().with_context(|| format!("the loop printed no {k}"));
        let launches = at("launches")?;
        row.rate.push(launches / at("seconds")?);
        if name == "bare" {
            return Ok(());
        }
        for (name, ns) in said["parent_ns"].as_object().into_iter().flatten() {
            row.recorder.entry(name.clone()).or_default().push(ns.as_f64().unwrap_or(0.0) / launches);
        }
        row.lost.push(lost(&self.tape, at("all")? as u64)? as f64);
        Ok(())
    }

    /// Instructions of a launch, including the loop's own.
    fn stepped(&self, name: &str, how: &[&str]) -> anyhow::Result<u64> {
        let mut child = self.command(name, how, &["--threads", "1", "--steps"]).stderr(Stdio::null()).spawn()?;
        let counted = self.count(&mut child);
        let _ = child.wait();
        counted
    }

    fn count(&self, child: &mut Child) -> anyhow::Result<u64> {
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no pipe")?).read_line(&mut line)?;
        let said: Value = serde_json::from_str(&line).context("the loop printed no JSON")?;
        let [pid, thread, round] = ["pid", "thread", "round"].map(|k| said[k].as_u64().unwrap_or(0));
        anyhow::ensure!(pid > 1 && thread > 1, "the loop printed no thread");
        let counted = steps::between_passes(thread as i32, round, STEPPED);
        // SAFETY: the loop, which runs until it is killed.
        unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        counted
    }

    fn command(&self, name: &str, how: &[&str], options: &[&str]) -> Command {
        let me = &self.o.doorbell;
        let mut words: Vec<OsString> = Vec::new();
        if name != "bare" {
            words.extend(["record", "--quiet", "--force", "--gpu", "soft"].map(OsString::from));
            words.extend(how.iter().map(OsString::from));
            words.extend(["-o".into(), self.tape.clone().into(), "--".into(), me.clone().into()]);
        }
        words.extend(["selfbench", "launch-loop"].map(OsString::from));
        words.extend(options.iter().map(OsString::from));
        let mut c = Command::new(me);
        c.args(words).env("DOORBELL_SOFTGPU", "poll").stdin(Stdio::null()).stdout(Stdio::piped());
        if name == "bare" {
            c.env("LD_PRELOAD", self.soft.path());
        }
        c
    }
}

/// Launches that are not in the recording. Counted in the recording, because the figures of an agent that records no launches would otherwise look good.
fn lost(tape: &Path, launched: u64) -> anyhow::Result<u64> {
    let (rings, gaps) = looped::counts(tape, |event| matches!(event.body, Body::Ring(_)))?;
    let lost = launched.saturating_sub(rings);
    if lost > gaps {
        bail!("{rings} of {launched} launches are in the recording, and only {gaps} events were counted as lost");
    }
    Ok(lost)
}
