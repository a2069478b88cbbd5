//! Runs of the loops, each a separate process of doorbell's own program, and what their recordings hold.

use crate::{Plan, rounds};
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use tape::event::{Event, Events};
use tape::file::{Item, Reader};

/// What a loop reports, by name.
pub type Said = BTreeMap<String, f64>;

impl Plan {
    /// Runs a loop; under doorbell with the words of `before`, if there are any, and without a variable of the environment.
    pub(crate) fn run(&self, name: &str, before: &[OsString], without: Option<&str>) -> anyhow::Result<Said> {
        let me = &self.doorbell;
        let mut command = Command::new(me);
        if !before.is_empty() {
            command.args(before).arg(me);
        }
        command.args(["selfbench", name, "--count"]).arg(self.count.to_string());
        if let Some(cpu) = self.cpu {
            command.arg("--cpu").arg(cpu.to_string());
        }
        if let Some(variable) = without {
            command.env_remove(variable);
        }
        let out = command.stdin(Stdio::null()).output()?;
        if !out.status.success() {
            bail!("the loop ended with {}: {}", out.status, String::from_utf8_lossy(&out.stderr).trim());
        }
        let text = String::from_utf8_lossy(&out.stdout);
        text.lines().find_map(|line| serde_json::from_str(line).ok()).context("the loop printed no JSON")
    }

    /// The same, recorded with these options: what the loop reports, and how many events were lost. Each of the `made` ones must be in the recording or
    /// counted as lost: without this check, an agent that records none would seem cheap.
    pub(crate) fn run_recorded(
        &self,
        name: &str,
        options: &[&str],
        without: &str,
        (what, made): (&str, u64),
        is_one: fn(&Event<'_>) -> bool,
    ) -> anyhow::Result<(Said, u64)> {
        let tape = rounds::tape();
        let mut words: Vec<OsString> =
            ["record", "--quiet", "--tap", "off", "--ring", "32MiB", "--force"].map(OsString::from).into();
        words.extend(options.iter().map(OsString::from));
        words.extend(["-o".into(), tape.clone().into(), "--".into()]);
        let counted = self.run(name, &words, Some(without)).and_then(|said| Ok((said, counts(&tape, is_one)?)));
        let _ = std::fs::remove_file(&tape);
        let (said, (n, lost)) = counted?;
        if n + lost < made {
            bail!("{n} {what} are in the recording and {lost} counted as lost, but {made} were made");
        }
        Ok((said, lost))
    }
}

/// A figure that the loop reported.
pub fn figure(said: &Said, name: &str) -> anyhow::Result<f64> {
    said.get(name).copied().with_context(|| format!("the loop printed no {name}"))
}

/// How many of these events are in the recording, and how many events of any kind did not fit.
pub fn counts(tape: &Path, is_one: fn(&Event<'_>) -> bool) -> anyhow::Result<(u64, u64)> {
    let mut reader = Reader::open(tape)?;
    let (mut n, mut lost) = (0, 0);
    while let Some(item) = reader.item()? {
        match item {
            Item::Events { bytes, .. } => n += Events::new(&bytes).filter(is_one).count() as u64,
            Item::End(end) => lost = end.gap_events,
            _ => {}
        }
    }
    Ok((n, lost))
}

/// Below a table: events that are not written cost less, so the figures are lower than they should be.
pub fn not_fitted(lost: u64, into: &str) -> String {
    if lost == 0 {
        return String::new();
    }
    format!("{lost} events did not fit into the {into} and cost less: give --cpu or a smaller --count\n")
}
