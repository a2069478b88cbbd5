//! What is measured in ways that take turns: locks, calls and ranges. A subject is a loop, the ways in which it is run, and a row for each figure.

use crate::rounds::{BARE, Figure, Rounds, Turns, Way, lost_of};
use crate::{Plan, machine};
use anyhow::bail;
use serde_json::{Map, Value, json};
use std::path::Path;
use tape::event::{Body, Event};

/// A loop, and what is to be known about it.
pub struct Subject {
    pub name: &'static str,
    /// The loop, as the command line names it.
    program: &'static str,
    /// The title of the table: one of what takes how many ns.
    title: &'static str,
    /// The GPU of the recordings.
    gpu: Option<&'static str>,
    ways: &'static [Way],
    rows: fn() -> Vec<Row>,
}

/// Limits of the nanoseconds that are added.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// For recording.
    pub recording: Option<f64>,
    /// For any lock policy; pi twice as much.
    pub policies: Option<f64>,
}

/// A row of the table, and its keys in JSON.
struct Row {
    /// Rows of the same kind stand under one head; empty for a row without a head.
    head: &'static str,
    text: &'static str,
    /// The way, and what its loop reports.
    of: (&'static str, &'static str),
    /// What it is compared with.
    from: Option<(&'static str, &'static str)>,
    /// The keys of the value and of what is added; an empty one is left out.
    keys: [String; 2],
    limit: fn(Limits) -> Option<f64>,
}

fn no_limit(_: Limits) -> Option<f64> {
    None
}

/// A row with a head of its own.
fn row(
    text: &'static str,
    of: (&'static str, &'static str),
    from: Option<(&'static str, &'static str)>,
    keys: [&str; 2],
) -> Row {
    Row { head: "", text, of, from, keys: keys.map(str::to_owned), limit: no_limit }
}

/// A mutex, a rwlock and a condition under each policy, and recorded.
pub const LOCKS: Subject = Subject {
    name: "locks",
    program: "pairs",
    title: "uncontended pair, ns",
    gpu: None,
    ways: &LOCK_WAYS,
    rows: lock_rows,
};

/// A function with the arguments of cuLaunchKernel, recorded and under the guard.
pub const CALLS: Subject = Subject {
    name: "calls",
    program: "call-loop",
    title: "a call that does nothing, ns",
    gpu: None,
    ways: &[
        Way {
            name: "recorded",
            words: "record --tap off --ring 32MiB --calls",
            check: |_, tape, count| {
                let is_launch = |e: &Event<'_>| {
                    matches!(e.body, Body::Call(_)) && u32::from(e.head.flags) == crate::calls::CU_LAUNCH_KERNEL
                };
                lost_of(tape, "calls", count, is_launch)
            },
        },
        Way::unchecked("guarded", "run --lock-policy guard"),
    ],
    rows: || {
        let (bare, clocked) = (("recorded", "bare_ns"), ("recorded", "clocked_ns"));
        let tapped = ("recorded", "tapped_ns");
        let guarded = (("guarded", "tapped_ns"), Some(("guarded", "bare_ns")));
        vec![
            row("bare", bare, None, ["bare_call_ns", ""]),
            row("two clock readings", ("recorded", "clocks_ns"), None, ["two_clock_reads_ns", ""]),
            row("bare, clock read twice", clocked, Some(bare), ["clocked_call_ns", "clocked_added_call_ns"]),
            Row {
                limit: |most| most.recording,
                ..row("recorded", tapped, Some(bare), ["tapped_call_ns", "added_call_ns"])
            },
            row("  over the clock", tapped, Some(clocked), ["", "over_clock_call_ns"]),
            row("guarded, no other caller", guarded.0, guarded.1, ["guarded_call_ns", "added_guarded_call_ns"]),
        ]
    },
};

/// A push and a pop of an NVTX range.
pub const RANGES: Subject = Subject {
    name: "ranges",
    program: "range-loop",
    title: "a range: a push and a pop, ns",
    gpu: Some("soft"),
    ways: &[Way {
        name: "recorded",
        words: "record --tap off --ring 32MiB --nvtx",
        check: |_, tape, count| {
            // Two ends of each range, with and without a registered text.
            lost_of(tape, "ends of ranges", 4 * count, |e| matches!(e.body, Body::Push(_) | Body::Pop(_)))
        },
    }],
    rows: || {
        let bare = ("recorded", "bare_ns");
        let text = row("recorded", ("recorded", "text_ns"), Some(bare), ["recorded_range_ns", "added_range_ns"]);
        vec![
            row("bare", bare, None, ["bare_range_ns", ""]),
            Row { limit: |most| most.recording, ..text },
            row(
                "recorded, a registered text",
                ("recorded", "registered_ns"),
                Some(bare),
                ["registered_range_ns", "added_registered_range_ns"],
            ),
            row(
                "in a pause of the recording",
                ("recorded", "paused_ns"),
                Some(bare),
                ["paused_range_ns", "added_paused_range_ns"],
            ),
        ]
    },
};

const LOCK_WAYS: [Way; 8] = [
    Way::unchecked(BARE, ""),
    Way { name: "traced", words: "record --locks --tap off --ring 8MiB", check: locks_recorded },
    Way { name: "waits", words: "record --locks=waits --tap off --ring 8MiB", check: locks_recorded },
    Way { name: "stock", words: "run --lock-policy stock", check: policy_followed },
    Way { name: "ticket", words: "run --lock-policy ticket", check: policy_followed },
    Way { name: "pi", words: "run --lock-policy pi", check: policy_followed },
    Way { name: "phase-fair", words: "run --lock-policy phase-fair", check: policy_followed },
    Way { name: "boost", words: "run --lock-policy boost", check: policy_followed },
];

/// Every pair is in the recording or counted as lost, or a wait if pairs are not recorded.
fn locks_recorded(way: &Way, tape: &Path, count: u64) -> anyhow::Result<u64> {
    let locks = lock_analysis::locks(&decode::Recording::open(tape)?, 0)?;
    if way.name == "waits" && (!locks.waits_only || locks.contended == 0) {
        bail!("no waits are in the recording: the taps did not work");
    }
    let n = locks.operations.get("mutex_lock").copied().unwrap_or(0) + locks.lost_events;
    if way.name != "waits" && n < count {
        bail!("{n} locks are in the recording or counted as lost, but {count} were taken");
    }
    Ok(locks.lost_events)
}

/// A policy that no lock follows would seem cheap.
fn policy_followed(way: &Way, report: &Path, _: u64) -> anyhow::Result<u64> {
    let said = std::fs::read_to_string(report)?;
    if !["lock", "locks"].iter().any(|locks| said.contains(&format!("{locks} under {}\n", way.name))) {
        bail!("no lock followed it: {}", said.trim());
    }
    Ok(0)
}

/// Kinds of pairs: as the loops, the table and the keys name them.
const PAIRS: [(&str, &str, &str); 5] = [
    ("mutex", "mutex lock + unlock", "pair_ns"),
    ("libraries", "the same, called from ten libraries in turns", "libraries_pair_ns"),
    ("read", "rwlock rdlock + unlock", "read_pair_ns"),
    ("write", "rwlock wrlock + unlock", "write_pair_ns"),
    ("signal", "signal of a condition", "signal_ns"),
];
/// Pairs per second of two threads: no time.
const CONTENDED: &str = "contended";

/// Whether a way changes this kind of pair.
fn is_about(way: &str, pair: &str) -> bool {
    match way {
        BARE | "traced" | "waits" => true,
        "ticket" | "pi" => pair == "mutex",
        "phase-fair" => matches!(pair, "read" | "write"),
        // (Only recording reads the caller's address, and only recording handles signals.)
        _ => !matches!(pair, "libraries" | "signal"),
    }
}

fn lock_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let keys = |way: &str, key: &str| [format!("{way}_{key}"), format!("{way}_added_{key}")];
    for (pair, head, key) in PAIRS {
        for way in LOCK_WAYS.iter().map(|way| way.name).filter(|way| is_about(way, pair)) {
            let limit: fn(Limits) -> Option<f64> = match way {
                "traced" | "waits" if matches!(pair, "mutex" | "libraries") => |most| most.recording,
                BARE | "traced" | "waits" => no_limit,
                "pi" => |most| most.policies.map(|most| 2.0 * most),
                _ => |most| most.policies,
            };
            let [value, added] = keys(&way.replace('-', "_"), key);
            let (from, added) = if way == BARE { (None, String::new()) } else { (Some((BARE, pair)), added) };
            rows.push(Row { head, text: way, of: (way, pair), from, keys: [value, added], limit });
        }
    }
    let start = ["traced_start_pair_ns", "traced_added_start_pair_ns"];
    rows.push(row("traced, first pass of the ring", ("traced", "start"), Some((BARE, "start")), start));
    rows.push(row("two clock readings", (BARE, "clocks"), None, ["two_clock_reads_ns", ""]));
    let clocked = ["clocked_pair_ns", "clocked_added_pair_ns"];
    rows.push(row("mutex pair, clock read twice", (BARE, "clocked"), Some((BARE, "mutex")), clocked));
    for way in LOCK_WAYS.iter().map(|way| way.name).filter(|way| is_about(way, "mutex")) {
        let keys = [format!("{}_contended_pairs_per_s", way.replace('-', "_")), String::new()];
        let head = "two threads at one mutex, million pairs a second";
        rows.push(Row { head, text: way, of: (way, CONTENDED), from: None, keys, limit: no_limit });
    }
    rows
}

/// The result of a subject.
pub struct Figures {
    subject: &'static Subject,
    plan: Plan,
    rounds: Rounds,
}

impl Subject {
    /// Runs all rounds; calls `tell` at each turn. `softgpu`: bytes of the software GPU's library.
    pub fn measure(&'static self, plan: &Plan, softgpu: &[u8], tell: &dyn Fn(&str)) -> anyhow::Result<Figures> {
        let loop_of = ["selfbench", self.program, "--count", &plan.count.to_string()].map(Into::into);
        let program = std::iter::once(plan.doorbell.clone().into()).chain(loop_of).collect();
        let turns = Turns { plan, ways: self.ways.to_vec(), program, gpu: self.gpu, softgpu, may_fail: false };
        Ok(Figures { subject: self, plan: plan.clone(), rounds: turns.run(tell)? })
    }
}

impl Figures {
    /// Each row, with its figure.
    fn rows(&self) -> Vec<(Row, Figure)> {
        let of = |row: Row| {
            let figure = self.rounds.figure(row.of, row.from.unwrap_or(row.of));
            (row, figure.unwrap_or_default())
        };
        (self.subject.rows)().into_iter().map(of).collect()
    }

    /// Figures over a limit, one line each.
    pub fn misses(&self, limits: Limits) -> Vec<String> {
        let miss = |(row, f): (Row, Figure)| {
            let (added, most) = (f.added[1], (row.limit)(limits)?);
            let what = if row.head.is_empty() { self.subject.name } else { row.head };
            (added > most).then(|| format!("{}: {what} takes {added:.1} ns more, the limit is {most}", row.text))
        };
        self.rows().into_iter().filter_map(miss).collect()
    }

    pub fn table(&self) -> String {
        let mut t = format!("{:<36}{:>8}{:>9}{:>15}\n", self.subject.title, "ns", "added", "least added");
        let mut head = "";
        for (row, f) in self.rows() {
            if row.head != head && !row.head.is_empty() {
                t += &format!("  {}\n", row.head);
            }
            head = row.head;
            let text = if head.is_empty() { format!("  {}", row.text) } else { format!("    {}", row.text) };
            t += &match &row.keys[0] {
                key if key.is_empty() => format!("{text:<44}"),
                _ if row.of.1 == CONTENDED => format!("{text:<36}{:>8.2}", f.value / 1e6),
                _ => format!("{text:<36}{:>8.1}", f.value),
            };
            t += &row.from.map_or(String::new(), |_| format!("{:>9.1}{:>15.1}", f.added[1], f.added_least));
            t.push('\n');
        }
        t += &format!(
            "medians of {} rounds; added: median of the rounds' differences; least added: between the least of both\n",
            self.plan.rounds
        );
        // Events that are not written cost less, so the figures are lower than they should be.
        if self.rounds.lost > 0 {
            let lost = self.rounds.lost;
            t += &format!("{lost} events did not fit into the rings and cost less: give --cpu or a smaller --count\n");
        }
        t
    }

    pub fn json(&self) -> Value {
        let hundredth = |v: f64| json!((v * 100.0).round() / 100.0);
        let mut out = Map::new();
        for (row, f) in self.rows() {
            let [value, added] = row.keys;
            out.extend((!value.is_empty()).then(|| (value, hundredth(f.value))));
            if !added.is_empty() {
                out.insert(added.replace("added", "least_added"), hundredth(f.added_least));
                out.insert(added, hundredth(f.added[1]));
            }
        }
        out.insert("bench".into(), json!(self.subject.name));
        out.insert("rounds".into(), json!(self.plan.rounds));
        out.insert("count".into(), json!(self.plan.count));
        // An event that is not written costs less, so this number shows how far to trust the figures.
        out.insert("lost_events".into(), json!(self.rounds.lost));
        out.insert("machine".into(), machine());
        Value::Object(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_measured_where_it_has_something_to_do() {
        let about = |p| PAIRS.map(|pair| is_about(p, pair.0));
        assert_eq!(about("pi"), [true, false, false, false, false]);
        assert_eq!(about("phase-fair"), [false, false, true, true, false]);
        assert_eq!(about("boost"), [true, false, true, true, false]);
    }
}
