//! `selfbench locks`: what recording, and each policy, adds to a lock and its unlock.

use crate::looped::{Said as Sample, not_fitted};
use crate::{Plan, median};
use anyhow::{Context, bail};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

/// How the loops are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Bare,
    Traced,
    /// `record --locks=waits`
    Waits,
    Policy(&'static str),
}

const WAYS: [Way; 8] = [
    Way::Bare,
    Way::Traced,
    Way::Waits,
    Way::Policy("stock"),
    Way::Policy("ticket"),
    Way::Policy("pi"),
    Way::Policy("phase-fair"),
    Way::Policy("boost"),
];

/// Kinds of pairs with figures, as the loops, the table and the keys name them.
const PAIRS: [(&str, &str, &str); 5] = [
    ("mutex", "mutex lock + unlock", "pair_ns"),
    ("libraries", "the same, called from ten libraries in turns", "libraries_pair_ns"),
    ("read", "rwlock rdlock + unlock", "read_pair_ns"),
    ("write", "rwlock wrlock + unlock", "write_pair_ns"),
    ("signal", "signal of a condition", "signal_ns"),
];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Bare => "bare",
            Way::Traced => "traced",
            Way::Waits => "waits",
            Way::Policy(p) => p,
        }
    }

    /// As part of a key.
    fn key(self) -> String {
        self.name().replace('-', "_")
    }

    /// Whether it affects this kind of pair.
    fn is_about(self, pair: &str) -> bool {
        match self {
            Way::Policy("ticket" | "pi") => pair == "mutex",
            Way::Policy("phase-fair") => matches!(pair, "read" | "write"),
            // (Only recording reads the caller's address, and only recording handles signals.)
            Way::Policy(_) => !matches!(pair, "libraries" | "signal"),
            Way::Bare | Way::Traced | Way::Waits => true,
        }
    }
}

/// All rounds.
#[derive(Default)]
struct Rounds {
    of: BTreeMap<Way, Vec<Sample>>,
    lost: u64,
}

/// One figure: medians over the rounds.
#[derive(Clone, Copy)]
struct Figure {
    value: f64,
    /// Median of the rounds' differences to bare.
    added: f64,
    /// The minimum of this way minus the minimum of bare: the figure to use on a machine with other load.
    added_least: f64,
}

impl Rounds {
    fn all(&self, way: Way, what: &str) -> Vec<f64> {
        self.of.get(&way).into_iter().flatten().filter_map(|s| s.get(what).copied()).collect()
    }

    fn figure(&self, way: Way, what: &str, bare: &str) -> Figure {
        let (mine, bare) = (self.all(way, what), self.all(Way::Bare, bare));
        let least = |v: &[f64]| v.iter().copied().fold(f64::INFINITY, f64::min);
        Figure {
            added: median(mine.iter().zip(&bare).map(|(m, b)| m - b).collect()),
            added_least: least(&mine) - least(&bare),
            value: median(mine),
        }
    }
}

/// The result.
pub struct Figures {
    plan: Plan,
    rounds: Rounds,
}

/// Limits of the nanoseconds added to a pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// For recording a mutex whose thread's ring has wrapped; from wherever the mutex is called.
    pub recording: Option<f64>,
    /// Any policy; pi twice as much.
    pub policies: Option<f64>,
}

/// Runs all rounds; calls `tell` at each turn.
pub fn measure(plan: &Plan, tell: &dyn Fn(&str)) -> anyhow::Result<Figures> {
    let run = Run { plan };
    let mut rounds = Rounds::default();
    for round in 0..plan.rounds as usize {
        // The order rotates, so that the machine treats all alike.
        for k in 0..WAYS.len() {
            let way = WAYS[(round + k) % WAYS.len()];
            tell(&format!("round {} of {}: {}", round + 1, plan.rounds, way.name()));
            let sample = run.once(way, &mut rounds.lost).with_context(|| way.name())?;
            rounds.of.entry(way).or_default().push(sample);
        }
    }
    Ok(Figures { plan: plan.clone(), rounds })
}

impl Figures {
    /// Figures over a limit, one line each.
    pub fn misses(&self, limits: Limits) -> Vec<String> {
        let mut missed = Vec::new();
        for way in WAYS.into_iter().skip(1) {
            for (what, name, _) in PAIRS.into_iter().filter(|p| way.is_about(p.0)) {
                let most = match way {
                    Way::Traced | Way::Waits if !matches!(what, "mutex" | "libraries") => None,
                    Way::Traced | Way::Waits => limits.recording,
                    Way::Policy("pi") => limits.policies.map(|most| 2.0 * most),
                    _ => limits.policies,
                };
                let added = self.rounds.figure(way, what, what).added;
                if let Some(most) = most.filter(|most| added > *most) {
                    missed.push(format!("{}: {name} takes {added:.1} ns more, the limit is {most}", way.name()));
                }
            }
        }
        missed
    }

    pub fn table(&self) -> String {
        let rounds = &self.rounds;
        let mut t = format!("{:<36}{:>8}{:>9}{:>15}\n", "uncontended pair, ns", "ns", "added", "least added");
        for (what, name, _) in PAIRS {
            t += &format!("  {name}\n");
            for way in WAYS.into_iter().filter(|w| w.is_about(what)) {
                let f = rounds.figure(way, what, what);
                t += &match way {
                    Way::Bare => format!("    {:<32}{:>8.1}\n", way.name(), f.value),
                    _ => format!("    {:<32}{:>8.1}{:>9.1}{:>15.1}\n", way.name(), f.value, f.added, f.added_least),
                };
            }
        }
        let start = rounds.figure(Way::Traced, "start", "start");
        t += &format!(
            "  {:<34}{:>8.1}{:>9.1}{:>15.1}\n",
            "traced, first pass of the ring", start.value, start.added, start.added_least
        );
        let floor = rounds.figure(Way::Bare, "clocked", "mutex");
        t += &format!("  {:<34}{:>8.1}\n", "two clock readings", rounds.figure(Way::Bare, "clocks", "clocks").value);
        t += &format!(
            "  {:<34}{:>8.1}{:>9.1}{:>15.1}\n",
            "mutex pair, clock read twice", floor.value, floor.added, floor.added_least
        );
        t += "two threads at one mutex, million pairs a second\n";
        for way in WAYS.into_iter().filter(|w| w.is_about("mutex")) {
            t += &format!("    {:<32}{:>8.2}\n", way.name(), rounds.figure(way, "contended", "contended").value / 1e6);
        }
        t += &format!(
            "medians of {} rounds; added: median of the rounds' differences to bare; least added: between the least of\nboth\n",
            self.plan.rounds
        );
        t + &not_fitted(rounds.lost, "rings")
    }

    pub fn json(&self) -> Value {
        let rounds = &self.rounds;
        let tenth = |v: f64| json!((v * 100.0).round() / 100.0);
        let mut out = Map::new();
        out.insert("bench".into(), json!("locks"));
        out.insert("rounds".into(), json!(self.plan.rounds));
        out.insert("count".into(), json!(self.plan.count));
        for (what, _, key) in PAIRS {
            for way in WAYS.into_iter().filter(|w| w.is_about(what)) {
                let f = rounds.figure(way, what, what);
                out.insert(format!("{}_{key}", way.key()), tenth(f.value));
                if way != Way::Bare {
                    out.insert(format!("{}_added_{key}", way.key()), tenth(f.added));
                    out.insert(format!("{}_least_added_{key}", way.key()), tenth(f.added_least));
                }
            }
        }
        let start = rounds.figure(Way::Traced, "start", "start");
        out.insert("traced_start_pair_ns".into(), tenth(start.value));
        out.insert("traced_added_start_pair_ns".into(), tenth(start.added));
        out.insert("traced_least_added_start_pair_ns".into(), tenth(start.added_least));
        let floor = rounds.figure(Way::Bare, "clocked", "mutex");
        out.insert("two_clock_reads_ns".into(), tenth(rounds.figure(Way::Bare, "clocks", "clocks").value));
        out.insert("clocked_pair_ns".into(), tenth(floor.value));
        out.insert("clocked_added_pair_ns".into(), tenth(floor.added));
        for way in WAYS.into_iter().filter(|w| w.is_about("mutex")) {
            let f = rounds.figure(way, "contended", "contended");
            out.insert(format!("{}_contended_pairs_per_s", way.key()), json!(f.value.round()));
        }
        // Events that did not fit. An event that is not written costs less, so this number shows how far to trust the
        // figures.
        out.insert("lost_events".into(), json!(rounds.lost));
        out.insert("machine".into(), crate::machine());
        Value::Object(out)
    }
}

struct Run<'a> {
    plan: &'a Plan,
}

impl Run<'_> {
    fn once(&self, way: Way, lost: &mut u64) -> anyhow::Result<Sample> {
        let file = |what: &str| std::env::temp_dir().join(format!("doorbell-selfbench-{}.{what}", std::process::id()));
        let (tape, report) = (file("doorbell"), file("report"));
        let words = |w: &[&str], path: &Path| -> Vec<OsString> {
            let mut all: Vec<OsString> = w.iter().map(OsString::from).collect();
            all.extend([path.into(), "--".into()]);
            all
        };
        let checked = match way {
            Way::Bare => self.loops(&[]),
            Way::Traced | Way::Waits => {
                let form = if way == Way::Waits { "--locks=waits" } else { "--locks" };
                let before =
                    words(&["record", form, "--quiet", "--tap", "off", "--ring", "8MiB", "--force", "-o"], &tape);
                self.loops(&before).and_then(|sample| {
                    *lost += self.lost_of(&tape, way)?;
                    Ok(sample)
                })
            }
            Way::Policy(p) => {
                self.loops(&words(&["run", "--lock-policy", p, "--force", "-o"], &report)).and_then(|sample| {
                    // A policy that no lock follows would seem cheap.
                    let said = std::fs::read_to_string(&report)?;
                    if ![format!("lock under {p}\n"), format!("locks under {p}\n")]
                        .iter()
                        .any(|line| said.contains(line))
                    {
                        bail!("no lock followed it: {}", said.trim());
                    }
                    Ok(sample)
                })
            }
        };
        for file in [tape, report] {
            let _ = std::fs::remove_file(file);
        }
        checked
    }

    /// Runs the loops, with these doorbell arguments before them.
    fn loops(&self, before: &[OsString]) -> anyhow::Result<Sample> {
        let sample = self.plan.run("pairs", before, None)?;
        if let Some((what, ..)) = PAIRS.into_iter().find(|p| !sample.contains_key(p.0)) {
            bail!("the loops reported nothing about {what}");
        }
        Ok(sample)
    }

    /// Checks that every pair is in the recording or counted as lost, or every wait if pairs are not recorded. Without
    /// this check, a tap that records none would seem cheap.
    fn lost_of(&self, tape: &Path, way: Way) -> anyhow::Result<u64> {
        let recording = decode::Recording::open(tape)?;
        let locks = lock_analysis::locks(&recording, 0)?;
        if way == Way::Waits {
            if !locks.waits_only || locks.contended == 0 {
                bail!("no waits are in the recording: the taps did not work");
            }
            return Ok(locks.lost_events);
        }
        let n = locks.operations.get("mutex_lock").copied().unwrap_or(0) + locks.lost_events;
        if n < u64::from(self.plan.count) {
            bail!("{n} locks are in the recording or counted as lost, but {} were taken", self.plan.count);
        }
        Ok(locks.lost_events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_of_the_same_rounds() {
        let mut rounds = Rounds::default();
        let round = |mutex: f64| Sample::from([("mutex".to_owned(), mutex)]);
        // The machine is slower in the second round: the added time stays.
        rounds.of.insert(Way::Bare, vec![round(10.0), round(30.0), round(11.0)]);
        rounds.of.insert(Way::Traced, vec![round(25.0), round(45.0), round(24.0)]);
        let f = rounds.figure(Way::Traced, "mutex", "mutex");
        assert_eq!((f.value, f.added, f.added_least), (25.0, 15.0, 14.0));
    }

    #[test]
    fn a_policy_is_measured_where_it_has_something_to_do() {
        let about = |p| PAIRS.map(|pair| Way::Policy(p).is_about(pair.0));
        assert_eq!(about("pi"), [true, false, false, false, false]);
        assert_eq!(about("phase-fair"), [false, false, true, true, false]);
        assert_eq!(about("boost"), [true, false, true, true, false]);
    }
}
