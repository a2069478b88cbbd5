//! From what a recording says of its locks to a plan for `run --lock-policy`: a rule where the recording has evidence that
//! the policy helps, and a comment with the reason where it has not.
//!
//! Invariant: what is written can be read by crate `plan`.

use report::number::of;
use schema::locks::{LockRow, Locks};
use std::fmt::Write;

/// A wait of more holds than these is one that others passed.
const PASSED: u64 = 4;
/// Shorter waits are not worth a rule: about what it takes to wake a thread.
const SHORT_NS: u64 = 50_000;
/// What it costs to hand a mutex over to a thread that sleeps, about (docs/results/locks.md, "Convoys").
const HAND_OVER_NS: u64 = 10_000;

enum Rule {
    Policy(&'static str, String),
    Refused(String),
}

fn ms(ns: u64) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}

fn rule(row: &LockRow, inverted: bool) -> Option<Rule> {
    let mutex = row.name.ends_with("/mutex");
    if row.longest_wait_ns < SHORT_NS || !(mutex || row.name.ends_with("/rwlock")) {
        return None;
    }
    let waits = format!(
        "{} on {} waited, longest {}; longest hold {}",
        of(row.contended, "operation"),
        of(row.instances, "lock"),
        ms(row.longest_wait_ns),
        ms(row.longest_hold_ns)
    );
    let passed = row.longest_wait_ns / PASSED > row.longest_hold_ns;
    for no in ["process-shared", "robust", "priority inheritance", "priority ceiling"] {
        if row.attributes.contains(&no) {
            return Some(Rule::Refused(format!("{no}: keeps its own protocol; {waits}")));
        }
    }
    if row.name.starts_with("generated+") || row.name.starts_with("0x") {
        return Some(Rule::Refused(format!("made by generated code, whose place changes from run to run; {waits}")));
    }
    let foreign = row.foreign_unlocks;
    Some(match (mutex, inverted) {
        (true, true) if foreign != 0 => {
            Rule::Refused(format!("an inversion, but unlocked by other threads {foreign} times, so not pi; {waits}"))
        }
        (true, true) => Rule::Policy("pi", format!("a thread of higher priority waited for its holder; {waits}")),
        (true, false) if passed && row.wait_ns < row.contended.saturating_mul(HAND_OVER_NS) => Rule::Refused(format!(
            "others were faster, but a queue would hand it over to a thread that sleeps each time, about 10 us, and its \
             usual wait is {:.1} us: no ticket; {waits}",
            row.wait_ns as f64 / 1e3 / row.contended as f64
        )),
        (true, false) if passed => Rule::Policy("ticket", format!("others were faster; {waits}")),
        (false, _) if passed => Rule::Policy("phase-fair", format!("others were faster; {waits}")),
        _ => Rule::Refused(format!("its waits are as long as its holds: no policy shortens those; {waits}")),
    })
}

/// The text of a plan.
pub fn plan(locks: &Locks) -> String {
    let mut out = String::from("# For `doorbell run --lock-policy`. What no rule names keeps its own protocol.\n");
    if !locks.real_time {
        out.push_str("# No thread had a real-time priority: priority inheritance would have changed nothing.\n");
    }
    for row in &locks.locks {
        let is = |name: &str| name == row.name || name.strip_prefix(&row.name).is_some_and(|n| n.starts_with('#'));
        let inverted = locks.inversions.iter().any(|i| i.inheritance_helps && is(&i.lock));
        let _ = match rule(row, inverted) {
            None => Ok(()),
            Some(Rule::Refused(why)) => writeln!(out, "\n# {}: {why}", row.name),
            Some(Rule::Policy(policy, why)) => {
                writeln!(out, "\n# {why}\n[[lock]]\nname = {:?}\npolicy = \"{policy}\"", row.name)
            }
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::locks::{HolderRow, Inversion};

    fn row(name: &str, wait: u64, hold: u64) -> LockRow {
        LockRow { name: name.into(), longest_wait_ns: wait, longest_hold_ns: hold, ..LockRow::default() }
    }

    fn inversion(lock: &str) -> Inversion {
        let holder = HolderRow { tid: 2, hold_ns: 1, of_wait_ns: 1, ..HolderRow::default() };
        Inversion {
            at: 0.0,
            lock: lock.into(),
            wait_ns: 1,
            tid: 1,
            thread: String::new(),
            sched: String::new(),
            site: String::new(),
            holder,
            holder_sched: String::new(),
            by_sched: None,
            inheritance_helps: true,
            why: "",
        }
    }

    #[test]
    fn a_plan_has_rules_where_the_tape_has_evidence() {
        let mut shared = row("a+0x6/mutex", 9_000_000, 1_000);
        shared.attributes.push("process-shared");
        let mut busy = row("a+0x9/mutex", 9_000_000, 1_000);
        (busy.contended, busy.wait_ns) = (1_000_000, 7_400_000_000);
        let mut handed = row("a+0x7/mutex", 9_000_000, 8_000_000);
        handed.foreign_unlocks = 3;
        let locks = Locks {
            recorded: true,
            locks: vec![
                row("a+0x1/mutex", 9_000_000, 8_000_000),
                row("a+0x2/mutex", 9_000_000, 1_000_000),
                row("a+0x3/rwlock", 9_000_000, 1_000_000),
                row("a+0x4/mutex", 9_000_000, 8_000_000),
                row("a+0x5/mutex", 1_000, 1),
                shared,
                handed,
                busy,
                row("generated+0x8/mutex", 9_000_000, 1_000),
            ],
            inversions: vec![inversion("a+0x1/mutex#2"), inversion("a+0x7/mutex")],
            ..Locks::default()
        };
        let text = super::plan(&locks);
        let read = plan::Plan::parse(&text).unwrap();
        let rules: Vec<_> = read.rules.iter().map(|r| (r.module.as_str(), r.offset.unwrap(), r.protocol)).collect();
        use tape::policy::protocol;
        let expected = [("a", 1, protocol::PI), ("a", 2, protocol::TICKET), ("a", 3, protocol::PHASE_FAIR)];
        assert_eq!(rules, expected, "{text}");
        for comment in [
            "# a+0x4/mutex: its waits are as long",
            "# a+0x6/mutex: process-shared: keeps",
            "# a+0x7/mutex: an inversion, but unlocked by other threads 3 times",
            "# a+0x9/mutex: others were faster, but a queue would hand it over to a thread that sleeps each time, about 10 us, and its usual wait is 7.4 us: no ticket; 1,000,000 operations on",
            "# generated+0x8/mutex: made by generated code",
            "# No thread had a real-time priority",
        ] {
            assert!(text.contains(comment), "{comment}: {text}");
        }
        assert!(!text.contains("a+0x5"), "{text}");
    }
}
