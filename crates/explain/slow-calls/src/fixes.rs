//! What `run --fix` would have saved: the time for which calls waited for locks that a thread held in a call that a fix answers.

use lock_analysis::labels::function_name;
use schema::slow_calls::{Cause, FixRow, LinkRow, PartRow, SlowCall};
use std::collections::BTreeSet;
use tape::fix;

/// The shortest time, in nanoseconds, for which a call holds others up that a fix answers. A load that takes less loads compiled code: CUDA compiles one kernel in
/// 10 ms, and loads 400 compiled ones in 3. Less memory of the GPU than is answered holds others up for 0.2 ms at most (an H200, docs/results/holds.md).
fn least_ns(number: usize) -> u64 {
    match 1 << number {
        fix::CODE => 5_000_000,
        fix::MEMORY => 200_000,
        _ => 0,
    }
}

/// The threads that held the locks that a call waited for, if they were in a call that a fix answers, and that fix.
fn held(part: &PartRow) -> impl Iterator<Item = (usize, &LinkRow)> {
    let rows = part.of.iter().filter(|_| part.cause == Cause::Lock);
    rows.filter_map(|row| {
        // (The others in the chain wait for the last one.)
        let link = row.because.iter().rev().find(|link| link.how == "held")?;
        let number = fix::of_call(link.call.as_deref()?)?;
        (link.ns > least_ns(number)).then_some((number, link))
    })
}

/// The calls of `shares` that would have other results with this fix.
fn not_with(number: usize, shares: &BTreeSet<u16>) -> Vec<String> {
    shares.iter().filter(|_| 1 << number == fix::MEMORY).map(|function| function_name(*function)).collect()
}

/// What to do about a call that lost most of its time to such a lock, and how long that was, in nanoseconds.
pub(crate) fn advice(parts: &[PartRow], cause: Option<Cause>, shares: &BTreeSet<u16>) -> Option<(String, u64)> {
    let its = parts.iter().filter(|part| Some(part.cause) == cause);
    let helps = |(number, _): &(usize, &LinkRow)| not_with(*number, shares).is_empty();
    let (number, link) = its.flat_map(held).filter(helps).max_by_key(|(_, link)| link.ns)?;
    let (name, call) = (fix::NAMES.get(number)?, link.call.as_deref()?);
    let does = match 1 << number {
        fix::CODE => format!("has the code of {call} compiled by another process first"),
        _ => format!("answers {call} without that lock"),
    };
    let text = format!("`doorbell run --fix={name}` {does}, in the unchanged program");
    Some((text, link.ns))
}

/// What each fix would have saved of these calls.
pub(crate) fn savings(calls: &[SlowCall], shares: &BTreeSet<u16>) -> Vec<FixRow> {
    let row = |number| FixRow {
        fix: fix::NAMES[number],
        calls: 0,
        ns: 0,
        longest_ns: 0,
        answers: Vec::new(),
        not_with: not_with(number, shares),
    };
    let mut all: [FixRow; fix::COUNT] = std::array::from_fn(row);
    for (number, link) in calls.iter().flat_map(|call| &call.parts).flat_map(held) {
        let Some(row) = all.get_mut(number) else { continue };
        row.calls += 1;
        row.ns = row.ns.saturating_add(link.ns);
        row.longest_ns = row.longest_ns.max(link.ns);
        row.answers.extend(link.call.clone().filter(|name| !row.answers.contains(name)));
    }
    all.into_iter().filter(|row| row.calls > 0).collect()
}
