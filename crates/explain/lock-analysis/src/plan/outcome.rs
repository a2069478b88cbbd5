//! The results of a run, from the board, as text.

use std::fmt::Write;
use std::sync::atomic::{AtomicU8, Ordering};
use tape::policy::{Board, EVENTS, class, protocol, why};

/// The report: lines of text.
pub fn text(b: &Board) -> String {
    let mut out = String::new();
    let _ = match b.state.load(Ordering::Acquire) {
        0 => writeln!(out, "doorbell: no lock was changed: the program did not load the agent"),
        2 => writeln!(out, "doorbell: no lock was changed: DOORBELL_LOCK_POLICY=off"),
        _ => Ok(()),
    };
    for (name, n) in protocol::NAMES.iter().zip(&b.given).skip(1) {
        let n = n.load(Ordering::Relaxed);
        if n != 0 {
            let _ = writeln!(out, "doorbell: {} under {name}", of(n, "lock"));
        }
    }
    for (reason, n) in b.refused.iter().enumerate() {
        let n = n.load(Ordering::Relaxed);
        // (Reasons that concern the whole process are among the events.)
        if n == 0 || why::OF_PROCESS.iter().any(|&r| usize::from(r) == reason) {
            continue;
        }
        let text = why::TEXT[reason];
        let whose = if n == 1 { "its" } else { "their" };
        let verb = if reason == usize::from(why::FOREIGN_UNLOCK) { "went back to" } else { "kept" };
        let _ = writeln!(out, "doorbell: {n} {verb} {whose} own protocol: {text}");
    }
    let foreign = b.foreign.load(Ordering::Relaxed);
    if foreign != 0 {
        let _ = writeln!(out, "doorbell: {} by threads that did not own the mutex", of(foreign, "unlock"));
    }
    let (raised, restored, no) = (&b.raised, &b.restored, &b.raise_refused);
    let (raised, restored, no) =
        (raised.load(Ordering::Relaxed), restored.load(Ordering::Relaxed), no.load(Ordering::Relaxed));
    if raised + no != 0 {
        let _ = writeln!(
            out,
            "doorbell: holders raised {}, restored {}, refused by the kernel {}",
            of(raised, "time"),
            of(restored, "time"),
            of(no, "time")
        );
    }
    guard(b, &mut out);
    events(b, &mut out);
    if out.is_empty() {
        out.push_str(
            "doorbell: nothing was changed: the program used no lock, and made no call, that a policy is for\n",
        );
    }
    out
}

/// A count with its noun.
fn of(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

fn guard(b: &Board, out: &mut String) {
    if b.guard == 0 {
        return;
    }
    let [calls, waited, gave_up, sum, longest] =
        [&b.guarded, &b.guard_waited, &b.guard_gave_up, &b.guard_wait_ns, &b.guard_longest_ns]
            .map(|n| n.load(Ordering::Relaxed));
    let _ = write!(out, "doorbell: {} through the guard, {waited} waited for it", of(calls, "CUDA call"));
    if waited != 0 {
        let us = |ns: u64| ns as f64 / 1e3;
        let _ = write!(out, ": {:.1} us on average, {:.1} us at most", us(sum) / waited as f64, us(longest));
    }
    let _ = match gave_up {
        0 => writeln!(out),
        n => writeln!(out, "; {n} went on without it after a second"),
    };
}

fn events(b: &Board, out: &mut String) {
    for e in &b.events {
        let what = e.what.load(Ordering::Acquire);
        let Some(text) = usize::from(what).checked_sub(1).and_then(|i| why::TEXT.get(i)) else { continue };
        let lock = if e.class.load(Ordering::Relaxed) == class::MUTEX { "mutex" } else { "rwlock" };
        let module = name(&e.module);
        let (offset, addr) = (e.offset.load(Ordering::Relaxed), e.addr.load(Ordering::Relaxed));
        let place = if module.is_empty() { format!("{offset:#x}") } else { format!("{module}+{offset:#x}") };
        let tid = e.tid.load(Ordering::Relaxed);
        let wanted = protocol::NAMES.get(usize::from(e.policy.load(Ordering::Relaxed))).unwrap_or(&"?");
        if why::OF_PROCESS.contains(&(what - 1)) {
            let _ = writeln!(out, "doorbell: no {lock} follows {wanted}: {text}");
            continue;
        }
        let _ = writeln!(out, "doorbell: {place}/{lock} at {addr:#x}, {wanted}, thread {tid}: {text}");
    }
    if b.events_total.load(Ordering::Relaxed) as usize > EVENTS {
        let _ = writeln!(out, "doorbell: the first {EVENTS} of these were kept");
    }
}

fn name(bytes: &[AtomicU8]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|b| b.load(Ordering::Relaxed)).take_while(|&b| b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_changed_nothing_says_so_in_one_line() {
        // SAFETY: a Board of zeros is valid: numbers and atomics only.
        let b: Box<Board> = unsafe { Box::new_zeroed().assume_init() };
        b.state.store(1, Ordering::Relaxed);
        let text = text(&b);
        assert!(text.starts_with("doorbell: nothing was changed: ") && text.lines().count() == 1, "{text}");
    }

    #[test]
    fn one_is_singular() {
        // SAFETY: a Board of zeros is valid: numbers and atomics only.
        let mut b: Box<Board> = unsafe { Box::new_zeroed().assume_init() };
        b.guard = 1;
        b.state.store(1, Ordering::Relaxed);
        b.given[usize::from(protocol::PI)].store(1, Ordering::Relaxed);
        b.given[usize::from(protocol::TICKET)].store(2, Ordering::Relaxed);
        b.refused[usize::from(why::SHARED)].store(1, Ordering::Relaxed);
        b.guarded.store(1, Ordering::Relaxed);
        let text = text(&b);
        for line in ["1 lock under pi\n", "2 locks under ticket\n", "1 kept its own protocol", "1 CUDA call through"] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
