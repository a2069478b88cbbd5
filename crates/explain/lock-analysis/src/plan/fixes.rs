//! Fixes by name, and what they did.

use crate::plan::{Error, Plan};
use std::fmt::Write;
use std::sync::atomic::Ordering;
use tape::fix::{self, Fixes, Why};
use tape::policy::protocol;

pub const HINT: &str = "fixes: pins, copies, pages, code, memory, locks (mutexes with priority inheritance, rwlocks in phases); --fix alone means pins; \
                        or a plan: a file that ends in .toml";

/// The bits of fixes by their names; or the name that is none.
pub(crate) fn bits(list: &str) -> Result<u32, String> {
    Fixes::bits(list.as_bytes()).map_err(|name| String::from_utf8_lossy(name).into_owned())
}

/// The plan of a list of names with commas between them.
pub(crate) fn of_names(list: &str) -> Result<Plan, Error> {
    let mut plan = Plan::of_names("stock")?;
    let (locks, fixes): (Vec<&str>, Vec<&str>) =
        list.split(',').map(str::trim).partition(|name| name.eq_ignore_ascii_case("locks"));
    if !locks.is_empty() {
        (plan.mutex, plan.rwlock) = (protocol::PI, protocol::PHASE_FAIR);
    }
    if !fixes.is_empty() {
        plan.fixes = bits(&fixes.join(",")).map_err(|name| Error::Fixes { list: list.into(), name })?;
    }
    Ok(plan)
}

/// The lines of the report.
pub fn text(fixes: &Fixes) -> String {
    let mut out = String::new();
    for (i, count) in fixes.counts.iter().enumerate() {
        if fixes.wanted >> i & 1 == 0 {
            continue;
        }
        let name = fix::NAMES[i];
        let answered = count.answered.load(Ordering::Relaxed);
        let bytes = count.bytes.load(Ordering::Relaxed);
        let answered = numbers::of(answered, "call");
        let _ = writeln!(out, "doorbell: {name}: {answered} answered, {}", numbers::bytes(bytes));
        for (n, why) in count.passed_on.iter().zip(Why::TEXT) {
            let n = n.load(Ordering::Relaxed);
            if n != 0 {
                let _ = writeln!(out, "doorbell: {name}: {n} passed on: {why}");
            }
        }
        match count.turned_off.load(Ordering::Relaxed) {
            0 => {}
            // (The agent has no other result for it: NOT_READY.)
            601 if 1 << i == fix::CODE => {
                let _ = writeln!(out, "doorbell: {name} turned itself off: doorbell's compiler gave no answer");
            }
            fix::SHARED => {
                let _ = writeln!(
                    out,
                    "doorbell: {name} turned itself off: the program shares such memory, so start it without --fix={name}"
                );
            }
            result => {
                let _ = writeln!(out, "doorbell: {name} turned itself off: a step had the result {}", result - 1);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bits_in_any_order_and_case() {
        let fixes = |list: &str| of_names(list).unwrap().fixes;
        assert_eq!((fixes("pins"), fixes("Copies, pins")), (fix::PINS, fix::PINS | fix::COPIES));
        assert!(of_names("pins").unwrap().leaves_locks_alone());
        let locks = of_names("locks,pins").unwrap();
        assert_eq!((locks.fixes, locks.mutex, locks.rwlock), (fix::PINS, protocol::PI, protocol::PHASE_FAIR));
        let plan = Plan::parse("fixes = \"pins, copies\"\nmutexes = \"pi\"").unwrap();
        assert_eq!((plan.fixes, plan.mutex), (fix::PINS | fix::COPIES, protocol::PI));
        let wrong = Plan::parse("mutexes = \"pi\"\nfixes = \"pin\"").unwrap_err();
        assert_eq!((wrong.line, wrong.what.as_str()), (2, "there is no fix `pin`"));
        let wrong = of_names("pins,launches").unwrap_err();
        assert_eq!(wrong.to_string(), "--fix pins,launches: there is no fix `launches`");
        assert!(wrong.hint().contains("pins, copies"));
    }
}
