//! The doorbell tap: one new entry of 64 dwords, bare, rewritten and trapped.

use crate::rounds::{Mode, Rounds, Runner};
use crate::{Plan, machine, ring_loop};
use serde_json::json;
use std::ffi::OsString;

/// The subject of the measurement, and its programs.
pub struct Options<'a> {
    pub plan: Plan,
    /// Bytes of the software GPU's library.
    pub softgpu: &'a [u8],
    /// Also measure trapped runs.
    pub with_trap: bool,
    /// Runs this program instead of the built-in loops, if it is not empty.
    pub command: Vec<OsString>,
}

/// The result.
pub struct Figures {
    plan: Plan,
    tables: Vec<(&'static str, Rounds)>,
}

/// Runs all rounds; calls `tell` at each turn.
pub fn measure(o: &Options<'_>, tell: &dyn Fn(&str)) -> anyhow::Result<Figures> {
    let Plan { doorbell, rounds, count, cpu } = &o.plan;
    let mut runner = Runner::new(doorbell.clone(), o.softgpu, *cpu)?;
    runner.with_trap = o.with_trap;
    let count = count.to_string();
    let words = |w: &[&str]| -> Vec<OsString> {
        std::iter::once(doorbell.clone().into_os_string()).chain(w.iter().map(OsString::from)).collect()
    };
    let mut tables = Vec::new();
    if o.command.is_empty() {
        let r = runner.rounds(*rounds, &words(&["selfbench", "ring", "--count", &count]), true, tell)?;
        tables.push(("software GPU, its doorbell page plain memory (posted: the stores to it and to the ring are out of the caches)", r));
    } else {
        tables.push(("program", runner.rounds(*rounds, &o.command, false, tell)?));
    }
    Ok(Figures { plan: o.plan.clone(), tables })
}

impl Figures {
    /// The median of one doorbell under this tap, ns; `None` if the built-in loop was not measured.
    pub fn doorbell_ns(&self, mode: Mode) -> Option<u64> {
        self.tables.first().and_then(|(_, ring)| ring.p50("ring", mode))
    }

    pub fn table(&self) -> String {
        self.tables.iter().map(|(title, r)| r.table(title)).collect()
    }

    pub fn json(&self) -> serde_json::Value {
        let mut out = json!({
            "bench": "tap",
            "entry_dwords": ring_loop::DWORDS,
            "rounds": self.plan.rounds,
            "count": self.plan.count,
            "bare_ns": self.doorbell_ns(Mode::Bare),
            "patch_ns": self.doorbell_ns(Mode::Patch),
            "trap_ns": self.doorbell_ns(Mode::Trap),
            "machine": machine(),
            "tables": self.tables.iter().map(|(t, r)| json!({ "what": t, "loops": r.as_json() })).collect::<Vec<_>>(),
        });
        let why: Vec<_> = self.tables.iter().flat_map(|(_, r)| r.whys()).collect();
        if !why.is_empty() {
            out["why"] = json!(why);
        }
        out
    }
}
