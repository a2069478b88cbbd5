//! What happened in a wait, in a sentence, and what would help: the same words on a terminal and on a page.

use crate::remedy::{Policy, Refusal, Remedy, is_of, is_overtaken, remedy};
use numbers::{count, nanoseconds, of};
use schema::locks::{Locks, WaitPattern, WaitRow};
use schema::names::thread;

/// `None` if neither overtaking threads nor one hold explain most of a wait.
pub fn wait_pattern(w: &WaitRow, locks: &Locks) -> Option<WaitPattern> {
    let row = locks.locks.iter().find(|row| is_of(row, &w.lock));
    let remedy = row.and_then(|row| remedy(row, locks));
    if is_overtaken(w) {
        let help = remedy.filter(|r| *r != Remedy::None(Refusal::LongHolds)).map(help);
        let more = Some("they asked for the lock later and got it first");
        return Some(WaitPattern { what: overtaken(w), more, help });
    }
    let longest = w.holders.first().filter(|h| h.of_wait_ns > w.wait_ns / 2)?;
    let never = if longest.unfinished { " and never released it" } else { "" };
    let holder = thread(longest.tid, &longest.thread);
    let what = format!("One hold took {} of the wait: {holder} held it{never}", nanoseconds(longest.of_wait_ns));
    Some(WaitPattern { what, more: None, help: remedy.map(help) })
}

fn overtaken(w: &WaitRow) -> String {
    let this = match w.operation {
        op if op.contains("wrlock") => "writer",
        op if op.contains("rdlock") => "reader",
        _ => return format!("Others overtook this thread {} times", count(w.overtaken)),
    };
    let (readers, writers) = (w.overtaken_by_readers, w.overtaken.saturating_sub(w.overtaken_by_readers));
    let some = [(readers, "reader"), (writers, "writer")].into_iter().filter(|(n, _)| *n > 0);
    let some: Vec<String> = some.map(|(n, what)| of(n, what)).collect();
    format!("{} overtook this {this}", some.join(" and "))
}

fn help(remedy: Remedy) -> String {
    match remedy {
        Remedy::Policy(policy) => {
            let effect = match policy {
                Policy::Pi => "the holder then runs at the priority of the thread that waits",
                Policy::Ticket => "the mutex then goes to threads in the order in which they asked",
                Policy::PhaseFair => "a writer then waits only for the readers that are inside when it asks",
            };
            format!("`doorbell run --lock-policy {}` helps: {effect}", policy.name())
        }
        Remedy::None(Refusal::LongHolds) => "No lock policy shortens a hold".into(),
        Remedy::None(refusal) => format!("No lock policy helps: {refusal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::locks::{HolderRow, LockRow};

    fn wait(lock: &str, operation: &'static str, overtaken: u64, by_readers: u64, longest_ns: u64) -> WaitRow {
        let holder = HolderRow { tid: 2, thread: "launches".into(), of_wait_ns: longest_ns, ..HolderRow::default() };
        WaitRow {
            tid: 1,
            lock: lock.into(),
            operation,
            wait_ns: 5_000_000_000,
            holds: overtaken + 3,
            overtaken,
            overtaken_by_readers: by_readers,
            holders: vec![holder],
            ..WaitRow::default()
        }
    }

    fn lines(w: &WaitRow, longest_hold_ns: u64) -> String {
        let name = w.lock.split('#').next().unwrap_or_default().to_owned();
        let row = LockRow {
            name,
            contended: 1,
            wait_ns: w.wait_ns,
            longest_wait_ns: w.wait_ns,
            longest_hold_ns: Some(longest_hold_ns),
            ..LockRow::default()
        };
        let locks = Locks { recorded: true, locks: vec![row], ..Locks::default() };
        wait_pattern(w, &locks).map_or("nothing".into(), |p| p.lines().join(" "))
    }

    #[test]
    fn a_starved_writer_is_told_who_overtook_it_and_what_helps() {
        let starved = wait("a+0x1/rwlock#2", "rwlock_wrlock", 70_812, 70_812, 10_700_000);
        assert_eq!(
            lines(&starved, 23_000_000),
            "70,812 readers overtook this writer: they asked for the lock later and got it first. `doorbell run --lock-policy \
             phase-fair` helps: a writer then waits only for the readers that are inside when it asks."
        );
        let mixed = wait("a+0x1/rwlock", "rwlock_wrlock", 30, 29, 10);
        assert!(lines(&mixed, 10).starts_with("29 readers and 1 writer overtook this writer: "));
        let mutex = wait("a+0x1/mutex", "mutex_lock", 1_234, 0, 10);
        let said = lines(&mutex, 10);
        assert!(said.starts_with("Others overtook this thread 1,234 times: ") && said.contains("ticket"), "{said}");
        // Because of a long hold at another time the plan refuses; the wait does not mention that.
        assert!(!lines(&mutex, 4_000_000_000).contains("policy"));
    }

    #[test]
    fn a_long_hold_is_named_and_no_policy_with_it() {
        let long = wait("a+0x1/mutex", "mutex_lock", 0, 0, 4_900_000_000);
        assert_eq!(
            lines(&long, 4_900_000_000),
            "One hold took 4.90 s of the wait: thread 2 (launches) held it. No lock policy shortens a hold."
        );
        // A few in turn are neither.
        assert_eq!(lines(&wait("a+0x1/mutex", "mutex_lock", 5, 0, 2_000_000_000), 10), "nothing");
    }
}
