//! Programs run in turn: bare, dormant, with rewritten sites, with traps, and with calls or the GPU's times recorded. The loops that they report
//! are compared.

use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    Bare,
    Patch,
    Trap,
    /// Rewritten sites, with CUDA calls recorded.
    Calls,
    /// The same, with the GPU's times.
    Times,
    /// As `Calls`, paused from the start.
    Dormant,
}

impl Mode {
    const ALL: [Mode; 6] = [Mode::Bare, Mode::Dormant, Mode::Patch, Mode::Trap, Mode::Calls, Mode::Times];

    fn name(self) -> &'static str {
        match self {
            Mode::Bare => "bare",
            Mode::Patch => "patch",
            Mode::Trap => "trap",
            Mode::Calls => "calls",
            Mode::Times => "gpu_times",
            Mode::Dormant => "dormant",
        }
    }

    /// How a program is recorded.
    fn options(self) -> &'static [&'static str] {
        match self {
            Mode::Bare => &[],
            Mode::Patch => &["--tap", "patch"],
            Mode::Trap => &["--tap", "trap"],
            Mode::Calls => &["--tap", "patch", "--calls"],
            Mode::Times => &["--tap", "patch", "--gpu-times"],
            Mode::Dormant => &["--tap", "patch", "--calls", "--dormant"],
        }
    }
}

/// One loop of one run, as the program reported it.
#[derive(Clone, Copy, Debug)]
struct Sample {
    n: u64,
    p50: u64,
    /// The mean of the middle half if the program reports it, else `p50`.
    typical: f64,
    p99: u64,
    max: u64,
}

/// All runs: loop name, mode, one sample per round.
#[derive(Debug, Default)]
pub struct Rounds {
    loops: BTreeMap<String, BTreeMap<Mode, Vec<Sample>>>,
    why: BTreeMap<Mode, String>,
}

/// The software GPU's library, in memory.
pub struct SoftFile(File);

impl SoftFile {
    /// The path under which child processes find it.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

pub fn soft_file(bytes: &[u8]) -> anyhow::Result<SoftFile> {
    // SAFETY: a NUL-terminated name, and a new descriptor that no other object owns.
    let mut file = unsafe {
        let fd = libc::memfd_create(c"doorbell-softgpu.so".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(std::io::Error::last_os_error()).context("memory for the software GPU");
        }
        File::from_raw_fd(fd)
    };
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(SoftFile(file))
}

/// The file for recordings of measured programs.
pub fn tape() -> PathBuf {
    std::env::temp_dir().join(format!("doorbell-selfbench-{}.doorbell", std::process::id()))
}

pub struct Runner {
    me: PathBuf,
    soft: SoftFile,
    cpu: Option<usize>,
    pub with_trap: bool,
    tape: PathBuf,
}

impl Runner {
    pub fn new(me: PathBuf, soft: &[u8], cpu: Option<usize>) -> anyhow::Result<Runner> {
        Ok(Runner { me, soft: soft_file(soft)?, cpu, with_trap: true, tape: tape() })
    }

    /// Runs `command` `rounds` times in each mode. The order of the modes rotates by one in each round.
    pub fn rounds(&self, rounds: u32, command: &[OsString], soft: bool, tell: &dyn Fn(&str)) -> anyhow::Result<Rounds> {
        let modes: Vec<Mode> = Mode::ALL.into_iter().filter(|m| self.with_trap || *m != Mode::Trap).collect();
        let mut out = Rounds::default();
        for round in 0..rounds as usize {
            for k in 0..modes.len() {
                let mode = modes[(round + k) % modes.len()];
                if out.why.contains_key(&mode) {
                    continue;
                }
                tell(&format!("round {} of {rounds}: {}", round + 1, mode.name()));
                match self.once(mode, command, soft) {
                    Ok(loops) => {
                        for (name, s) in loops {
                            out.loops.entry(name).or_default().entry(mode).or_default().push(s);
                        }
                    }
                    Err(e) if mode == Mode::Bare => return Err(e),
                    Err(e) => {
                        out.why.insert(mode, format!("{}: {e:#}", mode.name()));
                    }
                }
            }
        }
        let _ = std::fs::remove_file(&self.tape);
        Ok(out)
    }

    fn once(&self, mode: Mode, command: &[OsString], soft: bool) -> anyhow::Result<Vec<(String, Sample)>> {
        let mut words: Vec<OsString> = Vec::new();
        if mode != Mode::Bare {
            words.push(self.me.clone().into());
            let gpu = if soft { "soft" } else { "real" };
            words.extend(["record", "--quiet", "--force", "--gpu", gpu].iter().map(OsString::from));
            words.extend(mode.options().iter().map(OsString::from));
            words.push("-o".into());
            words.push(self.tape.clone().into());
            words.push("--".into());
        }
        words.extend(command.iter().cloned());
        // Only doorbell's own programs have the option.
        if let (Some(cpu), true) = (self.cpu, command.first().is_some_and(|c| *c == *self.me.as_os_str())) {
            words.push("--cpu".into());
            words.push(cpu.to_string().into());
        }
        let Some((program, arguments)) = words.split_first() else { bail!("no program") };
        let mut c = Command::new(program);
        c.args(arguments).stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::piped());
        if soft {
            c.env("DOORBELL_SOFTGPU", "poll");
            if mode == Mode::Bare {
                c.env("LD_PRELOAD", self.soft.path());
            }
        }
        let out = c.output().with_context(|| format!("{}", program.display()))?;
        let text = String::from_utf8_lossy(&out.stdout);
        if !out.status.success() {
            let err = String::from_utf8_lossy(&out.stderr);
            bail!("{} ended with {}: {}", command[0].display(), out.status, err.trim());
        }
        loops(&text).with_context(|| format!("{} printed no line of JSON with \"loops\"", command[0].display()))
    }
}

/// The last line of `text` that is an object with `loops`.
fn loops(text: &str) -> Option<Vec<(String, Sample)>> {
    let v = text.lines().rev().find_map(|l| {
        let v: Value = serde_json::from_str(l.trim()).ok()?;
        v.get("loops").cloned()
    })?;
    let found: Vec<_> = v
        .as_object()?
        .iter()
        .filter_map(|(name, l)| {
            let at = |k: &str| l.get(k).and_then(Value::as_u64);
            let p50 = at("p50_ns")?;
            let p99 = at("p99_ns").unwrap_or(p50);
            let typical = l.get("middle_ns").and_then(Value::as_f64).unwrap_or(p50 as f64);
            Some((
                name.clone(),
                Sample { n: at("n").unwrap_or(1), p50, typical, p99, max: at("max_ns").unwrap_or(p99) },
            ))
        })
        .collect();
    (!found.is_empty()).then_some(found)
}

fn median(mut v: Vec<f64>) -> Option<f64> {
    statistics::median(&mut v)
}

impl Rounds {
    fn samples(&self, name: &str, mode: Mode) -> &[Sample] {
        self.loops.get(name).and_then(|m| m.get(&mode)).map_or(&[], Vec::as_slice)
    }

    /// Median over the rounds of each round's median, ns.
    pub fn p50(&self, name: &str, mode: Mode) -> Option<u64> {
        median(self.samples(name, mode).iter().map(|s| s.p50 as f64).collect()).map(|v| v.round() as u64)
    }

    /// What `mode` adds to bare, ns: the median of the rounds' differences of the two loops' typical times, and the quartiles around it.
    fn added(&self, name: &str, mode: Mode) -> Option<[f64; 3]> {
        let pairs = self.samples(name, Mode::Bare).iter().zip(self.samples(name, mode));
        let mut all: Vec<f64> = pairs.map(|(b, m)| m.typical - b.typical).collect();
        all.sort_unstable_by(f64::total_cmp);
        let at = |i: usize| all.get(i).copied();
        let last = all.len().checked_sub(1)?;
        Some([at(last / 4)?, median(all.clone())?, at(last - last / 4)?])
    }

    pub fn whys(&self) -> Vec<String> {
        self.why.values().cloned().collect()
    }

    fn row(&self, name: &str, mode: Mode) -> Option<Value> {
        let s = self.samples(name, mode);
        let bare = self.p50(name, Mode::Bare)?;
        let p50 = self.p50(name, mode)?;
        let [low, added, high] = self.added(name, mode)?;
        Some(json!({
            "p50_ns": p50,
            "p50_least_ns": s.iter().map(|s| s.p50).min(),
            "p99_ns": median(s.iter().map(|s| s.p99 as f64).collect()),
            "max_ns": s.iter().map(|s| s.max).max(),
            "samples": s.iter().map(|s| s.n).sum::<u64>(),
            "rounds": s.len(),
            "added_ns": added,
            "added_low_ns": low,
            "added_high_ns": high,
            "added_percent": 100.0 * added / bare as f64,
        }))
    }

    pub fn as_json(&self) -> Value {
        let mut out = serde_json::Map::new();
        for name in self.loops.keys() {
            let modes: serde_json::Map<String, Value> =
                Mode::ALL.into_iter().map(|m| (m.name().into(), self.row(name, m).unwrap_or(Value::Null))).collect();
            out.insert(name.clone(), Value::Object(modes));
        }
        Value::Object(out)
    }

    pub fn table(&self, title: &str) -> String {
        let mut t = format!("{title}\n");
        let head =
            ["loop", "tap", "p50 ns", "least p50", "p99 ns", "max ns", "samples", "added ns", "quartiles", "added %"];
        let mut rows: Vec<Vec<String>> = vec![head.iter().map(|s| s.to_string()).collect()];
        for name in self.loops.keys() {
            for mode in Mode::ALL {
                let Some(r) = self.row(name, mode) else { continue };
                let whole = |k: &str| r[k].as_f64().map_or(String::new(), |v| format!("{v:.0}"));
                let first = if mode == Mode::Bare { name.clone() } else { String::new() };
                let percent = r["added_percent"].as_f64().map_or(String::new(), |v| format!("{v:.1}"));
                let quartiles = format!("{}..{}", whole("added_low_ns"), whole("added_high_ns"));
                let [added, quartiles, percent] = match mode {
                    Mode::Bare => Default::default(),
                    _ => [whole("added_ns"), quartiles, percent],
                };
                rows.push(vec![
                    first,
                    mode.name().into(),
                    whole("p50_ns"),
                    whole("p50_least_ns"),
                    whole("p99_ns"),
                    whole("max_ns"),
                    whole("samples"),
                    added,
                    quartiles,
                    percent,
                ]);
            }
        }
        let width = |c: usize| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        for r in &rows {
            t.push(' ');
            for (c, (cell, w)) in r.iter().zip(&widths).enumerate() {
                t += &if c < 2 { format!(" {cell:<w$}") } else { format!("  {cell:>w$}") };
            }
            t.truncate(t.trim_end().len());
            t.push('\n');
        }
        for w in self.why.values() {
            t += &format!("  {w}\n");
        }
        t
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_with_loops_counts() {
        let text = "noise\n{\"loops\":{\"a\":{\"p50_ns\":1}}}\n{\"loops\":{\"a\":{\"p50_ns\":7,\"n\":3,\"p99_ns\":9,\"max_ns\":20}}}\nchecksum\n";
        let l = loops(text).expect("loops");
        assert_eq!((l[0].0.as_str(), l[0].1.p50, l[0].1.n, l[0].1.max), ("a", 7, 3, 20));
        assert!(loops("nothing here\n{}\n").is_none());
    }

    #[test]
    fn the_added_time_is_the_median_of_the_rounds_differences() {
        let mut r = Rounds::default();
        let s = |p50| Sample { n: 10, p50, typical: p50 as f64, p99: p50, max: p50 };
        let modes = r.loops.entry("x".into()).or_default();
        // The machine becomes twice as slow after the first round: the difference within a round stays.
        modes.insert(Mode::Bare, vec![s(100), s(200), s(200), s(200), s(200)]);
        modes.insert(Mode::Patch, vec![s(112), s(215), s(110), s(210), s(211)]);
        assert_eq!(r.added("x", Mode::Patch), Some([10.0, 11.0, 12.0]));
        assert_eq!(r.p50("x", Mode::Bare), Some(200));
        assert_eq!(r.added("x", Mode::Trap), None);
    }

    #[test]
    fn less_than_a_clock_step_is_seen_if_the_program_reports_the_middle() {
        let mut r = Rounds::default();
        let l = |line: &str| loops(line).expect("loops")[0].1;
        let modes = r.loops.entry("x".into()).or_default();
        modes.insert(Mode::Bare, vec![l("{\"loops\":{\"x\":{\"p50_ns\":60,\"middle_ns\":60.5}}}")]);
        modes.insert(Mode::Patch, vec![l("{\"loops\":{\"x\":{\"p50_ns\":60,\"middle_ns\":63.0}}}")]);
        assert_eq!(r.added("x", Mode::Patch), Some([2.5; 3]));
    }
}
