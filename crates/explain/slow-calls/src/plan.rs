//! The plan for `run --fix` from a recording: the fixes that would have saved something, the kernels that were loaded late, and for each lock a rule if the recording shows that the policy helps, otherwise a comment with the
//! reason. `lock_analysis::plan` reads what is written here.

use crate::late::LateKernel;
use lock_analysis::remedy::{Policy, Remedy, remedy};
use numbers::of;
use schema::locks::{LockRow, Locks};
use schema::names::variable_of;
use schema::slow_calls::FixRow;
use std::fmt::Write;
use tape::fix::Kernels;

fn ms(ns: u64) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}

/// The evidence in the recording, before the figures.
fn evidence(policy: Policy) -> &'static str {
    match policy {
        Policy::Pi => "a thread of higher priority waited for its holder",
        Policy::Ticket | Policy::PhaseFair => "others overtook the waiter",
    }
}

fn waits(row: &LockRow) -> String {
    format!(
        "{} on {} waited, longest {}; longest hold {}",
        of(row.contended, "operation"),
        of(row.instances, "lock"),
        ms(row.longest_wait_ns),
        row.longest_hold_ns.map_or_else(|| "not known".into(), ms)
    )
}

/// The text of a plan.
pub fn plan(locks: &Locks, fixes: &[FixRow], late: &[LateKernel]) -> String {
    let mut out = String::from("# For `doorbell run --fix=FILE`. Locks that no rule names keep their own protocol.\n");
    for f in fixes {
        let (waits, answers) = (of(f.calls, "call"), f.answers.join(", "));
        let (ns, longest) = (ms(f.ns), ms(f.longest_ns));
        let _ = match f.not_with.join(", ") {
            calls if calls.is_empty() => {
                writeln!(out, "# {}: saves up to {ns} of {waits}, {longest} of one; answers {answers}", f.fix)
            }
            calls => writeln!(out, "# {}: would save up to {ns} of {waits}, but not with {calls}", f.fix),
        };
    }
    let names: Vec<&str> = fixes.iter().filter(|f| f.not_with.is_empty()).map(|f| f.fix).collect();
    if !names.is_empty() {
        let _ = writeln!(out, "fixes = \"{}\"", names.join(","));
    }
    if !locks.real_time {
        out.push_str("# No thread had a real-time priority: priority inheritance would have changed nothing.\n");
    }
    for row in &locks.locks {
        let variable = variable_of(locks, &row.name).map_or_else(String::new, |v| format!("{v}: "));
        let waits = waits(row);
        let _ = match remedy(row, locks) {
            None => Ok(()),
            Some(Remedy::None(why)) => writeln!(out, "\n# {}: {variable}{why}; {waits}", row.name),
            Some(Remedy::Policy(policy)) => {
                let (why, policy) = (evidence(policy), policy.name());
                writeln!(out, "\n# {variable}{why}; {waits}\n[[lock]]\nname = {:?}\npolicy = \"{policy}\"", row.name)
            }
        };
    }
    kernels(late, &mut out);
    out
}

/// Those that lost most, as many as a plan has room for.
fn kernels(late: &[LateKernel], out: &mut String) {
    let (mut named, mut others) = (0, 0);
    let mut bytes = 0;
    for k in late {
        let Some(hash) = k.hash else {
            others += 1;
            continue;
        };
        bytes += k.name.len() + 1;
        if named == Kernels::MOST || bytes > Kernels::NAMES {
            break;
        }
        named += 1;
        let (first, usual, launches) = (ms(k.first_ns), ms(k.usual_ns), of(k.launches, "time"));
        let _ =
            writeln!(out, "\n# its first launch took {first}, {usual} is usual; launched {launches} more\n[[kernel]]");
        if let Some(library) = &k.library {
            let _ = writeln!(out, "library = {library:?}");
        }
        let _ = writeln!(out, "name = {:?}\nhash = \"{hash:016x}\"", k.name);
    }
    if others > 0 {
        let _ = writeln!(out, "\n# {} loaded late, of code whose load the recording lacks", of(others, "more kernel"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::locks::{HolderRow, Inversion, WaitRow};

    fn row(name: &str, wait: u64, hold: u64) -> LockRow {
        LockRow { name: name.into(), longest_wait_ns: wait, longest_hold_ns: Some(hold), ..LockRow::default() }
    }

    fn wait(lock: &str, holds: u64, longest_ns: u64) -> WaitRow {
        let holder = HolderRow { tid: 2, of_wait_ns: longest_ns, hold_ns: longest_ns, ..HolderRow::default() };
        WaitRow {
            tid: 1,
            lock: lock.into(),
            operation: "rwlock_wrlock",
            wait_ns: 9_000_000,
            holds,
            overtaken: holds,
            overtaken_by_readers: holds,
            holders: vec![holder],
            ..WaitRow::default()
        }
    }

    /// One hold whose thread lost the CPU does not hide that the others overtook.
    #[test]
    fn a_writer_that_many_short_holds_overtook_is_starved_despite_a_long_one() {
        let policy = |lock: &str, waits: Vec<WaitRow>| {
            let locks = vec![row(lock, 9_000_000, 3_000_000)];
            let text = super::plan(&Locks { recorded: true, locks, waits, ..Locks::default() }, &[], &[]);
            lock_analysis::plan::Plan::parse(&text).unwrap().rules.first().map(|r| r.protocol)
        };
        use tape::policy::protocol::PHASE_FAIR;
        assert_eq!(policy("a+0x1/rwlock", vec![wait("a+0x1/rwlock#3", 400, 3_000_000)]), Some(PHASE_FAIR));
        assert_eq!(policy("a+0x1/rwlock", vec![wait("a+0x2/rwlock", 400, 3_000_000)]), None, "another lock");
        assert_eq!(policy("a+0x1/rwlock", vec![wait("a+0x1/rwlock", 400, 5_000_000)]), None, "one hold is most of it");
        assert_eq!(policy("a+0x1/rwlock", vec![wait("a+0x1/rwlock", 4, 3_000_000)]), None, "a few holds");
        assert_eq!(policy("a+0x1/mutex", vec![wait("a+0x1/mutex", 400, 3_000_000)]), None, "mutexes have one holder");
    }

    fn inversion(lock: &str) -> Inversion {
        let holder = HolderRow { tid: 2, hold_ns: 1, of_wait_ns: 1, ..HolderRow::default() };
        Inversion {
            at: 0.0,
            tsc: 0,
            lock: lock.into(),
            wait_ns: 1,
            process: 0,
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
        let saved = |fix, not_with| FixRow {
            fix,
            calls: 12,
            ns: 450_000_000,
            longest_ns: 48_000_000,
            answers: vec!["a".into()],
            not_with,
        };
        let late = |library: &str, name: &str, hash| LateKernel {
            name: name.into(),
            library: Some(library.into()),
            hash,
            first_ns: 2_300_000,
            usual_ns: 4_000,
            launches: 49,
        };
        let late = [late("lib\"a", "_Z1kIPcEvT_", Some(0xab)), late("b", "c", None)];
        let fixes = [saved("pins", vec![]), saved("memory", vec!["cuIpcGetMemHandle".into()])];
        let text = super::plan(&locks, &fixes, &late);
        let read = lock_analysis::plan::Plan::parse(&text).unwrap();
        assert_eq!(read.fixes, tape::fix::PINS | tape::fix::KERNELS);
        let kernel =
            lock_analysis::plan::Kernel { library: Some("lib\"a".into()), name: "_Z1kIPcEvT_".into(), hash: 0xab };
        assert_eq!(read.kernels, [kernel]);
        assert!(
            text.contains("# its first launch took 2.300 ms, 0.004 ms is usual; launched 49 times more\n[[kernel]]"),
            "{text}"
        );
        assert!(text.contains("# 1 more kernel loaded late"), "{text}");
        assert!(text.contains("# pins: saves up to 450.000 ms of 12 calls, 48.000 ms of one"), "{text}");
        let refused = "# memory: would save up to 450.000 ms of 12 calls, but not with cuIpcGetMemHandle\n";
        assert!(text.contains(refused), "{text}");
        let rules: Vec<_> = read.rules.iter().map(|r| (r.module.as_str(), r.offset.unwrap(), r.protocol)).collect();
        use tape::policy::protocol;
        let expected = [("a", 1, protocol::PI), ("a", 2, protocol::TICKET), ("a", 3, protocol::PHASE_FAIR)];
        assert_eq!(rules, expected, "{text}");
        for comment in [
            "# a+0x4/mutex: its waits are as long",
            "# a+0x6/mutex: process-shared: keeps",
            "# a+0x7/mutex: an inversion, but unlocked by other threads 3 times",
            "# a+0x9/mutex: others overtook the waiter, but a queue would hand it over to a thread that sleeps each time, about 10 us, and its usual wait is 7.4 us: no ticket; 1,000,000 operations on",
            "# generated+0x8/mutex: made by generated code",
            "# No thread had a real-time priority",
        ] {
            assert!(text.contains(comment), "{comment}: {text}");
        }
        assert!(!text.contains("a+0x5"), "{text}");
    }
}
