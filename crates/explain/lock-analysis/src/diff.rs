//! Compares two tapes' locks: the same program under two drivers, or with and without a policy.
//!
//! It compares the pattern: which locks there are, how often each function was called on them, in which order they
//! nest. Counts within the [`Tolerance`] are equal. Times differ from run to run: they are reported, never judged.

use schema::cuda_calls::{CallRow, PatternRow};
use schema::diff::{Both, CallDiff, Change, Diff, LockDiff, OrderDiff, Tolerance};
use schema::locks::{LockRow, Locks, OrderRow};
use std::collections::{BTreeMap, BTreeSet};

/// Compares two recordings.
pub fn diff(a: &Locks, b: &Locks, tolerance: Tolerance) -> Diff {
    let moved = moved(a, b, tolerance);
    let second: BTreeMap<&str, &LockRow> = b.locks.iter().map(|r| (r.name.as_str(), r)).collect();
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    let mut locks: Vec<LockDiff> = Vec::new();
    for row in &a.locks {
        let to = moved.get(row.name.as_str()).copied();
        let other = second.get(to.unwrap_or(&row.name)).copied();
        taken.extend(other.map(|o| o.name.as_str()));
        locks.push(lock(Some(row), other, to.map(Into::into), tolerance));
    }
    let new = b.locks.iter().filter(|r| !taken.contains(r.name.as_str()));
    locks.extend(new.map(|row| lock(None, Some(row), None, tolerance)));
    locks.sort_by(|x, y| rank(x).cmp(&rank(y)).then_with(|| x.name.cmp(&y.name)));
    let order = order(a, b, &moved, tolerance);
    let calls = calls(a, b, &moved, tolerance);
    let same = |c: Change| c == Change::Same;
    let sum = |l: &Locks, of: fn(&LockRow) -> u64| l.locks.iter().fold(0u64, |n, r| n.saturating_add(of(r)));
    let both = |of: fn(&LockRow) -> u64| (sum(a, of), sum(b, of));
    let longest = |l: &Locks| l.waits.first().map_or(0, |w| w.wait_ns);
    Diff {
        equal: locks.iter().all(|l| same(l.change))
            && order.iter().all(|o| same(o.change))
            && calls.iter().all(|c| same(c.change)),
        tolerance,
        operations: both(|r| r.operations.values().sum()),
        contended: (a.contended, b.contended),
        wait_ns: both(|r| if r.contended > 0 { r.wait_ns } else { 0 }),
        longest_wait_ns: (longest(a), longest(b)),
        locks,
        order,
        calls,
    }
}

/// For sorting: changes first, and of those the largest.
fn rank(l: &LockDiff) -> (bool, std::cmp::Reverse<u64>) {
    (l.change == Change::Same, std::cmp::Reverse(l.all_operations.0.abs_diff(l.all_operations.1)))
}

fn lock(a: Option<&LockRow>, b: Option<&LockRow>, moved_to: Option<String>, tolerance: Tolerance) -> LockDiff {
    let both = |of: fn(&LockRow) -> u64| (a.map_or(0, of), b.map_or(0, of));
    let names: BTreeSet<&'static str> = a.iter().chain(b.iter()).flat_map(|r| r.operations.keys().copied()).collect();
    let count = |r: Option<&LockRow>, op: &str| r.and_then(|r| r.operations.get(op)).copied().unwrap_or(0);
    let operations: BTreeMap<&'static str, Both> = names
        .into_iter()
        .map(|op| (op, (count(a, op), count(b, op))))
        .filter(|(_, (x, y))| !tolerance.equal(*x, *y))
        .collect();
    let attributes = |r: Option<&LockRow>| r.map_or_else(Vec::new, |r| r.attributes.clone());
    let attributes = (attributes(a), attributes(b));
    let change = match (a, b) {
        // (One that is hardly used may be used by chance.)
        _ if operations.is_empty() && (a.is_none() || b.is_none()) => Change::Same,
        (None, _) => Change::New,
        (_, None) => Change::Gone,
        _ if operations.is_empty() && attributes.0 == attributes.1 => Change::Same,
        _ => Change::Changed,
    };
    LockDiff {
        change,
        name: a.or(b).map_or_else(String::new, |r| r.name.clone()),
        moved_to,
        operations,
        attributes,
        all_operations: both(|r| r.operations.values().sum()),
        contended: both(|r| r.contended),
        wait_ns: both(|r| r.wait_ns),
        longest_wait_ns: both(|r| r.longest_wait_ns),
        longest_hold_ns: both(|r| r.longest_hold_ns.unwrap_or(0)),
    }
}

/// Module and class of a name: `libcuda+0x12/mutex` is `("libcuda", "mutex")`.
fn kin(name: &str) -> Option<(&str, &str)> {
    Some((name.split_once('+')?.0, name.rsplit_once('/')?.1))
}

/// Names of the first tape that the second lacks, with the name that is used there in the same way: another version of
/// a library has the same locks in other places. Only where exactly one lock of the same module and kind fits.
fn moved<'a>(a: &'a Locks, b: &'a Locks, tolerance: Tolerance) -> BTreeMap<&'a str, &'a str> {
    let names = |l: &'a Locks| -> BTreeSet<&'a str> { l.locks.iter().map(|r| r.name.as_str()).collect() };
    let (first, second) = (names(a), names(b));
    let gone: Vec<&LockRow> = a.locks.iter().filter(|r| !second.contains(r.name.as_str())).collect();
    let new: Vec<&LockRow> = b.locks.iter().filter(|r| !first.contains(r.name.as_str())).collect();
    let fits = |x: &LockRow, y: &LockRow| {
        let ops = x.operations.keys().chain(y.operations.keys());
        let count = |r: &LockRow, op: &str| r.operations.get(op).copied().unwrap_or(0);
        let used = x.operations.values().sum::<u64>() > tolerance.floor;
        used && kin(&x.name).is_some()
            && kin(&x.name) == kin(&y.name)
            && x.attributes == y.attributes
            && x.named_by == y.named_by
            && tolerance.equal(x.instances, y.instances)
            && ops.into_iter().all(|op| tolerance.equal(count(x, op), count(y, op)))
    };
    let mut out = BTreeMap::new();
    for x in &gone {
        let mut there = new.iter().filter(|y| fits(x, y));
        if let (Some(y), None) = (there.next(), there.next())
            && gone.iter().filter(|z| fits(z, y)).count() == 1
        {
            out.insert(x.name.as_str(), y.name.as_str());
        }
    }
    out
}

fn order(a: &Locks, b: &Locks, moved: &BTreeMap<&str, &str>, tolerance: Tolerance) -> Vec<OrderDiff> {
    let back: BTreeMap<&str, &str> = moved.iter().map(|(x, y)| (*y, *x)).collect();
    let key = |o: &OrderRow, names: Option<&BTreeMap<&str, &str>>| {
        let name = |n: &str| names.and_then(|m| m.get(n)).map_or(n, |n| n).to_owned();
        (name(&o.held), name(&o.taken))
    };
    let mut rows: BTreeMap<(String, String), Both> = BTreeMap::new();
    for o in &a.order {
        rows.entry(key(o, None)).or_default().0 += o.count;
    }
    for o in &b.order {
        rows.entry(key(o, Some(&back))).or_default().1 += o.count;
    }
    let mut out: Vec<OrderDiff> = rows
        .into_iter()
        .map(|((held, taken), count)| OrderDiff { change: change(count, tolerance), held, taken, count })
        .collect();
    out.sort_by_key(|o| (o.change == Change::Same, std::cmp::Reverse(o.count.0.abs_diff(o.count.1))));
    out
}

fn change(count: Both, tolerance: Tolerance) -> Change {
    match count {
        (x, y) if tolerance.equal(x, y) => Change::Same,
        (0, _) => Change::New,
        (_, 0) => Change::Gone,
        _ => Change::Changed,
    }
}

fn calls(a: &Locks, b: &Locks, moved: &BTreeMap<&str, &str>, tolerance: Tolerance) -> Vec<CallDiff> {
    let (Some(first), Some(second)) = (&a.calls, &b.calls) else { return Vec::new() };
    let back: BTreeMap<&str, &str> = moved.iter().map(|(x, y)| (*y, *x)).collect();
    let none = BTreeMap::new();
    /// The rows of one kind on both tapes.
    type Two<'a> = [Option<&'a CallRow>; 2];
    let mut rows: BTreeMap<_, Two<'_>> = BTreeMap::new();
    for (i, calls) in [first, second].into_iter().enumerate() {
        for r in &calls.calls {
            rows.entry((r.call.as_str(), r.direction, r.size)).or_default()[i] = Some(r);
        }
    }
    let mut out: Vec<CallDiff> = rows
        .into_values()
        .filter_map(|[x, y]| {
            let any = x.or(y)?;
            let both = |of: fn(&CallRow) -> u64| (x.map_or(0, of), y.map_or(0, of));
            let count = both(|r| r.total.calls);
            let patterns = match (x, y) {
                (Some(x), Some(y)) => Some((pattern(x, &none), pattern(y, &back))).filter(|(x, y)| x != y),
                _ => None,
            };
            let change = match change(count, tolerance) {
                Change::Same if patterns.is_some() && count.0.min(count.1) > tolerance.floor => Change::Changed,
                c => c,
            };
            Some(CallDiff {
                change,
                call: any.call.clone(),
                direction: any.direction,
                size: any.size,
                count,
                mean_ns: both(|r| r.total.mean_ns),
                max_ns: both(|r| r.max_ns),
                waited: both(|r| (r.total.wait_ns as f64 * 1000.0 / r.total.ns.max(1) as f64) as u64),
                pattern: patterns,
            })
        })
        .collect();
    out.sort_by_key(|c| (c.change == Change::Same, std::cmp::Reverse(c.count.0.max(c.count.1))));
    out
}

/// The most frequent pattern of the calls, a line a lock, nested ones indented.
fn pattern(r: &CallRow, names: &BTreeMap<&str, &str>) -> Vec<String> {
    let line = |p: &PatternRow| {
        let lines = p.locks.iter().map(|l| {
            let name = names.get(l.lock.as_str()).copied().unwrap_or(&l.lock);
            let failed = if l.failed { ", not got" } else { "" };
            format!("{}{name} {}{failed}", "  ".repeat(l.depth.into()), l.mode)
        });
        lines.collect()
    };
    r.patterns.first().map_or_else(Vec::new, line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::cuda_calls::{Calls, ElementRow, Total};

    const T: Tolerance = Tolerance { percent: 5.0, floor: 10 };

    fn row(name: &str, locks: u64) -> LockRow {
        let operations = BTreeMap::from([("mutex_lock", locks), ("mutex_unlock", locks)]);
        LockRow { name: name.into(), named_by: "made", instances: 1, operations, ..LockRow::default() }
    }

    fn edge(held: &str, taken: &str, count: u64) -> OrderRow {
        let (held, taken) = (held.into(), taken.into());
        OrderRow { held, taken, count, held_site: String::new(), taken_site: String::new(), tids: vec![] }
    }

    fn locks(rows: Vec<LockRow>, order: Vec<OrderRow>) -> Locks {
        Locks { recorded: true, locks: rows, order, ..Locks::default() }
    }

    #[test]
    fn counts_within_the_tolerance_are_equal() {
        for (a, b, equal) in [(0, 10, true), (0, 11, false), (1000, 1050, true), (1000, 1100, false), (5, 5, true)] {
            assert_eq!((T.equal(a, b), T.equal(b, a)), (equal, equal), "{a} {b}");
        }
        assert!(!Tolerance { percent: 0.0, floor: 0 }.equal(7, 8));
    }

    #[test]
    fn what_is_new_gone_or_changed_is_told() {
        let a = locks(vec![row("x+0x1/mutex", 100), row("x+0x2/mutex", 1000), row("x+0x3/mutex", 5000)], vec![]);
        let b = locks(vec![row("x+0x2/mutex", 2000), row("x+0x3/mutex", 5001), row("y+0x9/mutex", 40)], vec![]);
        let d = diff(&a, &b, T);
        let told: Vec<_> = d.locks.iter().map(|l| (l.name.as_str(), l.change, l.all_operations)).collect();
        let expected = [
            ("x+0x2/mutex", Change::Changed, (2000, 4000)),
            ("x+0x1/mutex", Change::Gone, (200, 0)),
            ("y+0x9/mutex", Change::New, (0, 80)),
            ("x+0x3/mutex", Change::Same, (10_000, 10_002)),
        ];
        assert_eq!(told, expected);
        assert!(!d.equal);
        assert_eq!(d.locks[0].operations["mutex_lock"], (1000, 2000));
        assert!(diff(&a, &a, Tolerance { percent: 0.0, floor: 0 }).equal);
    }

    #[test]
    fn a_library_of_another_version_has_its_locks_elsewhere() {
        let a = locks(
            vec![row("libx+0x1/mutex", 500), row("libx+0x2/mutex", 90), row("libx+0x7/mutex", 90)],
            vec![edge("libx+0x1/mutex", "libx+0x2/mutex", 70)],
        );
        let mut b = locks(
            vec![row("libx+0x11/mutex", 505), row("libx+0x12/mutex", 90), row("libx+0x13/mutex", 91)],
            vec![edge("libx+0x11/mutex", "libx+0x12/mutex", 70)],
        );
        let d = diff(&a, &b, T);
        let moved: Vec<_> = d.locks.iter().filter_map(|l| Some((l.name.as_str(), l.moved_to.as_deref()?))).collect();
        // The other two could be either.
        assert_eq!(moved, [("libx+0x1/mutex", "libx+0x11/mutex")]);
        assert!(!d.equal);
        b.locks.truncate(1);
        b.order.clear();
        let a = locks(vec![row("libx+0x1/mutex", 500)], vec![]);
        assert!(diff(&a, &b, T).equal, "moved and otherwise the same");
        b.locks[0].attributes = vec!["priority inheritance"];
        b.locks[0].name = "libx+0x1/mutex".into();
        assert_eq!(diff(&a, &b, T).locks[0].change, Change::Changed, "another protocol");
    }

    #[test]
    fn calls_are_compared_by_what_most_of_them_do() {
        let call = |n: u64, locks: &[(&str, u8)]| {
            let element = |(lock, depth): &(&str, u8)| ElementRow {
                lock: (*lock).into(),
                mode: "mutex",
                depth: *depth,
                failed: false,
                again: false,
                times: 1.0,
                at_ns: 0,
                wait_ns: 0,
                hold_ns: 0,
            };
            let pattern = PatternRow { calls: n, mean_ns: 5, locks: locks.iter().map(element).collect() };
            CallRow {
                call: "cudaLaunchKernel".into(),
                kind: "launch",
                direction: None,
                size: None,
                total: Total { calls: n, ns: 5 * n, mean_ns: 5, wait_ns: n, ..Total::default() },
                p50_ns: 5,
                p99_ns: 5,
                max_ns: 5,
                histogram: Vec::new(),
                max_at: 0.0,
                max_tsc: 0,
                max_process: 0,
                max_tid: 1,
                python: None,
                holds_others: None,
                patterns: vec![pattern],
                other_patterns: 0,
            }
        };
        let tape = |name: &str, c: CallRow| {
            let calls = Some(Calls { calls: vec![c], ..Calls::default() });
            Locks { calls, ..locks(vec![row(name, 500)], vec![]) }
        };
        let a = tape("l+0x1/mutex", call(100, &[("l+0x1/mutex", 0), ("m/mutex", 1)]));
        let moved = tape("l+0x9/mutex", call(103, &[("l+0x9/mutex", 0), ("m/mutex", 1)]));
        assert!(diff(&a, &moved, T).equal, "another place and otherwise the same");
        let b = tape("l+0x1/mutex", call(100, &[("l+0x1/mutex", 0), ("m/mutex", 0)]));
        let d = diff(&a, &b, T);
        let c = &d.calls[0];
        assert_eq!((d.equal, c.change, c.count, c.waited), (false, Change::Changed, (100, 100), (200, 200)));
        let (x, y) = c.pattern.as_ref().unwrap();
        assert_eq!((x[1].as_str(), y[1].as_str()), ("  m/mutex mutex", "m/mutex mutex"));
        assert_eq!(diff(&a, &tape("l+0x1/mutex", call(300, &[])), T).calls[0].change, Change::Changed);
        // Calls on one tape only are not judged.
        assert!(diff(&a, &Locks { calls: None, ..a.clone() }, T).equal);
    }

    #[test]
    fn orders_are_compared_under_the_names_of_the_first_tape() {
        let a = locks(vec![row("l+0x1/mutex", 500)], vec![edge("l+0x1/mutex", "m/mutex", 70), edge("p", "q", 3)]);
        let b = locks(vec![row("l+0x9/mutex", 500)], vec![edge("l+0x9/mutex", "m/mutex", 71), edge("q", "p", 50)]);
        let d = diff(&a, &b, T);
        let told: Vec<_> = d.order.iter().map(|o| (o.held.as_str(), o.taken.as_str(), o.change, o.count)).collect();
        let expected = [
            ("q", "p", Change::New, (0, 50)),
            ("p", "q", Change::Same, (3, 0)),
            ("l+0x1/mutex", "m/mutex", Change::Same, (70, 71)),
        ];
        assert_eq!(told, expected);
    }
}
