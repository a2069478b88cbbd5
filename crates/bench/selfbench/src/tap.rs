//! The doorbell tap: one new entry of 64 dwords, bare, rewritten and trapped.

use crate::rounds::{BARE, Figure, Rounds, Turns, Way};
use crate::{Plan, machine, median, ring_loop};
use serde_json::{Map, Value, json};
use std::ffi::OsString;

/// How a program is recorded.
const WAYS: [Way; 6] = [
    Way::unchecked(BARE, ""),
    Way::unchecked("dormant", "record --tap patch --calls --dormant"),
    Way::unchecked("patch", "record --tap patch"),
    Way::unchecked(TRAP, "record --tap trap"),
    Way::unchecked("calls", "record --tap patch --calls"),
    Way::unchecked("gpu_times", "record --tap patch --gpu-times"),
];
const TRAP: &str = "trap";

/// The result.
pub struct Figures {
    plan: Plan,
    tables: Vec<(&'static str, Rounds)>,
    /// Missing figures, and the reasons.
    whys: Vec<String>,
}

/// Runs all rounds; calls `tell` at each turn. `command` runs in place of the built-in loops, if it is not empty. `softgpu`: bytes of the software GPU's
/// library.
pub fn measure(
    plan: &Plan,
    softgpu: &[u8],
    with_trap: bool,
    command: Vec<OsString>,
    tell: &dyn Fn(&str),
) -> anyhow::Result<Figures> {
    let run = |program: Vec<OsString>, gpu| {
        let ways = WAYS.into_iter().filter(|way| with_trap || way.name != TRAP).collect();
        Turns { plan, ways, program, gpu: Some(gpu), softgpu, may_fail: true }.run(tell)
    };
    let count = plan.count.to_string();
    let mut tables = Vec::new();
    if command.is_empty() {
        let words = ["selfbench", "ring", "--count", &count].map(OsString::from);
        let soft = run(std::iter::once(plan.doorbell.clone().into()).chain(words).collect(), "soft")?;
        tables.push(("software GPU, its doorbell page plain memory (posted: the stores to it and to the ring are out of the caches)", soft));
    } else {
        tables.push(("program", run(command, "real")?));
    }
    let whys = tables.iter().flat_map(|(_, rounds): &(_, Rounds)| rounds.why.values().cloned()).collect();
    Ok(Figures { plan: plan.clone(), tables, whys })
}

/// A loop's figures in one way. What a program does not report is what it reports that is nearest.
struct Row {
    typical: Figure,
    p50: Vec<f64>,
    p99: Vec<f64>,
    max: Vec<f64>,
    n: Vec<f64>,
}

impl Row {
    fn of(rounds: &Rounds, name: &str, way: &str) -> Option<Row> {
        let all = |what: &str, otherwise: &[f64]| {
            let found = rounds.all(way, &format!("{name}.{what}"));
            if found.is_empty() { otherwise.to_vec() } else { found }
        };
        let typical = |what: &str| {
            let key = format!("{name}.{what}");
            rounds.figure((way, &key), (BARE, &key))
        };
        let p50 = all("p50_ns", &[]);
        let p99 = all("p99_ns", &p50);
        // A clock may tick in steps of 10 ns: the mean of the middle half, if the program reports it, shows smaller differences.
        let typical = typical("middle_ns").or_else(|| typical("p50_ns"))?;
        Some(Row { typical, max: all("max_ns", &p99), n: all("n", &vec![1.0; p50.len()]), p50, p99 })
    }

    fn least(&self) -> f64 {
        self.p50.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn most(&self) -> f64 {
        self.max.iter().copied().fold(0.0, f64::max)
    }
}

impl Figures {
    /// The median of one doorbell under this tap, ns; `None` if the built-in loop was not measured.
    pub fn doorbell_ns(&self, way: &str) -> Option<u64> {
        let all = self.tables.first()?.1.all(way, "ring.p50_ns");
        (!all.is_empty()).then(|| median(all).round() as u64)
    }

    pub fn table(&self) -> String {
        let mut t = String::new();
        for (title, rounds) in &self.tables {
            t += &format!(
                "{title}\n  {:<12}{:<10}{:>9}{:>11}{:>9}{:>10}{:>10}{:>10}{:>13}{:>9}\n",
                "loop", "tap", "p50 ns", "least p50", "p99 ns", "max ns", "samples", "added ns", "quartiles", "added %"
            );
            for name in rounds.loops() {
                let bare = median(rounds.all(BARE, &format!("{name}.p50_ns")));
                for (at, way) in WAYS.iter().enumerate() {
                    let Some(row) = Row::of(rounds, &name, way.name) else { continue };
                    let [p50, p99] = [&row.p50, &row.p99].map(|ns| median(ns.clone()));
                    let first = if at == 0 { name.as_str() } else { "" };
                    let (least, most, n) = (row.least(), row.most(), row.n.iter().sum::<f64>());
                    t +=
                        &format!("  {first:<12}{:<10}{p50:>9.0}{least:>11.0}{p99:>9.0}{most:>10.0}{n:>10.0}", way.name);
                    let [low, added, high] = row.typical.added;
                    let (quartiles, percent) = (format!("{low:.0}..{high:.0}"), 100.0 * added / bare);
                    t += &if at == 0 { "\n".into() } else { format!("{added:>10.0}{quartiles:>13}{percent:>9.1}\n") };
                }
            }
        }
        t + &self.whys.iter().map(|why| format!("  {why}\n")).collect::<String>()
    }

    pub fn json(&self) -> Value {
        let row = |rounds: &Rounds, name: &str, way: &Way| {
            let Some(row) = Row::of(rounds, name, way.name) else { return Value::Null };
            let bare = median(rounds.all(BARE, &format!("{name}.p50_ns")));
            let [low, added, high] = row.typical.added;
            json!({
                "p50_ns": median(row.p50.clone()).round() as u64,
                "p50_least_ns": row.least() as u64,
                "p99_ns": median(row.p99.clone()),
                "max_ns": row.most() as u64,
                "samples": row.n.iter().sum::<f64>() as u64,
                "rounds": row.p50.len(),
                "added_ns": added,
                "added_low_ns": low,
                "added_high_ns": high,
                "added_percent": 100.0 * added / bare,
            })
        };
        let loops = |rounds: &Rounds| -> Map<String, Value> {
            let ways = |name: &str| WAYS.iter().map(|way| (way.name.to_owned(), row(rounds, name, way))).collect();
            rounds.loops().into_iter().map(|name| (name.clone(), Value::Object(ways(&name)))).collect()
        };
        let tables: Vec<Value> =
            self.tables.iter().map(|(what, rounds)| json!({ "what": what, "loops": loops(rounds) })).collect();
        let mut out = json!({
            "bench": "tap",
            "entry_dwords": ring_loop::DWORDS,
            "rounds": self.plan.rounds,
            "count": self.plan.count,
            "bare_ns": self.doorbell_ns(BARE),
            "patch_ns": self.doorbell_ns("patch"),
            "trap_ns": self.doorbell_ns(TRAP),
            "machine": machine(),
            "tables": tables,
        });
        if !self.whys.is_empty() {
            out["why"] = json!(self.whys);
        }
        out
    }
}
