//! Programs that are run in turn, bare and under doorbell, and what their loops report.

use crate::{Plan, median};
use anyhow::{Context, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use tape::event::{Event, Events};
use tape::file::{Item, Reader};

/// A way to run a measured program.
#[derive(Clone, Copy)]
pub struct Way {
    pub name: &'static str,
    /// doorbell's arguments before the program; empty for the bare program.
    pub words: &'static str,
    /// Whether its recording or report has what the loop of so many iterations did: without this, a recording of nothing would seem cheap. Returns how
    /// many events did not fit.
    pub check: fn(&Way, &Path, u64) -> anyhow::Result<u64>,
}

pub const BARE: &str = "bare";

impl Way {
    /// Its file is not looked at.
    pub const fn unchecked(name: &'static str, words: &'static str) -> Way {
        Way { name, words, check: |_, _, _| Ok(0) }
    }
}

/// What the loops of one run report, by name (`mutex`, `ring.p50_ns`).
type Said = BTreeMap<String, f64>;

/// All runs, by way.
#[derive(Debug, Default)]
pub struct Rounds {
    of: BTreeMap<&'static str, Vec<Said>>,
    /// Events that did not fit into a ring.
    pub lost: u64,
    /// Why a way is not measured.
    pub why: BTreeMap<&'static str, String>,
}

/// One figure over the rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figure {
    /// The median.
    pub value: f64,
    /// What is added to another figure: the median of the rounds' differences, and the quartiles around it.
    pub added: [f64; 3],
    /// The difference between the minimum of each: the figure to use on a machine with other load.
    pub added_least: f64,
}

impl Rounds {
    /// Each round's value of what a loop reports.
    pub fn all(&self, way: &str, what: &str) -> Vec<f64> {
        self.of.get(way).into_iter().flatten().filter_map(|said| said.get(what).copied()).collect()
    }

    /// A figure, and what it adds to that of another way or loop; `None` if one of the two is not measured.
    pub fn figure(&self, (way, what): (&str, &str), (from, bare): (&str, &str)) -> Option<Figure> {
        let (mine, bare) = (self.all(way, what), self.all(from, bare));
        let mut apart: Vec<f64> = mine.iter().zip(&bare).map(|(m, b)| m - b).collect();
        apart.sort_unstable_by(f64::total_cmp);
        let last = apart.len().checked_sub(1)?;
        let least = |v: &[f64]| v.iter().copied().fold(f64::INFINITY, f64::min);
        Some(Figure {
            added_least: least(&mine) - least(&bare),
            value: median(mine),
            added: [apart[last / 4], median(apart.clone()), apart[last - last / 4]],
        })
    }

    /// The names of loops that report a median.
    pub fn loops(&self) -> Vec<String> {
        let names = self.of.get(BARE).and_then(|said| said.first()).into_iter().flat_map(BTreeMap::keys);
        names.filter_map(|name| name.strip_suffix(".p50_ns")).map(str::to_owned).collect()
    }
}

/// What runs in turn.
pub struct Turns<'t> {
    pub plan: &'t Plan,
    pub ways: Vec<Way>,
    pub program: Vec<OsString>,
    /// The GPU of the recordings, if one is named; `soft` has its library (these bytes) in the bare program, too.
    pub gpu: Option<&'static str>,
    pub softgpu: &'t [u8],
    /// A way that fails is left out, and the reason is kept; else the first failure ends all.
    pub may_fail: bool,
}

impl Turns<'_> {
    /// Runs all rounds, the order of the ways rotating by one in each; calls `tell` at each turn.
    pub fn run(&self, tell: &dyn Fn(&str)) -> anyhow::Result<Rounds> {
        let soft_file =
            || recorder::memfd(c"doorbell-softgpu.so", self.softgpu, 0).context("memory for the software GPU");
        let soft = if self.gpu == Some("soft") { Some(soft_file()?) } else { None };
        let file = std::env::temp_dir().join(format!("doorbell-selfbench-{}.doorbell", std::process::id()));
        let (ways, rounds) = (&self.ways, self.plan.rounds);
        let mut out = Rounds::default();
        for turn in 0..rounds as usize * ways.len() {
            let round = turn / ways.len();
            let way = &ways[(round + turn) % ways.len()];
            if out.why.contains_key(way.name) {
                continue;
            }
            tell(&format!("round {} of {rounds}: {}", round + 1, way.name));
            let ran = self.once(way, &file, soft.as_ref()).with_context(|| way.name);
            let _ = std::fs::remove_file(&file);
            match ran {
                Ok((said, lost)) => {
                    out.of.entry(way.name).or_default().push(said);
                    out.lost += lost;
                }
                Err(e) if self.may_fail && way.name != BARE => drop(out.why.insert(way.name, format!("{e:#}"))),
                Err(e) => return Err(e),
            }
        }
        Ok(out)
    }

    fn once(&self, way: &Way, file: &Path, soft: Option<&File>) -> anyhow::Result<(Said, u64)> {
        let me = &self.plan.doorbell;
        let mut words: Vec<OsString> = Vec::new();
        if !way.words.is_empty() {
            words.push(me.into());
            words.extend(way.words.split(' ').map(OsString::from));
            if way.words.starts_with("record") {
                words.push("--quiet".into());
                words.extend(self.gpu.into_iter().flat_map(|gpu| ["--gpu", gpu]).map(OsString::from));
            }
            words.extend(["--force".into(), "-o".into(), file.into(), "--".into()]);
        }
        words.extend(self.program.iter().cloned());
        let is_own = self.program.first().is_some_and(|program| *program == *me.as_os_str());
        // Only doorbell's own programs have the option.
        if let (Some(cpu), true) = (self.plan.cpu, is_own) {
            words.extend(["--cpu".into(), cpu.to_string().into()]);
        }
        let Some((program, arguments)) = words.split_first() else { bail!("no program") };
        let mut c = Command::new(program);
        c.args(arguments).stdin(Stdio::null());
        if is_own {
            // These would give the loop a policy, or a recorder, that was not asked for.
            c.env_remove("DOORBELL_LOCK_POLICY").env_remove("NVTX_INJECTION64_PATH");
        }
        if let Some(soft) = soft {
            c.env("DOORBELL_SOFTGPU", "poll");
            if way.words.is_empty() {
                c.env("LD_PRELOAD", format!("/proc/{}/fd/{}", std::process::id(), soft.as_raw_fd()));
            }
        }
        let out = c.output().with_context(|| program.display().to_string())?;
        let name = self.program[0].display();
        if !out.status.success() {
            bail!("{name} ended with {}: {}", out.status, String::from_utf8_lossy(&out.stderr).trim());
        }
        let said = loops(&String::from_utf8_lossy(&out.stdout))
            .with_context(|| format!("{name} printed no line of JSON with \"loops\""))?;
        Ok((said, (way.check)(way, file, self.plan.count.into())?))
    }
}

/// The last line of `text` that is an object with `loops`: each number in it, by its path.
fn loops(text: &str) -> Option<Said> {
    let found = text.lines().rev().find_map(|line| {
        let mut v: Value = serde_json::from_str(line.trim()).ok()?;
        v.get_mut("loops").map(Value::take)
    })?;
    let mut said = Said::new();
    for (name, value) in found.as_object()? {
        said.extend(value.as_f64().map(|ns| (name.clone(), ns)));
        let parts = value.as_object().into_iter().flatten();
        said.extend(parts.filter_map(|(part, value)| Some((format!("{name}.{part}"), value.as_f64()?))));
    }
    (!said.is_empty()).then_some(said)
}

/// How many events did not fit into a recording. The `made` ones must be in it, or counted as lost.
pub fn lost_of(tape: &Path, what: &str, made: u64, is_one: fn(&Event<'_>) -> bool) -> anyhow::Result<u64> {
    let mut reader = Reader::open(tape)?;
    let (mut n, mut lost) = (0, 0);
    while let Some(item) = reader.item()? {
        match item {
            Item::Events { bytes, .. } => n += Events::new(&bytes).filter(is_one).count() as u64,
            Item::End(end) => lost = end.gap_events,
            _ => {}
        }
    }
    if n + lost < made {
        bail!("{n} {what} are in the recording and {lost} counted as lost, but {made} were made");
    }
    Ok(lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_with_loops_counts() {
        let text = "noise\n{\"loops\":{\"a\":{\"p50_ns\":1}}}\n{\"loops\":{\"a\":{\"p50_ns\":7,\"n\":3,\"p99_ns\":9,\"max_ns\":20}}}\nchecksum\n";
        let l = loops(text).expect("loops");
        let of = |key: &str| l.get(&format!("a.{key}")).copied();
        assert_eq!(["p50_ns", "n", "max_ns"].map(of), [Some(7.0), Some(3.0), Some(20.0)]);
        assert!(loops("nothing here\n{}\n").is_none());
    }

    #[test]
    fn the_added_time_is_the_median_of_the_rounds_differences() {
        let mut r = Rounds::default();
        let all = |ns: [f64; 5]| ns.map(|ns| Said::from([("x".to_owned(), ns)])).to_vec();
        // The machine becomes twice as slow after the first round: the difference within a round stays.
        r.of.insert(BARE, all([100.0, 200.0, 200.0, 200.0, 200.0]));
        r.of.insert("patch", all([112.0, 215.0, 110.0, 210.0, 211.0]));
        let f = r.figure(("patch", "x"), (BARE, "x")).unwrap();
        assert_eq!((f.added, f.value, f.added_least), ([10.0, 11.0, 12.0], 210.0, 10.0));
        assert_eq!(r.figure(("trap", "x"), (BARE, "x")), None);
    }

    #[test]
    fn a_figure_is_of_the_same_rounds() {
        let mut rounds = Rounds::default();
        let all = |ns: [f64; 3]| ns.map(|ns| Said::from([("mutex".to_owned(), ns)])).to_vec();
        // The machine is slower in the second round: the added time stays.
        rounds.of.insert(BARE, all([10.0, 30.0, 11.0]));
        rounds.of.insert("traced", all([25.0, 45.0, 24.0]));
        let f = rounds.figure(("traced", "mutex"), (BARE, "mutex")).unwrap();
        assert_eq!((f.value, f.added[1], f.added_least), (25.0, 15.0, 14.0));
    }
}
